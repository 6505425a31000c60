/* session.h: the type Session and one call of it, which session.c and call.c share. */
#ifndef BRAID_SESSION_H
#define BRAID_SESSION_H

#include "ext.h"

typedef PyObject *(*Vectorcall)(PyObject *self, PyObject *const *args, size_t nargs,
                                PyObject *names);

typedef struct Session {
    PyObject ob_base;
    Vectorcall call;
    Model *model;
    braid_session *session; /* NULL: closed */
    int runs;               /* in progress */
    bool closed;            /* freed when the last of them is done */
    unsigned forks;         /* interrupt_forks when it was last seen to be whole */
    PyObject **state;       /* model->ncarry of them; NULL: not known yet */
    int nstate;
    unsigned long long stream;
} Session;

/* Whether another thread was running it when this process was forked: it never ends that run. */
bool session_torn(Session *s);
/* Whether it is; else a UsageError. */
bool session_open(Session *s);
/* Frees what is closed and has no run in progress. */
void session_drop(Session *s);

/* ---- a call ---- */
typedef struct Call {
    Session *s;
    PyObject **in; /* nin; own references; NULL: not given */
    Held *held;    /* nin */
    const braid_value **vin;
    Held *into; /* nout */
    braid_value **vout;
    PyObject **result; /* nout */
    PyObject *out;     /* borrowed: the argument `out`; NULL: none */
    PyObject *library; /* of the inputs; NULL: NumPy */
    bool mixed;        /* inputs of several libraries */
    bool counted;      /* among s->runs */
    void *memory;
    _Alignas(16) char small[1024];
} Call;

/* Each call begins, ends (also when it could not begin), and between them does what follows. */
bool call_begin(Call *c, Session *s);
void call_end(Call *c);
/* Takes arguments by position and name. `takes_out`: `out` may be one of them. */
bool call_bind(Call *c, PyObject *const *args, Py_ssize_t n, PyObject *names, bool takes_out);
/* The argument of run(): a dict, or a list or tuple. */
bool call_bind_object(Call *c, PyObject *inputs);
/* Runs the model: c->result. `step`: state that is not given is the session's. */
bool call_run(Call *c, bool step);
/* The outputs, without those that step() keeps: one, or a tuple. */
PyObject *call_results(Call *c, bool step);

/* A mapping as a dict, a new reference; NULL: it is none, or, with an exception, cannot be read. */
PyObject *dict_of(PyObject *o);
/* The index of `name` among n names, or -1. */
int name_find(PyObject *names, int n, PyObject *name);
bool raise_no_such(PyObject *name, const char *what, PyObject *names, braid_status status);
/* Copies a tensor in CPU memory to the device. */
DLManagedTensor *device_copy(braid_session *s, const braid_value *v, const char *name);

#endif
