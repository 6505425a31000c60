/* values.c: Python objects to values of the library, and back. */
#include <stdarg.h>
#include <stdio.h>

#include "ext.h"

PyObject *call_python(const char *module, const char *function, const char *format, ...) {
    PyObject *m = PyImport_ImportModule(module), *result = NULL;
    PyObject *f = m ? PyObject_GetAttrString(m, function) : NULL;
    va_list list;
    va_start(list, format);
    PyObject *args = f ? Py_VaBuildValue(format, list) : NULL;
    va_end(list);
    if (args) result = PyObject_Call(f, args, NULL);
    Py_XDECREF(args);
    Py_XDECREF(f);
    Py_XDECREF(m);
    return result;
}

PyObject *text_new(const char *text) {
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

void held_free(Held *h) {
    braid_value_free(h->value);
    Py_XDECREF(h->keep);
    h->value = NULL;
    h->keep = NULL;
}

/* "float32[2,N]", as the library's own messages say it. */
static const char *expected(const braid_io *io, char *text, size_t size) {
    size_t n =
        (size_t)snprintf(text, size, "%s%s", io->element == BRAID_SEQUENCE ? "a list of " : "",
                         io->dtype ? braid_dtype_name(io->dtype) : "any type");
    for (int i = 0; i < io->rank && n < size; i++) {
        const char *before = i ? "," : "[";
        if (io->dim[i] >= 0)
            n += (size_t)snprintf(text + n, size - n, "%s%lld", before, (long long)io->dim[i]);
        else
            n += (size_t)snprintf(text + n, size - n, "%s%s", before,
                                  io->dim_name[i] ? io->dim_name[i] : "?");
    }
    if (io->rank >= 0 && n < size) snprintf(text + n, size - n, io->rank ? "]" : "[]");
    return text;
}

/* ---- arrays in ---- */
/* Codes of fewer than 8 bits index tables: the other bits have to be 0. Replaces *array by a copy
 * where they are not. */
static bool clear_unused_bits(PyArrayObject **array, int bits) {
    const unsigned char *p = PyArray_DATA(*array);
    npy_intp n = PyArray_SIZE(*array), i = 0;
    unsigned mask = (1u << bits) - 1;
    while (i < n && p[i] <= mask) i++;
    if (i == n) return true;
    PyArrayObject *copy = (PyArrayObject *)PyArray_NewCopy(*array, NPY_CORDER);
    if (!copy) return false;
    unsigned char *q = PyArray_DATA(copy);
    for (i = 0; i < n; i++) q[i] &= (unsigned char)mask;
    Py_DECREF(*array);
    *array = copy;
    return true;
}

/* Raises an InputError about an input that is `what` and `name`, which is taken (NULL: an exception
 * is set already). */
static bool refuse(const braid_io *io, const char *what, PyObject *name) {
    char text[512];
    PyObject *bytes = name ? PyUnicode_AsEncodedString(name, "utf-8", "replace") : NULL;
    if (bytes)
        raise_status(BRAID_INPUT, "input '%s': expected %s, got %s%s", io->name,
                     expected(io, text, sizeof text), what, PyBytes_AsString(bytes));
    Py_XDECREF(bytes);
    Py_XDECREF(name);
    return false;
}

/* `a` is taken. */
static bool take_array(const braid_io *io, PyArrayObject *a, Held *h) {
    char text[512];
    braid_error e;
    braid_dtype dtype = element_of(a);
    if (dtype == BRAID_DTYPE_NONE) {
        refuse(io, "an array of ", PyObject_Str((PyObject *)PyArray_DESCR(a)));
        Py_DECREF(a);
        return false;
    }
    if (!PyArray_ISCARRAY_RO(a)) {
        PyArrayObject *copy = (PyArrayObject *)PyArray_CheckFromAny(
            (PyObject *)a, NULL, 0, 0,
            NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | NPY_ARRAY_NOTSWAPPED, NULL);
        Py_DECREF(a);
        if (!(a = copy)) return false;
    }
    int bits = element_bits(dtype);
    h->keep = (PyObject *)a;
    if (bits < 8) {
        bool good = clear_unused_bits(&a, bits);
        h->keep = (PyObject *)a;
        if (!good) return false;
    }
    if (braid_value_borrow_tensor(dtype, PyArray_NDIM(a), (const int64_t *)PyArray_DIMS(a),
                                  PyArray_DATA(a), &h->value, &e) == BRAID_OK)
        return true;
    raise_status(e.status == BRAID_MEMORY ? BRAID_MEMORY : BRAID_INPUT, "input '%s': %s", io->name,
                 e.message);
    return false;
}

/* Scalars, lists, buffers and what else NumPy understands. */
static bool take_other(const braid_io *io, PyObject *o, Held *h) {
    char text[512];
    PyObject *a = call_python("braid._convert", "asarray", "(OsNN)", o, element_name(io->dtype),
                              text_new(io->name), text_new(expected(io, text, sizeof text)));
    return a && take_array(io, (PyArrayObject *)a, h);
}

static bool take_tensor(const braid_io *io, PyObject *o, Held *h) {
    if (PyArray_Check(o)) {
        Py_INCREF(o);
        return take_array(io, (PyArrayObject *)o, h);
    }
    int device = dlpack_device(o);
    if (device < 0) return raise_caused(BRAID_INPUT, "__dlpack_device__ of input", io->name);
    if (device > kDLCPU)
        return raise_status(BRAID_INPUT,
                            "input '%s': it is on a device (DLPack's type %d), not in CPU memory",
                            io->name, device);
    return device ? dlpack_take(io, o, h) : take_other(io, o, h);
}

static bool take_sequence(const braid_io *io, PyObject *o, Held *h) {
    braid_error e;
    PyObject *items = PySequence_Tuple(o); /* nobody else can change it */
    Py_ssize_t n = items ? PyTuple_Size(items) : 0;
    PyObject *keep = items ? PyList_New(0) : NULL;
    braid_io item = *io;
    item.kind = item.element = BRAID_TENSOR;
    item.rank = -1;
    h->keep = keep;
    bool good = keep != NULL;
    for (Py_ssize_t i = 0; good && i < n; i++) {
        Held t = {0};
        good = take_tensor(&item, PyTuple_GetItem(items, i), &t) &&
               (!t.keep || PyList_Append(keep, t.keep) == 0);
        braid_dtype dtype = t.value ? braid_value_dtype(t.value) : item.dtype;
        if (good && !h->value && braid_value_new_sequence(dtype, &h->value, &e) != BRAID_OK) {
            raise_error(&e);
            good = false;
        }
        if (good && braid_value_append(h->value, t.value, &e) == BRAID_OK)
            t.value = NULL;
        else if (good) {
            raise_status(BRAID_INPUT, "input '%s', item %zd: %s", io->name, i, e.message);
            good = false;
        }
        held_free(&t);
    }
    if (good && !h->value && braid_value_new_sequence(io->dtype, &h->value, &e) != BRAID_OK) {
        raise_error(&e);
        good = false;
    }
    Py_XDECREF(items);
    return good;
}

bool value_take(const braid_io *io, PyObject *o, Held *h) {
    char text[512];
    h->value = NULL;
    h->keep = NULL;
    if (o == Py_None) {
        if (io->kind == BRAID_OPTIONAL) return true;
        return raise_status(BRAID_INPUT, "input '%s': expected %s, got None", io->name,
                            expected(io, text, sizeof text));
    }
    if (io->element == BRAID_TENSOR) return take_tensor(io, o, h);
    if (PyList_Check(o) || PyTuple_Check(o)) return take_sequence(io, o, h);
    return refuse(io, "an object of type ", PyType_GetName(Py_TYPE(o)));
}

PyObject *value_zeros(const braid_io *io) {
    bool fixed =
        io->element == BRAID_TENSOR && io->kind == BRAID_TENSOR && io->rank >= 0 && io->dtype;
    for (int i = 0; fixed && i < io->rank; i++) fixed = io->dim[i] >= 0;
    if (!fixed)
        return raise_status(BRAID_INPUT,
                            "input '%s': its first value is needed, because the model does not "
                            "declare its size: give it with the first step",
                            io->name);
    PyArray_Descr *d = element_descr(io->dtype);
    return d ? PyArray_Zeros(io->rank, (const npy_intp *)io->dim, d, 0) : NULL;
}

/* ---- arrays out ---- */
static void owner_free(PyObject *capsule) {
    braid_value_free(PyCapsule_GetPointer(capsule, "braid_value"));
}

/* The value's memory as an array; `owner` frees it with the last reference. */
static PyObject *give(const braid_value *v, PyObject *owner) {
    if (braid_value_kind(v) == BRAID_OPTIONAL) {
        const braid_value *item = braid_value_item(v, 0);
        if (item) return give(item, owner);
        Py_RETURN_NONE;
    }
    if (braid_value_kind(v) == BRAID_SEQUENCE) {
        int64_t n = braid_value_count(v);
        PyObject *list = PyList_New((Py_ssize_t)n);
        for (int64_t i = 0; list && i < n; i++) {
            PyObject *item = give(braid_value_item(v, i), owner);
            if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) != 0) Py_CLEAR(list);
        }
        return list;
    }
    PyArray_Descr *d = element_descr(braid_value_dtype(v));
    void *data = braid_value_count(v) ? braid_value_data(v) : NULL;
    PyObject *a = d ? PyArray_NewFromDescr(&PyArray_Type, d, braid_value_rank(v),
                                           (const npy_intp *)braid_value_dim(v), NULL, data,
                                           NPY_ARRAY_CARRAY, NULL)
                    : NULL;
    if (a && data) {
        Py_INCREF(owner);
        if (PyArray_SetBaseObject((PyArrayObject *)a, owner) != 0) Py_CLEAR(a);
    }
    return a;
}

