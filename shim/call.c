/* call.c: one call of a session: arguments, the run, outputs. */
#include <stddef.h>

#include "session.h"

bool session_torn(Session *s) {
    if (!s->runs) s->forks = interrupt_forks;
    return s->forks != interrupt_forks;
}

bool session_open(Session *s) {
    if (s->closed) return raise_status(BRAID_USAGE, "the session is closed");
    if (session_torn(s))
        return raise_status(BRAID_USAGE, "another thread was running the session when this process "
                                         "was forked: make another session");
    return true;
}

void session_drop(Session *s) {
    if (s->runs || !s->closed) return;
    braid_session *dead = s->session;
    s->session = NULL;
    if (!dead) return;
    Py_BEGIN_ALLOW_THREADS
    braid_session_free(dead);
    Py_END_ALLOW_THREADS
}

bool call_begin(Call *c, Session *s) {
    size_t nin = (size_t)s->model->nin, nout = (size_t)s->model->nout;
    size_t bytes =
        nin * (2 * sizeof(void *) + sizeof(Held)) + nout * (2 * sizeof(void *) + sizeof(Held));
    memset(c, 0, offsetof(Call, small));
    if (!session_open(s)) return false;
    char *p = c->small;
    if (bytes > sizeof c->small) {
        p = c->memory = PyMem_Calloc(1, bytes);
        if (!p) {
            PyErr_NoMemory();
            return false;
        }
    } else
        memset(p, 0, bytes);
    c->held = (Held *)p;
    c->into = c->held + nin;
    c->in = (PyObject **)(c->into + nout);
    c->vin = (const braid_value **)(c->in + nin);
    c->vout = (braid_value **)(c->vin + nin);
    c->result = (PyObject **)(c->vout + nout);
    c->s = s;
    s->runs++;
    c->counted = true;
    return true;
}

void call_end(Call *c) {
    Session *s = c->s;
    if (!c->counted) return;
    for (int i = 0; i < s->model->nin; i++) {
        held_free(&c->held[i]);
        Py_XDECREF(c->in[i]);
    }
    for (int i = 0; i < s->model->nout; i++) {
        held_free(&c->into[i]);
        Py_XDECREF(c->result[i]);
    }
    PyMem_Free(c->memory);
    s->runs--;
    session_drop(s);
}

/* ---- arguments ---- */
int name_find(PyObject *names, int n, PyObject *name) {
    for (int i = 0; i < n; i++)
        if (PyTuple_GetItem(names, i) == name) return i;
    for (int i = 0; i < n && PyUnicode_Check(name); i++)
        if (PyUnicode_Compare(PyTuple_GetItem(names, i), name) == 0) return i;
    return -1;
}

bool raise_no_such(PyObject *name, const char *what, PyObject *names, braid_status status) {
    PyObject *comma = PyUnicode_FromString(", ");
    PyObject *list = comma ? PyUnicode_Join(comma, names) : NULL;
    PyObject *text =
        list ? PyUnicode_FromFormat("there is no %s %R; there are: %U", what, name, list) : NULL;
    PyObject *bytes = text ? PyUnicode_AsEncodedString(text, "utf-8", "replace") : NULL;
    if (bytes) raise_status(status, "%s", PyBytes_AsString(bytes));
    Py_XDECREF(bytes);
    Py_XDECREF(text);
    Py_XDECREF(list);
    Py_XDECREF(comma);
    return false;
}

static bool bind_named(Call *c, PyObject *name, PyObject *value) {
    Model *m = c->s->model;
    int i = name_find(m->in_names, m->nin, name);
    if (i < 0) return raise_no_such(name, "input", m->in_names, BRAID_INPUT);
    if (c->in[i]) return raise_status(BRAID_INPUT, "input '%s' is given twice", m->in[i]->name);
    c->in[i] = Py_NewRef(value);
    return true;
}

static bool bind_positions(Call *c, PyObject *const *args, Py_ssize_t n) {
    Model *m = c->s->model;
    if (n > m->nin)
        return raise_status(BRAID_INPUT, "%zd inputs are given, the model has %d", n, m->nin);
    for (Py_ssize_t i = 0; i < n; i++) c->in[i] = Py_NewRef(args[i]);
    return true;
}

