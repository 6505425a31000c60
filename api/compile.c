/* compile.c: runs the compiler: import, lowering, and the passes in order. */
#include <time.h>

#include "codegen/compile.h"
#include "scheduler/cost/decide.h"
#include "scheduler/plan/distribute.h"
#include "scheduler/plan/memory.h"
#include "scheduler/passes.h"
#include "stack/batch.h"
#include "utask/lower.h"
#include "utask/ops/lowerings.h"

/* The lowerings by op_index. The table is here, for utask/ and stack/ both have some: a lowering
 * that lowers a body must not be below itself. */
static LowerFn *const lowerings[] = {
#define OP_AS(id, ...) lower_##id,
#include "frontend/ops.def"
};

Graph *compile_import(Arena *a, Diag *d, const char *model_path, const CompileOptions *o) {
    Graph *g = o->model ? graph_import_memory(a, d, o->model, o->model_size, model_path)
                        : graph_import_file(a, d, model_path);
    if (o->fold) graph_fold(g, o->fold);
    for (int i = 0; i < o->nshape; i++) graph_declare_input(g, &o->shape[i]);
    if (o->ignore_dim_names) graph_ignore_dim_names(g);
    graph_settle_ranks(g, o->by_run);
    return g;
}

bool compile_is_open(const Graph *g) {
    for (int i = 0; i < g->top->nparam; i++)
        if (graph_open_type(g->top->param[i]->type)) return true;
    return false;
}

/* ---- passes ---------------------------------------------------------------------------------- */
typedef struct Pass {
    const char *name;
    void (*run)(Program *p);
    Stage needs, leaves;
    const char *why; /* the reason for its place */
} Pass;