PyObject *value_give(braid_value *v) {
    PyObject *owner = PyCapsule_New(v, "braid_value", owner_free);
    if (!owner) {
        braid_value_free(v);
        return NULL;
    }
    PyObject *result = give(v, owner);
    Py_DECREF(owner);
    return result;
}

bool value_into(const braid_io *io, PyObject *o, Held *h) {
    braid_error e;
    h->value = NULL;
    h->keep = NULL;
    if (!PyArray_Check(o)) return dlpack_into(io, o, h);
    PyArrayObject *a = (PyArrayObject *)o;
    if (!PyArray_ISCARRAY(a))
        return raise_status(BRAID_USAGE,
                            "out for '%s': it has to be row-major without gaps, writable and in "
                            "native byte order",
                            io->name);
    braid_dtype dtype = element_of(a);
    if (braid_value_borrow_tensor(dtype, PyArray_NDIM(a), (const int64_t *)PyArray_DIMS(a),
                                  PyArray_DATA(a), &h->value, &e) != BRAID_OK)
        return raise_status(e.status, "out for '%s': %s", io->name,
                            dtype ? e.message : "its element type is not supported");
    h->keep = o;
    Py_INCREF(o);
    return true;
}

static void extent(const braid_value *v, uintptr_t *from, uintptr_t *to) {
    *from = (uintptr_t)braid_value_data(v);
    *to = *from + (uintptr_t)braid_value_count(v) * braid_dtype_size(braid_value_dtype(v));
}

bool values_overlap(const braid_value *a, const braid_value *b) {
    uintptr_t a0, a1, b0, b1;
    if (!a || !b) return false;
    if (braid_value_kind(b) != BRAID_TENSOR) { /* a sequence or optional: its items */
        for (int64_t i = 0; i < braid_value_count(b); i++)
            if (values_overlap(a, braid_value_item(b, i))) return true;
        return false;
    }
    extent(a, &a0, &a1);
    extent(b, &b0, &b1);
    return a0 < b1 && b0 < a1;
}
