/* SPDX-License-Identifier: Apache-2.0 */
/* The usual call of a model in C: `Caller.run` does for arrays of numpy that have the right types what `Context.run`
 * context.py does, in a tenth of its time, and leaves every other call to it. Inputs and results may be texts too,
 * sequences (lists of arrays) and optionals (None or what they hold), results maps and sequences of maps.
 *
 * Arrays are read through the buffer protocol, and only what is in Python's stable interface is used, so that one
 * binary serves all versions of Python and of numpy. The package works without it. */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <string.h>
#include <structmember.h>

#include "onnxc.h"

_Static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "the sizes of a buffer are dimensions as they are");

typedef struct {
    PyObject *type;     /* of the elements, as numpy has it */
    int32_t number;     /* of the type of an input's elements */
    PyObject *shape;    /* of a result; None where only the run knows it */
    PyObject *expected; /* the shape of one whose shape follows from those of inputs, for such as were last; or NULL */
    Py_ssize_t bytes;   /* of a result of the known or expected shape */
    PyObject *spares[2]; /* memory of the last large results, for the next when no array looks there any more */
    Py_ssize_t room[2]; /* bytes of these */
    const char *format; /* of an input's elements in the buffer protocol */
    int32_t kind, held; /* of an input; held: the kind of what an optional holds */
    int32_t rank;       /* of an input; -1: any, as of what is no tensor */
} Port;

/* What a call borrows of an input, or of an item in it, to be given back; zero when there is nothing. */
typedef struct Lent {
    Py_buffer view;     /* of an array */
    PyObject **texts;   /* of an array of texts, whose UTF-8 they keep; or NULL */
    struct Lent *items; /* of a sequence or optional, with their structs in the same memory; or NULL */
    Py_ssize_t count;   /* of texts or items */
} Lent;

typedef struct {
    PyObject_HEAD
    PyObject *arguments;           /* of `Caller`, which has all that is borrowed here */
    PyObject *array_type, *empty, *block, *own;
    const onnxc_model *model;
    onnxc_context *context;
    Py_ssize_t input_count, output_count;
    Port *ports;         /* of the inputs, then of the outputs */
    onnxc_value *values; /* of the inputs */
    onnxc_value *results; /* of the outputs, which are the context's */
    Lent *lent;          /* of the inputs of the call under way */
    Py_ssize_t large;    /* bytes from which on a result is not copied */
    Py_ssize_t most;     /* bytes that may be kept for results */
    Py_ssize_t kept;     /* bytes that are */
    char stayed;         /* in the last call one was so large: it is where the library has it */
    char expecting;      /* inputs had the shapes in `given`, for which results are expected */
    int64_t *given;      /* the dimensions of all inputs of known ranks, one after the other */
} Caller;

static const int64_t NO_DIMS[1];

/* Maps -------------------------------------------------------------------------------------------- */

/* The keys of the last map, for the next when it has the same. */
typedef struct {
    const void *data;
    int64_t count;
    PyObject *list;
} Keys;

static void *text(const char *data, int64_t length, const char *errors)
{
    return PyUnicode_DecodeUTF8(data, (Py_ssize_t)length, errors);
}

static void drop(void *object)
{
    Py_DecRef(object);
}

static int64_t count_of(const onnxc_value *vector)
{
    return vector->rank == 0 ? 1 : vector->dims[0];
}

/* An element of a vector of keys or values. */
static PyObject *element(const onnxc_value *vector, int64_t k)
{
    switch (vector->dtype) {
    case ONNXC_FLOAT32: return PyFloat_FromDouble(((const float *)vector->data)[k]);
    case ONNXC_FLOAT64: return PyFloat_FromDouble(((const double *)vector->data)[k]);
    case ONNXC_INT64: return PyLong_FromLongLong(((const int64_t *)vector->data)[k]);
    case ONNXC_STRING: {
        const onnxc_string *found = (const onnxc_string *)vector->data + k;
        return text(found->data, found->length, "surrogateescape");
    }
    default: return PyErr_Format(PyExc_TypeError, "no map has elements of type %d", (int)vector->dtype);
    }
}

