/* build.h: shared by what runs compilers (build.c, build_gpu.c, hip.c, nvrtc.c). */
#ifndef BRAID_BUILD_H
#define BRAID_BUILD_H

#include "codegen/compile.h"

/* Runs argv, whose first entry may have arguments of its own behind spaces, with its output (both
 * streams) into `out`, at most `size` bytes. Returns the exit status, or -1 when it could not be
 * started. */
int build_run(char *const *argv, char *out, size_t size);
#define ARG(s) ((char *)(uintptr_t)(s)) /* a constant string in an argv */
/* $NAME, or `otherwise` where that is not set. */
const char *build_tool(const char *name, const char *otherwise);
/* path + suffix in buf; raises when it is too long or has characters that a macro cannot hold. */
void build_path(Diag *d, char *buf, size_t size, const char *path, const char *suffix);
/* Puts what the text at text_path keeps in TEXT_PATH.weights, and is too large for it, beside
 * so_path. */
void build_weights(Diag *d, const char *text_path, const char *so_path);

/* Appends the HIP text that a CUDA text becomes. */
void hip_text(const char *cuda, Sb *to);

/* Compiles the device text `text` to machine code in memory, by NVIDIA's library. NULL: there is no
 * such library, *log is NULL. Otherwise *log is what it says, and *code is NULL when the text is at
 * fault. Both are malloc'd. */
bool nvrtc_compile(const char *text, const char *arch, char **code, size_t *size, char **log);

#endif
