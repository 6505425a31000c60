/* session.c: the type Session. A call goes by vectorcall, which Python 3.11 has but not yet in the
 * limited API: the names below are those of 3.12's. */
#include <stddef.h>

#include "session.h"

#include <structmember.h>

#define HAVE_VECTORCALL (1UL << 11)
#define ARGUMENTS_OFFSET ((size_t)1 << (8 * sizeof(size_t) - 1))

static PyTypeObject *session_type;

static PyObject *call(PyObject *self, PyObject *const *args, size_t nargs, PyObject *names) {
    Call c;
    PyObject *result = NULL;
    if (call_begin(&c, (Session *)self) &&
        call_bind(&c, args, (Py_ssize_t)(nargs & ~ARGUMENTS_OFFSET), names, true) &&
        call_run(&c, false))
        result = call_results(&c, false);
    call_end(&c);
    return result;
}

/* The same for callers that have a tuple and a dict. */
static PyObject *call_tuple(PyObject *self, PyObject *args, PyObject *kw) {
    Py_ssize_t n = PyTuple_Size(args), k = kw ? PyDict_Size(kw) : 0, at = 0;
    PyObject **all = PyMem_Calloc((size_t)(n + k) + 1, sizeof *all), *name, *value, *result = NULL;
    PyObject *names = all ? PyTuple_New(k) : NULL;
    if (!all) return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++) all[i] = PyTuple_GetItem(args, i);
    for (Py_ssize_t i = 0; names && i < k && PyDict_Next(kw, &at, &name, &value); i++) {
        all[n + i] = value;
        if (PyTuple_SetItem(names, i, Py_NewRef(name)) != 0) Py_CLEAR(names);
    }
    if (names) result = call(self, all, (size_t)n, names);
    Py_XDECREF(names);
    PyMem_Free(all);
    return result;
}

static PyObject *run(PyObject *self, PyObject *args, PyObject *kw) {
    static char *names[] = {"inputs", "out", NULL};
    PyObject *inputs, *out = Py_None, *result = NULL;
    Call c;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "O|$O:run", names, &inputs, &out)) return NULL;
    if (call_begin(&c, (Session *)self)) {
        c.out = out == Py_None ? NULL : out;
        if (call_bind_object(&c, inputs) && call_run(&c, false)) result = PyDict_New();
    }
    for (int i = 0; result && i < c.s->model->nout; i++)
        if (PyDict_SetItem(result, PyTuple_GetItem(c.s->model->out_names, i), c.result[i]) != 0)
            Py_CLEAR(result);
    call_end(&c);
    return result;
}

static PyObject *step(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names) {
    Call c;
    Session *s = (Session *)self;
    Model *m = s->model;
    PyObject *result = NULL;
    if (!m->ncarry)
        return raise_status(BRAID_USAGE,
                            "the model has no state: compile it with carry={input: output}");
    if (call_begin(&c, s) && call_bind(&c, args, nargs, names, false) && call_run(&c, true) &&
        (result = call_results(&c, true)) != NULL)
        for (int k = 0; k < m->ncarry; k++) {
            PyObject *old = s->state[k];
            s->state[k] = Py_NewRef(c.result[m->carry_out[k]]);
            Py_XDECREF(old);
        }
    call_end(&c);
    return result;
}

static void clear_state(Session *s) {
    for (int k = 0; k < s->nstate; k++) Py_CLEAR(s->state[k]);
}

static PyObject *reset(PyObject *self, PyObject *unused) {
    (void)unused;
    clear_state((Session *)self);
    Py_RETURN_NONE;
}

static PyObject *get_state(PyObject *self, void *unused) {
    (void)unused;
    Session *s = (Session *)self;
    PyObject *all = PyDict_New();
    for (int k = 0; all && k < s->nstate; k++)
        if (s->state[k] &&
            PyDict_SetItem(all, PyTuple_GetItem(s->model->in_names, s->model->carry_in[k]),
                           s->state[k]) != 0)
            Py_CLEAR(all);
    return all;
}