static int find_keys(Keys *known, const onnxc_value *keys)
{
    const int64_t count = count_of(keys);
    if (known->list != NULL && known->data == keys->data && known->count == count) return 1;
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (int64_t k = 0; list != NULL && k < count; k++) {
        PyObject *key = element(keys, k);
        if (key == NULL || PyList_SetItem(list, (Py_ssize_t)k, key) != 0) Py_CLEAR(list);
    }
    Py_XDECREF(known->list);
    *known = (Keys){keys->data, count, list};
    return list != NULL;
}

static PyObject *map_of(const onnxc_value *map, Keys *known)
{
    const onnxc_value *keys = map->data, *values = keys + 1;
    PyObject *made = find_keys(known, keys) ? PyDict_New() : NULL;
    for (int64_t k = 0; made != NULL && k < known->count; k++) {
        PyObject *value = element(values, k);
        if (value == NULL || PyDict_SetItem(made, PyList_GetItem(known->list, (Py_ssize_t)k), value) != 0)
            Py_CLEAR(made);
        Py_XDECREF(value);
    }
    return made;
}

/* Inputs ------------------------------------------------------------------------------------------ */

static void give_back(Lent *lent)
{
    for (Py_ssize_t k = 0; k < lent->count; k++) {
        if (lent->texts != NULL) Py_DECREF(lent->texts[k]);
        else give_back(&lent->items[k]);
    }
    PyMem_Free(lent->texts);
    PyMem_Free(lent->items);
    PyBuffer_Release(&lent->view);
    lent->texts = NULL;
    lent->items = NULL;
    lent->count = 0;
}

static void give_all_back(const Caller *self)
{
    for (Py_ssize_t k = 0; k < self->input_count; k++) give_back(&self->lent[k]);
}

/* Whether all of an array's objects are texts that have UTF-8, which the struct describes then. */
static int lend_texts(onnxc_value *value, Lent *lent)
{
    const Py_ssize_t count = lent->view.len / (Py_ssize_t)sizeof(PyObject *);
    PyObject *const *objects = lent->view.buf;
    lent->texts = PyMem_Calloc((size_t)count + 1, sizeof(onnxc_string) + sizeof *lent->texts);
    if (lent->texts == NULL) return 0;
    onnxc_string *strings = (onnxc_string *)(lent->texts + count + 1);
    for (Py_ssize_t k = 0; k < count; k++) {
        Py_ssize_t length = 0;
        PyObject *object = objects[k];
        const int is_text = object != NULL && PyUnicode_Check(object);
        const char *data = is_text ? PyUnicode_AsUTF8AndSize(object, &length) : NULL;
        if (data == NULL) {
            PyErr_Clear();
            return 0;
        }
        strings[k] = (onnxc_string){data, length};
        Py_INCREF(object); /* other threads may change the array meanwhile */
        lent->texts[lent->count++] = object;
    }
    value->data = strings;
    value->bytes = (uint64_t)count * sizeof *strings;
    return 1;
}

