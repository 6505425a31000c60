/* cmd_explain.c: braid explain: prints a model's compiled form and the scheduler's choices. */
#include <stdlib.h>

#include "cli/costs.h"
#include "cli/explain.h"
#include "base/cleanup.h"
#include "codegen/build/calibrate.h"
#include "api/runtime.h"
#include "scheduler/cost/decide.h"
#include "utask/walk.h"

static const char *const stmt_names[] = {
    [S_LET] = "uniform", [S_OP] = "op",         [S_EXTERN] = "extern",   [S_CHECK] = "check",
    [S_LOOP] = "loop",   [S_BRANCH] = "branch", [S_BARRIER] = "barrier", [S_CALL] = "call"};

static void count_stmt(void *user, Stmt *s) {
    int64_t *n = user;
    n[s->kind == S_ENTER ? S_CHECK : s->kind]++; /* S_ENTER checks the recursion depth */
}

/* The name of a dimension that is not fixed; "?": it has none. */
static const char *dim_name(const Io *io, int d) {
    const VType *v = io->type;
    if (v && v->kind == VT_OPTIONAL) v = v->elem;
    bool named = v && v->kind == VT_TENSOR && v->has_shape && d < v->rank && v->param[d];
    return named ? v->param[d] : "?";
}

/* Prints "optional sequence of float32", "float32[2,n]", … */
static void print_type(Sb *s, const Io *io) {
    const Tensor *t = io->t;
    if (io->has) sb_puts(s, "optional ");
    if (io->opt_seq || io->kind == VT_SEQUENCE) {
        const VType *v = io->type;
        while (v && v->kind != VT_TENSOR) v = v->elem;
        sb_printf(s, "sequence of %s", v ? dtype_name(v->dtype) : "any type");
        return;
    }
    sb_puts(s, t ? dtype_name(t->dtype) : "any type");
    if (t) sb_puts(s, t->rank < 0 ? "[...]" : "[");
    for (int d = 0; t && d < t->rank; d++) {
        int64_t k;
        if (d) sb_puts(s, ",");
        if (e_is_int(t->dim[d], &k))
            sb_printf(s, "%lld", (long long)k);
        else
            sb_puts(s, dim_name(io, d));
    }
    if (t && t->rank >= 0) sb_puts(s, "]");
}

static void print_io(Sb *s, bool json, const char *what, int n, const Io *io) {
    if (json) sb_printf(s, "\"%s\": [", what);
    for (int i = 0; i < n; i++) {
        if (!json) {
            sb_printf(s, "%s %s ", what, io[i].name);
            print_type(s, &io[i]);
            sb_puts(s, "\n");
            continue;
        }
        Sb type = {0};
        print_type(&type, &io[i]);
        sb_puts(s, i ? ", {\"name\": " : "{\"name\": ");
        sb_json(s, io[i].name);
        sb_puts(s, ", \"type\": ");
        sb_json(s, type.p);
        sb_puts(s, "}");
        sb_free(&type);
    }
    if (json) sb_puts(s, "]");
}

bool explain_is_resident(const Program *p, const LoopFacts *l) {
    return l->constants && l->share <= p->schedule->device->level[LEVEL_CORE].bytes;
}

