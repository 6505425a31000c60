/* target.c: the family of CPUs: one C text with vectors; units are threads. */
#include "codegen/emit/emit_tree.h"

static const char *const preludes[] = {"cpu/ctx.inc", "c.inc",      "cpu/prelude.inc",
                                       "arena.inc",   "scalar.inc", "cpu/narrow.inc",
                                       "draw.inc",    "math.inc",   NULL};
static const char *const entry[] = {"seed.inc",     "memory.inc",        "fault.inc",
                                    "entry.inc",    "cpu/processor.inc", "cpu/session.inc",
                                    "cpu/team.inc", "cpu/entry.inc",     NULL};

static void put_program(Emit *em, Texts *to) { put_units(em, preludes, entry, to); }

const Target cpu_target = {
    .function = "static void",
    .outlined = "static __attribute__((noinline)) void",
    .apart = "BK_SHARED __attribute__((noinline)) void",
    .recursive = "static __attribute__((noinline)) int",
    .kernel = "BK_KERNEL void",
    .inside = "static __attribute__((noinline))",
    .main = "BK_SHARED int",
    .group =
        {
            [KERNEL_LOOPS] = group_loops,
            [KERNEL_LANES] = group_lanes,
            [KERNEL_SLIDING] = group_sliding,
            [KERNEL_HALVES] = group_halves,
            [KERNEL_TRANSPOSE] = group_transpose,
            [KERNEL_CONTRACTION] = group_contraction,
            [KERNEL_CONVOLUTION] = group_convolution,
            [KERNEL_WINOGRAD] = group_winograd,
            [KERNEL_SPARSE] = group_sparse,
            [KERNEL_INTEGER] = group_integer,
            [KERNEL_DEPTHWISE] = group_depthwise,
            [KERNEL_PLANES] = group_planes,
            [KERNEL_ATTENTION] = group_attention,
        },
    .recursion = emit_functions,
    .program = put_program,
};
