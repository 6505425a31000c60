/* load.c: compiling and loading. */
#include "ext.h"

const char load_doc[] =
    "load(path, *, data=None, output=None, target=None, threads=0, cpu=None, scan=(), carry=(),\n"
    "     tune=False, tune_inputs=(), tune_seconds=0, schedule=None, weights=None, shapes=(),\n"
    "     ignore_dim_names=False, torch_name=None, profile=False, cc=None, cache=True,\n"
    "     cache_dir=None, progress=None)\n--\n\n"
    "braid_load, or braid_compile and braid_load of `output`. braid.compile has the meaning of\n"
    "the arguments; here scan is ((name, axis), …), carry ((input, output), …), shapes\n"
    "((name, (size, …)), …) with -1 for any size, tune_inputs ((name, array), …).";

/* The options with the memory that they point to. */
typedef struct Options {
    braid_options o;
    braid_fold fold;
    void *memory[9]; /* as often as room() is called */
    int nmemory;
    Held *tune;
} Options;

static void *room(Options *o, Py_ssize_t n, size_t size) {
    void *p = PyMem_Calloc((size_t)n + 1, size);
    if (!p) PyErr_NoMemory();
    return p ? o->memory[o->nmemory++] = p : NULL;
}

static void options_free(Options *o) {
    for (int i = 0; o->tune && i < o->o.tune_input_count; i++) held_free(&o->tune[i]);
    for (int i = 0; i < o->nmemory; i++) PyMem_Free(o->memory[i]);
}

static const char *text_of(PyObject *o) {
    Py_ssize_t n = 0;
    const char *s = PyUnicode_AsUTF8AndSize(o, &n);
    if (s && strlen(s) == (size_t)n) return s;
    PyErr_Clear();
    return raise_status(BRAID_USAGE, "a name has to be text without NUL");
}

static bool take_fold(Options *o, PyObject *scan, PyObject *carry) {
    Py_ssize_t n = PyTuple_Size(scan), k = PyTuple_Size(carry);
    if (n < 0 || k < 0) return false;
    if (!n && !k) return true;
    const char **names = room(o, n, sizeof *names), **in = room(o, k, sizeof *in),
               **out = room(o, k, sizeof *out);
    int32_t *axes = room(o, n, sizeof *axes);
    if (!names || !in || !out || !axes) return false;
    for (Py_ssize_t i = 0; i < n; i++)
        if (!PyArg_ParseTuple(PyTuple_GetItem(scan, i), "si", &names[i], &axes[i])) return false;
    for (Py_ssize_t i = 0; i < k; i++)
        if (!PyArg_ParseTuple(PyTuple_GetItem(carry, i), "ss", &in[i], &out[i])) return false;
    o->fold = (braid_fold){(int32_t)n, names, axes, (int32_t)k, in, out};
    o->o.fold = &o->fold;
    return true;
}

static bool take_shapes(Options *o, PyObject *shapes) {
    Py_ssize_t n = PyTuple_Size(shapes), total = 0;
    if (n < 0) return false;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *name, *dim;
        if (!PyArg_ParseTuple(PyTuple_GetItem(shapes, i), "UO!", &name, &PyTuple_Type, &dim))
            return false;
        if (PyTuple_Size(dim) > BRAID_RANK_LIMIT)
            return raise_status(BRAID_USAGE, "shapes: a rank above %d", BRAID_RANK_LIMIT);
        total += PyTuple_Size(dim);
    }
    braid_shape *s = room(o, n, sizeof *s);
    int64_t *d = s ? room(o, total, sizeof *d) : NULL;
    if (!d) return false;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *dim;
        if (!PyArg_ParseTuple(PyTuple_GetItem(shapes, i), "sO", &s[i].input, &dim)) return false;
        s[i].rank = (int32_t)PyTuple_Size(dim);
        s[i].dim = d;
        for (int32_t k = 0; k < s[i].rank; k++) {
            *d++ = PyLong_AsLongLong(PyTuple_GetItem(dim, k));
            if (PyErr_Occurred()) return false;
        }
    }
    o->o.shape_count = (int32_t)n;
    o->o.shape = s;
    return true;
}

static bool take_tune_inputs(Options *o, PyObject *inputs) {
    Py_ssize_t n = PyTuple_Size(inputs);
    if (n <= 0) return n == 0;
    const char **names = room(o, n, sizeof *names);
    const braid_value **values = room(o, n, sizeof *values);
    o->tune = room(o, n, sizeof *o->tune);
    if (!names || !values || !o->tune) return false;
    o->o.tune_input_count = (int32_t)n;
    o->o.tune_input_name = names;
    o->o.tune_input = values;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *name, *value;
        if (!PyArg_ParseTuple(PyTuple_GetItem(inputs, i), "UO", &name, &value) ||
            !(names[i] = text_of(name)))
            return false;
        braid_kind kind =
            PyList_Check(value) || PyTuple_Check(value) ? BRAID_SEQUENCE : BRAID_TENSOR;
        braid_io io = {.name = names[i], .kind = kind, .element = kind, .rank = -1};
        if (!value_take(&io, value, &o->tune[i])) return false;
        values[i] = o->tune[i].value;
    }
    return true;
}