/* Prints totals: memory, barriers, launches, … */
static void print_facts(Sb *s, bool json, const Program *p, const Facts *f) {
    if (json) {
        sb_printf(s,
                  ", \"fused\": %d, \"arena_bytes\": %lld, "
                  "\"distributed_bytes\": %lld, \"live_bytes\": %lld, "
                  "\"slots\": %d, \"weights_bytes\": %lld, \"barriers\": %d, \"cluster_barriers\": "
                  "%d, \"flags\": %d, "
                  "\"launches\": %d, \"products\": %d, \"loops\": [",
                  p->nfused, (long long)f->arena_bytes, (long long)f->distributed_bytes,
                  (long long)f->live_bytes, f->slots, (long long)f->weights_bytes, f->barriers,
                  f->cluster_barriers, f->flags, f->launches, f->products);
        for (int i = 0; i < f->loops.n; i++) {
            sb_puts(s, i ? ", {\"path\": " : "{\"path\": ");
            sb_json(s, f->loops.p[i].path ? f->loops.p[i].path : "");
            sb_printf(s,
                      ", \"depth\": %d, \"barriers\": %d, \"cluster_barriers\": %d, \"flags\": %d, "
                      "\"constants\": %lld, \"constants_of_core\": %lld, \"resident\": %s}",
                      f->loops.p[i].depth, f->loops.p[i].barriers, f->loops.p[i].cluster_barriers,
                      f->loops.p[i].flags, (long long)f->loops.p[i].constants,
                      (long long)f->loops.p[i].share,
                      explain_is_resident(p, &f->loops.p[i]) ? "true" : "false");
        }
        sb_puts(s, "], \"recursive\": [");
        for (int i = 0; i < f->recursive.n; i++) {
            sb_puts(s, i ? ", {\"name\": " : "{\"name\": ");
            sb_json(s, f->recursive.p[i].name);
            sb_printf(s, ", \"barriers\": %d, \"flags\": %d, \"frame_bytes\": %lld}",
                      f->recursive.p[i].barriers, f->recursive.p[i].flags,
                      (long long)f->recursive.p[i].frame_bytes);
        }
        sb_printf(s, "], \"shared_bytes\": %lld, \"residents\": [", (long long)f->shared_bytes);
        for (int i = 0; i < f->residents.n; i++) {
            sb_puts(s, i ? ", {\"name\": " : "{\"name\": ");
            sb_json(s, f->residents.p[i].name);
            sb_printf(s, ", \"bytes\": %lld, \"kept\": %s}", (long long)f->residents.p[i].bytes,
                      f->residents.p[i].kept ? "true" : "false");
        }
        sb_puts(s, "]");
        return;
    }
    sb_printf(s, "fusion: %d tensors are computed inside others\n", p->nfused);
    sb_printf(s, "memory: arena %lld bytes, %lld alive at once, slots %d, weights %lld bytes\n",
              (long long)f->arena_bytes, (long long)f->live_bytes, f->slots,
              (long long)f->weights_bytes);
    if (f->distributed_bytes)
        sb_printf(s, "distributed: %lld bytes in a block of a cluster\n",
                  (long long)f->distributed_bytes);
    for (int i = 0; i < f->loops.n; i++) {
        const LoopFacts *l = &f->loops.p[i];
        if (l->constants)
            sb_printf(s, "%s: %lld bytes of constants of loop %s, %lld per core\n",
                      explain_is_resident(p, l) ? "resident" : "not resident",
                      (long long)l->constants, l->path ? l->path : "", (long long)l->share);
    }
    for (int i = 0; i < f->residents.n; i++)
        sb_printf(s, "%s: %lld bytes of %s per block\n",
                  f->residents.p[i].kept ? "on chip" : "streamed",
                  (long long)f->residents.p[i].bytes, f->residents.p[i].name);
    if (f->shared_bytes)
        sb_printf(s, "block: uses %lld of its %lld bytes of memory\n", (long long)f->shared_bytes,
                  (long long)p->schedule->device->level[LEVEL_CORE].bytes);
    if (f->products)
        sb_printf(s, "launches: %d of the kernel, %d products by the library\n", f->launches,
                  f->products);
    sb_printf(s, "synchronizations: %d in the text", f->barriers);
    for (int i = 0; i < f->loops.n; i++)
        sb_printf(s, ", %d per iteration of loop %s", f->loops.p[i].barriers,
                  f->loops.p[i].path ? f->loops.p[i].path : "");
    for (int i = 0; i < f->recursive.n; i++)
        sb_printf(s, ", %d per call of function %s (frame: %lld bytes)", f->recursive.p[i].barriers,
                  f->recursive.p[i].name, (long long)f->recursive.p[i].frame_bytes);
    if (f->cluster_barriers) {
        sb_printf(s, "; of one cluster: %d in the text", f->cluster_barriers);
        for (int i = 0; i < f->loops.n; i++)
            if (f->loops.p[i].cluster_barriers)
                sb_printf(s, ", %d per iteration of loop %s", f->loops.p[i].cluster_barriers,
                          f->loops.p[i].path ? f->loops.p[i].path : "");
    }
    if (f->flags) sb_printf(s, "; flags in place of barriers: %d in the text", f->flags);
    for (int i = 0; i < f->loops.n; i++)
        if (f->loops.p[i].flags)
            sb_printf(s, ", %d per iteration of loop %s", f->loops.p[i].flags,
                      f->loops.p[i].path ? f->loops.p[i].path : "");
    for (int i = 0; i < f->recursive.n; i++)
        if (f->recursive.p[i].flags)
            sb_printf(s, ", %d per call of function %s", f->recursive.p[i].flags,
                      f->recursive.p[i].name);
    sb_puts(s, "\n");
}

