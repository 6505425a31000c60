/* module.c: the extension module braid._braid. */
#define EXT_MODULE_C
#include "ext.h"

static PyMethodDef functions[] = {
    {"load", (PyCFunction)(void (*)(void))load, METH_VARARGS | METH_KEYWORDS, load_doc},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "braid._braid",
                                        .m_doc = "Braid's C API for Python. Use the package braid.",
                                        .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit__braid(void) {
    import_array();
    PyObject *m = PyModule_Create(&definition);
    if (m && PyModule_AddStringConstant(m, "__version__", braid_version()) == 0 && errors_add(m) &&
        dlpack_add(m) && model_add(m) && session_add(m) && interrupt_add(m))
        return m;
    Py_XDECREF(m);
    return NULL;
}
