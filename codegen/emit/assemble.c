/* assemble.c: the parts of a program's text that every family combines in its own way: numbers,
 * pasted texts, constants, the kernel, tables of inputs and outputs.
 *
 * What the entry reads of a program is in tables and macros. Numbers that most programs have of
 * their own are in tables, too, for the entry to be one text for many programs. */
#include "codegen/emit/emit.h"
#include "codegen/embed.h"
#include "scheduler/plan/library.h"
#include "scheduler/plan/outputs.h"

void put_string(Sb *s, const char *text) {
    sb_puts(s, "\"");
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\')
            sb_printf(s, "\\%c", *p);
        else if (*p < 32 || *p > 126 || *p == '?')
            sb_printf(s, "\\%03o", *p);
        else
            sb_write(s, (const char *)p, 1);
    }
    sb_puts(s, "\"");
}

void put_define(Sb *s, const char *name, long long value) {
    sb_printf(s, "#define %s %lld\n", name, value);
}

const char *host_text(Arena *a, const Expr *e) {
    int64_t v;
    if (e_is_int(e, &v)) return arena_printf(a, "%lld", (long long)v);
    if (e->op == E_INDIM)
        return arena_printf(a, "in[%d].dim[%d]", (int)(e->i >> 8), (int)(e->i & 255));
    const char *x = host_text(a, e->a[0]), *y = host_text(a, e->a[1]);
    const char *f = e->op == E_ADD   ? "add"
                    : e->op == E_SUB ? "subtract"
                    : e->op == E_MUL ? "multiply"
                    : e->op == E_MIN ? "least"
                                     : "most";
    return arena_printf(a, "bk_%s(%s, %s)", f, x, y);
}

void put_embedded(Sb *s, const char *const *name) {
    for (; *name; name++) sb_puts(s, embedded_text(*name));
}

static void io_table(Sb *s, const char *linkage, const char *name, int n, const Io *io) {
    sb_printf(s, "%s const braid_io_v1 %s[%d] = {\n", linkage, name, n + 1);
    for (int i = 0; i < n; i++) {
        const Io *o = &io[i];
        const Tensor *t = o->t;
        int kind = o->kind == VT_TENSOR ? 0 : o->kind == VT_SEQUENCE ? 1 : o->opt_seq ? 3 : 2;
        bool shaped = t && !t->blob && t->rank >= 0;
        sb_puts(s, "    {");
        put_string(s, o->name);
        sb_printf(s, ", %d, %d, %d, {", kind, o->elem_dtype, shaped ? t->rank : -1);
        for (int d = 0; d < MAX_RANK; d++) {
            int64_t v = -1;
            if (shaped && d < t->rank && !e_is_int(t->dim[d], &v)) v = -1;
            sb_printf(s, "%s%lld", d ? ", " : "", (long long)v);
        }
        sb_puts(s, "}, {");
        for (int d = 0; d < MAX_RANK; d++) {
            const char *p = NULL;
            if (shaped && d < t->rank && !e_is_int(t->dim[d], &(int64_t){0}) && o->type &&
                o->type->kind == VT_TENSOR && o->type->has_shape && d < o->type->rank)
                p = o->type->param[d];
            if (d) sb_puts(s, ", ");
            if (p)
                put_string(s, p);
            else
                sb_puts(s, "0");
        }
        sb_puts(s, "}},\n");
    }
    sb_puts(s, "    {0}};\n");
}

void put_weights(const Emit *em, Sb *out) {
    const Sb *w = em->weights;
    if (!w->n) return;
    if (w->n > WEIGHTS_INLINE) {
        sb_printf(out, "#define BK_WEIGHTS_BYTES %zu\n", w->n);
        sb_puts(out, embedded_text(w->n > WEIGHTS_MAPPED ? "cpu/weights_mapped.inc"
                                                         : "cpu/weights.inc"));
    } else {
        sb_puts(out, "static const _Alignas(64) unsigned char bk_weights[] =");
        for (size_t i = 0; i < w->n; i++) {
            if (i % 32 == 0) sb_puts(out, i ? "\"\n    \"" : "\n    \"");
            sb_printf(out, "\\%03o", (unsigned char)w->p[i]);
        }
        sb_puts(out, "\";\n");
    }
    if (em->consts.n) sb_puts(out, em->consts.p);
}

void put_kernel(const Emit *em, Sb *text, const char *name) {
    if (em->functions.n) sb_puts(text, em->functions.p);
    sb_printf(text, "%s %s(bk_ctx *k, int unit, int nunit%s) {\n    (void)nunit;\n",
              em->target->main, name, em->phases ? ", int phase" : "");
    sb_puts(text, em->body.p);
    sb_puts(text, "}\n\n");
}

/* The outputs whose memory may be the caller's: flags, if there are any. */
static bool given_table(Emit *em, Sb *s, const char *linkage) {
    Program *p = em->p;
    Sb flags = {.a = em->a};
    bool any = false;
    for (int i = 0; i < p->nout; i++) {
        const bool given = output_given(p, i) != NULL;
        any = any || given;
        sb_printf(&flags, "%s%d", i ? ", " : "", given);
    }
    if (any && s) sb_printf(s, "%s const unsigned char bk_gives[] = {%s};\n", linkage, flags.p);
    return any;
}

/* Statements that set their dimensions. */
static void given_sizes(Emit *em, Sb *s) {
    Program *p = em->p;
    int64_t v;
    int n = 0;
    Sb dims = {.a = em->a};
    for (int i = 0; i < p->nout; i++) {
        const Tensor *t = p->out[i].t;
        if (!output_given(p, i)) continue;
        n++;
        for (int d = 0; d < t->rank; d++)
            if (!e_is_int(t->dim[d], &v))
                sb_printf(&dims, " \\\n    t[%d].dim[%d] = %s;", i, d,
                          host_text(em->a, library_host_value(p, t->dim[d])));
    }
    if (!n) return;
    put_define(s, "BK_NGIVEN", n);
    sb_printf(s, "#define BK_GIVEN_DIMS%s\n", dims.n ? dims.p : "");
}