/* Whether an equal decision comes before: choices about a construct may come up several times. */
static bool decided_before(const Schedule *k, int i) {
    const Decision *d = &k->decisions.p[i];
    for (int j = 0; j < i; j++) {
        const Decision *e = &k->decisions.p[j];
        if (e->x == d->x && e->key == d->key && e->taken == d->taken) return true;
    }
    return false;
}

/* Prints the device that the choices were made for. */
static void print_device(Sb *s, const Device *d) {
    sb_printf(
        s,
        ", \"device\": {\"name\": \"%s\", \"measured\": %s, \"gflops\": %.4g, \"dram_gbps\": %.4g, "
        "\"element_ns\": %.4g, \"function_ns\": %.4g, \"scalar_ns\": %.4g, \"group_ns\": %.4g, "
        "\"load_ns\": %.4g, \"cluster_load_ns\": %.4g, \"core_load_ns\": %.4g, "
        "\"shuffle_ns\": %.4g, \"cycle_ns\": %.4g, \"depend_ns\": %.4g, \"matrix_ns\": %.4g, "
        "\"levels\": [",
        d->name, d->measured ? "true" : "false", d->gflops, d->dram_gbps, d->element_ns,
        d->function_ns, d->scalar_ns, d->group_ns, d->load_ns, d->cluster_load_ns, d->core_load_ns,
        d->shuffle_ns, d->cycle_ns, d->depend_ns, d->matrix_ns);
    for (int i = 0, n = 0; i < LEVEL_COUNT; i++) {
        const DeviceLevel *l = &d->level[i];
        if (!l->name) continue;
        sb_printf(
            s, "%s{\"name\": \"%s\", \"bytes\": %lld, \"read_gbps\": %.4g, \"barrier_ns\": %.4g}",
            n++ ? ", " : "", l->name, (long long)l->bytes, l->read_gbps, l->barrier_ns);
    }
    sb_puts(s, "]}");
}

static const char *const by[] = {"model", "measurement", "force"};

static void print_decision_json(Sb *s, int n, const Decision *d) {
    char name[24];
    bool parameter = d->x >= X_TRANSFORMS;
    sb_printf(s, "%s{\"%s\": \"%s\", \"path\": ", n ? ", " : "",
              parameter ? "parameter" : "transformation", transform_name(d->x));
    sb_json(s, d->path ? d->path : "");
    sb_printf(s, ", \"key\": \"%016llx\", \"by\": \"%s\"", (unsigned long long)d->key, by[d->by]);
    if (!parameter)
        sb_printf(s, ", \"taken\": %s, \"plain_ns\": %.0f, \"changed_ns\": %.0f",
                  d->way[d->taken].value ? "true" : "false", d->way[d->way[0].value ? 1 : 0].ns,
                  d->way[d->way[0].value ? 0 : 1].ns);
    sb_printf(s, ", \"value\": \"%s\", \"ways\": [", way_name(d->x, d->way[d->taken].value, name));
    for (int i = 0; i < d->n; i++)
        sb_printf(s, "%s{\"value\": \"%s\", \"ns\": %.0f}", i ? ", " : "",
                  way_name(d->x, d->way[i].value, name), d->way[i].ns);
    sb_puts(s, "]");
    if (d->by == BY_MEASUREMENT)
        sb_printf(s, ", \"measured\": {\"ns\": %.0f, \"other\": \"%s\", \"other_ns\": %.0f}",
                  d->measured.ns, way_name(d->x, d->measured.other, name), d->measured.other_ns);
    sb_puts(s, "}");
}

/* Prints a line. Measured times are for the whole model, estimates for the construct. */
static void print_decision(Sb *s, const Decision *d) {
    char name[24], other[24];
    const Way *way = &d->way[d->taken];
    const char *path = d->path && *d->path ? d->path : "the whole program";
    int next = -1; /* the best alternative */
    for (int i = 0; i < d->n; i++)
        if (i != d->taken && (next < 0 || d->way[i].ns < d->way[next].ns)) next = i;
    if (d->x < X_TRANSFORMS)
        sb_printf(s, "%s %s: %s", way->value ? "chosen" : "rejected", transform_name(d->x), path);
    else
        sb_printf(s, "chosen %s %s: %s", transform_name(d->x), way_name(d->x, way->value, name),
                  path);
    bool measured = d->by == BY_MEASUREMENT;
    if (d->x >= X_TRANSFORMS)
        sb_printf(s, ", not %s",
                  way_name(d->x, measured ? d->measured.other : d->way[next].value, other));
    if (measured)
        sb_printf(s, ", %.0f ns instead of %.0f ns", d->measured.ns, d->measured.other_ns);
    else if (way->ns > 0 || d->x < X_TRANSFORMS)
        sb_printf(s, ", %.0f ns instead of %.0f ns", way->ns, d->way[next].ns);
    sb_printf(s, " by %s\n", by[d->by]);
}

