/* target.c: the family of GPUs: the device's text in CUDA (HIP and the emulator derive from it)
 * with one kernel, and the host's text with constants, tables and the entry. */
#include "codegen/emit/emit_tree.h"
#include "codegen/emit/gpu/shorter.h"
#include "codegen/embed.h"
#include "scheduler/plan/outputs.h"
#include "scheduler/plan/phases.h"

static const char *const preludes[] = {
    "gpu/ctx.inc", "gpu/prelude.inc", "arena.inc",    "scalar.inc",    "draw.inc",
    "math.inc",    "gpu/team.inc",    "gpu/dots.inc", "gpu/stack.inc", NULL};
static const char *const entry[] = {
    "seed.inc",      "memory.inc",     "fault.inc",      "entry.inc",
    "gpu/calls.inc", "gpu/driver.inc", "gpu/device.inc", NULL};
static const char *const probes[] = {"counters.inc", "gpu/profile.inc", "probe.inc", NULL};
static const char *const host_probes[] = {"counters.inc", NULL};
static const char *const run[] = {"gpu/run.inc", "gpu/entry.inc", NULL};

/* Whether the address of t is the same in every run. */
static bool stays(const Tensor *t) {
    while (t->kind == TK_VIEW) t = t->base;
    if (t->kind == TK_INPUT || t->kind == TK_CONST) return true;
    const Mem *m = mem_of(t);
    return (t->kind == TK_TE || t->kind == TK_EXTERN || t->kind == TK_SCAN) && m &&
           (m->kind == M_STATIC || m->kind == M_SHARED) && !m->frame;
}

/* BK_FIXED: whether no run can begin again, and all outputs have their declared shapes. */
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

/* BK_STAYS: whether all outputs stay. */
static bool outputs_stay(const Program *p) {
    for (int i = 0; i < p->nout; i++)
        if (!p->out[i].t || !stays(p->out[i].t)) return false;
    return true;
}

/* What a launch of a program that measures itself begins with. */
static const char measured_begin[] = "    bk_profile *const prof = bk_profile_of(k, unit);\n"
                                     "    const int64_t begin = bk_profile_begin(prof);\n";

static bool gives(const Program *p) {
    for (int i = 0; i < p->nout; i++)
        if (output_given(p, i)) return true;
    return false;
}

/* The launch. With several, the low bits of the address are its number. */
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
              "%s    if (braid_main(k, unit, nunit%s) == BK_OK",
              em->p->probes ? measured_begin : "", phase);
    if (em->phases) sb_printf(text, " && phase == %d", em->phases->text.n - 1);
    sb_puts(text, ") bk_deliver(k, unit, nunit);\n");
    if (em->p->probes)
        sb_printf(text, "    bk_profile_end(prof, begin, %s);\n",
                  em->phases ? arena_printf(em->a, "phase == %d || bk_state(k) != BK_OK",
                                            em->phases->text.n - 1)
                             : "1");
    sb_puts(text, "    bk_end();\n}\n");
}

/* What the host must know about several launches (text/gpu/library.inc). */
static void put_products(const Emit *em, Sb *host) {
    const Phases *k = em->phases;
    put_define(host, "BK_NPRODUCT", k->n);
    sb_printf(host, "#define BK_PRODUCTS \\\n%s\n#define BK_SIZES%s\n#define BK_IDLE",
              k->products.p, k->sizes.n ? k->sizes.p : "");
    for (int i = 0; i < k->text.n; i++)
        sb_printf(host, "%s %d", i ? "," : "",
                  i < 2 * k->n && i % 2 == 0 && em->p->phases->idle[i / 2]);
    sb_puts(host, "\n");
}

