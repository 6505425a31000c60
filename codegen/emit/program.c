/* program.c: a Program to the text of a self-contained library.
 *
 * The text is: the ABI and run-time context, the target's prelude, constants, the hand-written
 * bodies that are used, the groups' functions, the kernel, tables of inputs and outputs, and the
 * entry. For GPUs the constants, the tables and the entry are a text of their own, for the host. */
#include "scheduler/cost/decide.h"
#include "codegen/emit/emit.h"
#include "codegen/text/embed.h"
#include "codegen/emit/emit_tree.h"
#include "scheduler/plan/phases.h"
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
    .preludes = {"cpu/ctx.inc", "cpu/prelude.inc", "arena.inc", "scalar.inc", "draw.inc",
                 "math.inc"},
    .entry = {"seed.inc", "memory.inc", "fault.inc", "entry.inc", "cpu/entry.inc"},
    .function = "static void",
    .outlined = "static __attribute__((noinline)) void",
    .recursive = "static __attribute__((noinline)) int",
    .kernel = "BK_KERNEL void",
    .main = "static int",
    .simd = "BK_SIMD",
    .contract = "BK_CONTRACT",
};

/* CUDA, and what is made of its text: HIP, and the emulator's programs. */
static const Target gpu_target = {
    .name = "gpu",
    .preludes = {"gpu/ctx.inc", "gpu/prelude.inc", "arena.inc", "scalar.inc", "draw.inc",
                 "math.inc", "gpu/team.inc", "gpu/dots.inc", "gpu/matrix.inc", "gpu/stack.inc"},
    .entry = {"seed.inc", "memory.inc", "fault.inc", "entry.inc", "gpu/calls.inc", "gpu/driver.inc",
              "gpu/device.inc", "gpu/library.inc", "gpu/run.inc", "gpu/entry.inc"},
    .function = "static __device__ __noinline__ void",
    .outlined = "static __device__ __noinline__ void",
    .recursive = "static __device__ __noinline__ int",
    .kernel = "static __device__ __forceinline__ void",
    .main = "static __device__ __forceinline__ int",
    .strict = true,
};

void extern_text(Emit *em, const char *file) {
    if (map_get(em->extern_files, file)) return;
    map_set(em->extern_files, file, em);
    if (!map_get(em->extern_files, "extern")) {
        map_set(em->extern_files, "extern", em);
        extern_text(em, "extern");
        sb_puts(em->text, embedded_text("extern/extern.inc"));
    }
    if (strcmp(file, "extern"))
        sb_puts(em->text, embedded_text(arena_printf(em->a, "extern/%s.inc", file)));
}

