/* target.c: the family of plain C: all kernels are loops, without vectors, for one thread. */
#include "codegen/emit/emit_tree.h"

static const char *const preludes[] = {"cpu/ctx.inc", "plain/prelude.inc", "c.inc",    "arena.inc",
                                       "scalar.inc",  "draw.inc",          "math.inc", NULL};
static const char *const entry[] = {"seed.inc",     "memory.inc",        "fault.inc",
                                    "entry.inc",    "cpu/processor.inc", "cpu/session.inc",
                                    "cpu/team.inc", "cpu/entry.inc",     NULL};

static void put_program(Emit *em, Texts *to) { put_units(em, preludes, entry, to); }

const Target plain_target = {
    .function = "static void",
    .outlined = "static __attribute__((noinline)) void",
    .apart = "BK_SHARED __attribute__((noinline)) void",
    .recursive = "static __attribute__((noinline)) int",
    .inside = "static __attribute__((noinline))",
    .main = "BK_SHARED int",
    .group = {[KERNEL_LOOPS] = group_loops},
    .recursion = emit_functions,
    .program = put_program,
};