/* Prints what the scheduler chose and rejected, with the times. */
static void print_decisions(Sb *s, bool json, const Schedule *k) {
    int n = 0;
    if (json)
        sb_printf(
            s,
            ", \"schedule\": {\"units\": %d, \"team\": %d, \"estimate_ns\": %.0f, \"decisions\": [",
            k->units, k->team, k->estimate_ns);
    for (int i = 0; i < k->decisions.n; i++) {
        const Decision *d = &k->decisions.p[i];
        if (decided_before(k, i)) continue;
        if (json)
            print_decision_json(s, n, d);
        else
            print_decision(s, d);
        n++;
    }
    if (json) sb_puts(s, "], \"remarks\": [");
    for (int i = 0; i < k->remarks.n; i++) {
        if (json) {
            sb_puts(s, i ? ", " : "");
            sb_json(s, k->remarks.p[i]);
        } else
            sb_printf(s, "%s\n", k->remarks.p[i]);
    }
    if (json) sb_puts(s, "]}");
}

/* The state that --carry names. */
static void print_state(Sb *s, bool json, const Program *p) {
    if (json) sb_puts(s, ", \"state\": [");
    for (int i = 0; i < p->ncarry; i++) {
        const char *in = p->in[p->carry_input[i]].name, *out = p->out[p->carry_output[i]].name;
        if (json) {
            sb_puts(s, i ? ", {\"input\": " : "{\"input\": ");
            sb_json(s, in);
            sb_puts(s, ", \"output\": ");
            sb_json(s, out);
            sb_puts(s, "}");
        } else
            sb_printf(s, "state %s: output %s of the run before\n", in, out);
    }
    if (json) sb_puts(s, "]");
}

typedef struct Work {
    Diag d;
    Arena *arena;
    Sb text;
    FoldSpec fold;
    CompileOptions o;
    PassReport passes;
    Explained x;      /* of what is printed as JSON */
    bool passes_only; /* print only what --dump-after and --time-passes ask for */
    int nscaled;
    Scaling scaled[EXPLAIN_UNITS]; /* for --units */
} Work;

static void print_json(Sb *s, const Cli *c, Explained *x, const int64_t *n) {
    const Program *p = x->p;
    sb_puts(s, "{\"model\": ");
    sb_json(s, c->arg[0]);
    sb_puts(s, ", ");
    print_io(s, true, "inputs", p->nin, p->in);
    sb_puts(s, ", ");
    print_io(s, true, "outputs", p->nout, p->out);
    print_state(s, true, p);
    sb_puts(s, ", \"statements\": {");
    for (size_t i = 0; i < COUNT(stmt_names); i++)
        sb_printf(s, "%s\"%s\": %lld", i ? ", " : "", stmt_names[i], (long long)n[i]);
    sb_printf(s, "}, \"groups\": %lld", (long long)n[S_OP]);
    explain_tree(s, x);
    if (x->f) {
        print_facts(s, true, p, x->f);
        explain_placement(s, x);
        print_device(s, p->schedule->device);
        print_decisions(s, true, p->schedule);
    }
    sb_puts(s, "}\n");
}

static void print_text(Sb *s, const Program *p, const Facts *f, const int64_t *n) {
    print_io(s, false, "input", p->nin, p->in);
    print_io(s, false, "output", p->nout, p->out);
    print_state(s, false, p);
    for (size_t i = 0; i < COUNT(stmt_names); i++)
        sb_printf(s, "%s%lld %s", i ? ", " : "statements: ", (long long)n[i], stmt_names[i]);
    sb_puts(s, "\n");
    if (f) print_facts(s, false, p, f);
    if (f) print_decisions(s, false, p->schedule);
    sb_puts(s, "\n");
    utask_print(s, p);
}

static void print_program(Work *w, const Cli *c, Program *p) {
    int64_t n[S_COUNT] = {0};
    seq_each(p->top, count_stmt, n);
    const Facts *f = NULL;
    if (p->schedule) {
        const Facts facts = plan_facts(p);
        f = arena_memdup(w->arena, &facts, sizeof facts);
    }
    if (c->json || c->html) {
        w->x = explain_program(p, f);
        print_json(&w->text, c, &w->x, n);
    } else
        print_text(&w->text, p, f, n);
}

