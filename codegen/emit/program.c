/* program.c: from a Program to the text of a self-contained library.
 *
 * The text holds: the ABI and run-time context, the family's prelude, constants, the hand-written
 * bodies in use, the groups' functions, the kernel, tables of inputs and outputs, and the entry. A
 * family may put a part of it into a second text, for the host. */
#include "codegen/emit/emit_tree.h"

static const Target *const families[] = {
    [BACKEND_C] = &cpu_target,   [BACKEND_PLAIN] = &plain_target,  [BACKEND_CUDA] = &gpu_target,
    [BACKEND_HIP] = &gpu_target, [BACKEND_EMULATED] = &gpu_target,
};

void compile_emit(Program *p, Texts *to) {
    ASSERT(p->stage == STAGE_COMPLETE);
    Arena *a = p->cx->a;
    Emit em = {.p = p,
               .c = p->cx,
               .a = a,
               .target = families[p->schedule->device->backend],
               .bodies = {.a = a},
               .helpers = {.a = a},
               .kernels = {.a = a},
               .prototypes = {.a = a},
               .functions = {.a = a},
               .own = map_new(a),
               .body = {.a = a},
               .weights = &to->weights,
               .consts = {.a = a},
               .plan_functions = {.a = a},
               .plans = {.a = a},
               .function_name = map_new(a),
               .extern_files = map_new(a),
               .const_name = map_new(a),
               .resident_name = NEWN(a, const char *, p->onchip->residents.n),
               .tensor_declared = NEWN(a, int, p->cx->next_tensor + 1)};
    if (p->packed) em.packed_name = NEWN(a, const char *, p->packed->all.n);
    to->text.d = to->host.d = to->weights.d = p->cx->d;
    emit_weights(&em);
    emit_body(&em);
    em.target->program(&em, to);
    to->text.d = to->host.d = to->weights.d = NULL;
    if (to->weights.n <= WEIGHTS_INLINE) sb_free(&to->weights);
}

void texts_free(Texts *t) {
    sb_free(&t->text);
    sb_free(&t->host);
    sb_free(&t->weights);
}
