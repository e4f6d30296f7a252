/* SPDX-License-Identifier: Apache-2.0 */
/* The usual call of a model in C: `Caller.run` does for arrays of numpy that have the right types what `Context.run`
 * of loader.py does, in a tenth of its time, and leaves every other call to it.
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
    const char *format; /* of an input's elements in the buffer protocol */
    int32_t rank;       /* of an input */
} Port;

typedef struct {
    PyObject_HEAD
    PyObject *arguments;           /* of `Caller`, which has all that is borrowed here */
    PyObject *array_type, *empty;
    const onnxc_model *model;
    onnxc_context *context;
    Py_ssize_t input_count, output_count;
    Port *ports;         /* of the inputs, then of the outputs */
    onnxc_value *values; /* the same */
    Py_ssize_t results;  /* the address of those of the outputs */
    Py_buffer *views;    /* of the inputs of the call under way */
    Py_ssize_t large;    /* bytes from which on a result is not copied */
    char away;           /* one was so large: what is in its place is None, and further calls are left to loader.py */
} Caller;

static const int64_t NO_DIMS[1];

/* Whether the value is an array as the port declares it; then the view and the struct describe it. */
static int lend(const Caller *self, PyObject *given, Py_ssize_t number)
{
    const Port *port = &self->ports[number];
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
    return 1;
}

static void release_views(const Caller *self, Py_ssize_t count)
{
    while (count-- > 0) PyBuffer_Release(&self->views[count]);
}

