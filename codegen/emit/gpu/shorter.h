/* shorter.h: what keeps the device's text short. */
#ifndef BRAID_EMIT_SHORTER_H
#define BRAID_EMIT_SHORTER_H

#include "codegen/emit/emit.h"

/* ---- alike.c ---- */
/* Makes one template of functions in em->functions whose texts differ in numbers alone. Each keeps
 * its name, and is compiled for its own numbers. */
void merge_alike(Emit *em);
/* The end of the integer at p, an int without a suffix, in the text from `begin` on, and its value;
 * NULL: there is none. */
const char *text_number(const char *begin, const char *p, int *value);

/* ---- used.c ---- */
/* Appends the text without functions, types and macros that nothing in it uses. */
void put_used(Arena *a, Sb *to, const char *text);

#endif
