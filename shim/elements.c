/* elements.c: element types of the library and of NumPy. Those that NumPy lacks are ml_dtypes'. */
#include "ext.h"

static const struct {
    const char *name; /* NumPy's and ml_dtypes' */
    int bits, number; /* NumPy's type number; 0: an ml_dtypes type (or bool) */
} types[] = {
    [BRAID_FLOAT32] = {"float32", 32, NPY_FLOAT32},
    [BRAID_UINT8] = {"uint8", 8, NPY_UINT8},
    [BRAID_INT8] = {"int8", 8, NPY_INT8},
    [BRAID_UINT16] = {"uint16", 16, NPY_UINT16},
    [BRAID_INT16] = {"int16", 16, NPY_INT16},
    [BRAID_INT32] = {"int32", 32, NPY_INT32},
    [BRAID_INT64] = {"int64", 64, NPY_INT64},
    [BRAID_BOOL] = {"bool", 8, NPY_BOOL},
    [BRAID_FLOAT16] = {"float16", 16, NPY_FLOAT16},
    [BRAID_FLOAT64] = {"float64", 64, NPY_FLOAT64},
    [BRAID_UINT32] = {"uint32", 32, NPY_UINT32},
    [BRAID_UINT64] = {"uint64", 64, NPY_UINT64},
    [BRAID_BFLOAT16] = {"bfloat16", 16, 0},
    [BRAID_FLOAT8E4M3FN] = {"float8_e4m3fn", 8, 0},
    [BRAID_FLOAT8E4M3FNUZ] = {"float8_e4m3fnuz", 8, 0},
    [BRAID_FLOAT8E5M2] = {"float8_e5m2", 8, 0},
    [BRAID_FLOAT8E5M2FNUZ] = {"float8_e5m2fnuz", 8, 0},
    [BRAID_UINT4] = {"uint4", 4, 0},
    [BRAID_INT4] = {"int4", 4, 0},
    [BRAID_FLOAT4E2M1] = {"float4_e2m1fn", 4, 0},
    [BRAID_FLOAT8E8M0] = {"float8_e8m0fnu", 8, 0},
    [BRAID_UINT2] = {"uint2", 2, 0},
    [BRAID_INT2] = {"int2", 2, 0},
    [BRAID_FLOAT6E2M3] = {"float6_e2m3fn", 6, 0},
    [BRAID_FLOAT6E3M2] = {"float6_e3m2fn", 6, 0},
};
#define TYPES ((int)(sizeof types / sizeof *types))

static PyArray_Descr *small[TYPES]; /* ml_dtypes', once they are there */

static bool known(braid_dtype d) { return d > 0 && (int)d < TYPES && types[d].name; }
const char *element_name(braid_dtype d) { return known(d) ? types[d].name : ""; }
int element_bits(braid_dtype d) { return known(d) ? types[d].bits : 0; }

/* Looks ml_dtypes' types up; `import`: imports it. False: it is not there. */
static bool find_small(bool import) {
    static bool found;
    if (found) return true;
    PyObject *name = PyUnicode_FromString("ml_dtypes");
    PyObject *module = !name ? NULL : import ? PyImport_Import(name) : PyImport_GetModule(name);
    Py_XDECREF(name);
    if (!module) return false;
    for (int d = 0; d < TYPES; d++) {
        if (!types[d].name || types[d].number || d == BRAID_BOOL) continue;
        PyObject *type = PyObject_GetAttrString(module, types[d].name);
        if (!type || !PyArray_DescrConverter(type, &small[d])) PyErr_Clear(); /* an older one */
        Py_XDECREF(type);
    }
    Py_DECREF(module);
    return found = true;
}

PyArray_Descr *element_descr(braid_dtype d) {
    if (!known(d)) return raise_status(BRAID_UNSUPPORTED, "an unknown element type: %d", (int)d);
    if (types[d].number || d == BRAID_BOOL) return PyArray_DescrFromType(types[d].number);
    if (!find_small(true)) return NULL;
    if (!small[d])
        return raise_status(BRAID_UNSUPPORTED, "the installed ml_dtypes has no type %s",
                            types[d].name);
    return (PyArray_Descr *)Py_NewRef((PyObject *)small[d]);
}

static braid_dtype integer(int bytes, bool sign) {
    switch (bytes) {
    case 1: return sign ? BRAID_INT8 : BRAID_UINT8;
    case 2: return sign ? BRAID_INT16 : BRAID_UINT16;
    case 4: return sign ? BRAID_INT32 : BRAID_UINT32;
    default: return sign ? BRAID_INT64 : BRAID_UINT64;
    }
}

braid_dtype element_of(PyArrayObject *a) {
    PyArray_Descr *d = PyArray_DESCR(a);
    switch (d->type_num) {
    case NPY_FLOAT: return BRAID_FLOAT32;
    case NPY_DOUBLE: return BRAID_FLOAT64;
    case NPY_HALF: return BRAID_FLOAT16;
    case NPY_BOOL: return BRAID_BOOL;
    case NPY_BYTE:
    case NPY_SHORT:
    case NPY_INT:
    case NPY_LONG:
    case NPY_LONGLONG: return integer((int)PyDataType_ELSIZE(d), true);
    case NPY_UBYTE:
    case NPY_USHORT:
    case NPY_UINT:
    case NPY_ULONG:
    case NPY_ULONGLONG: return integer((int)PyDataType_ELSIZE(d), false);
    default: break;
    }
    if (d->type_num < NPY_USERDEF) return BRAID_DTYPE_NONE;
    if (!find_small(false)) { /* the import behind the array may still be going on */
        PyErr_Clear();
        return BRAID_DTYPE_NONE;
    }
    for (int i = 0; i < TYPES; i++)
        if (small[i] && small[i]->type_num == d->type_num) return (braid_dtype)i;
    return BRAID_DTYPE_NONE;
}
