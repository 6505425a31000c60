/* build.h: what the files that run compilers share. */
#ifndef BRAID_BUILD_H
#define BRAID_BUILD_H

#include "codegen/compile.h"

/* Runs argv. Its first entry may hold arguments, too, separated by spaces. Both output streams go
 * to `out`, at most `size` bytes with the final 0. Returns the exit status, or -1 if the program
 * could not be started. If the caller gives up (d->progress), the program is ended, and it
 * raises. Its temporary files go to the folder of the file `beside`, where they are removed with
 * the others if it is ended; NULL: it makes none. */
int build_run(Diag *d, const char *beside, char *const *argv, char *out, size_t size);
typedef struct BuildRun {
    char *const *argv;
    char *out;
    size_t size;
    int status; /* as build_run returns it */
} BuildRun;
/* Runs n programs like that, at most `most` and BUILD_PROCESSES of them at a time. False: the
 * caller gave up, and they are ended. */
#define BUILD_PROCESSES 8
bool build_run_all(Diag *d, const char *beside, BuildRun *run, int n, int most);
#define ARG(s) ((char *)(uintptr_t)(s)) /* a constant string in an argv */
/* The C compiler's command. */
const char *build_cc(const CompileOptions *o);
/* The C compiler's option for the processor that o names, in buf: "-march=…" or "-mcpu=…". Which
 * one knows the name depends on the compiler's target (clang only warns of one that its target
 * lacks); zig writes '_' for '-' in names. */
const char *build_arch(Diag *d, const CompileOptions *o, char *buf, size_t size);
_Noreturn void build_no_cc(Diag *d, const CompileOptions *o); /* it cannot be run: raises */
/* $NAME, or `otherwise` if that is not set or empty. */
const char *build_tool(const char *name, const char *otherwise);
/* Writes path + suffix into buf. Raises if it is too long, or has characters that a macro's string
 * cannot hold. */
void build_path(Diag *d, char *buf, size_t size, const char *path, const char *suffix);
/* Moves TEXT_PATH.weights to SO_PATH.weights, on the same file system, if the weights are so large
 * that the library maps them: it was written at once, so that the system keeps it in huge pages. */
void build_weights(Diag *d, const char *text_path, const char *so_path);

/* Object files that are kept (kept.c), by a key, in the folder `kept` (NULL: there is none). Copies
 * one to `object`; false: it is not there, or damaged. Keeps a copy of `object`, if it can. */
bool kept_take(const char *kept, uint64_t key, const char *object);
void kept_add(const char *kept, uint64_t key, const char *object);

/* Translates a CUDA text to HIP, and appends it to `to`. */
void hip_text(const char *cuda, Sb *to);

/* Compiles the device text `text` to machine code in memory, by NVIDIA's library. Returns false if
 * there is no such library. Otherwise *log holds its messages, and *code the code, or NULL if the
 * compilation failed. The caller frees both. */
bool nvrtc_compile(const char *text, const char *arch, char **code, size_t *size, char **log);

#endif
