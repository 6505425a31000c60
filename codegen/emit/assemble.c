/* assemble.c: the parts of a program's text that every family combines in its own way: numbers,
 * pasted texts, constants, the kernel, tables of inputs and outputs. */
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

static void io_table(Sb *s, const char *name, int n, const Io *io) {
    sb_printf(s, "static const braid_io_v1 %s[%d] = {\n", name, n + 1);
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

/* The outputs whose memory may be the caller's, and their dimensions. */
static void given_tables(Emit *em, Sb *s) {
    Program *p = em->p;
    Sb dims = {.a = em->a}, flags = {.a = em->a};
    int64_t v;
    int n = 0;
    for (int i = 0; i < p->nout; i++) {
        const Tensor *t = p->out[i].t;
        const bool given = output_given(p, i) != NULL;
        n += given;
        sb_printf(&flags, "%s%d", i ? ", " : "", given);
        for (int d = 0; given && d < t->rank; d++)
            if (!e_is_int(t->dim[d], &v))
                sb_printf(&dims, " \\\n    t[%d].dim[%d] = %s;", i, d,
                          host_text(em->a, library_host_value(p, t->dim[d])));
    }
    put_define(s, "BK_FAILS", p->mem->fails);
    if (!n) return;
    put_define(s, "BK_NGIVEN", n);
    sb_printf(s, "static const unsigned char bk_gives[] = {%s};\n", flags.p);
    sb_printf(s, "#define BK_GIVEN_DIMS%s\n", dims.n ? dims.p : "");
}

static void index_table(Sb *s, const char *name, int n, const int *at) {
    sb_printf(s, "static const int32_t %s[%d] = {", name, n);
    for (int i = 0; i < n; i++) sb_printf(s, "%s%d", i ? ", " : "", at[i]);
    sb_puts(s, "};\n");
}

void put_tables(Emit *em, Sb *text) {
    Program *p = em->p;
    io_table(text, "bk_inputs", p->nin, p->in);
    io_table(text, "bk_outputs", p->nout, p->out);
    sb_printf(text, "static const char *const bk_sites[%d] = {\n", p->cx->site.n + 1);
    for (int i = 0; i < p->cx->site.n; i++) {
        sb_puts(text, "    ");
        put_string(text, p->cx->site.p[i]);
        sb_puts(text, ",\n");
    }
    sb_puts(text, "    0};\n#define BK_NAME ");
    put_string(text, p->name ? p->name : "");
    sb_puts(text, "\n");
    put_define(text, "BK_NIN", p->nin);
    put_define(text, "BK_NOUT", p->nout);
    put_define(text, "BK_NSLOT", em->p->mem->nslot);
    put_define(text, "BK_NSITE", p->cx->site.n);
    if (p->draws) sb_puts(text, "#define BK_DRAWS\n");
    put_probe_tables(em, text);
    given_tables(em, text);
    if (p->ncarry) {
        put_define(text, "BK_NCARRY", p->ncarry);
        index_table(text, "bk_carry_input", p->ncarry, p->carry_input);
        index_table(text, "bk_carry_output", p->ncarry, p->carry_output);
    }
    if (em->linearized.n) {
        put_define(text, "BK_NLINEARIZED", em->linearized.n);
        index_table(text, "bk_linearized", em->linearized.n, em->linearized.p);
    }
    put_define(text, "BK_UNITS", p->schedule->team);
    if (p->schedule->speedup > 0)
        sb_printf(text, "#define BK_SPEEDUP %.2f\n", p->schedule->speedup);
    /* The size to begin with: memory taken at run time is added, and makes the arena grow. */
    if (em->frame_bytes) sb_printf(text, "#define BK_FRAME_BYTES ((size_t)%zu)\n", em->frame_bytes);
#if BRAID_TINY
    sb_printf(text, "#define BK_ARENA ((size_t)%lld)\n#define BK_SLOT_BYTES 64\n",
              (long long)em->p->mem->arena);
#else
    sb_printf(text, "#define BK_ARENA ((size_t)%lld)\n",
              (long long)em->p->mem->arena + 4096 + (long long)em->p->mem->frames * 64);
#endif
}

void put_entry(const Emit *em, Sb *text, const char *const *entry) {
    for (; *entry; entry++) {
        sb_puts(text, embedded_text(*entry));
        if (em->p->probes && strcmp(*entry, "entry.inc") == 0)
            sb_puts(text, embedded_text("report.inc"));
    }
}

/* What a program in C has more that measures itself. */
static const char *const probes[] = {"counters.inc", "cpu/profile.inc", "probe.inc", NULL};
static const char measured_kernel[] = "static int braid_kernel(bk_ctx *k, int unit, int nunit) {\n"
                                      "    bk_profile *const prof = bk_profile_of(k, unit);\n"
                                      "    const int64_t begin = bk_profile_begin(prof);\n"
                                      "    const int st = braid_main(k, unit, nunit);\n"
                                      "    bk_profile_end(prof, begin, 1);\n"
                                      "    return st;\n"
                                      "}\n\n";

void put_unit(Emit *em, const char *const *preludes, const char *const *entry, Texts *to) {
    Sb *text = &to->text;
    sb_printf(text, "/* %s, compiled by braid for %s. */\n", emit_comment(em, em->p->name),
              em->p->schedule->device->name);
    sb_puts(text, "#ifndef _GNU_SOURCE\n#define _GNU_SOURCE\n#endif\n");
    put_define(text, "BK_VEC", em->p->schedule->lanes);
    if (em->p->probes) sb_puts(text, "#define BK_PROFILE\n");
    sb_puts(text, embedded_text("braid_model.h"));
    put_embedded(text, preludes);
    put_probes(em, text, probes);
    put_weights(em, text);
    put_kernel(em, text, em->p->probes ? "braid_main" : "braid_kernel");
    if (em->p->probes) sb_puts(text, measured_kernel);
    put_tables(em, text);
    put_entry(em, text, entry);
    put_torch(em, text);
}