static void index_table(Sb *s, const char *linkage, const char *name, int n, const int *at) {
    sb_printf(s, "%s const int32_t %s[%d] = {", linkage, name, n);
    for (int i = 0; i < n; i++) sb_printf(s, "%s%d", i ? ", " : "", at[i]);
    sb_puts(s, "};\n");
}

void put_tables(Emit *em, Sb *text, const char *linkage) {
    Program *p = em->p;
    io_table(text, linkage, "bk_inputs", p->nin, p->in);
    io_table(text, linkage, "bk_outputs", p->nout, p->out);
    sb_printf(text, "%s const char *const bk_sites[%d] = {\n", linkage, p->cx->site.n + 1);
    for (int i = 0; i < p->cx->site.n; i++) {
        sb_puts(text, "    ");
        put_string(text, p->cx->site.p[i]);
        sb_puts(text, ",\n");
    }
    sb_printf(text, "    0};\n%s const int bk_nsite = %d;\n", linkage, p->cx->site.n);
    sb_printf(text, "%s const char bk_name[] = ", linkage);
    put_string(text, p->name ? p->name : "");
    sb_puts(text, ";\n");
    /* The size to begin with: memory taken at run time is added, and makes the arena grow. */
#if BRAID_TINY
    const int64_t room = 0;
#else
    const int64_t room = 4096 + (int64_t)p->mem->frames * 64;
#endif
    sb_printf(text, "%s const size_t bk_arena = %lld;\n", linkage,
              (long long)(p->mem->arena + room));
    if (em->frame_bytes)
        sb_printf(text, "%s const size_t bk_frame_bytes = %zu;\n", linkage, em->frame_bytes);
    if (p->schedule->speedup > 0)
        sb_printf(text, "%s const double bk_expected_speedup = %.2f;\n", linkage,
                  p->schedule->speedup);
    given_table(em, text, linkage);
    if (p->ncarry) {
        index_table(text, linkage, "bk_carry_input", p->ncarry, p->carry_input);
        index_table(text, linkage, "bk_carry_output", p->ncarry, p->carry_output);
    }
    if (em->linearized.n)
        index_table(text, linkage, "bk_linearized", em->linearized.n, em->linearized.p);
}

void put_declarations(Emit *em, Sb *text) {
    const Program *p = em->p;
    sb_puts(text, "extern BK_SHARED const braid_io_v1 bk_inputs[], bk_outputs[];\n"
                  "extern BK_SHARED const char *const bk_sites[];\n"
                  "extern BK_SHARED const int bk_nsite;\n"
                  "extern BK_SHARED const char bk_name[];\n"
                  "extern BK_SHARED const size_t bk_arena;\n");
    if (em->frame_bytes) sb_puts(text, "extern BK_SHARED const size_t bk_frame_bytes;\n");
    if (p->schedule->speedup > 0)
        sb_puts(text, "extern BK_SHARED const double bk_expected_speedup;\n");
    if (given_table(em, NULL, NULL))
        sb_puts(text, "extern BK_SHARED const unsigned char bk_gives[];\n");
    if (p->ncarry) {
        sb_printf(text, "extern BK_SHARED const int32_t bk_carry_input[%d];\n", p->ncarry);
        sb_printf(text, "extern BK_SHARED const int32_t bk_carry_output[%d];\n", p->ncarry);
    }
    if (em->linearized.n) sb_puts(text, "extern BK_SHARED const int32_t bk_linearized[];\n");
    if (em->weights->n > WEIGHTS_MAPPED)
        sb_puts(text, "#define BK_WEIGHTS_CHECK\n"
                      "extern BK_SHARED const unsigned char *bk_weights;\n");
    sb_puts(text, "BK_SHARED int braid_kernel(bk_ctx *k, int unit, int nunit);\n");
}

void put_numbers(Emit *em, Sb *text) {
    const Program *p = em->p;
    sb_puts(text,
            "#define BK_NAME bk_name\n#define BK_NSITE bk_nsite\n#define BK_ARENA bk_arena\n");
    if (em->frame_bytes) sb_puts(text, "#define BK_FRAME_BYTES bk_frame_bytes\n");
    put_define(text, "BK_NIN", p->nin);
    put_define(text, "BK_NOUT", p->nout);
    put_define(text, "BK_NSLOT", p->mem->nslot);
    put_define(text, "BK_UNITS", p->schedule->team);
    if (p->schedule->speedup > 0) sb_puts(text, "#define BK_SPEEDUP bk_expected_speedup\n");
    put_define(text, "BK_FAILS", p->mem->fails);
    if (p->draws) sb_puts(text, "#define BK_DRAWS\n");
    if (p->ncarry) put_define(text, "BK_NCARRY", p->ncarry);
    if (em->linearized.n) put_define(text, "BK_NLINEARIZED", em->linearized.n);
#if BRAID_TINY
    put_define(text, "BK_SLOT_BYTES", 64);
#endif
    given_sizes(em, text);
    put_probe_tables(em, text);
}

void put_entry(const Emit *em, Sb *text, const char *const *entry) {
    for (; *entry; entry++) {
        sb_puts(text, embedded_text(*entry));
        if (em->p->probes && strcmp(*entry, "entry.inc") == 0)
            sb_puts(text, embedded_text("report.inc"));
    }
}
