/* dlpack.c: tensors of other libraries (PyTorch, JAX, CuPy) by DLPack, and DeviceTensor, which
 * hands ours to them. None of these libraries is imported here. */
#include <stdlib.h>

#include "ext.h"

static PyObject *name_dlpack, *name_device, *name_module;
static PyTypeObject *tensor_type;

/* ---- in ---- */
int dlpack_device(PyObject *o) {
    PyObject *pair, *type;
    if (PyArray_Check(o) || PyFloat_CheckExact(o) || PyLong_Check(o) || PyList_CheckExact(o) ||
        PyTuple_CheckExact(o) || PyType_Check(o) || PyArray_IsScalar(o, Generic))
        return 0;
    if (!PyObject_HasAttr(o, name_dlpack) || !PyObject_HasAttr(o, name_device)) return 0;
    if (!(pair = PyObject_CallMethodObjArgs(o, name_device, NULL))) return -1;
    long device = 0;
    if ((type = PySequence_GetItem(pair, 0)) != NULL) device = PyLong_AsLong(type);
    Py_XDECREF(type);
    Py_DECREF(pair);
    if (PyErr_Occurred()) return -1;
    if (device == kDLCUDAHost || device == kDLROCMHost) return kDLCPU;
    if (device < 1 || device > 1000) {
        PyErr_SetString(PyExc_ValueError, "__dlpack_device__ returned no device");
        return -1;
    }
    return (int)device;
}

PyObject *dlpack_capsule(PyObject *o, const char *what, const char *name, PyObject *stream,
                         DLTensor **tensor) {
    PyObject *f = PyObject_GetAttr(o, name_dlpack);
    PyObject *none = PyTuple_New(0);
    PyObject *kw = stream ? Py_BuildValue("{s:O}", "stream", stream) : NULL;
    PyObject *capsule = f && none ? PyObject_Call(f, none, kw) : NULL;
    Py_XDECREF(kw);
    Py_XDECREF(none);
    Py_XDECREF(f);
    if (!capsule) { return raise_caused(BRAID_INPUT, what, name); }
    /* It stays "dltensor": the capsule frees the tensor when we drop it. */
    DLManagedTensor *m = PyCapsule_GetPointer(capsule, "dltensor");
    if (!m) {
        raise_from(BRAID_INPUT, "%s '%s': __dlpack__ returned no DLPack tensor", what, name);
        Py_DECREF(capsule);
        return NULL;
    }
    *tensor = &m->dl_tensor;
    return capsule;
}

static braid_dtype from_dl(DLDataType t) {
    if (t.lanes != 1) return BRAID_DTYPE_NONE;
    static const braid_dtype
        sint[] = {[1] = BRAID_INT8, [2] = BRAID_INT16, [4] = BRAID_INT32, [8] = BRAID_INT64},
        uint[] = {[1] = BRAID_UINT8, [2] = BRAID_UINT16, [4] = BRAID_UINT32, [8] = BRAID_UINT64},
        real[] = {[2] = BRAID_FLOAT16, [4] = BRAID_FLOAT32, [8] = BRAID_FLOAT64, [0] = 0};
    int n = t.bits % 8 == 0 && t.bits <= 64 ? t.bits / 8 : 0;
    switch (t.code) {
    case kDLInt: return sint[n];
    case kDLUInt: return uint[n];
    case kDLFloat: return real[n];
    case kDLBool: return n == 1 ? BRAID_BOOL : BRAID_DTYPE_NONE;
    case kDLBfloat: return n == 2 ? BRAID_BFLOAT16 : BRAID_DTYPE_NONE;
    case kDLFloat8_e4m3fn: return n == 1 ? BRAID_FLOAT8E4M3FN : BRAID_DTYPE_NONE;
    case kDLFloat8_e4m3fnuz: return n == 1 ? BRAID_FLOAT8E4M3FNUZ : BRAID_DTYPE_NONE;
    case kDLFloat8_e5m2: return n == 1 ? BRAID_FLOAT8E5M2 : BRAID_DTYPE_NONE;
    case kDLFloat8_e5m2fnuz: return n == 1 ? BRAID_FLOAT8E5M2FNUZ : BRAID_DTYPE_NONE;
    case kDLFloat8_e8m0fnu: return n == 1 ? BRAID_FLOAT8E8M0 : BRAID_DTYPE_NONE;
    default: return BRAID_DTYPE_NONE;
    }
}

