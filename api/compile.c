/* compile.c: the compiler as a list of steps. */
#include "codegen/compile.h"
#include "scheduler/cost/decide.h"
#include "scheduler/plan/distribute.h"
#include "scheduler/plan/memory.h"
#include "scheduler/passes.h"
#include "stack/batch.h"
#include "utask/lower.h"
#include "utask/ops/lowerings.h"

/* The lowerings by OpRow.index. The table is here, for utask/ and stack/ both have some: a lowering
 * that lowers a body must not be below itself. */
static LowerFn *const lowerings[] = {
#define OP_AS(id, ...) lower_##id,
#include "frontend/ops.def"
};

Graph *compile_import(Arena *a, Diag *d, const char *model_path, const CompileOptions *o) {
    Graph *g = graph_import_file(a, d, model_path);
    if (o->fold && (o->fold->nscan || o->fold->ncarry)) graph_fold_loop(g, o->fold);
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

Program *compile_program(Arena *a, Diag *d, const char *model_path, const CompileOptions *o) {
    Graph *g = compile_import(a, d, model_path, o);
    if (o->by_run && compile_is_open(g)) return NULL;
    Program *p = lower_graph(cx_new(a, d), g, lowerings);
    utask_verify(p);
    pass_dead_code(p);
    utask_verify(p);
    if (strcmp(o->target, "interp") == 0) return p; /* the oracle runs the plain tree */
    const Device *device = o->device ? o->device : device_find(o->target);
    p->schedule = schedule_new(p->cx, device,
                               o->units        ? o->units
                               : device->units ? device->units
                                               : compile_cpus(),
                               o->schedule);
    p->schedule->lanes = device_is_gpu(device) ? 1 : compile_vector_width(d, o);
    p->schedule->measured = o->measured;
    p->schedule->nmeasured = o->nmeasured;
    pass_fold_product(p);
    pass_batch(p);
    utask_verify(p);
    pass_unroll_recursion(p);
    utask_verify(p);
    pass_split_sum(p);
    pass_dead_code(p);
    pass_lift_check(p);
    utask_verify(p);
    pass_interchange_nest(p);
    utask_verify(p);
    pass_interchange(p);
    utask_verify(p);
    pass_reuse(p);
    utask_verify(p);
    pass_dead_code(p);
    pass_hoist(p);
    pass_dead_code(p);
    pass_wavefront(p);
    utask_verify(p);
    pass_unroll(p);
    utask_verify(p);
    pass_layout(p);
    utask_verify(p);
    pass_library(p);
    utask_verify(p);
    pass_fuse(p);
    utask_verify(p);
    pass_inplace(p);
    pass_recluster(p);
    utask_verify(p);
    pass_replicate(p);
    utask_verify(p);
    pass_schedule(p);
    pass_distribute(p);
    pass_kernel(p);
    pass_memory(p);
    pass_sync(p);
    pass_variables(p);
    pass_phases(p);
    pass_onchip(p);
    utask_verify(p);
    return p;
}