static void put_program(Emit *em, Texts *to) {
    Sb all = {.a = em->a}, *text = &all, *host = &to->host;
    const Device *device = em->p->schedule->device;
    const char *name = emit_comment(em, em->p->name);
    sb_printf(text, "/* %s, compiled by braid for %s. */\n", name, device->name);
    put_define(text, "BK_THREADS", device->threads);
    put_define(text, "BK_WARP", device->warp);
    /* Blocks of a cluster; 1: no clusters. */
    const int cluster = em->p->mem->clusters || em->p->schedule->units == device_cluster(device)
                            ? device_cluster(device)
                            : 1;
    put_define(text, "BK_CLUSTER", cluster);
    put_define(text, "BK_SHARED_BYTES", em->p->onchip->bytes);
    put_define(text, "BK_GIVEN_AT", gives(em->p) ? em->p->nin : -1);
    sb_puts(text, embedded_text("braid_model.h"));
    put_embedded(text, preludes);
    if (em->helpers.n) sb_puts(text, em->helpers.p);
    sb_puts(text, "#define bk_weights (k->weights)\n");
    if (em->consts.n) sb_puts(text, em->consts.p);
    put_probes(em, text, probes);
    put_define(text, "BK_SCRATCH", em->p->onchip->scratch);
    if (em->p->onchip->room) put_define(text, "BK_ROOM", em->p->onchip->room);
    if (em->bodies.n) sb_puts(text, em->bodies.p);
    merge_alike(em);
    put_kernel(em, text, "braid_main");
    put_launch(em, text);
    put_used(em->a, &to->text, all.p);
    if (!em->nplan) em->consts.n = 0; /* the host reads no constants */
    sb_printf(host, "/* %s, compiled by braid for %s: the host's part. */\n", name, device->name);
    sb_puts(host, "#ifndef _GNU_SOURCE\n#define _GNU_SOURCE\n#endif\n#define BK_TARGET ");
    put_string(host, device->name);
    sb_puts(host, "\n");
    put_define(host, "BK_BACKEND", device->backend - BACKEND_CUDA);
    put_define(host, "BK_THREADS", device->threads);
    put_define(host, "BK_WARP", device->warp);
    put_define(host, "BK_CLUSTER", cluster);
    put_define(host, "BK_SHARED_BYTES", em->p->onchip->bytes);
    put_define(host, "BK_FIXED", is_fixed(em));
    put_define(host, "BK_STAYS", outputs_stay(em->p));
    if (em->phases) put_products(em, host);
    if (em->p->probes) sb_puts(host, "#define BK_PROFILE\n");
    sb_puts(host, embedded_text("braid_model.h"));
    sb_puts(host, embedded_text("gpu/ctx.inc"));
    put_probes(em, host, host_probes);
    if (device->backend == BACKEND_EMULATED) {
        sb_puts(host, embedded_text("emulate/driver.inc"));
        sb_printf(host,
                  "__attribute__((constructor)) static void bk_emulated(void) {\n"
                  "    emu_device_like(%d, %d, %lld);\n",
                  device->units, device->threads, (long long)device->level[LEVEL_CORE].bytes);
        for (int i = 0; i < em->estimates.n; i++)
            sb_printf(host, "    emu_estimate(\"%s\", %.0f);\n", em->estimates.p[i].function,
                      em->estimates.p[i].ns);
        sb_puts(host, "}\n");
    }
    put_weights(em, host);
    if (!em->weights->n) sb_puts(host, "static const unsigned char bk_weights[64];\n");
    put_define(host, "BK_WEIGHTS_SIZE", (long long)em->weights->n);
    put_tables(em, host, "static");
    put_numbers(em, host);
    put_entry(em, host, entry);
    if (em->phases) sb_puts(host, embedded_text("gpu/library.inc"));
    put_plans(em, host);
    put_embedded(host, run);
    put_torch(em, host);
}

const Target gpu_target = {
    .function = "static __device__ __noinline__ void",
    .outlined = "static __device__ __noinline__ void",
    .recursive = "static __device__ __noinline__ int",
    .kernel = "static __device__ __forceinline__ void",
    .inside = "static __device__ __noinline__",
    .main = "static __device__ __forceinline__ int",
    .strict = true,
    .group = {[KERNEL_DOTS] = group_dots, [KERNEL_THREADS] = group_threads},
    .recursion = emit_stack,
    .call = emit_jump,
    .program = put_program,
};