static DLDataType to_dl(braid_dtype t) {
    DLDataType d = {0, (uint8_t)element_bits(t), 1};
    switch (t) {
    case BRAID_INT8:
    case BRAID_INT16:
    case BRAID_INT32:
    case BRAID_INT64: d.code = kDLInt; break;
    case BRAID_UINT8:
    case BRAID_UINT16:
    case BRAID_UINT32:
    case BRAID_UINT64: d.code = kDLUInt; break;
    case BRAID_FLOAT16:
    case BRAID_FLOAT32:
    case BRAID_FLOAT64: d.code = kDLFloat; break;
    case BRAID_BOOL: d.code = kDLBool; break;
    case BRAID_BFLOAT16: d.code = kDLBfloat; break;
    case BRAID_FLOAT8E4M3FN: d.code = kDLFloat8_e4m3fn; break;
    case BRAID_FLOAT8E4M3FNUZ: d.code = kDLFloat8_e4m3fnuz; break;
    case BRAID_FLOAT8E5M2: d.code = kDLFloat8_e5m2; break;
    case BRAID_FLOAT8E5M2FNUZ: d.code = kDLFloat8_e5m2fnuz; break;
    case BRAID_FLOAT8E8M0: d.code = kDLFloat8_e8m0fnu; break;
    default: d.bits = 0; break;
    }
    return d;
}

bool dlpack_of_value(const braid_value *v, DLTensor *t) {
    *t = (DLTensor){.data = braid_value_data(v),
                    .device = {kDLCPU, 0},
                    .ndim = braid_value_rank(v),
                    .dtype = to_dl(braid_value_dtype(v)),
                    .shape = (int64_t *)braid_value_dim(v)};
    return braid_value_kind(v) == BRAID_TENSOR && t->dtype.bits >= 8;
}

bool dlpack_take(const braid_io *io, PyObject *o, Held *h) {
    DLTensor *t;
    braid_error e;
    PyObject *capsule = dlpack_capsule(o, "input", io->name, NULL, &t);
    if (!capsule) return false;
    h->keep = capsule;
    braid_dtype dtype = from_dl(t->dtype);
    size_t size = braid_dtype_size(dtype);
    if (t->device.device_type != kDLCPU && t->device.device_type != kDLCUDAHost &&
        t->device.device_type != kDLROCMHost)
        return raise_status(BRAID_INPUT,
                            "input '%s': its memory is on a device where this model does not run",
                            io->name);
    if (!dtype || t->ndim < 0 || t->ndim > BRAID_RANK_LIMIT || (t->ndim && !t->shape))
        return raise_status(BRAID_INPUT, "input '%s': its element type or rank is not supported",
                            io->name);
    bool dense = true, empty = false;
    for (int64_t i = t->ndim - 1, step = 1; i >= 0; step *= t->shape[i--]) {
        dense = dense && (!t->strides || t->shape[i] == 1 || t->strides[i] == step);
        empty = empty || t->shape[i] == 0;
    }
    char *data = t->data ? (char *)t->data + t->byte_offset : NULL;
    if (!empty && (!dense || (uintptr_t)data % size)) { /* NumPy copies it, whatever the type is */
        npy_intp strides[BRAID_RANK_LIMIT] = {0};
        for (int i = t->ndim - 1; i >= 0; i--)
            strides[i] = t->strides         ? t->strides[i] * (npy_intp)size
                         : i == t->ndim - 1 ? (npy_intp)size
                                            : strides[i + 1] * t->shape[i + 1];
        PyArray_Descr *d = element_descr(dtype);
        PyObject *view =
            d ? PyArray_NewFromDescr(&PyArray_Type, d, t->ndim, (const npy_intp *)t->shape, strides,
                                     data, 0, NULL)
              : NULL;
        PyObject *copy = view ? PyArray_NewCopy((PyArrayObject *)view, NPY_CORDER) : NULL;
        Py_XDECREF(view);
        if (!copy) return false;
        Py_DECREF(capsule);
        h->keep = copy;
        data = PyArray_DATA((PyArrayObject *)copy);
        int64_t dim[BRAID_RANK_LIMIT + 1];
        for (int i = 0; i < PyArray_NDIM((PyArrayObject *)copy); i++)
            dim[i] = PyArray_DIM((PyArrayObject *)copy, i);
        if (braid_value_borrow_tensor(dtype, PyArray_NDIM((PyArrayObject *)copy), dim, data,
                                      &h->value, &e) == BRAID_OK)
            return true;
        return raise_status(BRAID_INPUT, "input '%s': %s", io->name, e.message);
    }
    if (braid_value_borrow_tensor(dtype, t->ndim, t->shape, data, &h->value, &e) == BRAID_OK)
        return true;
    return raise_status(e.status == BRAID_MEMORY ? BRAID_MEMORY : BRAID_INPUT, "input '%s': %s",
                        io->name, e.message);
}

