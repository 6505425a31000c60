/* ext.h: what the files of the extension braid._braid share. It stands on the public C API alone
 * and on Python's limited API (3.11), so that one file serves all later versions.
 *
 * All functions need the GIL unless a comment says otherwise. Those that return NULL, -1 or false
 * have set a Python exception.
 */
#ifndef BRAID_EXT_H
#define BRAID_EXT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <string.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL braid_numpy
#ifndef EXT_MODULE_C
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include "braid.h"

/* ---- errors.c -------------------------------------------------------------------------------- */
bool errors_add(PyObject *module); /* makes the exceptions and adds them to the module */
/* Raises the exception of error->status. If an exception is already set, it stays. */
void *raise_error(const braid_error *error);
void *raise_status(braid_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Raises `status` with this text, caused by the exception that is set now. Exceptions that are not
 * the value's fault (KeyboardInterrupt and other non-Exceptions) stay as they are. */
void *raise_from(braid_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same with the text "<what> '<name>': <the cause's text>"; without a name for NULL. */
void *raise_caused(braid_status status, const char *what, const char *name);

/* ---- helpers in Python (braid/_convert.py, _show.py) ----------------------------------------- */
/* module.function(args…), args as of Py_BuildValue with parentheses. A new reference. */
PyObject *text_new(const char *text); /* names in models need not be UTF-8 */
PyObject *call_python(const char *module, const char *function, const char *format, ...);

/* ---- elements.c --------------------------------------------------------------------------------
 */
/* The NumPy dtype of `dtype`, a new reference; imports ml_dtypes for types that NumPy lacks. */
PyArray_Descr *element_descr(braid_dtype dtype);
/* BRAID_DTYPE_NONE: the library has no such type. Never fails. */
braid_dtype element_of(PyArrayObject *array);
const char *element_name(braid_dtype dtype); /* as NumPy and ml_dtypes call it; "" for none */
int element_bits(braid_dtype dtype);

/* ---- values.c -------------------------------------------------------------------------------- */
/* A value for the library, and what keeps its memory alive. */
typedef struct Held {
    braid_value *value; /* NULL: an empty optional */
    PyObject *keep;
} Held;
void held_free(Held *h);

/* Makes h->value from `o` for the input `io`. Memory is borrowed where its layout allows. */
bool value_take(const braid_io *io, PyObject *o, Held *h);
/* Makes the Python object of an output; `v` is taken, also on failure. */
PyObject *value_give(braid_value *v);
/* Borrows the array `o` to write the result of output `io` into it; h->keep is `o`, or a tuple that
 * begins with it. */
bool value_into(const braid_io *io, PyObject *o, Held *h);
/* Whether the bytes of two tensors overlap. */
bool values_overlap(const braid_value *a, const braid_value *b);
/* Zeros for an input whose shape is fixed; else NULL with an InputError. A new array. */
PyObject *value_zeros(const braid_io *io);

/* ---- dlpack.c -------------------------------------------------------------------------------- */
bool dlpack_add(PyObject *module); /* adds the type DeviceTensor */
/* Where `o` lies if it has __dlpack__ and is no NumPy array: DLPack's device type; 0: it has not;
 * -1: an exception. */
int dlpack_device(PyObject *o);
/* The DLPack capsule of `o` and the tensor in it. `what`, `name`: for messages; `stream`: the
 * consumer's, NULL in CPU memory. */
PyObject *dlpack_capsule(PyObject *o, const char *what, const char *name, PyObject *stream,
                         DLTensor **tensor);
/* A view of a tensor value; false, without an exception: DLPack has no such type. */
bool dlpack_of_value(const braid_value *v, DLTensor *t);
bool dlpack_take(const braid_io *io, PyObject *o, Held *h); /* value_take of a tensor on the CPU */
/* value_into of a tensor of another library. */
bool dlpack_into(const braid_io *io, PyObject *o, Held *h);
/* The name of the library that `o` belongs to if it has from_dlpack ("torch"), interned; NULL
 * without an exception: none. A borrowed reference. */
PyObject *dlpack_library(PyObject *o);
/* A tensor of `library` (or a DeviceTensor for NULL) out of `t`, which is taken. */
PyObject *dlpack_give(DLManagedTensor *t, PyObject *library);
/* The same from a NumPy array on the CPU, which is returned as it is where `library` lacks the
 * type. Takes the reference. */
PyObject *dlpack_from_array(PyObject *array, PyObject *library);
/* The tensor of a DeviceTensor; NULL without an exception: `o` is something else. */
const DLTensor *device_tensor(PyObject *o);

/* ---- model.c --------------------------------------------------------------------------------- */
typedef struct Model {
    PyObject ob_base;
    struct braid_model *model;
    int nin, nout;
    int device;                 /* DLPack's type of the device that the model runs on; 0: the CPU */
    const braid_io **in, **out; /* the model's */
    PyObject *in_names, *out_names; /* tuples of interned str */
    /* State: output carry_out[k] of one step is input carry_in[k] of the next. carries[i] is 1 + k
     * for input i, carried[j] for output j; 0: none. */
    int ncarry;
    int *carry_in, *carry_out, *carries, *carried;
    bool takes_out; /* an input is called "out" */
} Model;
bool model_add(PyObject *module);
/* Makes the Model of `model`, which is taken. */
Model *model_new(struct braid_model *model);

/* ---- load.c ---------------------------------------------------------------------------------- */
extern const char load_doc[];
PyObject *load(PyObject *module, PyObject *args, PyObject *kw);

/* ---- session.c ------------------------------------------------------------------------------- */
bool session_add(PyObject *module);
extern const char session_doc[];
PyObject *session_new(PyObject *model, PyObject *args, PyObject *kw);

/* ---- interrupt.c ----------------------------------------------------------------------------- */
bool interrupt_add(PyObject *module); /* remembers the main thread */
/* Around a run, without the GIL too: between them Ctrl-C in the main thread cancels it. */
bool interrupt_begin(braid_session *session);
/* Whether Ctrl-C was pressed since. */
bool interrupt_end(bool begun);
extern unsigned interrupt_forks; /* how many forks lie between this process and the first one */

#endif