/* Whether it is an array with elements of the port's type; then the struct describes it. */
static int lend_array(const Caller *self, const Port *port, PyObject *given, onnxc_value *value, Lent *lent)
{
    Py_buffer *view = &lent->view;
    if ((PyObject *)Py_TYPE(given) != self->array_type) return 0;
    if (PyObject_GetBuffer(given, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
        PyErr_Clear();
        return 0;
    }
    if (strcmp(view->format, port->format) != 0) return 0;
    value->rank = view->ndim;
    value->dims = view->ndim ? (const int64_t *)view->shape : NO_DIMS;
    value->data = view->buf;
    value->bytes = (uint64_t)view->len;
    return value->dtype != ONNXC_STRING || lend_texts(value, lent);
}

/* Whether it is of that kind, with arrays of the port's type; then the struct describes it, at which the library looks
 * closer. What is lent is to be given back either way. */
static int lend(const Caller *self, const Port *port, int32_t kind, PyObject *given, onnxc_value *value, Lent *lent)
{
    const int is_list = PyList_CheckExact(given), is_optional = kind == ONNXC_OPTIONAL;
    value->struct_size = sizeof *value;
    value->kind = kind;
    value->dtype = port->number;
    if (kind == ONNXC_TENSOR) return lend_array(self, port, given, value, lent);
    if (!is_optional && !is_list && !PyTuple_CheckExact(given)) return 0;
    const Py_ssize_t count =
        is_optional ? given != Py_None : is_list ? PyList_Size(given) : PyTuple_Size(given);
    lent->items = PyMem_Calloc((size_t)count + 1, sizeof *lent->items + sizeof *value);
    if (lent->items == NULL) return 0;
    onnxc_value *items = (onnxc_value *)(lent->items + count + 1);
    lent->count = count;
    value->rank = 1;
    value->dims = (const int64_t *)&lent->count;
    value->data = items;
    value->bytes = (uint64_t)count * sizeof *items;
    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject *item = is_optional ? given : is_list ? PyList_GetItem(given, k) : PyTuple_GetItem(given, k);
        if (!lend(self, port, is_optional ? port->held : ONNXC_TENSOR, item, &items[k], &lent->items[k])) return 0;
    }
    return 1;
}

/* Whether an input is as its port declares it; then its struct describes it. */
static int lend_input(const Caller *self, PyObject *given, Py_ssize_t number)
{
    const Port *port = &self->ports[number];
    onnxc_value *value = &self->values[number];
    if (!lend(self, port, port->kind, given, value, &self->lent[number])) return 0;
    return port->rank < 0 || value->rank == port->rank;
}

/* Results ----------------------------------------------------------------------------------------- */

/* Memory for a result, an array of bytes: that of an earlier one at which no array looks any more, where it fits. The
 * last two of an output are kept, as many bytes as may be. */
static PyObject *memory(Caller *self, Port *port, Py_ssize_t bytes)
{
    for (int k = 0; k < 2; k++) {
        PyObject *spare = port->spares[k];
        if (spare == NULL || Py_REFCNT(spare) != 1 || port->room[k] < bytes || port->room[k] / 2 > bytes) continue;
        Py_INCREF(spare);
        return spare;
    }
    const Py_ssize_t room = bytes + bytes / 8; /* a decoder's results grow */
    PyObject *made = PyObject_CallFunction(self->block, "n", room);
    if (made == NULL) return NULL;
    if (port->spares[0] != NULL) self->kept -= port->room[0];
    Py_XDECREF(port->spares[0]);
    port->spares[0] = port->spares[1];
    port->room[0] = port->room[1];
    port->spares[1] = NULL;
    if (self->kept + room <= self->most) {
        Py_INCREF(made);
        port->spares[1] = made;
        port->room[1] = room;
        self->kept += room;
    }
    return made;
}

/* A new array of an output's type, to whose memory `value` points. */
static PyObject *new_result(Caller *self, Port *port, PyObject *shape, Py_ssize_t bytes, onnxc_value *value)
{
    Py_buffer view;
    PyObject *array;
    if (bytes < self->large) array = PyObject_CallFunctionObjArgs(self->empty, shape, port->type, NULL);
    else {
        PyObject *place = memory(self, port, bytes);
        if (place == NULL) return NULL;
        array = PyObject_CallFunctionObjArgs(self->array_type, shape, port->type, place, NULL);
        Py_DECREF(place);
    }
    if (array == NULL) return NULL;
    if (PyObject_GetBuffer(array, &view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) != 0) {
        Py_DECREF(array);
        return NULL;
    }
    value->data = view.buf;
    value->capacity = (uint64_t)view.len;
    PyBuffer_Release(&view); /* nobody else has the array yet */
    return array;
}