bool call_bind(Call *c, PyObject *const *args, Py_ssize_t n, PyObject *names, bool takes_out) {
    if (!bind_positions(c, args, n)) return false;
    Py_ssize_t k = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; i < k; i++) {
        PyObject *name = PyTuple_GetItem(names, i), *value = args[n + i];
        if (takes_out && !c->s->model->takes_out &&
            PyUnicode_CompareWithASCIIString(name, "out") == 0)
            c->out = value == Py_None ? NULL : value;
        else if (!bind_named(c, name, value))
            return false;
    }
    return true;
}

PyObject *dict_of(PyObject *o) {
    if (PyDict_Check(o)) return Py_NewRef(o);
    PyObject *dict = PyObject_HasAttrString(o, "keys") ? PyDict_New() : NULL;
    if (dict && PyDict_Update(dict, o) != 0) Py_CLEAR(dict);
    return dict;
}

/* `inputs` of run(): a mapping, or a list or tuple. */
bool call_bind_object(Call *c, PyObject *inputs) {
    PyObject *dict = dict_of(inputs);
    if (dict) {
        PyObject *name, *value;
        Py_ssize_t at = 0;
        bool good = true;
        while (good && PyDict_Next(dict, &at, &name, &value)) good = bind_named(c, name, value);
        Py_DECREF(dict);
        return good;
    }
    if (PyErr_Occurred()) return raise_caused(BRAID_INPUT, "inputs", NULL);
    if (!PyList_Check(inputs) && !PyTuple_Check(inputs))
        return raise_status(BRAID_INPUT, "inputs have to be a dict, or a list or tuple");
    PyObject *all = PySequence_Tuple(inputs);
    Py_ssize_t n = all ? PyTuple_Size(all) : 0;
    if (n > c->s->model->nin) {
        Py_DECREF(all);
        return raise_status(BRAID_INPUT, "%zd inputs are given, the model has %d", n,
                            c->s->model->nin);
    }
    for (Py_ssize_t i = 0; i < n; i++) c->in[i] = Py_NewRef(PyTuple_GetItem(all, i));
    Py_XDECREF(all);
    return all != NULL;
}

/* ---- outputs from the caller ---- */
static bool into_one(Call *c, int i, PyObject *o) {
    Model *m = c->s->model;
    if (o == Py_None) return true;
    if (m->out[i]->kind != BRAID_TENSOR)
        return raise_status(BRAID_USAGE, "out for '%s': it is no tensor", m->out[i]->name);
    if (c->into[i].value)
        return raise_status(BRAID_USAGE, "out for '%s' is given twice", m->out[i]->name);
    return value_into(m->out[i], o, &c->into[i]);
}

static bool take_out(Call *c) {
    Model *m = c->s->model;
    PyObject *out = c->out;
    PyObject *dict = PyArray_Check(out) ? NULL : dict_of(out);
    if (dict) {
        PyObject *name, *value;
        Py_ssize_t at = 0;
        bool good = true;
        while (good && PyDict_Next(dict, &at, &name, &value)) {
            int i = name_find(m->out_names, m->nout, name);
            good = i >= 0 ? into_one(c, i, value)
                          : raise_no_such(name, "output", m->out_names, BRAID_USAGE);
        }
        Py_DECREF(dict);
        return good;
    }
    if (PyErr_Occurred()) return raise_caused(BRAID_USAGE, "out", NULL);
    if (!PyList_Check(out) && !PyTuple_Check(out)) {
        if (m->nout != 1)
            return raise_status(BRAID_USAGE, "out has to name %d arrays: a list, tuple or dict",
                                m->nout);
        return into_one(c, 0, out);
    }
    PyObject *all = PySequence_Tuple(out);
    bool good = all != NULL;
    if (good && PyTuple_Size(all) != m->nout) {
        raise_status(BRAID_USAGE, "out has %zd entries, the model has %d outputs",
                     PyTuple_Size(all), m->nout);
        good = false;
    }
    for (int i = 0; good && i < m->nout; i++) good = into_one(c, i, PyTuple_GetItem(all, i));
    Py_XDECREF(all);
    return good;
}

