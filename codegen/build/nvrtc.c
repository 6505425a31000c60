/* nvrtc.c: compiles device texts by NVIDIA's run-time compiler, if there is no nvcc. */
#include "codegen/build/build.h"
#include <dlfcn.h>
#include <stdlib.h>

/* NVRTC has no headers of the C library. This is what emitted texts use of them. */
static const char stdint_text[] =
    "#pragma once\n"
    "typedef signed char int8_t;\ntypedef short int16_t;\ntypedef int int32_t;\ntypedef long "
    "int64_t;\n"
    "typedef unsigned char uint8_t;\ntypedef unsigned short uint16_t;\ntypedef unsigned int "
    "uint32_t;\n"
    "typedef unsigned long uint64_t;\ntypedef unsigned long uintptr_t;\ntypedef long intptr_t;\n"
    "#define INT32_MAX 0x7fffffff\n#define INT32_MIN (-INT32_MAX - 1)\n#define INT64_MAX "
    "0x7fffffffffffffffL\n"
    "#define INT64_MIN (-INT64_MAX - 1)\n#define UINT8_MAX 0xff\n#define UINT16_MAX 0xffff\n"
    "#define UINT32_MAX 0xffffffffu\n#define UINT64_MAX 0xffffffffffffffffUL\n#define SIZE_MAX "
    "UINT64_MAX\n"
    "#define UINT32_C(x) x##u\n#define INT64_C(x) x##L\n#define UINT64_C(x) x##UL\n"
    "#ifndef NULL\n#define NULL 0\n#endif\n#define offsetof(T, m) ((size_t)&((T *)0)->m)\n"
    "#define INFINITY __int_as_float(0x7f800000)\n#define NAN __int_as_float(0x7fffffff)\n"
    "#define __builtin_inff() INFINITY\n#define __builtin_nanf(s) NAN\n"
    "#define __builtin_inf() ((double)INFINITY)\n#define __builtin_nan(s) ((double)NAN)\n"
    "#define __builtin_fabsf fabsf\n#define __builtin_fabs fabs\n#define __builtin_copysignf "
    "copysignf\n"
    "#define __builtin_rintf rintf\n#define __builtin_rint rint\n#define __builtin_sqrtf sqrtf\n"
    "#define __builtin_sqrt sqrt\n#define __builtin_floorf floorf\n#define __builtin_floor floor\n"
    "#define __builtin_ceilf ceilf\n#define __builtin_ceil ceil\n#define __builtin_truncf truncf\n"
    "#define __builtin_trunc trunc\n";
static const char none_text[] = "";

typedef struct Nvrtc {
    void *library;
    int (*create)(void **program, const char *text, const char *name, int n,
                  const char *const *header, const char *const *header_name);
    int (*compile)(void *program, int n, const char *const *option);
    int (*log_size)(void *program, size_t *size);
    int (*log)(void *program, char *to);
    int (*code_size)(void *program, size_t *size);
    int (*code)(void *program, char *to);
    int (*destroy)(void **program);
} Nvrtc;

static bool nvrtc_open(Nvrtc *n) {
    static const char *const path[] = {"libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12",
                                       "/usr/local/cuda/lib64/libnvrtc.so"};
    struct {
        void *to;
        const char *name;
    } row[] = {
        {&n->create, "nvrtcCreateProgram"},       {&n->compile, "nvrtcCompileProgram"},
        {&n->log_size, "nvrtcGetProgramLogSize"}, {&n->log, "nvrtcGetProgramLog"},
        {&n->code_size, "nvrtcGetCUBINSize"},     {&n->code, "nvrtcGetCUBIN"},
        {&n->destroy, "nvrtcDestroyProgram"},
    };
    n->library = NULL;
    for (size_t i = 0; i < COUNT(path) && !n->library; i++)
        n->library = dlopen(path[i], RTLD_NOW | RTLD_LOCAL);
    if (!n->library) return false;
    for (size_t i = 0; i < COUNT(row); i++) {
        void *p = dlsym(n->library, row[i].name);
        memcpy(row[i].to, &p, sizeof p);
        if (p) continue;
        dlclose(n->library);
        return false;
    }
    return true;
}

bool nvrtc_compile(const char *text, const char *arch, char **code, size_t *size, char **log) {
    static const char *const header[] = {stdint_text, none_text, none_text, none_text, none_text};
    static const char *const name[] = {"stdint.h", "stddef.h", "stdbool.h", "string.h", "math.h"};
    char option[80];
    const char *const options[] = {option,
                                   "--std=c++17",
                                   "--fmad=false",
                                   "--ptxas-options=-v",
                                   "--device-as-default-execution-space",
                                   "-w"};
    Nvrtc n;
    void *program = NULL;
    size_t bytes = 0;
    *code = *log = NULL;
    *size = 0;
    if (!nvrtc_open(&n)) return false;
    snprintf(option, sizeof option, "--gpu-architecture=%s", arch);
    bool made = n.create(&program, text, "kernel.cu", COUNT(header), header, name) == 0;
    bool ok = made && n.compile(program, COUNT(options), options) == 0;
    if (made &&
        (n.log_size(program, &bytes) || !(*log = malloc(bytes + 1)) || n.log(program, *log)))
        ok = false;
    if (*log) (*log)[bytes] = 0;
    if (ok &&
        (n.code_size(program, size) || !(*code = malloc(*size + 1)) || n.code(program, *code))) {
        free(*code);
        *code = NULL;
    }
    if (made) n.destroy(&program);
    dlclose(n.library);
    if (!*log && (*log = malloc(64))) strcpy(*log, "error: it cannot begin");
    return *log != NULL;
}