/* Everything that changes is in *w: longjmp leaves changed local variables undefined. */
static bool explain(Work *w, const Cli *c) {
    jmp_buf jb;
    w->d.top = &jb;
    if (setjmp(jb) == 0) {
        w->arena = arena_new(&w->d);
        Program *p = compile_program(w->arena, &w->d, c->arg[0], &w->o);
        if (c->units)
            w->scaled[w->nscaled++] = plan_scaling(p);
        else if (!w->passes_only)
            print_program(w, c, p);
    }
    w->d.top = NULL;
    return w->d.status == ST_OK;
}

/* The same for each of n numbers of units. */
static bool explain_each(Work *w, const Cli *c, int n, const int *units) {
    bool good = true;
    Arena *before[EXPLAIN_UNITS]; /* paths are in there */
    int i = 0;
    for (; i < n && good; i++) {
        before[i] = w->arena;
        w->o.units = units[i];
        good = explain(w, c);
    }
    if (good) explain_units(&w->text, c->arg[0], c->json, n, w->scaled);
    while (--i > 0) arena_free(before[i]);
    return good;
}

static int run(const Cli *c, bool passes_only) {
    Work w = {.passes = {.after = c->dump_after}, .passes_only = passes_only || c->dump_after};
    braid_error e;
    if (c->profile && !c->html) return cli_usage("--profile needs --html");
    int units[EXPLAIN_UNITS], nunits = c->units ? explain_units_read(c->units, units) : 0;
    if (c->units && !nunits)
        return cli_usage("--units takes up to %d numbers from 1 to %d, as in 4,8,16, not '%s'",
                         EXPLAIN_UNITS - 1, EXPLAIN_UNITS_MOST, c->units);
    if (c->units && (c->html || c->dump_after))
        return cli_usage("--units and --html or --dump-after exclude each other");
    if (c->html && c->dump_after) return cli_usage("--html and --dump-after exclude each other");
    if (rt_is_library(c->arg[0]))
        return cli_fail(c->arg[0], "it is a compiled library; %s needs the model", c->command);
    braid_fold fold;
    braid_options given = cli_options(c, &fold), o;
    Progress progress;
    if (rt_options(&given, &o, &progress, &e)) return cli_usage("%s", e.message);
    rt_compile_options(&o, &w.fold, &w.o);
    if (c->units && strcmp(w.o.target, "interp") == 0)
        return cli_usage("--units needs a target that is scheduled, not interp");
    w.o.report = &w.passes;
    w.o.profile = c->profile != NULL; /* what measures itself is scheduled for that */
    int code = EXIT_DONE;
    Device device;
    bool published = c->costs && strcmp(c->costs, "published") == 0;
    if (c->costs && !published && (code = cli_costs(c->costs, w.o.target, &device))) return code;
    Store *s = rt_store(&(braid_options){0}, false);
    if (published)
        w.o.device = device_find(w.o.target);
    else if (c->costs || device_calibrated(&w.o, s, false, &device))
        w.o.device = &device;
    char *key = device_key(&w.o);
    Measured *measured =
        key ? store_measured(s, key, c->threads ? c->threads : compile_cpus(), &w.o.nmeasured)
            : NULL;
    w.o.measured = measured;
    store_close(s);
    free(key);
    w.d.progress = w.o.progress;
    rt_step(&o, "reading and scheduling the model", NULL);
    const bool good = nunits ? explain_each(&w, c, nunits, units) : explain(&w, c);
    cli_watch_clear();
    if (good) {
        if (w.passes.tree.n) fwrite(w.passes.tree.p, 1, w.passes.tree.n, stdout);
        if (w.text.n && (c->json || !c->html)) fwrite(w.text.p, 1, w.text.n, stdout);
        if (c->time_passes) fputs(w.passes.times.p, stderr);
        if (c->html) code = explain_page(c->html, &w.text, &w.x, c->profile);
    } else {
        braid_error e = {.status = (braid_status)w.d.status};
        snprintf(e.message, sizeof e.message, "%s", w.d.message);
        code = cli_error(c->arg[0], &e);
    }
    sb_free(&w.text);
    sb_free(&w.passes.tree);
    sb_free(&w.passes.times);
    arena_free(w.arena);
    free(measured);
    return code;
}

int cmd_explain(const Cli *c) { return run(c, false); }
int cli_passes(const Cli *c) { return run(c, true); }