static int set_state(PyObject *self, PyObject *value, void *unused) {
    (void)unused;
    Session *s = (Session *)self;
    Model *m = s->model;
    PyObject *name, *one;
    Py_ssize_t at = 0;
    if (!value || !(value = dict_of(value))) {
        if (PyErr_Occurred())
            raise_caused(BRAID_USAGE, "state", NULL);
        else
            raise_status(BRAID_USAGE, "state has to be a dict of inputs");
        return -1;
    }
    while (PyDict_Next(value, &at, &name, &one)) {
        int i = name_find(m->in_names, m->nin, name);
        if (i >= 0 && m->carries[i]) continue;
        raise_no_such(name, "input with state", m->in_names, BRAID_USAGE);
        Py_DECREF(value);
        return -1;
    }
    clear_state(s);
    for (at = 0; PyDict_Next(value, &at, &name, &one);) {
        int k = m->carries[name_find(m->in_names, m->nin, name)] - 1;
        PyObject *old = s->state[k];
        s->state[k] = Py_NewRef(one);
        Py_XDECREF(old);
    }
    Py_DECREF(value);
    return 0;
}

static PyObject *cancel(PyObject *self, PyObject *unused) {
    (void)unused;
    Session *s = (Session *)self;
    if (s->session) braid_session_cancel(s->session);
    Py_RETURN_NONE;
}

/* Calls f on the session without the GIL. */
typedef braid_status (*Waiting)(braid_session *s, void *user, braid_error *e);
static PyObject *wait_for(Session *s, Waiting f, void *user) {
    braid_error e;
    braid_status st;
    if (!session_open(s)) return NULL;
    s->runs++;
    Py_BEGIN_ALLOW_THREADS
    st = f(s->session, user, &e);
    Py_END_ALLOW_THREADS
    s->runs--;
    session_drop(s);
    if (st) return raise_error(&e);
    Py_RETURN_NONE;
}

static braid_status do_seed(braid_session *s, void *seed, braid_error *e) {
    return braid_session_set_seed(s, *(uint64_t *)seed, e);
}
static braid_status do_finish(braid_session *s, void *unused, braid_error *e) {
    (void)unused;
    return braid_session_finish(s, e);
}
static braid_status do_stream(braid_session *s, void *stream, braid_error *e) {
    return braid_session_set_stream(s, stream, e);
}
enum { STATS = 5 };
static braid_status do_stats(braid_session *s, void *stats, braid_error *e) {
    (void)e;
    for (int i = 0; i < STATS; i++) ((int64_t *)stats)[i] = braid_session_stat(s, (braid_stat)i);
    return BRAID_OK;
}

static bool seed_of(PyObject *n, uint64_t *seed) {
    *seed = PyLong_AsUnsignedLongLong(n);
    return !PyErr_Occurred() || raise_from(BRAID_USAGE, "a seed is an integer from 0 to 2**64 - 1");
}

static PyObject *seed(PyObject *self, PyObject *n) {
    uint64_t value;
    return seed_of(n, &value) ? wait_for((Session *)self, do_seed, &value) : NULL;
}

static PyObject *finish(PyObject *self, PyObject *unused) {
    (void)unused;
    return wait_for((Session *)self, do_finish, NULL);
}

static PyObject *get_stream(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(((Session *)self)->stream);
}

static int set_stream(PyObject *self, PyObject *value, void *unused) {
    (void)unused;
    Session *s = (Session *)self;
    unsigned long long stream = value ? PyLong_AsUnsignedLongLong(value) : 0;
    if (!value || PyErr_Occurred()) {
        if (value)
            raise_from(BRAID_USAGE, "a stream is an address, an int");
        else
            raise_status(BRAID_USAGE, "a stream cannot be deleted");
        return -1;
    }
    PyObject *done = wait_for(s, do_stream, (void *)(uintptr_t)stream);
    if (!done) return -1;
    Py_DECREF(done);
    s->stream = stream;
    return 0;
}

