/* emit.c: a Program to the text of a self-contained library.
 *
 * The text is: the ABI and run-time context, the target's prelude, constants, the hand-written bodies
 * that are used, the groups' functions, the kernel, tables of inputs and outputs, and the entry. */
#include "scheduler/decide.h"
#include "codegen/emit.h"
#include "codegen/embed.h"
#include "codegen/emit_tree.h"
#include <stdlib.h>

/* Constants up to this many bytes in all are part of the text; beyond, a file that the assembler
 * includes; beyond WEIGHTS_MAPPED, a file beside the library that it maps. */
#if BRAID_TINY
#define WEIGHTS_INLINE 256
#else
#define WEIGHTS_INLINE 4096
#endif

static const Target cpu_target = {
    .name = "cpu",
    .preludes = {"cpu/prelude.h", "cpu/math.h"},
    .entry = "cpu/entry.c",
    .function = "static void",
    .outlined = "static __attribute__((noinline)) void",
    .recursive = "static __attribute__((noinline)) int",
    .kernel = "BK_KERNEL void",
    .simd = "BK_SIMD",
    .contract = "BK_CONTRACT",
};

void extern_text(Emit *em, const char *file) {
    if (map_get(em->extern_files, file)) return;
    map_set(em->extern_files, file, em);
    if (!map_get(em->extern_files, "extern")) {
        map_set(em->extern_files, "extern", em);
        extern_text(em, "extern");
        sb_puts(em->text, embedded_text("extern/extern.h"));
    }
    if (strcmp(file, "extern")) sb_puts(em->text, embedded_text(arena_printf(em->a, "extern/%s.h", file)));
}

static void c_string(Sb *s, const char *text) {
    sb_puts(s, "\"");
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\') sb_printf(s, "\\%c", *p);
        else if (*p < 32 || *p > 126 || *p == '?') sb_printf(s, "\\%03o", *p);
        else sb_write(s, (const char *)p, 1);
    }
    sb_puts(s, "\"");
}

static void io_table(Emit *em, const char *name, int n, const Io *io) {
    Sb *s = em->text;
    sb_printf(s, "static const braid_io_v1 %s[%d] = {\n", name, n + 1);
    for (int i = 0; i < n; i++) {
        const Io *o = &io[i];
        const Tensor *t = o->t;
        int kind = o->kind == VT_TENSOR ? 0 : o->kind == VT_SEQUENCE ? 1 : o->opt_seq ? 3 : 2;
        bool shaped = t && !t->blob && t->rank >= 0;
        sb_puts(s, "    {");
        c_string(s, o->name);
        sb_printf(s, ", %d, %d, %d, {", kind, o->elem_dtype, shaped ? t->rank : -1);
        for (int d = 0; d < MAX_RANK; d++) {
            int64_t v = -1;
            if (shaped && d < t->rank && !e_is_int(t->dim[d], &v)) v = -1;
            sb_printf(s, "%s%lld", d ? ", " : "", (long long)v);
        }
        sb_puts(s, "}, {");
        for (int d = 0; d < MAX_RANK; d++) {
            const char *p = NULL;
            if (shaped && d < t->rank && t->dim[d]->op == E_SYM && o->type && o->type->kind == VT_TENSOR &&
                o->type->has_shape && d < o->type->rank)
                p = o->type->param[d];
            if (d) sb_puts(s, ", ");
            if (p) c_string(s, p);
            else sb_puts(s, "0");
        }
        sb_puts(s, "}},\n");
    }
    sb_puts(s, "    {0}};\n");
}

static void weights_text(Emit *em, Sb *out) {
    const Sb *w = &em->weights;
    if (!w->n) return;
    if (w->n > WEIGHTS_INLINE) {
        sb_printf(out, "#define BK_WEIGHTS_BYTES %zu\n", w->n);
        sb_puts(out, embedded_text(w->n > WEIGHTS_MAPPED ? "cpu/weights_mapped.h" : "cpu/weights.h"));
    } else {
        sb_puts(out, "static const _Alignas(64) unsigned char bk_weights[] =");
        for (size_t i = 0; i < w->n; i++) {
            if (i % 32 == 0) sb_puts(out, i ? "\"\n    \"" : "\n    \"");
            sb_printf(out, "\\%03o", (unsigned char)w->p[i]);
        }
        sb_puts(out, "\";\n");
    }
    sb_puts(out, em->consts.p);
}