static bool progress(void *user, const char *step, double seconds) {
    PyObject *callback = user;
    PyGILState_STATE gil = PyGILState_Ensure();
    bool on = PyErr_CheckSignals() == 0;
    if (on && callback != Py_None) {
        PyObject *r = PyObject_CallFunction(callback, "sd", step, seconds);
        on = r && r != Py_False;
        Py_XDECREF(r);
    }
    PyGILState_Release(gil);
    return on;
}

/* A converter for "O&": the bytes object of a path. None: NULL. */
static int path_of(PyObject *o, void *to) {
    return o == Py_None ? 1 : PyUnicode_FSConverter(o, to);
}
static const char *path_text(PyObject *path) { return path ? PyBytes_AsString(path) : NULL; }

/* braid_load, or braid_compile and braid_load of what it wrote. */
static braid_status compile_or_load(const char *path, const char *output, const braid_options *o,
                                    struct braid_model **model, braid_error *e) {
    if (!output) return braid_load(path, o, model, e);
    braid_status st = braid_compile(path, o, output, e);
    return st ? st : braid_load(output, NULL, model, e);
}

PyObject *load(PyObject *module, PyObject *args, PyObject *kw) {
    (void)module;
    static char *names[] = {"path",
                            "data",
                            "output",
                            "target",
                            "threads",
                            "cpu",
                            "scan",
                            "carry",
                            "tune",
                            "tune_inputs",
                            "tune_seconds",
                            "schedule",
                            "weights",
                            "shapes",
                            "ignore_dim_names",
                            "torch_name",
                            "profile",
                            "cc",
                            "cache",
                            "cache_dir",
                            "progress",
                            NULL};
    Options x = {.o = {.struct_size = sizeof x.o}};
    PyObject *empty = PyTuple_New(0), *scan = empty, *carry = empty, *tune_inputs = empty,
             *shapes = empty, *callback = Py_None;
    PyObject *path = NULL, *output = NULL, *cache_dir = NULL;
    Py_buffer data = {0};
    int tune = 0, ignore = 0, profile = 0, cache = 1;
    braid_options *o = &x.o;
    struct braid_model *model = NULL;
    braid_error e = {0};
    Model *result = NULL;
    if (empty &&
        PyArg_ParseTupleAndKeywords(args, kw, "O&|$z*O&zizO!O!pO!izzO!pzpzpO&O:load", names, path_of,
                                    &path, &data, path_of, &output, &o->target, &o->threads,
                                    &o->cpu, &PyTuple_Type, &scan, &PyTuple_Type, &carry, &tune,
                                    &PyTuple_Type, &tune_inputs, &o->tune_seconds, &o->schedule,
                                    &o->weights, &PyTuple_Type, &shapes, &ignore, &o->torch_name, &profile,
                                    &o->cc, &cache, path_of, &cache_dir, &callback) &&
        take_fold(&x, scan, carry) && take_shapes(&x, shapes) &&
        take_tune_inputs(&x, tune_inputs)) {
        o->tune = tune;
        o->ignore_dim_names = ignore;
        o->profile = profile;
        o->no_cache = !cache;
        o->cache_dir = path_text(cache_dir);
        o->model_data = data.buf;
        o->model_size = (size_t)data.len;
        o->progress = progress;
        o->progress_user = callback;
        const char *from = path_text(path), *to = path_text(output);
        braid_status st;
        Py_BEGIN_ALLOW_THREADS
        st = compile_or_load(from, to, o, &model, &e);
        Py_END_ALLOW_THREADS
        if (st)
            raise_error(&e);
        else if (PyErr_Occurred()) /* Ctrl-C at the very end */
            braid_model_free(model);
        else
            result = model_new(model);
    } else if (PyErr_ExceptionMatches(PyExc_OverflowError) ||
               PyErr_ExceptionMatches(PyExc_ValueError))
        raise_caused(BRAID_USAGE, "a wrong argument", NULL);
    if (data.buf || data.obj) PyBuffer_Release(&data);
    options_free(&x);
    Py_XDECREF(path);
    Py_XDECREF(output);
    Py_XDECREF(cache_dir);
    Py_XDECREF(empty);
    return (PyObject *)result;
}