static PyObject *get_stats(PyObject *self, void *unused) {
    (void)unused;
    static const char *const names[STATS] = {"synchronizations", "working_bytes", "restarts",
                                             "threads", "device"};
    int64_t n[STATS];
    PyObject *done = wait_for((Session *)self, do_stats, n), *all = done ? PyDict_New() : NULL;
    Py_XDECREF(done);
    for (int i = 0; all && i < STATS; i++) {
        PyObject *v = n[i] < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(n[i]);
        if (!v || PyDict_SetItemString(all, names[i], v) != 0) Py_CLEAR(all);
        Py_XDECREF(v);
    }
    return all;
}

static braid_status do_profile(braid_session *s, void *json, braid_error *e) {
    return braid_session_profile(s, json, e);
}

static PyObject *profile(PyObject *self, PyObject *unused) {
    (void)unused;
    char *json = NULL;
    PyObject *done = wait_for((Session *)self, do_profile, &json);
    PyObject *result = done ? call_python("json", "loads", "(N)", text_new(json)) : NULL;
    Py_XDECREF(done);
    braid_text_free(json);
    return result;
}

static PyObject *to_device_method(PyObject *self, PyObject *o) {
    Session *s = (Session *)self;
    Held h = {0};
    braid_io io = {.name = "value", .rank = -1};
    DLManagedTensor *t = NULL;
    if (!session_open(s)) return NULL;
    s->runs++;
    if (!s->model->device)
        raise_status(BRAID_USAGE, "the model does not run on a device");
    else if (o == Py_None)
        raise_status(BRAID_USAGE, "there is no array to copy");
    else if (value_take(&io, o, &h))
        t = device_copy(s->session, h.value, "value");
    held_free(&h);
    s->runs--;
    session_drop(s);
    return t ? dlpack_give(t, NULL) : NULL;
}

static PyObject *to_host_method(PyObject *self, PyObject *o) {
    Session *s = (Session *)self;
    const DLTensor *t = device_tensor(o);
    braid_value *v;
    braid_error e;
    braid_status st;
    if (!t) return raise_status(BRAID_USAGE, "it is no DeviceTensor");
    if (!session_open(s)) return NULL;
    s->runs++;
    Py_BEGIN_ALLOW_THREADS
    st = braid_session_to_host(s->session, t, &v, &e);
    Py_END_ALLOW_THREADS
    s->runs--;
    session_drop(s);
    return st ? raise_error(&e) : value_give(v);
}

static PyObject *session_close(PyObject *self, PyObject *unused) {
    (void)unused;
    Session *s = (Session *)self;
    s->closed = true;
    clear_state(s);
    session_drop(s);
    Py_RETURN_NONE;
}
static PyObject *enter(PyObject *self, PyObject *unused) {
    (void)unused;
    return session_open((Session *)self) ? Py_NewRef(self) : NULL;
}
static PyObject *leave(PyObject *self, PyObject *args) {
    (void)args;
    return session_close(self, NULL);
}

static PyObject *get_closed(PyObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(((Session *)self)->closed);
}
static PyObject *get_idle(PyObject *self, void *unused) {
    (void)unused;
    Session *s = (Session *)self;
    return PyBool_FromLong(!s->runs && !s->closed);
}
static PyObject *get_model(PyObject *self, void *unused) {
    (void)unused;
    return Py_NewRef((PyObject *)((Session *)self)->model);
}
static PyObject *repr(PyObject *self) {
    return call_python("braid._show", "session_text", "(O)", self);
}
static PyObject *html(PyObject *self, PyObject *unused) {
    (void)unused;
    return call_python("braid._show", "session_html", "(O)", self);
}