static const Pass passes[] = {
    {"lower", NULL, STAGE_PLAIN, STAGE_PLAIN, "the tree as the model has it"},
    {"dead-code", pass_dead_code, STAGE_PLAIN, STAGE_PLAIN,
     "lowering leaves what it tried; the interpreter runs what is left, as the oracle"},
#define ORACLE_PASSES 2
    {"fourier", pass_fourier, STAGE_PLAIN, STAGE_PLAIN,
     "while a transform's factors are those that lowering has made"},
    {"dead-code", pass_dead_code, STAGE_PLAIN, STAGE_PLAIN, "matrices of such transforms"},
    {"quantized", pass_quantized, STAGE_PLAIN, STAGE_PLAIN,
     "before anything is put together: each operator of the model is still seen"},
    {"dead-code", pass_dead_code, STAGE_PLAIN, STAGE_PLAIN,
     "weights that are read as codes are not opened"},
    {"constants", pass_constants, STAGE_PLAIN, STAGE_PLAIN,
     "other codes are opened; kernels pack constants"},
    {"positions", pass_positions, STAGE_PLAIN, STAGE_PLAIN,
     "what follows sees where values change; products are seen best as the model has them"},
    {"widen", pass_widen, STAGE_PLAIN, STAGE_PLAIN,
     "what follows finds products of 16-bit floats as it finds those of float32"},
    {"codes", pass_codes, STAGE_PLAIN, STAGE_PLAIN,
     "while a factor's dimensions are those that it was computed with"},
    {"narrow", pass_narrow, STAGE_PLAIN, STAGE_PLAIN, "not what is narrow already"},
    {"stack", pass_stack, STAGE_PLAIN, STAGE_PLAIN,
     "what was written piece by piece is seen as one by all that follows"},
    {"dead-code", pass_dead_code, STAGE_PLAIN, STAGE_PLAIN, "pieces without use"},
    {"pick", pass_pick, STAGE_PLAIN, STAGE_PLAIN,
     "what a one-hot row picks may be a product's factor"},
    {"fold-product", pass_fold_product, STAGE_PLAIN, STAGE_PLAIN,
     "products of constants are seen best as the model has them"},
    {"linearize", pass_linearize, STAGE_PLAIN, STAGE_PLAIN,
     "while a recursion is as the model has it; what it leaves is an ordinary loop"},
    {"batch", pass_batch, STAGE_PLAIN, STAGE_PLAIN,
     "rows of activations are the better form of a recursion: tried first"},
    {"unroll-recursion", pass_unroll_recursion, STAGE_PLAIN, STAGE_PLAIN,
     "of what is still a recursion; what follows sees the larger bodies"},
    {"split-sum", pass_split_sum, STAGE_PLAIN, STAGE_PLAIN,
     "concatenations go before loops are looked at for what they read"},
    {"dead-code", pass_dead_code, STAGE_PLAIN, STAGE_PLAIN, "concatenations without use"},
    {"fold-product", pass_fold_product, STAGE_PLAIN, STAGE_PLAIN,
     "of constants in pieces of a sum"},
    {"lift-check", pass_lift_check, STAGE_PLAIN, STAGE_PLAIN,
     "what a check protects can leave its loop only with it"},
    {"interchange-nest", pass_interchange_nest, STAGE_PLAIN, STAGE_PLAIN,
     "makes loops beside the nest that the next one turns into axes"},
    {"interchange", pass_interchange, STAGE_PLAIN, STAGE_PLAIN,
     "what is an axis needs none of the passes for loops"},
    {"reuse", pass_reuse, STAGE_PLAIN, STAGE_PLAIN,
     "what is carried now is not hoisted for all iterations"},
    {"dead-code", pass_dead_code, STAGE_PLAIN, STAGE_PLAIN, "what is reused is not computed again"},
    {"hoist", pass_hoist, STAGE_PLAIN, STAGE_PLAIN,
     "leaves loops with what depends on the iteration before alone"},
    {"dead-code", pass_dead_code, STAGE_PLAIN, STAGE_PLAIN, "what has left its loop"},
    {"sink", pass_sink, STAGE_PLAIN, STAGE_PLAIN,
     "after what leaves loops has left them, before loops are weighed by their bodies"},
    {"tail", pass_tail, STAGE_PLAIN, STAGE_PLAIN, "before loops are weighed by their bodies, too"},
    {"dead-code", pass_dead_code, STAGE_PLAIN, STAGE_PLAIN, "what is computed in a loop now"},
    {"wavefront", pass_wavefront, STAGE_PLAIN, STAGE_PLAIN,
     "of loops as they are in the end, before they make several iterations at once"},
    {"unroll", pass_unroll, STAGE_PLAIN, STAGE_PLAIN, "fusion makes a chain of the copies"},
    {"layout", pass_layout, STAGE_PLAIN, STAGE_PLAIN, "while every load names one tensor"},
    {"library", pass_library, STAGE_PLAIN, STAGE_PLAIN,
     "takes products out before fusion puts something into them"},
    {"fuse", pass_fuse, STAGE_PLAIN, STAGE_GROUPED, "the last one for single tensors"},
    {"attention", pass_attention, STAGE_GROUPED, STAGE_GROUPED,
     "a sum over weights stays in a group whose kernel computes it in one pass"},
    {"inplace", pass_inplace, STAGE_GROUPED, STAGE_GROUPED,
     "only what is computed into memory changes something there"},
    {"recluster", pass_recluster, STAGE_GROUPED, STAGE_GROUPED,
     "weighs groups; levels are given to the branches that it makes"},
    {"replicate", pass_replicate, STAGE_GROUPED, STAGE_GROUPED,
     "what every unit computes is not scheduled"},
    {"partial", pass_partial, STAGE_GROUPED, STAGE_GROUPED,
     "of the groups as they are in the end; what it makes is scheduled like them"},
    {"host", pass_host, STAGE_GROUPED, STAGE_GROUPED,
     "units do not wait for what is there when they begin"},
    {"schedule", pass_schedule, STAGE_GROUPED, STAGE_LEVELLED, "of the final statements"},
    {"distribute", pass_distribute, STAGE_LEVELLED, STAGE_SHARED,
     "by the units of a statement's level"},
    {"strips", pass_strips, STAGE_SHARED, STAGE_SHARED, "kernels keep the axis apart"},
    {"beside", pass_beside, STAGE_SHARED, STAGE_SHARED,
     "kernels are planned for the threads that compute them; not what strips hold together"},
    {"kernel", pass_kernel, STAGE_SHARED, STAGE_CHOSEN, "of the part that a unit computes"},
    {"settle-strips", pass_settle_strips, STAGE_CHOSEN, STAGE_CHOSEN,
     "lifetimes are those of groups that are computed together"},
    {"memory", pass_memory, STAGE_CHOSEN, STAGE_PLACED, "lifetimes are those of the final order"},
    {"outputs", pass_outputs, STAGE_PLACED, STAGE_PLACED, "of tensors with memory of their own"},
    {"sync", pass_sync, STAGE_PLACED, STAGE_SYNCED,
     "units meet for who writes what, and for memory that is used again"},
    {"lone-strips", pass_lone_strips, STAGE_SYNCED, STAGE_SYNCED, "barriers may part neighbours"},
    {"variables", pass_variables, STAGE_SYNCED, STAGE_SYNCED,
     "what hands results over depends on who runs what"},
    {"phases", pass_phases, STAGE_SYNCED, STAGE_SYNCED, "of the variables of all launches"},
    {"onchip", pass_onchip, STAGE_SYNCED, STAGE_SYNCED,
     "shares out what is left of a block's memory, and fetches ahead of barriers"},
    {"weights", pass_weights, STAGE_SYNCED, STAGE_COMPLETE,
     "of what kernels read as it is, packed, and ahead of barriers"},
    {"probes", pass_probes, STAGE_COMPLETE, STAGE_COMPLETE,
     "measures what the other passes leave, and changes nothing of it"},
};

