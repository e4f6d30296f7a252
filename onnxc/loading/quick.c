/* SPDX-License-Identifier: Apache-2.0 */
/* The usual call of a model in C: `Caller.run` does for arrays of numpy that have the right types what `Context.run`
 * of loader.py does, in a tenth of its time, and leaves every other call to it. Inputs and results may be texts too,
 * results maps or sequences of maps, which `maps` makes.
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
    PyObject *shape;    /* of a result; None where only the run knows it */
    PyObject *expected; /* the shape of one whose shape follows from those of inputs, for such as were last; or NULL */
    Py_ssize_t bytes;   /* of a result of the known or expected shape */
    PyObject *spares[2]; /* memory of the last large results, for the next when no array looks there any more */
    Py_ssize_t room[2]; /* bytes of these */
    const char *format; /* of an input's elements in the buffer protocol */
    int32_t rank;       /* of an input */
    PyObject **texts;   /* of an input of texts in the call under way, whose UTF-8 they keep; or NULL */
    Py_ssize_t text_count;
} Port;

typedef struct {
    PyObject_HEAD
    PyObject *arguments;           /* of `Caller`, which has all that is borrowed here */
    PyObject *array_type, *empty, *block;
    const onnxc_model *model;
    onnxc_context *context;
    Py_ssize_t input_count, output_count;
    Port *ports;         /* of the inputs, then of the outputs */
    onnxc_value *values; /* of the inputs */
    onnxc_value *results; /* of the outputs, which are the context's */
    Py_buffer *views;    /* of the inputs of the call under way */
    Py_ssize_t large;    /* bytes from which on a result is not copied */
    Py_ssize_t most;     /* bytes that may be kept for results */
    Py_ssize_t kept;     /* bytes that are */
    char away;           /* one was so large: unless results are expected, further calls are left to loader.py */
    char left;           /* in the last call one was: what is in its place is None */
    char expecting;      /* inputs had the shapes in `given`, for which results are expected */
    int64_t *given;      /* the dimensions of all inputs, one after the other */
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

/* A map, or a sequence of maps, with everything copied. */
static PyObject *maps_of(const onnxc_value *value)
{
    Keys known = {NULL, 0, NULL};
    PyObject *made;
    if (value->kind == ONNXC_MAP) made = map_of(value, &known);
    else {
        const int64_t count = count_of(value);
        made = PyList_New((Py_ssize_t)count);
        for (int64_t k = 0; made != NULL && k < count; k++) {
            PyObject *map = map_of((const onnxc_value *)value->data + k, &known);
            if (map == NULL || PyList_SetItem(made, (Py_ssize_t)k, map) != 0) Py_CLEAR(made);
        }
    }
    Py_XDECREF(known.list);
    return made;
}

PyDoc_STRVAR(MAPS, "maps(address)\n--\n\n"
                   "What the value at an address holds, a map or a sequence of maps, of int64, strings, float32 or\n"
                   "float64: a dict or a list of dicts.");

static PyObject *maps(PyObject *Py_UNUSED(module), PyObject *address)
{
    const Py_ssize_t found = PyLong_AsSsize_t(address);
    return PyErr_Occurred() ? NULL : maps_of((const onnxc_value *)found);
}

/* Arrays ------------------------------------------------------------------------------------------ */

static void release_texts(Port *port)
{
    for (Py_ssize_t k = 0; k < port->text_count; k++) Py_DECREF(port->texts[k]);
    PyMem_Free(port->texts);
    port->texts = NULL;
    port->text_count = 0;
}

/* Whether all of an array's objects are texts that have UTF-8, which the struct describes then. */
static int lend_texts(Port *port, onnxc_value *value, const Py_buffer *view)
{
    const Py_ssize_t count = view->len / (Py_ssize_t)sizeof(PyObject *);
    PyObject *const *objects = view->buf;
    port->texts = PyMem_Calloc((size_t)count + 1, sizeof(onnxc_string) + sizeof *port->texts);
    if (port->texts == NULL) return 0;
    onnxc_string *strings = (onnxc_string *)(port->texts + count + 1);
    for (Py_ssize_t k = 0; k < count; k++) {
        Py_ssize_t length = 0;
        PyObject *object = objects[k];
        const int is_text = object != NULL && PyUnicode_Check(object);
        const char *data = is_text ? PyUnicode_AsUTF8AndSize(object, &length) : NULL;
        if (data == NULL) {
            PyErr_Clear();
            release_texts(port);
            return 0;
        }
        strings[k] = (onnxc_string){data, length};
        Py_INCREF(object); /* other threads may change the array meanwhile */
        port->texts[port->text_count++] = object;
    }
    value->data = strings;
    value->bytes = (uint64_t)count * sizeof *strings;
    return 1;
}

/* Whether the value is an array as the port declares it; then the view and the struct describe it. */
static int lend(const Caller *self, PyObject *given, Py_ssize_t number)
{
    Port *port = &self->ports[number];
    onnxc_value *value = &self->values[number];
    Py_buffer *view = &self->views[number];
    if (given == NULL || (PyObject *)Py_TYPE(given) != self->array_type) return 0;
    if (PyObject_GetBuffer(given, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
        PyErr_Clear();
        return 0;
    }
    if (view->ndim != port->rank || strcmp(view->format, port->format) != 0) {
        PyBuffer_Release(view);
        return 0;
    }
    value->dims = view->ndim ? (const int64_t *)view->shape : NO_DIMS;
    value->data = view->buf;
    value->bytes = (uint64_t)view->len;
    if (value->dtype != ONNXC_STRING || lend_texts(port, value, view)) return 1;
    PyBuffer_Release(view);
    return 0;
}

static void release_views(const Caller *self, Py_ssize_t count)
{
    while (count-- > 0) {
        if (self->ports[count].texts != NULL) release_texts(&self->ports[count]);
        PyBuffer_Release(&self->views[count]);
    }
}

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

/* An array with a copy of what the library allocated, or what stands for texts and maps. */
static PyObject *copied(Caller *self, Port *port, const onnxc_value *value)
{
    if (value->kind != ONNXC_TENSOR) return maps_of(value);
    const int64_t texts = value->dtype == ONNXC_STRING ? (int64_t)(value->bytes / sizeof(onnxc_string)) : 0;
    onnxc_value copy = *value;
    PyObject *array = NULL, *shape = PyTuple_New(value->rank);
    for (int32_t axis = 0; shape != NULL && axis < value->rank; axis++) {
        PyObject *size = PyLong_FromLongLong(value->dims[axis]);
        if (size == NULL || PyTuple_SetItem(shape, axis, size) != 0) Py_CLEAR(shape);
    }
    if (shape != NULL) array = new_result(self, port, shape, texts ? 0 : (Py_ssize_t)value->bytes, &copy);
    if (array != NULL && texts != 0) {
        if (self->model->write_texts(value->data, texts, text, drop, copy.data) != texts)
            Py_CLEAR(array);
    } else if (array != NULL && value->bytes != 0)
        memcpy(copy.data, value->data, value->bytes);
    Py_XDECREF(shape);
    return array;
}

/* What the library allocated for an output: copied and released, or None in the place of what is large. */
static PyObject *taken(Caller *self, Port *port, onnxc_value *value)
{
    if (value->bytes >= (uint64_t)self->large && value->kind == ONNXC_TENSOR && value->dtype != ONNXC_STRING) {
        self->away = self->left = 1;
        Py_RETURN_NONE;
    }
    PyObject *array = copied(self, port, value);
    self->model->release(value);
    return array;
}

/* Whether the inputs have the shapes for which results are expected. */
static int as_before(const Caller *self)
{
    const int64_t *given = self->given;
    for (Py_ssize_t k = 0; k < self->input_count; given += self->ports[k++].rank)
        if (memcmp(given, self->values[k].dims, (size_t)self->ports[k].rank * sizeof *given) != 0) return 0;
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
                  "The results, a list, None in the place of one that is large, whose memory its struct tells;\n"
                  "or the status of a run that failed; or None: nothing was run.");

static PyObject *run(Caller *self, PyObject *given)
{
    const Py_ssize_t inputs = self->input_count, outputs = self->output_count;
    Port *ports = self->ports + inputs;
    onnxc_value *results = self->results;
    const int list = PyList_Check(given), tuple = PyTuple_Check(given);
    if ((self->away && !self->expecting) || (list ? PyList_Size(given) : tuple ? PyTuple_Size(given) : -1) != inputs) Py_RETURN_NONE;
    for (Py_ssize_t k = 0; k < inputs; k++) {
        if (lend(self, list ? PyList_GetItem(given, k) : PyTuple_GetItem(given, k), k)) continue;
        release_views(self, k);
        Py_RETURN_NONE;
    }
    const int expecting = self->expecting && as_before(self);
    if (self->away && !expecting) {
        release_views(self, inputs);
        Py_RETURN_NONE;
    }
    self->left = 0;
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
        release_views(self, inputs);
        return NULL;
    }
    PyThreadState *state = PyEval_SaveThread();
    const int32_t status =
        self->model->run(self->context, self->values, (int32_t)inputs, results, (int32_t)outputs);
    PyEval_RestoreThread(state);
    release_views(self, inputs);
    if (status != ONNXC_OK) {
        Py_DECREF(made);
        if (status != ONNXC_BUFFER_TOO_SMALL || !expecting) return PyLong_FromLong(status);
        self->expecting = 0; /* no size of an input says how large it is */
        Py_RETURN_NONE;
    }
    for (Py_ssize_t k = 0; made != NULL && k < outputs; k++) { /* what is left then the next call releases */
        const int lent = expecting && ports[k].expected != NULL;
        if (ports[k].shape != Py_None || (lent && as_expected(&ports[k], &results[k]))) continue;
        PyObject *array = lent ? copied(self, &ports[k], &results[k]) : taken(self, &ports[k], &results[k]);
        if (array == NULL || PyList_SetItem(made, k, array) != 0) Py_CLEAR(made);
    }
    return made;
}

/* Takes over what (type, number of the type, format, rank) or (type, shape, bytes) tell of a port. */
static int declare(Caller *self, PyObject *described, Py_ssize_t number, int is_input)
{
    Port *port = &self->ports[number];
    if (!is_input) return PyArg_ParseTuple(described, "OOn", &port->type, &port->shape, &port->bytes);
    onnxc_value *value = &self->values[number];
    value->struct_size = sizeof *value;
    value->kind = ONNXC_TENSOR;
    const int understood =
        PyArg_ParseTuple(described, "Oisi", &port->type, &value->dtype, &port->format, &port->rank);
    value->rank = port->rank;
    return understood;
}

PyDoc_STRVAR(EXPECT, "expect(shapes, results)\n--\n\n"
                     "For inputs of these shapes, a list of tuples, results are of those: (shape or None, bytes) of each.");

static PyObject *expect(Caller *self, PyObject *arguments)
{
    PyObject *shapes, *results;
    self->expecting = 0;
    if (!PyArg_ParseTuple(arguments, "O!O!", &PyList_Type, &shapes, &PyList_Type, &results)) return NULL;
    int64_t *given = self->given;
    for (Py_ssize_t k = 0; k < self->input_count; k++) {
        PyObject *shape = PyList_GetItem(shapes, k);
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
             "Caller(array_type, empty, block, model, context, results, large, most, inputs, outputs)\n--\n\n"
             "Calls of one context, by one caller at a time.\n\n"
             "empty: makes an array of a shape and type; block: an array of so many bytes, from a line of the cache\n"
             "on. model, context, results: addresses, the last of the structs of all outputs. large: bytes from which\n"
             "on a result is in such an array, of which `most` bytes are kept. inputs: (type, number, format, rank) of\n"
             "each. outputs: (type, shape or None, bytes) of each.");

static PyObject *make(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(keywords))
{
    Caller *self = (Caller *)PyType_GenericAlloc(type, 0);
    PyObject *inputs, *outputs;
    Py_ssize_t model, context, results;
    if (self == NULL) return NULL;
    if (!PyArg_ParseTuple(arguments, "OOOnnnnnO!O!", &self->array_type, &self->empty, &self->block, &model, &context,
                          &results, &self->large, &self->most, &PyTuple_Type, &inputs, &PyTuple_Type, &outputs)) {
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
    self->views = PyMem_Calloc(count, sizeof *self->views);
    if (self->ports == NULL || self->values == NULL || self->views == NULL) {
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
    for (Py_ssize_t k = 0; k < self->input_count; k++) axes += self->ports[k].rank;
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
    PyMem_Free(self->views);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef METHODS[] = {{"run", (PyCFunction)run, METH_O, RUN},
                                {"expect", (PyCFunction)expect, METH_VARARGS, EXPECT},
                                {NULL, NULL, 0, NULL}};
static PyMemberDef MEMBERS[] = {{"away", T_BOOL, offsetof(Caller, away), 0, "whether calls are left to others"},
                                {"left", T_BOOL, offsetof(Caller, left), READONLY, "whether a result is None"},
                                {NULL, 0, 0, 0, NULL}};
static PyType_Slot SLOTS[] = {{Py_tp_doc, (void *)CALLER},   {Py_tp_new, make},       {Py_tp_dealloc, destroy},
                              {Py_tp_methods, METHODS}, {Py_tp_members, MEMBERS}, {0, NULL}};
static PyType_Spec SPEC = {"onnxc.loading._quick.Caller", sizeof(Caller), 0, Py_TPFLAGS_DEFAULT, SLOTS};
static PyMethodDef FUNCTIONS[] = {{"maps", maps, METH_O, MAPS}, {NULL, NULL, 0, NULL}};
static PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "onnxc.loading._quick", NULL, -1, FUNCTIONS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__quick(void)
{
    PyObject *module = PyModule_Create(&MODULE), *type = module == NULL ? NULL : PyType_FromSpec(&SPEC);
    if (type == NULL || PyModule_AddObject(module, "Caller", type) != 0) {
        Py_XDECREF(type);
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