bool dlpack_into(const braid_io *io, PyObject *o, Held *h) {
    DLTensor *t;
    braid_error e;
    PyObject *library = dlpack_library(o), *capsule = NULL;
    int device = library && PyUnicode_CompareWithASCIIString(library, "jax") ? dlpack_device(o) : 0;
    if (device < 0) return raise_caused(BRAID_USAGE, "out for", io->name);
    if (device != kDLCPU)
        return raise_status(BRAID_USAGE,
                            "out for '%s': it has to be a NumPy array, a tensor of PyTorch in CPU "
                            "memory, or None",
                            io->name);
    if (!(capsule = dlpack_capsule(o, "out for", io->name, NULL, &t))) return false;
    bool dense = t->ndim >= 0 && t->ndim <= BRAID_RANK_LIMIT;
    for (int64_t i = t->ndim - 1, step = 1; dense && i >= 0; step *= t->shape[i--])
        dense = !t->strides || t->shape[i] == 1 || t->strides[i] == step;
    braid_dtype dtype = from_dl(t->dtype);
    if (!dense || !dtype) {
        Py_DECREF(capsule);
        return raise_status(BRAID_USAGE, "out for '%s': %s", io->name,
                            dense ? "its element type is not supported"
                                  : "it has to be row-major without gaps");
    }
    h->keep = PyTuple_Pack(2, o, capsule);
    Py_DECREF(capsule);
    if (!h->keep) return false;
    char *data = t->data ? (char *)t->data + t->byte_offset : NULL;
    return braid_value_borrow_tensor(dtype, t->ndim, t->shape, data, &h->value, &e) == BRAID_OK ||
           raise_status(e.status, "out for '%s': %s", io->name, e.message);
}

/* ---- out ---- */
typedef struct DeviceTensor {
    PyObject ob_base;
    DLManagedTensor *managed; /* owned; NULL: the memory is `array`'s */
    PyObject *array;
    DLTensor t;
} DeviceTensor;