/* What is written must not be read, nor written twice. */
static bool check_out(Call *c) {
    Model *m = c->s->model;
    for (int i = 0; i < m->nout; i++) {
        if (!c->into[i].value) continue;
        for (int j = 0; j < m->nin; j++)
            if (values_overlap(c->into[i].value, c->held[j].value))
                return raise_status(BRAID_USAGE, "out for '%s' shares memory with input '%s'",
                                    m->out[i]->name, m->in[j]->name);
        for (int j = 0; j < i; j++)
            if (values_overlap(c->into[i].value, c->into[j].value))
                return raise_status(BRAID_USAGE, "out for '%s' shares memory with the one for '%s'",
                                    m->out[i]->name, m->out[j]->name);
    }
    return true;
}

/* ---- running ---- */
static void note_library(Call *c, PyObject *o) {
    PyObject *library = dlpack_library(o);
    if (!library || c->mixed) return;
    c->mixed = c->library && c->library != library;
    c->library = c->mixed ? NULL : library;
}

/* A value for each input. *device: one of them lies on the model's device. */
static bool take_inputs(Call *c, bool step, bool *device) {
    Session *s = c->s;
    Model *m = s->model;
    *device = false;
    for (int i = 0; i < m->nin; i++) {
        PyObject *o = c->in[i];
        if (o && !PyArray_CheckExact(o) && o != Py_None) {
            const DLTensor *t = device_tensor(o);
            int where = t ? (int)t->device.device_type : dlpack_device(o);
            if (where < 0)
                return raise_caused(BRAID_INPUT, "__dlpack_device__ of input", m->in[i]->name);
            if (where) note_library(c, o);
            *device = *device || (where > kDLCPU && where == m->device);
        }
        if (o || m->in[i]->kind == BRAID_OPTIONAL) continue;
        if (!step || !m->carries[i])
            return raise_status(BRAID_INPUT, "input '%s' is missing", m->in[i]->name);
        PyObject *last = s->state[m->carries[i] - 1];
        if (!(c->in[i] = last ? Py_NewRef(last) : value_zeros(m->in[i]))) return false;
        const DLTensor *t = device_tensor(c->in[i]);
        *device = *device || (t && t->device.device_type > kDLCPU);
    }
    if (*device) return true;
    for (int i = 0; i < m->nin; i++) {
        if (c->in[i] && !value_take(m->in[i], c->in[i], &c->held[i])) return false;
        c->vin[i] = c->held[i].value;
    }
    return true;
}

/* Runs on values in CPU memory; again when Ctrl-C came and its handler raised nothing. */
static bool run_values(Call *c) {
    Session *s = c->s;
    Model *m = s->model;
    braid_error e;
    braid_status st;
    bool again;
    if (c->out && (!take_out(c) || !check_out(c))) return false;
    do {
        bool interrupted;
        for (int i = 0; i < m->nout; i++) c->vout[i] = c->into[i].value;
        Py_BEGIN_ALLOW_THREADS
        bool begun = interrupt_begin(s->session);
        st = c->out ? braid_session_run_into(s->session, c->vin, c->vout, &e)
                    : braid_session_run(s->session, c->vin, c->vout, &e);
        interrupted = interrupt_end(begun);
        Py_END_ALLOW_THREADS
        if (interrupted && PyErr_CheckSignals() != 0) {
            for (int i = 0; !st && i < m->nout; i++)
                if (!c->into[i].value) braid_value_free(c->vout[i]);
            return false;
        }
        again = st == BRAID_CANCELLED && interrupted;
    } while (again);
    if (st) return raise_error(&e);
    bool good = true;
    for (int i = 0; i < m->nout; i++) {
        if (c->into[i].value)
            c->result[i] =
                Py_NewRef(PyTuple_Check(c->into[i].keep) ? PyTuple_GetItem(c->into[i].keep, 0)
                                                         : c->into[i].keep);
        else if (good)
            c->result[i] = value_give(c->vout[i]);
        else
            braid_value_free(c->vout[i]);
        if (good && c->library && c->result[i] && !c->into[i].value && PyArray_Check(c->result[i]))
            c->result[i] = dlpack_from_array(c->result[i], c->library);
        good = good && c->result[i];
    }
    return good;
}