/* Memory of the library's that an array looks at, and what keeps it. */
typedef struct {
    PyObject_HEAD
    PyObject *owner;
    void *data;
    Py_ssize_t bytes;
} Part;

static PyTypeObject *part_type;

static int part_buffer(Part *self, Py_buffer *view, int flags)
{
    return PyBuffer_FillInfo(view, (PyObject *)self, self->data, self->bytes, 0, flags);
}

static void part_destroy(Part *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    Py_XDECREF(self->owner);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* What an output's value is made into an object of Python's with. */
typedef struct {
    Caller *caller;
    Port *port;
    PyObject *owner; /* of the memory that arrays look at; NULL: all is copied */
    Keys known;
} Making;

/* An array's shape, in front of which is the number of `rows` where these are not 0. */
static PyObject *shape_of(const onnxc_value *tensor, int64_t rows)
{
    const Py_ssize_t first = rows != 0, rank = first + tensor->rank;
    PyObject *shape = PyTuple_New(rank);
    for (Py_ssize_t axis = 0; shape != NULL && axis < rank; axis++) {
        PyObject *size = PyLong_FromLongLong(axis < first ? rows : tensor->dims[axis - first]);
        if (size == NULL || PyTuple_SetItem(shape, axis, size) != 0) Py_CLEAR(shape);
    }
    return shape;
}

static PyObject *looking(const Making *making, PyObject *shape, const onnxc_value *tensor)
{
    Part *part = (Part *)PyType_GenericAlloc(part_type, 0);
    if (part == NULL) return NULL;
    Py_INCREF(making->owner);
    part->owner = making->owner;
    part->data = tensor->data;
    part->bytes = (Py_ssize_t)tensor->bytes;
    PyObject *array =
        PyObject_CallFunctionObjArgs(making->caller->array_type, shape, making->port->type, part, NULL);
    Py_DECREF(part);
    return array;
}

static PyObject *copy_of(const Making *making, PyObject *shape, const onnxc_value *tensor)
{
    const int64_t texts = tensor->dtype == ONNXC_STRING ? (int64_t)(tensor->bytes / sizeof(onnxc_string)) : 0;
    onnxc_value copy = *tensor;
    PyObject *array =
        new_result(making->caller, making->port, shape, texts ? 0 : (Py_ssize_t)tensor->bytes, &copy);
    if (array != NULL && texts != 0) {
        if (making->caller->model->write_texts(tensor->data, texts, text, drop, copy.data) != texts)
            Py_CLEAR(array);
    } else if (array != NULL && tensor->bytes != 0)
        memcpy(copy.data, tensor->data, tensor->bytes);
    return array;
}

static PyObject *array_of(const Making *making, const onnxc_value *tensor)
{
    PyObject *shape = shape_of(tensor, 0), *array = NULL;
    if (shape != NULL) array = (making->owner != NULL ? looking : copy_of)(making, shape, tensor);
    Py_XDECREF(shape);
    return array;
}

enum { FEW = 4 }; /* items of a sequence that are copied one by one, which is quicker then */

/* Whether a sequence's items are tensors of one type and shape, whose copies may be rows of one array. */
static int are_alike(const onnxc_value *items, int64_t count)
{
    if (items->kind != ONNXC_TENSOR || items->dtype == ONNXC_STRING) return 0;
    if (items->rank == 0 || items->rank == ONNXC_MAX_RANK) return 0; /* such rows are no arrays, or have no room */
    for (int64_t k = 1; k < count; k++)
        if (items[k].kind != ONNXC_TENSOR || items[k].dtype != items->dtype || items[k].rank != items->rank
            || memcmp(items[k].dims, items->dims, (size_t)items->rank * sizeof *items->dims) != 0)
            return 0;
    return 1;
}

static PyObject *rows_of(const Making *making, const onnxc_value *items, int64_t count)
{
    const size_t bytes = (size_t)items->bytes;
    onnxc_value copy = *items;
    PyObject *shape = shape_of(items, count), *array = NULL, *rows;
    if (shape != NULL)
        array = new_result(making->caller, making->port, shape, (Py_ssize_t)bytes * (Py_ssize_t)count, &copy);
    Py_XDECREF(shape);
    if (array == NULL) return NULL;
    for (int64_t k = 0; bytes != 0 && k < count; k++)
        memcpy((char *)copy.data + (size_t)k * bytes, items[k].data, bytes);
    rows = PySequence_List(array);
    Py_DECREF(array);
    return rows;
}

/* An array, a dict, a list of these, or None for an optional that holds nothing. */
static PyObject *object_of(Making *making, const onnxc_value *value)
{
    const onnxc_value *items = value->data;
    if (value->kind == ONNXC_TENSOR) return array_of(making, value);
    if (value->kind == ONNXC_MAP) return map_of(value, &making->known);
    const int64_t count = count_of(value);
    if (value->kind == ONNXC_OPTIONAL) {
        if (count != 0) return object_of(making, items);
        Py_RETURN_NONE;
    }
    if (count > FEW && making->owner == NULL && are_alike(items, count)) return rows_of(making, items, count);
    PyObject *made = PyList_New((Py_ssize_t)count);
    for (int64_t k = 0; made != NULL && k < count; k++) {
        PyObject *item = object_of(making, &items[k]);
        if (item == NULL || PyList_SetItem(made, (Py_ssize_t)k, item) != 0) Py_CLEAR(made);
    }
    return made;
}

/* What an output's value is in Python. owner: who keeps the memory that arrays look at; NULL: all is copied. */
static PyObject *made_of(Caller *self, Port *port, const onnxc_value *value, PyObject *owner)
{
    Making making = {self, port, owner, {NULL, 0, NULL}};
    PyObject *made = object_of(&making, value);
    Py_XDECREF(making.known.list);
    return made;
}

PyDoc_STRVAR(MAPS, "maps(address)\n--\n\n"
                   "What the value at an address holds, a map or a sequence of maps, of int64, strings, float32 or\n"
                   "float64: a dict or a list of dicts.");

static PyObject *maps(PyObject *Py_UNUSED(module), PyObject *address)
{
    const Py_ssize_t found = PyLong_AsSsize_t(address);
    return PyErr_Occurred() ? NULL : made_of(NULL, NULL, (const onnxc_value *)found, NULL);
}

enum {
    LOOKED_AT = 8, /* times as many bytes as such an array has are large */
    MANY = 128,    /* items of a sequence, and */
    MUCH = 32,     /* times as many bytes in them as are large, that Python sees sooner in one array */
};

/* Whether a sequence's items are alike and lie at equal distances in one block. */
static int are_even(const onnxc_value *items, int64_t count)
{
    if (!are_alike(items, count)) return 0;
    const uintptr_t step = (uintptr_t)items[1].data - (uintptr_t)items->data;
    for (int64_t k = 2; k < count; k++)
        if ((uintptr_t)items[k].data - (uintptr_t)items[k - 1].data != step) return 0;
    return 1;
}

/* Counts a value's tensors and their bytes; 0 for texts and maps, which are always copied. */
static int weigh(const onnxc_value *value, uint64_t *tensors, uint64_t *bytes)
{
    const onnxc_value *items = value->data;
    if (value->dtype == ONNXC_STRING || value->kind == ONNXC_MAP) return 0;
    if (value->kind == ONNXC_TENSOR) {
        *tensors += 1;
        *bytes += value->bytes;
        return 1;
    }
    for (int64_t k = 0; k < count_of(value); k++)
        if (!weigh(&items[k], tensors, bytes)) return 0;
    return 1;
}

/* What the library allocated for an output: copied and released, or kept where it is while arrays look there. These
 * are quicker made than copies of what is large, unless it is many tensors that are small and no parts of one. */
static PyObject *taken(Caller *self, Py_ssize_t number)
{
    Port *port = &self->ports[self->input_count + number];
    onnxc_value *value = &self->results[number], moved = *value;
    uint64_t tensors = 0, bytes = 0;
    PyObject *made;
    const uint64_t large = (uint64_t)self->large;
    const int is_large = weigh(value, &tensors, &bytes) && bytes >= large;
    const int in_one = is_large && value->kind == ONNXC_SEQUENCE && tensors >= MANY && bytes >= MUCH * large
        && are_even(value->data, count_of(value));
    if (in_one || (is_large && bytes / tensors >= large / LOOKED_AT)) {
        PyObject *owner = PyObject_CallFunction(self->own, "n", number);
        if (owner == NULL) return NULL;
        self->stayed = 1;
        made = in_one ? PyObject_CallMethod(owner, "as_python", NULL) : made_of(self, port, &moved, owner);
        Py_DECREF(owner);
        return made;
    }
    made = made_of(self, port, value, NULL);
    self->model->release(value);
    return made;
}

/* Whether the inputs have the shapes for which results are expected. */
static int as_before(const Caller *self)
{
    const int64_t *given = self->given;
    for (Py_ssize_t k = 0; k < self->input_count; k++) {
        const int32_t rank = self->ports[k].rank;
        if (rank < 0) continue;
        if (memcmp(given, self->values[k].dims, (size_t)rank * sizeof *given) != 0) return 0;
        given += rank;
    }
    return 1;
}

/* Whether a result has the shape that was expected. */
static int as_expected(const Port *port, const onnxc_value *value)
{
    for (int32_t axis = 0; axis < value->rank; axis++)
        if (PyLong_AsLongLong(PyTuple_GetItem(port->expected, axis)) != value->dims[axis]) return 0;
    return PyTuple_Size(port->expected) == value->rank;
}

PyDoc_STRVAR(RUN, "run(values)\n--\n\n"
                  "The results, a list; or the status of a run that failed; or None: nothing was run.");

static PyObject *run(Caller *self, PyObject *given)
{
    const Py_ssize_t inputs = self->input_count, outputs = self->output_count;
    Port *ports = self->ports + inputs;
    onnxc_value *results = self->results;
    const int list = PyList_Check(given), tuple = PyTuple_Check(given);
    if ((list ? PyList_Size(given) : tuple ? PyTuple_Size(given) : -1) != inputs) Py_RETURN_NONE;
    for (Py_ssize_t k = 0; k < inputs; k++) {
        if (lend_input(self, list ? PyList_GetItem(given, k) : PyTuple_GetItem(given, k), k)) continue;
        give_all_back(self);
        Py_RETURN_NONE;
    }
    const int expecting = self->expecting && as_before(self);
    self->stayed = 0;
    PyObject *made = PyList_New(outputs);
    for (Py_ssize_t k = 0; made != NULL && k < outputs; k++) {
        PyObject *shape = ports[k].shape != Py_None ? ports[k].shape : expecting ? ports[k].expected : NULL;
        if (results[k].object != NULL) self->model->release(&results[k]); /* an interrupted call left it */
        results[k].data = NULL;
        results[k].capacity = 0;
        if (shape == NULL) continue;
        PyObject *array = new_result(self, &ports[k], shape, ports[k].bytes, &results[k]);
        if (array == NULL || PyList_SetItem(made, k, array) != 0) Py_CLEAR(made);
    }
    if (made == NULL) {
        give_all_back(self);
        return NULL;
    }
    PyThreadState *state = PyEval_SaveThread();
    const int32_t status =
        self->model->run(self->context, self->values, (int32_t)inputs, results, (int32_t)outputs);
    PyEval_RestoreThread(state);
    give_all_back(self);
    if (status != ONNXC_OK) {
        Py_DECREF(made);
        if (status != ONNXC_BUFFER_TOO_SMALL || !expecting) return PyLong_FromLong(status);
        self->expecting = 0; /* no size of an input says how large it is */
        Py_RETURN_NONE;
    }
    for (Py_ssize_t k = 0; made != NULL && k < outputs; k++) { /* what is left then the next call releases */
        const int lent = expecting && ports[k].expected != NULL;
        if (ports[k].shape != Py_None || (lent && as_expected(&ports[k], &results[k]))) continue;
        PyObject *object = lent ? made_of(self, &ports[k], &results[k], NULL) : taken(self, k);
        if (object == NULL || PyList_SetItem(made, k, object) != 0) Py_CLEAR(made);
    }
    return made;
}

/* Takes over what (type, number of the type, format, kind, held, rank) or (type, shape, bytes) tell of a
 * port. */
static int declare(Caller *self, PyObject *described, Py_ssize_t number, int is_input)
{
    Port *port = &self->ports[number];
    if (!is_input) return PyArg_ParseTuple(described, "OOn", &port->type, &port->shape, &port->bytes);
    self->values[number].struct_size = sizeof(onnxc_value);
    return PyArg_ParseTuple(described, "Oisiii", &port->type, &port->number, &port->format, &port->kind, &port->held,
                            &port->rank);
}

PyDoc_STRVAR(EXPECT, "expect(shapes, results)\n--\n\n"
                     "For inputs of these shapes, a list of tuples of those whose rank is known, results are of\n"
                     "those: (shape or None, bytes) of each.");

static PyObject *expect(Caller *self, PyObject *arguments)
{
    PyObject *shapes, *results;
    self->expecting = 0;
    if (!PyArg_ParseTuple(arguments, "O!O!", &PyList_Type, &shapes, &PyList_Type, &results)) return NULL;
    int64_t *given = self->given;
    for (Py_ssize_t k = 0, next = 0; k < self->input_count; k++) {
        if (self->ports[k].rank < 0) continue;
        PyObject *shape = PyList_GetItem(shapes, next++);
        if (shape == NULL || !PyTuple_Check(shape) || PyTuple_Size(shape) != self->ports[k].rank) Py_RETURN_NONE;
        for (int32_t axis = 0; axis < self->ports[k].rank; axis++)
            *given++ = PyLong_AsLongLong(PyTuple_GetItem(shape, axis));
    }
    for (Py_ssize_t k = 0; k < self->output_count; k++) {
        Port *port = &self->ports[self->input_count + k];
        PyObject *shape;
        Py_ssize_t bytes;
        if (!PyArg_ParseTuple(PyList_GetItem(results, k), "On", &shape, &bytes)) return NULL;
        Py_CLEAR(port->expected);
        if (port->shape != Py_None || !PyTuple_Check(shape)) continue;
        Py_INCREF(shape);
        port->expected = shape;
        port->bytes = bytes;
    }
    self->expecting = PyErr_Occurred() == NULL;
    if (!self->expecting) return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(CALLER,
             "Caller(array_type, empty, block, own, model, context, results, large, most, inputs, outputs)\n--\n\n"
             "Calls of one context, by one caller at a time.\n\n"
             "empty: makes an array of a shape and type; block: an array of so many bytes, from a line of the cache\n"
             "on; own: takes over what the struct of an output of that number owns, and keeps it as long as it is\n"
             "itself; its `as_python` tells it as Python has it. model, context, results: addresses, the last of the\n"
             "structs of all outputs. large: bytes from which on a result is in such an array, of which `most` bytes\n"
             "are kept. inputs: (type, number, format, kind, kind of what an optional holds, rank or -1) of each.\n"
             "outputs: (type, shape or None, bytes) of each.");

static PyObject *make(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(keywords))
{
    Caller *self = (Caller *)PyType_GenericAlloc(type, 0);
    PyObject *inputs, *outputs;
    Py_ssize_t model, context, results;
    if (self == NULL) return NULL;
    if (!PyArg_ParseTuple(arguments, "OOOOnnnnnO!O!", &self->array_type, &self->empty, &self->block, &self->own, &model,
                          &context, &results, &self->large, &self->most, &PyTuple_Type, &inputs, &PyTuple_Type,
                          &outputs)) {
        Py_DECREF(self);
        return NULL;
    }
    self->arguments = arguments;
    Py_INCREF(arguments);
    self->model = (const onnxc_model *)model;
    self->context = (onnxc_context *)context;
    self->results = (onnxc_value *)results;
    self->input_count = PyTuple_Size(inputs);
    self->output_count = PyTuple_Size(outputs);
    const size_t count = (size_t)(self->input_count + self->output_count) + 1;
    self->ports = PyMem_Calloc(count, sizeof *self->ports);
    self->values = PyMem_Calloc(count, sizeof *self->values);
    self->lent = PyMem_Calloc(count, sizeof *self->lent);
    if (self->ports == NULL || self->values == NULL || self->lent == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t k = 0; k < self->input_count + self->output_count; k++) {
        const int is_input = k < self->input_count;
        PyObject *described =
            is_input ? PyTuple_GetItem(inputs, k) : PyTuple_GetItem(outputs, k - self->input_count);
        if (!declare(self, described, k, is_input)) {
            Py_DECREF(self);
            return NULL;
        }
    }
    Py_ssize_t axes = 1;
    for (Py_ssize_t k = 0; k < self->input_count; k++) axes += Py_MAX(self->ports[k].rank, 0);
    self->given = PyMem_Calloc((size_t)axes, sizeof *self->given);
    if (self->given == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void destroy(Caller *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    Py_XDECREF(self->arguments);
    for (Py_ssize_t k = 0; self->ports != NULL && k < self->input_count + self->output_count; k++) {
        Py_XDECREF(self->ports[k].expected);
        Py_XDECREF(self->ports[k].spares[0]);
        Py_XDECREF(self->ports[k].spares[1]);
    }
    PyMem_Free(self->given);
    PyMem_Free(self->ports);
    PyMem_Free(self->values);
    PyMem_Free(self->lent);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef METHODS[] = {{"run", (PyCFunction)run, METH_O, RUN},
                                {"expect", (PyCFunction)expect, METH_VARARGS, EXPECT},
                                {NULL, NULL, 0, NULL}};
static PyMemberDef MEMBERS[] = {{"stayed", T_BOOL, offsetof(Caller, stayed), READONLY, "whether a result is large"},
                                {NULL, 0, 0, 0, NULL}};
static PyType_Slot SLOTS[] = {{Py_tp_doc, (void *)CALLER},   {Py_tp_new, make},       {Py_tp_dealloc, destroy},
                              {Py_tp_methods, METHODS}, {Py_tp_members, MEMBERS}, {0, NULL}};
static PyType_Spec SPEC = {"onnxc.loading._quick.Caller", sizeof(Caller), 0, Py_TPFLAGS_DEFAULT, SLOTS};
static PyType_Slot PART_SLOTS[] = {{Py_tp_dealloc, part_destroy}, {Py_bf_getbuffer, part_buffer}, {0, NULL}};
static PyType_Spec PART = {"onnxc.loading._quick.Part", sizeof(Part), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, PART_SLOTS};
static PyMethodDef FUNCTIONS[] = {{"maps", maps, METH_O, MAPS}, {NULL, NULL, 0, NULL}};
static PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "onnxc.loading._quick", NULL, -1, FUNCTIONS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__quick(void)
{
    PyObject *module = PyModule_Create(&MODULE), *type = module == NULL ? NULL : PyType_FromSpec(&SPEC);
    if (part_type == NULL) part_type = (PyTypeObject *)PyType_FromSpec(&PART);
    if (type == NULL || part_type == NULL || PyModule_AddObject(module, "Caller", type) != 0) {
        Py_XDECREF(type);
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
