/* build.h: what the files that run compilers share (cc.c, gpu.c, hip.c, nvrtc.c). */
#ifndef BRAID_BUILD_H
#define BRAID_BUILD_H

#include "codegen/compile.h"

/* Runs argv. Its first entry may hold arguments, too, separated by spaces. Both output streams go
 * to `out`, at most `size` bytes with the final 0. Returns the exit status, or -1 if the program
 * could not be started. If the caller gives up (d->progress), the program is ended, and it
 * raises. Its temporary files go to the folder of the file `beside`, where they are removed with
 * the others if it is ended; NULL: it makes none. */
int build_run(Diag *d, const char *beside, char *const *argv, char *out, size_t size);
#define ARG(s) ((char *)(uintptr_t)(s)) /* a constant string in an argv */
/* The C compiler's command. */
const char *build_cc(const CompileOptions *o);
_Noreturn void build_no_cc(Diag *d, const CompileOptions *o); /* it cannot be run: raises */
/* $NAME, or `otherwise` if that is not set or empty. */
const char *build_tool(const char *name, const char *otherwise);
/* Writes path + suffix into buf. Raises if it is too long, or has characters that a macro's string
 * cannot hold. */
void build_path(Diag *d, char *buf, size_t size, const char *path, const char *suffix);
/* Copies TEXT_PATH.weights to SO_PATH.weights if the weights are so large that the library maps
 * them. */
void build_weights(Diag *d, const char *text_path, const char *so_path);

/* Translates a CUDA text to HIP, and appends it to `to`. */
void hip_text(const char *cuda, Sb *to);

/* Compiles the device text `text` to machine code in memory, by NVIDIA's library. Returns false if
 * there is no such library. Otherwise *log holds its messages, and *code the code, or NULL if the
 * compilation failed. The caller frees both. */
bool nvrtc_compile(const char *text, const char *arch, char **code, size_t *size, char **log);

#endif