static void dealloc(PyObject *self) {
    Session *s = (Session *)self;
    PyTypeObject *type = Py_TYPE(self);
    clear_state(s);
    PyMem_Free(s->state);
    if (s->session && !session_torn(s)) {
        PyObject *t, *v, *b; /* the GIL is released: an exception must survive it */
        PyErr_Fetch(&t, &v, &b);
        Py_BEGIN_ALLOW_THREADS
        braid_session_free(s->session);
        Py_END_ALLOW_THREADS
        PyErr_Restore(t, v, b);
    }
    Py_XDECREF((PyObject *)s->model);
    PyObject_Free(self);
    Py_DECREF(type);
}

static int optional_int(PyObject *o, void *to) {
    long long n = 0;
    if (o != Py_None) n = PyLong_AsLongLong(o);
    if (PyErr_Occurred())
        return raise_from(BRAID_USAGE, "an option of a session is an integer or None") != NULL;
    *(int64_t *)to = n;
    return 1;
}

PyObject *session_new(PyObject *self, PyObject *args, PyObject *kw) {
    static char *names[] = {"threads",    "max_iterations", "stack_depth", "device",
                            "max_memory", "seed",           NULL};
    int64_t threads = 0, device = -1;
    PyObject *seed_object = Py_None, *device_object = Py_None;
    braid_session_options o = {.struct_size = sizeof o};
    braid_session *session = NULL;
    braid_error e;
    braid_status st;
    uint64_t seed_value = 0;
    Model *m = (Model *)self;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "|$O&O&O&OO&O:session", names, optional_int,
                                     &threads, optional_int, &o.max_iterations, optional_int,
                                     &o.stack_depth, &device_object, optional_int, &o.max_memory,
                                     &seed_object))
        return NULL;
    if (device_object != Py_None && (!optional_int(device_object, &device) || device < 0))
        return raise_status(BRAID_USAGE, "device is the number of a GPU, from 0 on");
    if (threads > INT32_MAX || device > INT32_MAX - 1 || threads < 0)
        return raise_status(BRAID_USAGE, "threads and device are small positive numbers");
    if (seed_object != Py_None && !seed_of(seed_object, &seed_value)) return NULL;
    o.threads = (int32_t)threads;
    o.device = (int32_t)(device + 1);
    Py_BEGIN_ALLOW_THREADS
    st = braid_session_new(m->model, &o, &session, &e);
    if (!st && seed_object != Py_None) st = braid_session_set_seed(session, seed_value, &e);
    Py_END_ALLOW_THREADS
    if (st) {
        braid_session_free(session);
        return raise_error(&e);
    }
    PyObject **state = PyMem_Calloc((size_t)m->ncarry + 1, sizeof *state);
    Session *s = state ? PyObject_New(Session, session_type) : NULL;
    if (!s) {
        braid_session_free(session);
        PyMem_Free(state);
        return PyErr_NoMemory();
    }
    memset((char *)s + sizeof s->ob_base, 0, sizeof *s - sizeof s->ob_base);
    s->call = call;
    s->model = (Model *)Py_NewRef(self);
    s->session = session;
    s->state = state;
    s->nstate = m->ncarry;
    s->forks = interrupt_forks;
    return (PyObject *)s;
}

const char session_doc[] = "session(self, *, threads=None, max_iterations=None, stack_depth=None, "
                           "device=None, max_memory=None, seed=None)\n"
                           "--\n\nMakes a Session.";

