/* compile.h: from a model file to a Program, to text, to a shared library. */
#ifndef BRAID_COMPILE_H
#define BRAID_COMPILE_H

#include "base/base.h"
#include "scheduler/plan/facts.h"
#include "utask/utask.h"

typedef struct CompileOptions {
    const void *model; /* the model's bytes, instead of the file's; NULL: there is a file */
    size_t model_size;
    Progress *progress;   /* who waits for the compilation, or NULL */
    const char *target;   /* "interp", or a device's name (scheduler/cost/device.h) */
    const char *cpu;      /* CPU to tune for, as the C compiler names it; NULL: this machine */
    const FoldSpec *fold; /* the caller's loop to fold into the model, or NULL */
    int nshape;           /* shapes of inputs, in addition to what the file declares */
    const InputShape *shape;
    bool ignore_dim_names; /* graph_ignore_dim_names */
    /* Do not compile a model with inputs of unknown rank: the caller compiles it again, with
     * shapes, for the ranks of a run. */
    bool by_run;
    const char *emit_path; /* where the caller also writes the text, or NULL */
    DType weights;         /* float32 factors may be rounded to it; DT_NONE: they stay */
    const char *schedule;  /* "NAME=on,NAME=off": forced transformations; NULL: none */
    /* What tuning found (scheduler/cost/decide.h), sorted by key. */
    const struct Measured *measured;
    int nmeasured;
    /* To schedule for (scheduler/cost/device.h); NULL: the target's row of the table. */
    const struct Device *device;
    int units;                 /* threads to schedule for; 0: all that this process may use */
    const char *cc;            /* the C compiler's command; NULL: $CC, else cc */
    const char *kept;          /* the folder of object files that are kept, or NULL */
    bool profile;              /* it measures itself (scheduler/plan/probes.h) */
    const char *torch_name;    /* "NAMESPACE::NAME" of PyTorch's operator, or NULL */
    struct PassReport *report; /* to fill in, or NULL */
} CompileOptions;

/* A report on the passes. The caller owns the texts, also when compiling raises. */
typedef struct PassReport {
    /* Print the tree after this pass; NULL: do not. Raises ST_USAGE if no such pass runs for the
     * target. */
    const char *after;
    Sb tree, times; /* times: a line for each pass, milliseconds of the pass and of the verifier */
} PassReport;

/* Imports the model as the options say. Everything returned lives in `a`. Raises on d. With
 * o->model, model_path may be NULL. */
Graph *compile_import(Arena *a, Diag *d, const char *model_path, const CompileOptions *o);
/* Whether g has inputs of unknown rank. */
bool compile_is_open(const Graph *g);
/* Imports and lowers the model; NULL if it is open (compile_is_open) and o->by_run is set. */
Program *compile_program(Arena *a, Diag *d, const char *model_path, const CompileOptions *o);

/* A translation unit of a program in C. There are at most UNITS_MAX. Beside those of the kernel and
 * the entry each has functions of at least UNIT_BYTES of text: a compiler takes half a second for
 * that, and about 100 MB. */
#define UNITS_MAX 64
#define UNIT_BYTES 32768
typedef struct Unit {
    Sb text;
    bool same;  /* as that of many other programs: its object file is worth keeping */
    bool brief; /* it runs briefly, and is not worth much optimization */
} Unit;
/* The texts that a library is built from. */
typedef struct Texts {
    Sb text;    /* the program; for GPUs the device's part */
    Sb host;    /* for GPUs the host's part, in C; else empty */
    Sb weights; /* constants; empty if the text holds them */
    /* For CPUs: the text as translation units, which are compiled side by side. In the memory of
     * the Program. */
    int nunit;
    Unit *unit;
} Texts;
/* Fills *to, which must be empty. The caller frees it (texts_free), also when this raises (on the
 * Diag of p's context). */
void compile_emit(Program *p, Texts *to);
void texts_free(Texts *t);

/* Builds a shared library with the C compiler found at run time ($CC, else cc), from translation
 * units, or, if n is 0, from the text in the file text_path. Other files lie beside it, under
 * names that begin with its name: the weights, if any, are in TEXT_PATH.weights. Raises ST_IO.
 * Files that the library needs are written beside so_path under its name, and the library looks for
 * them in its own folder: build in a temporary folder and move all of it. */
void compile_build_cpu(Diag *d, int n, const Unit *unit, const char *text_path, const char *so_path,
                       const CompileOptions *o);
/* A hash of a command: of its text, and of the files of the programs that it names. */
uint64_t compile_hash_command(const char *command, uint64_t h);
uint64_t compile_hash_file(const char *path, uint64_t h); /* of its path, size and time */

/* What every text for the CPU, and every host's text for a GPU, is compiled with, beside -O2 and
 * for the former compile_arch; NULL at the end. */
extern const char *const compile_host_flags[];
#define COMPILE_FLAGS 11
extern const char *const compile_flags[COMPILE_FLAGS + 1];
/* The C compiler's option for the processor that o names, as in "-march=native". Instruction sets
 * that Braid knows by name are not looked for in the machine's compiler. */
void compile_arch(Diag *d, const CompileOptions *o, char *option, size_t size);

/* What the device's compiler reports about a kernel. All 0 on emulated devices. */
typedef struct GpuFacts {
    int registers;    /* per thread */
    int spill_bytes;  /* per thread */
    int stack_bytes;  /* per thread, as far as known: without the stack of recursion */
    int shared_bytes; /* per block, without what the launch adds */
    int waves;        /* HIP: occupancy, waves per SIMD; else 0 */
} GpuFacts;
/* Builds a shared library for a GPU from the texts of device and host: with nvcc ($NVCC;
 * libnvrtc.so if that is "nvrtc" or there is no nvcc), hipcc ($HIPCC; $HIPIFY as in build/gpu.c),
 * or the C++ compiler ($CXX) for an emulated device; then with the C compiler. Otherwise as
 * compile_build_cpu, with the weights in HOST_PATH.weights. `facts` may be NULL. */
void compile_build_gpu(Diag *d, const char *device_path, const char *host_path, const char *so_path,
                       const CompileOptions *o, GpuFacts *facts);

/* Prints the command that makes the code object of a device text (for HIP, a translated one), to be
 * followed by -o CODE TEXT. */
void compile_device_command(const char *target, Sb *to);

/* Translates the device text (CUDA) in a file to HIP, into hip_path. */
void compile_hip(Diag *d, const char *device_path, const char *hip_path);

/* More bytes of weights than this stay in a file beside the library, which maps it. */
#define WEIGHTS_MAPPED ((size_t)64 << 20)

/* A hash of this machine's processor: model and instruction set. Writes the model's name to `model`
 * (`size` bytes), unless that is NULL. */
uint64_t compile_machine(char *model, size_t size);

/* The number of CPUs that this process may use. */
int compile_cpus(void);

/* Float lanes of a vector (16, 8 or 4) on the processor that o names; *dots, unless dots is NULL:
 * Schedule.dots. Asks the C compiler about names other than x86-64, -v2, -v3, -v4, armv8… and
 * armv9…. */
int compile_vector_width(Diag *d, const CompileOptions *o, int *dots);

#endif