static void tensor_dealloc(PyObject *self) {
    DeviceTensor *d = (DeviceTensor *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (d->managed && d->managed->deleter) d->managed->deleter(d->managed);
    Py_XDECREF(d->array);
    PyObject_Free(self);
    Py_DECREF(type);
}

static DeviceTensor *tensor_new(void) {
    DeviceTensor *d = PyObject_New(DeviceTensor, tensor_type);
    if (d) {
        d->managed = NULL;
        d->array = NULL;
    }
    return d;
}

const DLTensor *device_tensor(PyObject *o) {
    return Py_IS_TYPE(o, tensor_type) ? &((DeviceTensor *)o)->t : NULL;
}

/* An export: its memory lives as long as the DeviceTensor that it holds. */
static void export_free(DLManagedTensor *m) {
    if (!Py_IsInitialized()) return;
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_DECREF((PyObject *)m->manager_ctx);
    PyGILState_Release(gil);
    free(m);
}

static void capsule_free(PyObject *capsule) {
    if (!PyCapsule_IsValid(capsule, "dltensor")) return; /* somebody has taken it */
    DLManagedTensor *m = PyCapsule_GetPointer(capsule, "dltensor");
    m->deleter(m);
}

static PyObject *tensor_dlpack(PyObject *self, PyObject *args, PyObject *kw) {
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *ignored[4];
    if (!PyArg_ParseTupleAndKeywords(args, kw, "|$OOOO:__dlpack__", names, &ignored[0], &ignored[1],
                                     &ignored[2], &ignored[3]))
        return NULL;
    DLManagedTensor *m = malloc(sizeof *m);
    if (!m) return PyErr_NoMemory();
    *m = (DLManagedTensor){((DeviceTensor *)self)->t, self, export_free};
    PyObject *capsule = PyCapsule_New(m, "dltensor", capsule_free);
    if (capsule)
        Py_INCREF(self);
    else
        free(m);
    return capsule;
}

static PyObject *tensor_device(PyObject *self, PyObject *unused) {
    (void)unused;
    const DLTensor *t = &((DeviceTensor *)self)->t;
    return Py_BuildValue("(ii)", (int)t->device.device_type, (int)t->device.device_id);
}

static PyObject *tensor_shape(PyObject *self, void *unused) {
    (void)unused;
    const DLTensor *t = &((DeviceTensor *)self)->t;
    PyObject *shape = PyTuple_New(t->ndim);
    for (int i = 0; shape && i < t->ndim; i++) {
        PyObject *n = PyLong_FromLongLong(t->shape[i]);
        if (!n || PyTuple_SetItem(shape, i, n) != 0) Py_CLEAR(shape);
    }
    return shape;
}

static PyObject *tensor_dtype(PyObject *self, void *unused) {
    (void)unused;
    return PyUnicode_FromString(element_name(from_dl(((DeviceTensor *)self)->t.dtype)));
}

static PyObject *tensor_repr(PyObject *self) {
    PyObject *shape = tensor_shape(self, NULL), *dtype = tensor_dtype(self, NULL);
    const DLTensor *t = &((DeviceTensor *)self)->t;
    PyObject *text =
        shape && dtype
            ? PyUnicode_FromFormat("<braid.DeviceTensor %S%S on device (%d, %d)>", dtype, shape,
                                   (int)t->device.device_type, (int)t->device.device_id)
            : NULL;
    Py_XDECREF(shape);
    Py_XDECREF(dtype);
    return text;
}

static PyMethodDef tensor_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))tensor_dlpack, METH_VARARGS | METH_KEYWORDS,
     "__dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
     "A DLPack capsule that shares this tensor's memory."},
    {"__dlpack_device__", tensor_device, METH_NOARGS,
     "__dlpack_device__(self)\n--\n\nWhere the tensor lies: (DLPack's device type, number)."},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef tensor_getset[] = {
    {"shape", tensor_shape, NULL, "Sizes, a tuple of int.", NULL},
    {"dtype", tensor_dtype, NULL, "The name of the element type.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot tensor_slots[] = {
    {Py_tp_doc,
     "A tensor in a GPU's memory, for any library that reads DLPack (torch.from_dlpack, …).\n\n"
     "Session.to_device makes them, and runs whose inputs are such tensors."},
    {Py_tp_dealloc, tensor_dealloc},
    {Py_tp_methods, tensor_methods},
    {Py_tp_getset, tensor_getset},
    {Py_tp_repr, tensor_repr},
    {0, NULL}};
static PyType_Spec tensor_spec = {"braid.DeviceTensor", sizeof(DeviceTensor), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  tensor_slots};

bool dlpack_add(PyObject *m) {
    name_dlpack = PyUnicode_InternFromString("__dlpack__");
    name_device = PyUnicode_InternFromString("__dlpack_device__");
    name_module = PyUnicode_InternFromString("__module__");
    tensor_type = (PyTypeObject *)PyType_FromSpec(&tensor_spec);
    return name_dlpack && name_device && name_module && tensor_type &&
           PyModule_AddObjectRef(m, "DeviceTensor", (PyObject *)tensor_type) == 0;
}

PyObject *dlpack_library(PyObject *o) {
    static PyObject *known[3];
    static const char *const names[] = {"torch", "jax", "cupy"};
    if (Py_IS_TYPE(o, tensor_type)) return NULL;
    PyObject *module = PyObject_GetAttr((PyObject *)Py_TYPE(o), name_module), *found = NULL;
    PyObject *bytes = module && PyUnicode_Check(module) ? PyUnicode_AsUTF8String(module) : NULL;
    const char *text = bytes ? PyBytes_AsString(bytes) : "";
    PyErr_Clear();
    for (int i = 0; !found && i < 3; i++) {
        size_t n = strlen(names[i]);
        bool same = strncmp(text, names[i], n) == 0 && (!text[n] || text[n] == '.');
        if (i == 1 && strncmp(text, "jaxlib", 6) == 0) same = true;
        if (!same) continue;
        if (!known[i]) known[i] = PyUnicode_InternFromString(names[i]);
        found = known[i];
    }
    Py_XDECREF(bytes);
    Py_XDECREF(module);
    return found;
}

/* library.from_dlpack(tensor). */
static PyObject *convert(DeviceTensor *tensor, PyObject *library) {
    if (!library) return (PyObject *)tensor;
    PyObject *result = call_python("braid._convert", "from_dlpack", "(ON)", library, tensor);
    return result;
}

PyObject *dlpack_give(DLManagedTensor *t, PyObject *library) {
    DeviceTensor *d = tensor_new();
    if (!d) {
        if (t->deleter) t->deleter(t);
        return NULL;
    }
    d->managed = t;
    d->t = t->dl_tensor;
    return convert(d, library);
}

PyObject *dlpack_from_array(PyObject *array, PyObject *library) {
    DLDataType type =
        PyArray_Check(array) ? to_dl(element_of((PyArrayObject *)array)) : (DLDataType){0};
    if (type.bits < 8) return array;
    DeviceTensor *d = tensor_new();
    if (!d) {
        Py_DECREF(array);
        return NULL;
    }
    PyArrayObject *a = (PyArrayObject *)array;
    d->array = array;
    d->t = (DLTensor){.data = PyArray_DATA(a),
                      .device = {kDLCPU, 0},
                      .ndim = PyArray_NDIM(a),
                      .dtype = type,
                      .shape = (int64_t *)PyArray_DIMS(a)};
    return convert(d, library);
}