/* A new array of an output's type, to whose memory `value` points. */
static PyObject *new_result(const Caller *self, const Port *port, PyObject *shape, onnxc_value *value)
{
    Py_buffer view;
    PyObject *array = PyObject_CallFunctionObjArgs(self->empty, shape, port->type, NULL);
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

/* An array with a copy of what the library allocated. */
static PyObject *copied(const Caller *self, const Port *port, const onnxc_value *value)
{
    onnxc_value copy = *value;
    PyObject *array = NULL, *shape = PyTuple_New(value->rank);
    for (int32_t axis = 0; shape != NULL && axis < value->rank; axis++) {
        PyObject *size = PyLong_FromLongLong(value->dims[axis]);
        if (size == NULL || PyTuple_SetItem(shape, axis, size) != 0) Py_CLEAR(shape);
    }
    if (shape != NULL) array = new_result(self, port, shape, &copy);
    if (array != NULL && value->bytes != 0) memcpy(copy.data, value->data, value->bytes);
    Py_XDECREF(shape);
    return array;
}

/* What the library allocated for an output: copied and released, or None in the place of what is large. */
static PyObject *taken(Caller *self, const Port *port, onnxc_value *value)
{
    if (value->bytes >= (uint64_t)self->large) {
        self->away = 1;
        Py_RETURN_NONE;
    }
    PyObject *array = copied(self, port, value);
    self->model->release(value);
    return array;
}

PyDoc_STRVAR(RUN, "run(values)\n--\n\n"
                  "The results, a list, None in the place of one that is large, which `results` describes;\n"
                  "or the status of a run that failed; or None: nothing was run.");

static PyObject *run(Caller *self, PyObject *given)
{
    const Py_ssize_t inputs = self->input_count, outputs = self->output_count;
    const Port *ports = self->ports + inputs;
    onnxc_value *results = self->values + inputs;
    const int list = PyList_Check(given), tuple = PyTuple_Check(given);
    if (self->away || (list ? PyList_Size(given) : tuple ? PyTuple_Size(given) : -1) != inputs) Py_RETURN_NONE;
    for (Py_ssize_t k = 0; k < inputs; k++) {
        if (lend(self, list ? PyList_GetItem(given, k) : PyTuple_GetItem(given, k), k)) continue;
        release_views(self, k);
        Py_RETURN_NONE;
    }
    PyObject *made = PyList_New(outputs);
    for (Py_ssize_t k = 0; made != NULL && k < outputs; k++) {
        results[k].data = results[k].object = NULL;
        results[k].capacity = 0;
        if (ports[k].shape == Py_None) continue;
        PyObject *array = new_result(self, &ports[k], ports[k].shape, &results[k]);
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
        return PyLong_FromLong(status);
    }
    for (Py_ssize_t k = 0; k < outputs; k++) {
        if (ports[k].shape != Py_None) continue;
        if (made == NULL) { /* no memory for an earlier one */
            self->model->release(&results[k]);
            continue;
        }
        PyObject *array = taken(self, &ports[k], &results[k]);
        if (array == NULL || PyList_SetItem(made, k, array) != 0) Py_CLEAR(made);
    }
    return made;
}

/* Takes over what (type, number of the type, format, rank) or (type, number, shape) tell of a port. */
static int declare(Caller *self, PyObject *described, Py_ssize_t number, int is_input)
{
    Port *port = &self->ports[number];
    onnxc_value *value = &self->values[number];
    value->struct_size = sizeof *value;
    value->kind = ONNXC_TENSOR;
    if (!is_input) return PyArg_ParseTuple(described, "OiO", &port->type, &value->dtype, &port->shape);
    const int understood =
        PyArg_ParseTuple(described, "Oisi", &port->type, &value->dtype, &port->format, &port->rank);
    value->rank = port->rank;
    return understood;
}

PyDoc_STRVAR(CALLER, "Caller(array_type, empty, model, context, large, inputs, outputs)\n--\n\n"
                     "Calls of one context, by one caller at a time.\n\n"
                     "empty: makes an array of a shape and type. model, context: addresses. large: bytes from which\n"
                     "on a result is not copied. inputs: (type, number, format, rank) of each. outputs: (type, number,\n"
                     "shape or None) of each.");

static PyObject *make(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(keywords))
{
    Caller *self = (Caller *)PyType_GenericAlloc(type, 0);
    PyObject *inputs, *outputs;
    Py_ssize_t model, context;
    if (self == NULL) return NULL;
    if (!PyArg_ParseTuple(arguments, "OOnnnO!O!", &self->array_type, &self->empty, &model, &context, &self->large,
                          &PyTuple_Type, &inputs, &PyTuple_Type, &outputs)) {
        Py_DECREF(self);
        return NULL;
    }
    self->arguments = arguments;
    Py_INCREF(arguments);
    self->model = (const onnxc_model *)model;
    self->context = (onnxc_context *)context;
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
    self->results = (Py_ssize_t)(self->values + self->input_count);
    for (Py_ssize_t k = 0; k < self->input_count + self->output_count; k++) {
        const int is_input = k < self->input_count;
        PyObject *described =
            is_input ? PyTuple_GetItem(inputs, k) : PyTuple_GetItem(outputs, k - self->input_count);
        if (!declare(self, described, k, is_input)) {
            Py_DECREF(self);
            return NULL;
        }
    }
    return (PyObject *)self;
}

static void destroy(Caller *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    Py_XDECREF(self->arguments);
    PyMem_Free(self->ports);
    PyMem_Free(self->values);
    PyMem_Free(self->views);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef METHODS[] = {{"run", (PyCFunction)run, METH_O, RUN}, {NULL, NULL, 0, NULL}};
static PyMemberDef MEMBERS[] = {{"away", T_BOOL, offsetof(Caller, away), 0, "whether calls are left to others"},
                                {"results", T_PYSSIZET, offsetof(Caller, results), READONLY, "an address"},
                                {NULL, 0, 0, 0, NULL}};
static PyType_Slot SLOTS[] = {{Py_tp_doc, (void *)CALLER},   {Py_tp_new, make},       {Py_tp_dealloc, destroy},
                              {Py_tp_methods, METHODS}, {Py_tp_members, MEMBERS}, {0, NULL}};
static PyType_Spec SPEC = {"onnxc.loading._quick.Caller", sizeof(Caller), 0, Py_TPFLAGS_DEFAULT, SLOTS};
static PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "onnxc.loading._quick", NULL, -1, NULL, NULL, NULL, NULL, NULL};

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