/* "a, b, c": each name once, because some passes run several times. */
static const char *pass_names(Arena *a) {
    Sb s = {.a = a};
    for (size_t i = 0; i < COUNT(passes); i++) {
        size_t first = 0;
        while (strcmp(passes[first].name, passes[i].name) != 0) first++;
        if (first == i) sb_printf(&s, "%s%s", i ? ", " : "", passes[i].name);
    }
    return s.p;
}

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* `begin`: the start of the pass, in ms. For the first pass it includes the import. */
static void run_pass(Program *p, const Pass *x, double begin, PassReport *report) {
    ASSERT(p->stage == x->needs);
    progress_tick(p->cx->d);
    if (x->run) x->run(p);
    p->stage = x->leaves;
    const double end = now_ms();
    utask_verify(p);
    if (!report) return;
    sb_printf(&report->times, "%-16s %9.3f ms, verified in %.3f ms\n", x->name, end - begin,
              now_ms() - end);
    if (report->after && strcmp(report->after, x->name) == 0) utask_print(&report->tree, p);
}

static Schedule *begin_schedule(Cx *c, Diag *d, const CompileOptions *o) {
    const Device *device = o->device ? o->device : device_find(o->target);
    const bool one = device->units == 1; /* whatever the caller has */
    const int units = o->units && !one ? o->units : device->units ? device->units : compile_cpus();
    Schedule *k = schedule_new(c, device, units, o->schedule);
    k->lanes = device->lanes ? device->lanes : compile_vector_width(d, o, &k->dots);
    k->weights = o->weights;
    k->profile = o->profile;
    k->measured = o->measured;
    k->nmeasured = o->nmeasured;
    return k;
}

Program *compile_program(Arena *a, Diag *d, const char *model_path, const CompileOptions *o) {
    const double begin = now_ms();
    const bool oracle =
        strcmp(o->target, "interp") == 0; /* the interpreter runs the unscheduled tree */
    const size_t n = oracle ? ORACLE_PASSES : COUNT(passes);
    PassReport *report = o->report;
    bool known = !report || !report->after;
    for (size_t i = 0; i < n && !known; i++) known = strcmp(report->after, passes[i].name) == 0;
    if (!known)
        err(d, ST_USAGE, NULL, "there is no pass '%s' for target %s; the passes are %s",
            report->after, o->target, pass_names(a));
    Graph *g = compile_import(a, d, model_path, o);
    if (o->by_run && compile_is_open(g)) return NULL;
    Program *p = lower_graph(cx_new(a, d), g, lowerings);
    p->torch_name = o->torch_name;
    p->ncarry = g->ncarry;
    p->carry_input = g->carry_input;
    p->carry_output = g->carry_output;
    for (size_t i = 0; i < n; i++) {
        if (i == ORACLE_PASSES) p->schedule = begin_schedule(p->cx, d, o);
        run_pass(p, &passes[i], i ? now_ms() : begin, report);
    }
    return p;
}
