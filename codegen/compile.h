/* compile.h: from a model file to a Program, to text, to a shared library. */
#ifndef BRAID_COMPILE_H
#define BRAID_COMPILE_H

#include "base/base.h"
#include "scheduler/plan/facts.h"
#include "utask/utask.h"

typedef struct CompileOptions {
    const char *target; /* "interp", or a device's name (scheduler/cost/device.h) */
    const char
        *cpu; /* what to tune instructions for, as the C compiler names it; NULL: this machine */
    const FoldSpec *fold; /* the caller's loop to fold in, or NULL */
    int nshape;           /* of inputs, beside what the file declares */
    const InputShape *shape;
    bool ignore_dim_names; /* graph_ignore_dim_names */
    bool by_run; /* a model whose inputs leave their ranks open is not compiled: its caller does so
                    again, with shapes, for the ranks that a run brings */
    const char *emit_path; /* where the caller writes the text as well, or NULL */
    const char *schedule;  /* "NAME=on,NAME=off": transformations that are forced; NULL: none */
    const struct Measured *measured; /* what tuning found (scheduler/cost/decide.h), sorted by key */
    int nmeasured;
    const struct Device
        *device; /* to schedule for (scheduler/cost/device.h); NULL: the target's row of the table */
    int units;   /* threads to schedule for; 0: all that this process may use */
    struct PassReport *report; /* to fill in, or NULL */
} CompileOptions;

/* What is said of passes while they run. The texts are the caller's, also when compiling raises. */
typedef struct PassReport {
    const char *after; /* the pass after which to print the tree; NULL: none. ST_USAGE is raised
                          when there is no such pass, or the target does without it */
    Sb tree, times;    /* the tree; a line for each pass: milliseconds of it and of the verifier */
} PassReport;

/* The model as the options have it. Everything returned lives in `a`. Raises on d. */
Graph *compile_import(Arena *a, Diag *d, const char *model_path, const CompileOptions *o);
/* It has inputs whose rank is not known. */
bool compile_is_open(const Graph *g);
/* Imports and lowers the model; NULL when it is open and o->by_run. */
Program *compile_program(Arena *a, Diag *d, const char *model_path, const CompileOptions *o);

/* What a library is made of. */
typedef struct Texts {
    Sb text;    /* the program; for GPUs the device's part */
    Sb host;    /* for GPUs the host's part, in C; else empty */
    Sb weights; /* large constants; empty when the text holds them all */
} Texts;
/* Fills *to, which is empty. What is in it belongs to the caller (texts_free), also when this
 * raises (on the Diag of p's context). */
void compile_emit(Program *p, Texts *to);
void texts_free(Texts *t);

/* Text to shared library through the C compiler found at run time ($CC, else cc). The weights of
 * the text, if any, lie in TEXT_PATH.weights. Raises ST_IO. Files that the library needs beside it
 * are written into so_path's folder under so_path's name, and the library looks for them in its own
 * folder: callers build in a temporary folder and move all of it. */
void compile_build_cpu(Diag *d, const char *text_path, const char *so_path,
                       const CompileOptions *o);

/* What the compiler of a device says about a kernel. All 0 on emulated devices. */
typedef struct GpuFacts {
    int registers;    /* of a thread */
    int spill_bytes;  /* of a thread: registers that did not fit */
    int stack_bytes;  /* of a thread, as far as known: none for what recursion takes */
    int shared_bytes; /* of a block, beside what the launch gives it */
    int waves;        /* HIP: that a SIMD has room for; else 0 */
} GpuFacts;
/* The device's and the host's text to a shared library, for a target on a GPU: through nvcc ($NVCC;
 * "nvrtc" and where there is none: libnvrtc.so), hipcc ($HIPCC; $HIPIFY as in build_gpu.c), or the
 * C++ compiler ($CXX) for an emulated device; then through the C compiler. As compile_build_cpu,
 * with the weights in HOST_PATH.weights. `facts` may be NULL. */
void compile_build_gpu(Diag *d, const char *device_path, const char *host_path, const char *so_path,
                       const CompileOptions *o, GpuFacts *facts);

/* The HIP text that the device text (CUDA's) in a file becomes, to hip_path. */
void compile_hip(Diag *d, const char *device_path, const char *hip_path);

/* Weights beyond this many bytes stay a file beside the library, which maps it. */
#define WEIGHTS_MAPPED ((size_t)64 << 20)

/* A hash of this machine's processor: its model and its instruction set. `model` (of `size` bytes,
 * NULL: not wanted) gets its name. */
uint64_t compile_machine(char *model, size_t size);

/* CPUs that this process may use. */
int compile_cpus(void);

/* Float lanes of a vector on the processor that o names: 16, 8 or 4. */
int compile_vector_width(Diag *d, const CompileOptions *o);

#endif
