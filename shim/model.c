/* model.c: the type Model: a loaded model with what calls need to know of it. braid.Library holds
 * one. */
#include "ext.h"

static PyTypeObject *model_type;

static void dealloc(PyObject *self) {
    Model *m = (Model *)self;
    PyTypeObject *type = Py_TYPE(self);
    braid_model_free(m->model);
    PyMem_Free(m->in);
    PyMem_Free(m->carry_in);
    Py_XDECREF(m->in_names);
    Py_XDECREF(m->out_names);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *name_of(const char *text) {
    PyObject *name = text_new(text);
    if (name) PyUnicode_InternInPlace(&name);
    return name;
}

static PyObject *names_of(const braid_io *const *io, int n) {
    PyObject *names = PyTuple_New(n);
    for (int i = 0; names && i < n; i++) {
        PyObject *name = name_of(io[i]->name);
        if (!name || PyTuple_SetItem(names, i, name) != 0) Py_CLEAR(names);
    }
    return names;
}

static bool carry_read(Model *m) {
    int n = braid_model_carry_count(m->model);
    int *p = PyMem_Calloc((size_t)(2 * n + m->nin + m->nout) + 1, sizeof *p);
    if (!p) {
        PyErr_NoMemory();
        return false;
    }
    m->ncarry = n;
    m->carry_in = p;
    m->carry_out = p + n;
    m->carries = p + 2 * n;
    m->carried = m->carries + m->nin;
    for (int k = 0; k < n; k++) {
        int32_t in, out;
        braid_error e;
        if (braid_model_carry(m->model, k, &in, &out, &e) != BRAID_OK) return raise_error(&e);
        m->carry_in[k] = in;
        m->carry_out[k] = out;
        m->carries[in] = m->carried[out] = 1 + k;
    }
    return true;
}

Model *model_new(struct braid_model *model) {
    Model *m = PyObject_New(Model, model_type);
    if (!m) {
        braid_model_free(model);
        return NULL;
    }
    memset((char *)m + sizeof m->ob_base, 0, sizeof *m - sizeof m->ob_base);
    m->model = model;
    m->nin = braid_model_input_count(model);
    m->nout = braid_model_output_count(model);
    int32_t device = braid_model_device_type(model);
    m->device = device == kDLCPU ? 0 : device;
    m->in = PyMem_Calloc((size_t)(m->nin + m->nout) + 1, sizeof(void *));
    if (!m->in) {
        PyErr_NoMemory();
        Py_DECREF((PyObject *)m);
        return NULL;
    }
    m->out = m->in + m->nin;
    for (int i = 0; i < m->nin; i++) {
        m->in[i] = braid_model_input(model, i);
        if (!strcmp(m->in[i]->name, "out")) m->takes_out = true;
    }
    for (int i = 0; i < m->nout; i++) m->out[i] = braid_model_output(model, i);
    m->in_names = names_of(m->in, m->nin);
    m->out_names = names_of(m->out, m->nout);
    if (m->in_names && m->out_names && carry_read(m)) return m;
    Py_DECREF((PyObject *)m);
    return NULL;
}

/* ---- attributes ---- */
static PyObject *shape_of(const braid_io *io) {
    if (io->element != BRAID_TENSOR || io->rank < 0) Py_RETURN_NONE;
    PyObject *shape = PyTuple_New(io->rank);
    for (int i = 0; shape && i < io->rank; i++) {
        PyObject *n = io->dim[i] >= 0   ? PyLong_FromLongLong(io->dim[i])
                      : io->dim_name[i] ? name_of(io->dim_name[i])
                                        : Py_NewRef(Py_None);
        if (!n || PyTuple_SetItem(shape, i, n) != 0) Py_CLEAR(shape);
    }
    return shape;
}

static PyObject *ios_of(const braid_io *const *io, PyObject *names, int n) {
    PyObject *all = PyTuple_New(n);
    for (int i = 0; all && i < n; i++) {
        const char *element = io[i]->element == BRAID_SEQUENCE ? "sequence" : "tensor";
        PyObject *kind =
            PyUnicode_FromFormat(io[i]->kind == BRAID_OPTIONAL ? "optional(%s)" : "%s", element);
        PyObject *shape = kind ? shape_of(io[i]) : NULL;
        PyObject *one = shape
                            ? Py_BuildValue("(OOzO)", PyTuple_GetItem(names, i), kind,
                                            io[i]->dtype ? element_name(io[i]->dtype) : NULL, shape)
                            : NULL;
        Py_XDECREF(kind);
        Py_XDECREF(shape);
        if (!one || PyTuple_SetItem(all, i, one) != 0) Py_CLEAR(all);
    }
    return all;
}

static PyObject *get_inputs(PyObject *self, void *unused) {
    (void)unused;
    Model *m = (Model *)self;
    return ios_of(m->in, m->in_names, m->nin);
}
static PyObject *get_outputs(PyObject *self, void *unused) {
    (void)unused;
    Model *m = (Model *)self;
    return ios_of(m->out, m->out_names, m->nout);
}
static PyObject *get_name(PyObject *self, void *unused) {
    (void)unused;
    return name_of(braid_model_name(((Model *)self)->model));
}
static PyObject *get_target(PyObject *self, void *unused) {
    (void)unused;
    return name_of(braid_model_target(((Model *)self)->model));
}
static PyObject *get_draws(PyObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(braid_model_draws(((Model *)self)->model));
}

static PyObject *get_carry(PyObject *self, void *unused) {
    (void)unused;
    Model *m = (Model *)self;
    PyObject *all = PyTuple_New(m->ncarry);
    for (int k = 0; all && k < m->ncarry; k++) {
        PyObject *pair = PyTuple_Pack(2, PyTuple_GetItem(m->in_names, m->carry_in[k]),
                                      PyTuple_GetItem(m->out_names, m->carry_out[k]));
        if (!pair || PyTuple_SetItem(all, k, pair) != 0) Py_CLEAR(all);
    }
    return all;
}

static PyMethodDef methods[] = {{"session", (PyCFunction)(void (*)(void))session_new,
                                 METH_VARARGS | METH_KEYWORDS, session_doc},
                                {NULL, NULL, 0, NULL}};
static PyGetSetDef getset[] = {
    {"name", get_name, NULL, "The graph's name.", NULL},
    {"target", get_target, NULL, "What it is compiled for.", NULL},
    {"inputs", get_inputs, NULL, "A tuple of (name, kind, dtype, shape).", NULL},
    {"outputs", get_outputs, NULL, "A tuple of (name, kind, dtype, shape).", NULL},
    {"carry", get_carry, NULL, "A tuple of (input, output).", NULL},
    {"draws", get_draws, NULL, "Whether outputs depend on random numbers.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot slots[] = {{Py_tp_doc, "A loaded model."},
                              {Py_tp_dealloc, dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, getset},
                              {0, NULL}};
static PyType_Spec spec = {"braid._braid.Model", sizeof(Model), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

bool model_add(PyObject *module) {
    model_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return model_type && PyModule_AddObjectRef(module, "Model", (PyObject *)model_type) == 0;
}