/* Copies an input in CPU memory to the device. */
DLManagedTensor *device_copy(braid_session *s, const braid_value *v, const char *name) {
    braid_error e;
    DLManagedTensor *managed = NULL;
    DLTensor dl;
    braid_status st;
    if (!v || !dlpack_of_value(v, &dl))
        return raise_status(BRAID_INPUT, "input '%s': it cannot be copied to the device", name);
    Py_BEGIN_ALLOW_THREADS
    st = braid_session_to_device(s, &dl, &managed, &e);
    Py_END_ALLOW_THREADS
    return st ? raise_error(&e) : managed;
}

/* Runs on tensors in the device's memory. */
static bool run_device(Call *c) {
    Session *s = c->s;
    Model *m = s->model;
    braid_error e = {0};
    if (c->out) return raise_status(BRAID_USAGE, "out is for runs in CPU memory");
    const DLTensor **in = PyMem_Calloc((size_t)(2 * m->nin + m->nout) + 1, sizeof *in);
    DLManagedTensor **copies = (DLManagedTensor **)(in + m->nin), **out = copies + m->nin;
    PyObject *stream = PyLong_FromUnsignedLongLong(s->stream ? s->stream : m->device == kDLCUDA);
    bool good = in && stream;
    if (!in) PyErr_NoMemory();
    for (int i = 0; good && i < m->nin; i++) {
        PyObject *o = c->in[i];
        if (!o || o == Py_None) continue;
        if ((in[i] = device_tensor(o))) continue;
        int where = dlpack_device(o);
        if (where == m->device) {
            DLTensor *t;
            c->held[i].keep = dlpack_capsule(o, "input", m->in[i]->name, stream, &t);
            good = c->held[i].keep != NULL;
            in[i] = good ? t : NULL;
        } else {
            good = value_take(m->in[i], o, &c->held[i]) &&
                   (copies[i] = device_copy(s->session, c->held[i].value, m->in[i]->name)) != NULL;
            in[i] = good ? &copies[i]->dl_tensor : NULL;
        }
    }
    if (good) {
        braid_status st;
        Py_BEGIN_ALLOW_THREADS
        st = braid_session_run_dlpack(s->session, in, out, &e);
        Py_END_ALLOW_THREADS
        good = !st;
        if (st) raise_error(&e);
        for (int i = 0; !st && i < m->nout; i++) {
            if (good)
                c->result[i] = out[i] ? dlpack_give(out[i], c->library) : Py_NewRef(Py_None);
            else if (out[i])
                out[i]->deleter(out[i]);
            good = good && c->result[i];
        }
    }
    for (int i = 0; in && i < m->nin; i++)
        if (copies[i]) copies[i]->deleter(copies[i]);
    Py_XDECREF(stream);
    PyMem_Free((void *)in);
    return good;
}

bool call_run(Call *c, bool step) {
    bool device;
    return take_inputs(c, step, &device) && (device ? run_device(c) : run_values(c));
}

/* The outputs of `c`, without those that step() keeps: one, or a tuple. */
PyObject *call_results(Call *c, bool step) {
    Model *m = c->s->model;
    int n = 0, last = 0;
    for (int i = 0; i < m->nout; i++)
        if (!step || !m->carried[i]) {
            n++;
            last = i;
        }
    if (n == 1) return Py_NewRef(c->result[last]);
    PyObject *all = PyTuple_New(n);
    for (int i = 0, k = 0; all && i < m->nout; i++)
        if ((!step || !m->carried[i]) && PyTuple_SetItem(all, k++, Py_NewRef(c->result[i])) != 0)
            Py_CLEAR(all);
    return all;
}
