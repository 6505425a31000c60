/* profile_shapes.c: the shapes that values took in a run, for braid profile --shapes. */
#include <stdlib.h>

#include "api/runtime.h"
#include "cli/profile.h"

/* Shapes of a value that are told apart, at most. */
#define DISTINCT 256

typedef struct Shape {
    int64_t dim[MAX_RANK];
} Shape;

typedef struct SeenValue {
    const Tensor *t;
    int64_t times;
    int rank, n;
    Shape first, least, most; /* least, most: by dimension */
    Shape *one;               /* n distinct ones */
} SeenValue;

typedef struct Watch {
    SeenValue *p; /* in the order in which they came */
    int n, *at;   /* by tensor id: 1 + its place in p */
    int ntensor;
} Watch;

static SeenValue *value_of(Watch *w, const Tensor *t) {
    if (t->id >= w->ntensor) {
        const int had = w->ntensor;
        w->ntensor = 2 * t->id + 64;
        if (!(w->at = realloc(w->at, (size_t)w->ntensor * sizeof *w->at))) die("out of memory");
        memset(w->at + had, 0, (size_t)(w->ntensor - had) * sizeof *w->at);
    }
    if (w->at[t->id]) return &w->p[w->at[t->id] - 1];
    if (!(w->p = realloc(w->p, (size_t)(w->n + 1) * sizeof *w->p))) die("out of memory");
    SeenValue *v = &w->p[w->n];
    *v = (SeenValue){.t = t, .one = malloc(DISTINCT * sizeof *v->one)};
    if (!v->one) die("out of memory");
    w->at[t->id] = ++w->n;
    return v;
}

static bool is_open(const Tensor *t) {
    int64_t n;
    for (int i = 0; i < t->rank; i++)
        if (!e_is_int(t->dim[i], &n)) return true;
    return false;
}

static void note(void *user, const Tensor *t, int rank, const int64_t *dim) {
    if (!is_open(t)) return;
    SeenValue *v = value_of(user, t);
    Shape now = {0};
    memcpy(now.dim, dim, (size_t)rank * sizeof *dim);
    if (!v->times++) v->rank = rank, v->first = v->least = v->most = now;
    for (int i = 0; i < rank; i++) {
        if (dim[i] < v->least.dim[i]) v->least.dim[i] = dim[i];
        if (dim[i] > v->most.dim[i]) v->most.dim[i] = dim[i];
    }
    for (int i = v->n - 1; i >= 0; i--) /* the last one is likely */
        if (memcmp(&v->one[i], &now, sizeof now) == 0) return;
    if (v->n < DISTINCT) v->one[v->n++] = now;
}

static void put_shape(Sb *s, const SeenValue *v, const Shape *k) {
    Sb text = {0};
    for (int i = 0; i < v->rank; i++)
        sb_printf(&text, "%s%lld", i ? "," : "[", (long long)k->dim[i]);
    sb_puts(&text, "]");
    sb_printf(s, " %-16s", text.p);
    sb_free(&text);
}

static void put_values(Sb *s, const Watch *w) {
    sb_puts(s, "shapes that the model leaves open, in a run by the interpreter:\n");
    sb_printf(s, "%-60s %8s %8s %-16s %-16s %-16s\n", "value", "times", "shapes", "first", "least",
              "most");
    for (int i = 0; i < w->n; i++) {
        const SeenValue *v = &w->p[i];
        Sb name = {0};
        sb_printf(&name, "%s %s", v->t->name ? v->t->name : "value", v->t->path ? v->t->path : "");
        sb_printf(s, "%-60s %8lld %7d%s", name.n > 60 ? name.p + name.n - 60 : name.p,
                  (long long)v->times, v->n, v->n == DISTINCT ? "+" : " ");
        put_shape(s, v, &v->first);
        put_shape(s, v, &v->least);
        put_shape(s, v, &v->most);
        sb_puts(s, "\n");
        sb_free(&name);
    }
    if (!w->n) sb_puts(s, "none: all shapes are known from the model\n");
}

int profile_shapes(Sb *s, const Cli *c, const braid_value *const *in) {
    struct braid_model *m;
    braid_session *session;
    braid_error e;
    Watch w = {0};
    Cli own = *c;
    own.measured = false;
    own.target = "interp";
    int code = cli_load(&own, &m, &session);
    if (code) return code;
    const int nout = braid_model_output_count(m);
    braid_value **out = calloc((size_t)nout + 1, sizeof *out);
    if (!out) die("out of memory");
    session->interp.seen = note;
    session->interp.user = &w;
    if (m->open)
        code = cli_fail(c->arg[0], "--shapes needs the ranks of all inputs (--input-shape)");
    else if (braid_session_run(session, in, out, &e))
        code = cli_error(c->arg[0], &e);
    else
        put_values(s, &w);
    for (int i = 0; i < nout; i++) braid_value_free(out[i]);
    for (int i = 0; i < w.n; i++) free(w.p[i].one);
    free(w.p);
    free(w.at);
    free(out);
    braid_session_free(session);
    braid_model_free(m);
    return code;
}