static PyMethodDef methods[] = {
    {"run", (PyCFunction)(void (*)(void))run, METH_VARARGS | METH_KEYWORDS,
     "run(self, inputs, *, out=None)\n--\n\n"
     "Runs the model on `inputs`, a mapping by name or a list in graph order, and returns a dict "
     "of "
     "all\n"
     "outputs by name. For inputs whose names are no Python names; else call the session."},
    {"step", (PyCFunction)(void (*)(void))step, METH_FASTCALL | METH_KEYWORDS,
     "step(self, /, *args, **inputs)\n--\n\n"
     "Runs the model and keeps its state, the outputs that `carry` names, for the next step. "
     "Returns\n"
     "the other outputs: one, or a tuple. State that was never given starts as zeros if the model\n"
     "declares its shape; else give it with the first step. For one thread at a time."},
    {"reset", reset, METH_NOARGS,
     "reset(self)\n--\n\nForgets the state: the next step is the first."},
    {"cancel", cancel, METH_NOARGS,
     "cancel(self)\n--\n\nEnds the run that is in progress in another thread: it raises "
     "CancelledError."},
    {"seed", seed, METH_O,
     "seed(self, n, /)\n--\n\nSets the seed (0 to 2**64 - 1) of the random numbers of the "
     "following runs."},
    {"profile", profile, METH_NOARGS,
     "profile(self)\n--\n\nTimes and trips of loops, branches and groups in the runs since the "
     "last "
     "call, a dict as\n`braid profile --json` writes it. For libraries compiled with profile=True; "
     "UsageError: for others."},
    {"finish", finish, METH_NOARGS,
     "finish(self)\n--\n\nWaits for all runs that are enqueued on the GPU; raises what failed."},
    {"to_device", to_device_method, METH_O,
     "to_device(self, array, /)\n--\n\nCopies an array to the session's GPU: a DeviceTensor."},
    {"to_host", to_host_method, METH_O,
     "to_host(self, tensor, /)\n--\n\nCopies a DeviceTensor to a new NumPy array."},
    {"close", session_close, METH_NOARGS,
     "close(self)\n--\n\nFrees threads and memory, once the runs in progress are done. Later calls "
     "raise UsageError."},
    {"__enter__", enter, METH_NOARGS, NULL},
    {"__exit__", leave, METH_VARARGS, NULL},
    {"_repr_html_", html, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef getset[] = {
    {"state", get_state, set_state,
     "What step() keeps: a dict of arrays by the names of inputs. May be set, to go on from a "
     "state.",
     NULL},
    {"stats", get_stats, NULL,
     "A dict of the last run: synchronizations (of all threads), working_bytes (memory that the\n"
     "session holds), restarts (with more memory), threads, device. None: not known.",
     NULL},
    {"stream", get_stream, set_stream,
     "The GPU's stream that runs are enqueued on, an address as an int; 0: the default stream.",
     NULL},
    {"closed", get_closed, NULL, "Whether close() was called.", NULL},
    {"_model", get_model, NULL, NULL, NULL},
    {"_idle", get_idle, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Session, call), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};
static PyType_Slot slots[] = {
    {Py_tp_doc,
     "Runs of a library: working memory and threads. Library.session makes it.\n\n"
     "session(*args, out=None, **inputs) runs the model on inputs by position (graph order) or by\n"
     "name, and returns its output, or a tuple if there are several.\n\n"
     "Inputs: NumPy arrays of the declared dtype (not copied if they are row-major without gaps);\n"
     "objects with __dlpack__ or the buffer protocol; numbers and nested lists, which are "
     "converted\n"
     "where nothing is lost; a list of tensors for a sequence; None for an empty optional.\n"
     "Outputs: new NumPy arrays (lists, None); tensors of PyTorch, JAX or CuPy if inputs were.\n"
     "out: an array (or a tensor of PyTorch in CPU memory) for the output, or a list or dict of\n"
     "them (None: a new array), row-major, of the output's dtype and shape. They are written only\n"
     "if the run succeeds.\n\n"
     "Several threads may call one session: their runs wait for each other. The GIL is released.\n"
     "Raises InputError, RunError, OutOfMemoryError, UsageError, CancelledError, "
     "KeyboardInterrupt."},
    {Py_tp_dealloc, dealloc},
    {Py_tp_call, call_tuple},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_members, members},
    {Py_tp_repr, repr},
    {0, NULL}};
static PyType_Spec spec = {"braid.Session", sizeof(Session), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | HAVE_VECTORCALL,
                           slots};

bool session_add(PyObject *module) {
    session_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return session_type && PyModule_AddObjectRef(module, "Session", (PyObject *)session_type) == 0;
}