static void emit_cpu(Program *p, const CompileOptions *o, Sb *text, Sb *weights, CompileFacts *facts) {
    Diag *d = p->cx->d;
    Sb functions = {.d = d};
    Emit em = {.p = p, .c = p->cx, .a = p->cx->a, .target = &cpu_target, .text = &functions, .facts = facts,
               .body = {.d = d}, .weights = {.d = d}, .consts = {.d = d}};
    /* Everything below may raise: text built so far is freed on the way out. */
    text->d = d;
    jmp_buf jb, *up = d->top;
    d->top = &jb;
    if (setjmp(jb)) {
        d->top = up;
        text->d = NULL;
        sb_free(&functions);
        sb_free(&em.body);
        sb_free(&em.weights);
        sb_free(&em.consts);
        free(em.held);
        err(d, d->status, NULL, "%s", arena_strdup(em.a, d->message));
    }
    em.vec = compile_vector_width(d, o);
    em.functions = map_new(em.a);
    em.streams = map_new(em.a);
    em.extern_files = map_new(em.a);
    em.const_name = map_new(em.a);
    em.tensor_declared = NEWN(em.a, int, p->ntensor + 1);
    em.plan = *p->mem;
    Target outlined = *em.target;
    if (p->nfunc) { /* what they need of the C stack does not add to the functions' */
        outlined.function = outlined.outlined;
        em.target = &outlined;
    }
    emit_tree(&em);
    sb_printf(text, "/* %s, compiled by braid for %s. */\n", emit_comment(&em, p->name), em.target->name);
    sb_printf(text, "#ifndef _GNU_SOURCE\n#define _GNU_SOURCE\n#endif\n#define BK_VEC %d\n", em.vec);
    sb_puts(text, embedded_text("braid_model.h"));
    sb_puts(text, embedded_text("cpu/ctx.h"));
    for (int i = 0; i < (int)COUNT(em.target->preludes) && em.target->preludes[i]; i++)
        sb_puts(text, embedded_text(em.target->preludes[i]));
    weights_text(&em, text);
    if (functions.n) sb_puts(text, functions.p);
    functions.n = 0;
    sb_puts(text, "static int braid_kernel(bk_ctx *k, int unit, int nunit) {\n    (void)nunit;\n");
    sb_puts(text, em.body.p);
    sb_puts(text, "}\n\n");
    em.text = text;
    io_table(&em, "bk_inputs", p->nin, p->in);
    io_table(&em, "bk_outputs", p->nout, p->out);
    sb_printf(text, "static const char *const bk_sites[%d] = {\n", p->cx->site.n + 1);
    for (int i = 0; i < p->cx->site.n; i++) {
        sb_puts(text, "    ");
        c_string(text, p->cx->site.p[i]);
        sb_puts(text, ",\n");
    }
    sb_puts(text, "    0};\n#define BK_NAME ");
    c_string(text, p->name ? p->name : "");
    sb_printf(text, "\n#define BK_NIN %d\n#define BK_NOUT %d\n#define BK_NSLOT %d\n#define BK_NSITE %d\n#define BK_UNITS %d\n", p->nin, p->nout,
              em.plan.nslot, p->cx->site.n, p->schedule->team);
    /* What is taken at run time comes on top, and makes the arena grow when it does not fit. */
    if (p->nfunc) sb_printf(text, "#define BK_FRAME_BYTES ((size_t)%zu)\n", em.frame_bytes);
#if BRAID_TINY
    sb_printf(text, "#define BK_ARENA ((size_t)%lld)\n#define BK_SLOT_BYTES 64\n", (long long)em.plan.arena);
#else
    sb_printf(text, "#define BK_ARENA ((size_t)%lld)\n", (long long)em.plan.arena + 4096 + (long long)em.frames * 64);
#endif
    sb_puts(text, embedded_text(em.target->entry));
    d->top = up;
    facts->arena_bytes = em.plan.arena;
    facts->slots = em.plan.nslot;
    facts->live_bytes = em.plan.live_max;
    facts->weights_bytes = em.weights.n;
    facts->functions = em.nfunction;
    *weights = em.weights;
    text->d = weights->d = NULL;
    if (weights->n <= WEIGHTS_INLINE) sb_free(weights);
    sb_free(&functions);
    sb_free(&em.body);
    sb_free(&em.consts);
}

void compile_emit_cpu(Program *p, const CompileOptions *o, Sb *text, Sb *weights) {
    CompileFacts facts = {0};
    emit_cpu(p, o, text, weights, &facts);
}

void compile_explain(Program *p, const CompileOptions *o, CompileFacts *f) {
    Sb text = {0}, weights = {0};
    Diag *d = p->cx->d;
    jmp_buf jb, *up = d->top;
    d->top = &jb;
    bool ok = setjmp(jb) == 0;
    if (ok) emit_cpu(p, o, &text, &weights, f);
    d->top = up;
    sb_free(&text);
    sb_free(&weights);
    if (!ok) err(d, d->status, NULL, "%s", arena_strdup(p->cx->a, d->message));
}
