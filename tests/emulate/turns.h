/* turns.h: what the kernel of turns.cu and its host (turns.c) share. */
#ifndef BRAID_TESTS_TURNS_H
#define BRAID_TESTS_TURNS_H
#include "include/braid_model.h"
#include "codegen/text/gpu/ctx.inc"

enum { TURNS_STEPS = 12, TURNS_BLOCKS = 8 };
typedef struct Turns {
    bk_ctx k;
    char step[TURNS_STEPS + 1]; /* b a barrier, g a gather, r a release, f a fault of block 2 */
    int launch, wrong, cancel;
    int value[TURNS_STEPS][TURNS_BLOCKS];
} Turns;
#endif
