/* program.c: from a Program to the text of a self-contained library.
 *
 * The text holds: the ABI and run-time context, the family's prelude, constants, the hand-written
 * bodies in use, the groups' functions, the kernel, tables of inputs and outputs, and the entry. A
 * family may put a part of it into a second text, for the host. */
#include "codegen/emit/emit_tree.h"

static const Target *const families[] = {
    [BACKEND_C] = &cpu_target,
    [BACKEND_PLAIN] = &plain_target,
    [BACKEND_CUDA] = &gpu_target,
    [BACKEND_HIP] = &gpu_target,
    [BACKEND_EMULATED] = &gpu_target,
};

void compile_emit(Program *p, Texts *to) {
    ASSERT(p->stage == STAGE_COMPLETE);
    Diag *d = p->cx->d;
    Emit em = {.p = p,
               .c = p->cx,
               .a = p->cx->a,
               .target = families[p->schedule->device->backend],
               .functions = {.d = d},
               .body = {.d = d},
               .weights = {.d = d},
               .consts = {.d = d}};
    /* Everything below may raise: free the texts on the way out. */
    to->text.d = to->host.d = d;
    jmp_buf jb, *up = d->top;
    d->top = &jb;
    if (setjmp(jb)) {
        d->top = up;
        to->text.d = to->host.d = NULL;
        sb_free(&em.functions);
        sb_free(&em.body);
        sb_free(&em.weights);
        sb_free(&em.consts);
        err(d, d->status, NULL, "%s", arena_strdup(em.a, d->message));
    }
    em.function_name = map_new(em.a);
    em.extern_files = map_new(em.a);
    em.const_name = map_new(em.a);
    em.resident_name = NEWN(em.a, const char *, p->onchip->residents.n);
    if (p->packed) em.packed_name = NEWN(em.a, const char *, p->packed->all.n);
    em.tensor_declared = NEWN(em.a, int, p->cx->next_tensor + 1);
    emit_weights(&em);
    emit_body(&em);
    em.target->program(&em, to);
    d->top = up;
    to->weights = em.weights;
    to->text.d = to->host.d = to->weights.d = NULL;
    if (to->weights.n <= WEIGHTS_INLINE) sb_free(&to->weights);
    sb_free(&em.functions);
    sb_free(&em.body);
    sb_free(&em.consts);
}

void texts_free(Texts *t) {
    sb_free(&t->text);
    sb_free(&t->host);
    sb_free(&t->weights);
}
