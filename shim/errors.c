/* errors.c: the exceptions, one for each status of the library. */
#include <stdarg.h>
#include <stdio.h>

#include "ext.h"

#define STATUSES ((int)BRAID_CANCELLED + 1)
static PyObject *exceptions[STATUSES];

static bool add(PyObject *module, braid_status status, const char *name, PyObject *base,
                const char *doc) {
    char full[64];
    snprintf(full, sizeof full, "braid.%s", name);
    PyObject *bases = status == BRAID_OK ? PyTuple_Pack(1, PyExc_Exception)
                      : base             ? PyTuple_Pack(2, exceptions[BRAID_OK], base)
                                         : PyTuple_Pack(1, exceptions[BRAID_OK]);
    PyObject *dict = bases ? Py_BuildValue("{s:i}", "status", (int)status) : NULL;
    PyObject *type = dict ? PyErr_NewExceptionWithDoc(full, doc, bases, dict) : NULL;
    Py_XDECREF(bases);
    Py_XDECREF(dict);
    exceptions[status] = type; /* lives as long as the process */
    return type && PyModule_AddObjectRef(module, name, type) == 0;
}

bool errors_add(PyObject *m) {
    return add(m, BRAID_OK, "Error", NULL,
               "Base of all exceptions that Braid raises. `status` is the number of the C API's "
               "braid_status.") &&
           add(m, BRAID_MODEL, "ModelError", NULL, "The model is invalid.") &&
           add(m, BRAID_UNSUPPORTED, "UnsupportedError", NULL,
               "The model is valid but needs something that Braid does not support.") &&
           add(m, BRAID_INPUT, "InputError", PyExc_ValueError,
               "An input of a run, or a file, is not what the model declares.") &&
           add(m, BRAID_RUNTIME, "RunError", PyExc_RuntimeError,
               "A check of a run failed (an index, a shape, the iteration limit); the message has "
               "the path of the node.") &&
           add(m, BRAID_MEMORY, "OutOfMemoryError", PyExc_MemoryError,
               "A run needs more memory than there is, or than max_memory allows.") &&
           add(m, BRAID_IO, "FileError", PyExc_OSError,
               "A file cannot be read or written, or a tool (the C compiler) cannot be run.") &&
           add(m, BRAID_USAGE, "UsageError", PyExc_ValueError,
               "A function was called wrongly: a closed session, an unknown option or target, an "
               "`out` that does not fit.") &&
           add(m, BRAID_CANCELLED, "CancelledError", NULL,
               "The run was ended by Session.cancel, or compiling by the progress callback.");
}

static PyObject *type_of(braid_status status) {
    return exceptions[status > BRAID_OK && (int)status < STATUSES ? status : BRAID_OK];
}

void *raise_error(const braid_error *e) {
    if (PyErr_Occurred()) return NULL;
    PyObject *text = text_new(e->message);
    if (text) PyErr_SetObject(type_of(e->status), text);
    Py_XDECREF(text);
    return NULL;
}

static void set(braid_status status, const char *format, va_list args) {
    braid_error e = {.status = status};
    vsnprintf(e.message, sizeof e.message, format, args);
    raise_error(&e);
}

void *raise_status(braid_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    set(status, format, args);
    va_end(args);
    return NULL;
}

void *raise_from(braid_status status, const char *format, ...) {
    PyObject *type, *cause, *trace, *value;
    if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(exceptions[BRAID_OK]))
        return NULL;
    PyErr_Fetch(&type, &cause, &trace);
    PyErr_NormalizeException(&type, &cause, &trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    va_list args;
    va_start(args, format);
    set(status, format, args);
    va_end(args);
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (value && cause) {
        PyException_SetCause(value, cause); /* takes cause */
        cause = NULL;
    }
    Py_XDECREF(cause);
    PyErr_Restore(type, value, trace);
    return NULL;
}

void *raise_caused(braid_status status, const char *what, const char *name) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *text = value ? PyObject_Str(value) : NULL;
    PyObject *bytes = text ? PyUnicode_AsEncodedString(text, "utf-8", "replace") : NULL;
    PyErr_Restore(type, value, trace);
    raise_from(status, name ? "%s '%s': %s" : "%s%s: %s", what, name ? name : "",
               bytes ? PyBytes_AsString(bytes) : "it failed");
    Py_XDECREF(bytes);
    Py_XDECREF(text);
    return NULL;
}