static void c_string(Sb *s, const char *text) {
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
            if (shaped && d < t->rank && t->dim[d]->op == E_SYM && o->type &&
                o->type->kind == VT_TENSOR && o->type->has_shape && d < o->type->rank)
                p = o->type->param[d];
            if (d) sb_puts(s, ", ");
            if (p)
                c_string(s, p);
            else
                sb_puts(s, "0");
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

/* A number of the surroundings' contract. */
static void define(Sb *s, const char *name, long long value) {
    sb_printf(s, "#define %s %lld\n", name, value);
}

static void put_embedded(Sb *s, const char *const *name, int most) {
    for (int i = 0; i < most && name[i]; i++) sb_puts(s, embedded_text(name[i]));
}

/* Tables and numbers that the entry needs, and the entry. */
static void put_entry(Emit *em, Sb *text) {
    Program *p = em->p;
    em->text = text;
    io_table(em, "bk_inputs", p->nin, p->in);
    io_table(em, "bk_outputs", p->nout, p->out);
    sb_printf(text, "static const char *const bk_sites[%d] = {\n", p->cx->site.n + 1);
    for (int i = 0; i < p->cx->site.n; i++) {
        sb_puts(text, "    ");
        c_string(text, p->cx->site.p[i]);
        sb_puts(text, ",\n");
    }
    sb_puts(text, "    0};\n#define BK_NAME ");
    c_string(text, p->name ? p->name : "");
    sb_puts(text, "\n");
    define(text, "BK_NIN", p->nin);
    define(text, "BK_NOUT", p->nout);
    define(text, "BK_NSLOT", em->p->mem->nslot);
    define(text, "BK_NSITE", p->cx->site.n);
    if (p->draws) sb_puts(text, "#define BK_DRAWS\n");
    define(text, "BK_UNITS", p->schedule->team);
    /* What is taken at run time comes on top, and makes the arena grow when it does not fit. */
    if (em->frame_bytes) sb_printf(text, "#define BK_FRAME_BYTES ((size_t)%zu)\n", em->frame_bytes);
#if BRAID_TINY
    sb_printf(text, "#define BK_ARENA ((size_t)%lld)\n#define BK_SLOT_BYTES 64\n",
              (long long)em->p->mem->arena);
#else
    sb_printf(text, "#define BK_ARENA ((size_t)%lld)\n",
              (long long)em->p->mem->arena + 4096 + (long long)em->p->mem->frames * 64);
#endif
    for (int i = 0; i < (int)COUNT(em->target->entry) && em->target->entry[i]; i++)
        if (em->phases || strcmp(em->target->entry[i], "gpu/library.inc"))
            sb_puts(text, embedded_text(em->target->entry[i]));
}

static void put_kernel(Emit *em, Sb *text, const Sb *functions, const char *name) {
    if (functions->n) sb_puts(text, functions->p);
    sb_printf(text, "%s %s(bk_ctx *k, int unit, int nunit%s) {\n    (void)nunit;\n",
              em->target->main, name, em->phases ? ", int phase" : "");
    sb_puts(text, em->body.p);
    sb_puts(text, "}\n\n");
}

static void put_program(Emit *em, const Sb *functions, Texts *to) {
    Sb *text = &to->text;
    sb_printf(text, "/* %s, compiled by braid for %s. */\n", emit_comment(em, em->p->name),
              em->target->name);
    sb_printf(text, "#ifndef _GNU_SOURCE\n#define _GNU_SOURCE\n#endif\n");
    define(text, "BK_VEC", em->vec);
    sb_puts(text, embedded_text("braid_model.h"));
    put_embedded(text, em->target->preludes, (int)COUNT(em->target->preludes));
    weights_text(em, text);
    put_kernel(em, text, functions, "braid_kernel");
    put_entry(em, text);
}

/* Whether t is at one place whatever way a run takes. */
static bool stays(const Tensor *t) {
    while (t->kind == TK_VIEW) t = t->base;
    if (t->kind == TK_INPUT || t->kind == TK_CONST) return true;
    const Mem *m = mem_of(t);
    return (t->kind == TK_TE || t->kind == TK_EXTERN || t->kind == TK_SCAN) && m &&
           (m->kind == M_STATIC || m->kind == M_SHARED) && !m->frame;
}

/* BK_FIXED: whether nothing can make a run begin again, or give an output a shape that is not
 * declared. */
static bool is_fixed(const Emit *em) {
    const Program *p = em->p;
    int64_t n;
    if (em->p->mem->nslot || p->nfunc || em->p->mem->claims) return false;
    for (int i = 0; i < p->nout; i++) {
        const Tensor *t = p->out[i].t;
        if (!t || t->blob || t->rank < 0 || p->out[i].has) return false;
        for (int d = 0; d < t->rank; d++)
            if (!e_is_int(t->dim[d], &n)) return false;
    }
    return true;
}

/* BK_STAYS: whether that is so of all outputs. */
static bool outputs_stay(const Program *p) {
    for (int i = 0; i < p->nout; i++)
        if (!p->out[i].t || !stays(p->out[i].t)) return false;
    return true;
}

/* The launch. Of several, its number is the low bits of the address. */
static void put_launch(const Emit *em, Sb *text) {
    const char *phase = em->phases ? ", phase" : "";
    sb_puts(text, "extern \"C\" __global__ void __launch_bounds__(BK_THREADS, 1) "
                  "braid_kernel(bk_ctx *run) {\n");
    if (em->phases)
        sb_puts(text, "    const int phase = (int)((uintptr_t)run & 255);\n    run = (bk_ctx "
                      "*)((char *)run - phase);\n");
    sb_printf(text,
              "    bk_ctx *k = bk_begin(run);\n    const int unit = (int)blockIdx.x, nunit = "
              "(int)gridDim.x;\n"
              "    if (braid_main(k, unit, nunit%s) == BK_OK",
              phase);
    if (em->phases) sb_printf(text, " && phase == %d", em->phases->text.n - 1);
    sb_puts(text, ") bk_deliver(k, unit, nunit);\n    bk_end();\n}\n");
}

/* What the host has to know of several launches (gpu/library.h). */
static void put_products(const Emit *em, Sb *host) {
    const Phases *k = em->phases;
    define(host, "BK_NPRODUCT", k->n);
    sb_printf(host, "#define BK_PRODUCTS \\\n%s\n#define BK_SIZES%s\n#define BK_IDLE",
              k->products.p, k->sizes.n ? k->sizes.p : "");
    for (int i = 0; i < k->text.n; i++)
        sb_printf(host, "%s %d", i ? "," : "",
                  i < 2 * k->n && i % 2 == 0 && em->p->phases->idle[i / 2]);
    sb_puts(host, "\n");
}

static void put_gpu_program(Emit *em, const CompileOptions *o, const Sb *functions, Texts *to) {
    Sb *text = &to->text, *host = &to->host;
    const Device *device = em->p->schedule->device;
    const char *name = emit_comment(em, em->p->name);
    sb_printf(text, "/* %s, compiled by braid for %s. */\n", name, o->target);
    define(text, "BK_THREADS", device->threads);
    define(text, "BK_WARP", device->warp);
    /* Blocks of a cluster, 1: there are none. */
    const int cluster = em->p->mem->clusters || em->p->schedule->units == device_cluster(device)
                            ? device_cluster(device)
                            : 1;
    define(text, "BK_CLUSTER", cluster);
    define(text, "BK_SHARED_BYTES", em->p->onchip->bytes);
    sb_puts(text, embedded_text("braid_model.h"));
    put_embedded(text, em->target->preludes, (int)COUNT(em->target->preludes));
    sb_puts(text, "#define bk_weights (k->weights)\n");
    if (em->consts.n) sb_puts(text, em->consts.p);
    define(text, "BK_SCRATCH", em->p->onchip->scratch);
    put_kernel(em, text, functions, "braid_main");
    put_launch(em, text);
    em->consts.n = 0;
    sb_printf(host, "/* %s, compiled by braid for %s: the host's part. */\n", name, o->target);
    sb_puts(host, "#ifndef _GNU_SOURCE\n#define _GNU_SOURCE\n#endif\n#define BK_TARGET ");
    c_string(host, o->target);
    sb_puts(host, "\n");
    define(host, "BK_BACKEND", device->backend - BACKEND_CUDA);
    define(host, "BK_THREADS", device->threads);
    define(host, "BK_WARP", device->warp);
    define(host, "BK_CLUSTER", cluster);
    define(host, "BK_SHARED_BYTES", em->p->onchip->bytes);
    define(host, "BK_FIXED", is_fixed(em));
    define(host, "BK_STAYS", outputs_stay(em->p));
    if (em->phases) put_products(em, host);
    sb_puts(host, embedded_text("braid_model.h"));
    sb_puts(host, embedded_text("gpu/ctx.inc"));
    if (device->backend == BACKEND_EMULATED) sb_puts(host, embedded_text("emulate/driver.inc"));
    weights_text(em, host);
    if (!em->weights.n) sb_puts(host, "static const unsigned char bk_weights[64];\n");
    define(host, "BK_WEIGHTS_SIZE", (long long)em->weights.n);
    put_entry(em, host);
}

static void emit(Program *p, const CompileOptions *o, Texts *to, Facts *facts) {
    ASSERT(p->stage == STAGE_COMPLETE);
    Diag *d = p->cx->d;
    Sb functions = {.d = d};
    bool gpu = device_is_gpu(p->schedule->device);
    Emit em = {.p = p,
               .c = p->cx,
               .a = p->cx->a,
               .target = gpu ? &gpu_target : &cpu_target,
               .text = &functions,
               .facts = facts,
               .body = {.d = d},
               .weights = {.d = d},
               .consts = {.d = d}};
    /* Everything below may raise: text built so far is freed on the way out. */
    to->text.d = to->host.d = d;
    jmp_buf jb, *up = d->top;
    d->top = &jb;
    if (setjmp(jb)) {
        d->top = up;
        to->text.d = to->host.d = NULL;
        sb_free(&functions);
        sb_free(&em.body);
        sb_free(&em.weights);
        sb_free(&em.consts);
        free(em.held);
        err(d, d->status, NULL, "%s", arena_strdup(em.a, d->message));
    }
    em.vec = p->schedule->lanes;
    em.functions = map_new(em.a);
    em.extern_files = map_new(em.a);
    em.const_name = map_new(em.a);
    em.resident_name = NEWN(em.a, const char *, p->onchip->residents.n);
    if (p->packed) em.packed_name = NEWN(em.a, const char *, p->packed->all.n);
    em.tensor_declared = NEWN(em.a, int, p->cx->next_tensor + 1);
    Target outlined = *em.target;
    if (p->nfunc) { /* what they need of the C stack does not add to the functions' */
        outlined.function = outlined.outlined;
        em.target = &outlined;
    }
    emit_tree(&em);
    if (gpu)
        put_gpu_program(&em, o, &functions, to);
    else
        put_program(&em, &functions, to);
    d->top = up;
    facts->weights_bytes = em.weights.n;
    to->weights = em.weights;
    to->text.d = to->host.d = to->weights.d = NULL;
    if (to->weights.n <= WEIGHTS_INLINE) sb_free(&to->weights);
    sb_free(&functions);
    sb_free(&em.body);
    sb_free(&em.consts);
}

void compile_emit(Program *p, const CompileOptions *o, Texts *to) {
    Facts facts = {0};
    emit(p, o, to, &facts);
}

void texts_free(Texts *t) {
    sb_free(&t->text);
    sb_free(&t->host);
    sb_free(&t->weights);
}

void compile_facts(Program *p, const CompileOptions *o, Facts *f) {
    Texts t = {0};
    Diag *d = p->cx->d;
    jmp_buf jb, *up = d->top;
    d->top = &jb;
    bool ok = setjmp(jb) == 0;
    if (ok) emit(p, o, &t, f);
    d->top = up;
    texts_free(&t);
    if (!ok) err(d, d->status, NULL, "%s", arena_strdup(p->cx->a, d->message));
}
