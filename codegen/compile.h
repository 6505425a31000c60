/* compile.h: from a model file to a Program, to text, to a shared library. */
#ifndef BRAID_COMPILE_H
#define BRAID_COMPILE_H

#include "base/base.h"
#include "utask/utask.h"

typedef struct CompileOptions {
    const char *target; /* "cpu" or "interp" */
    const char
        *cpu; /* what to tune instructions for, as the C compiler names it; NULL: this machine */
    const FoldSpec *fold;  /* the caller's loop to fold in, or NULL */
    const char *emit_path; /* where the caller writes the text as well, or NULL */
    bool tune;             /* measure candidates */
} CompileOptions;

/* Imports and lowers the model. Everything returned lives in `a`. Raises on d. */
Program *compile_program(Arena *a, Diag *d, const char *model_path, const CompileOptions *o);

/* Appends the C text of p. `text` is malloc'd and belongs to the caller, also when this raises (on
 * the Diag of p's context). */
void compile_emit_cpu(Program *p, const CompileOptions *o, Sb *text);

/* Text to shared library through the C compiler found at run time ($CC, else cc). Raises ST_IO.
 * Files that the library needs beside it are written into so_path's folder, and the library looks
 * for them in its own folder: callers build in a temporary folder and move all of it. */
void compile_build_cpu(Diag *d, const char *text_path, const char *so_path,
                       const CompileOptions *o);

#endif
