/* open.c: open models: some of their inputs declare no rank.
 *
 * Generated code is for fixed ranks. So an open model is compiled during a run, for the ranks of
 * the run's tensors: it calls braid_load with these ranks as shapes, and the cache keeps each
 * result. The model remembers the compiled variants. A session holds one session for each variant
 * that it has run.
 */
#include <stdlib.h>

#include "api/runtime.h"
#include "scheduler/cost/device.h"

typedef struct Variant {
    struct Variant *next;
    RtSeen *seen; /* for each open input. Rank -1: an empty optional. Length -1: any */
    bool exact;   /* compiled for the lengths of short last axes */
    struct braid_model *m;
    braid_status st; /* not BRAID_OK: this combination cannot be compiled */
    char *why;
} Variant;

struct RtOpen {
    pthread_mutex_t lock; /* held while compiling */
    const char *path;     /* strings and arrays are in the model's arena */
    braid_options o;      /* o.shape has room for n more */
    RtLoad *load;
    int n, *input; /* number and indices of the open inputs */
    Variant *variant;
    Arena *imported; /* of the Graph, while the file is read */
};

struct RtRanked {
    struct RtRanked *next, *older;
    Variant *variant;
    braid_session *s;
};

/* ---- the model ------------------------------------------------------------------------------- */
static const char *copy_text(Arena *a, const char *s) { return s ? arena_strdup(a, s) : NULL; }

static const char *const *copy_texts(Arena *a, int n, const char *const *s) {
    const char **to = NEWN(a, const char *, n + 1);
    for (int i = 0; i < n; i++) to[i] = copy_text(a, s[i]);
    return to;
}

static const braid_fold *copy_fold(Arena *a, const braid_fold *f) {
    if (!f) return NULL;
    braid_fold *to = arena_memdup(a, f, sizeof *f);
    to->scan_input = copy_texts(a, f->scan_count, f->scan_input);
    if (f->scan_count)
        to->scan_axis = arena_memdup(a, f->scan_axis, sizeof *f->scan_axis * (size_t)f->scan_count);
    to->carry_input = copy_texts(a, f->carry_count, f->carry_input);
    to->carry_output = copy_texts(a, f->carry_count, f->carry_output);
    return to;
}

/* Copies the options into the arena, with room for `room` more shapes. The inputs to tune with are
 * not copied: random ones replace them. */
static braid_options copy_options(Arena *a, const braid_options *o, int room) {
    braid_options to = *o;
    braid_shape *shape = NEWN(a, braid_shape, o->shape_count + room);
    for (int i = 0; i < o->shape_count; i++) {
        const braid_shape *s = &o->shape[i];
        shape[i] = (braid_shape){copy_text(a, s->input), s->rank, NULL};
        if (s->rank) shape[i].dim = arena_memdup(a, s->dim, sizeof *s->dim * (size_t)s->rank);
    }
    to.struct_size = sizeof to;
    to.shape = shape;
    to.target = copy_text(a, o->target);
    to.cpu = copy_text(a, o->cpu);
    to.emit_path = copy_text(a, o->emit_path);
    to.cache_dir = copy_text(a, o->cache_dir);
    to.schedule = copy_text(a, o->schedule);
    to.weights = copy_text(a, o->weights);
    to.cc = copy_text(a, o->cc);
    to.torch_name = copy_text(a, o->torch_name);
    to.fold = copy_fold(a, o->fold);
    to.tune_input_count = 0;
    if (o->model_data) to.model_data = arena_memdup(a, o->model_data, o->model_size);
    to.progress = NULL; /* lent for braid_load alone, as all arguments */
    to.progress_user = NULL;
    return to;
}

/* Fills *io from a declared input or output, with copied strings. */
static void io_of(Arena *a, const char *name, const VType *t, braid_io *io) {
    Io from = {.name = name, .type = t, .kind = t ? t->kind : VT_TENSOR};
    rt_program_io(a, &from, io);
    io->name = copy_text(a, name);
    if (io->rank > 0) io->dim_name = copy_texts(a, io->rank, io->dim_name);
}

/* Fills m from its file. Raises errors. */
static void read_model(struct braid_model *m, const char *path, const braid_options *o) {
    struct RtOpen *open = m->open;
    FoldSpec fold;
    CompileOptions c;
    m->arena = arena_new(&m->diag);
    open->imported = arena_new(&m->diag);
    rt_compile_options(o, &fold, &c);
    c.by_run = true;
    m->diag.progress = c.progress;
    const Graph *g = compile_import(open->imported, &m->diag, path, &c);
    m->name = copy_text(m->arena, g->name);
    m->nin = g->top->nparam;
    m->nout = g->top->nresult;
    m->in = NEWN(m->arena, braid_io, m->nin + 1);
    m->out = NEWN(m->arena, braid_io, m->nout + 1);
    open->input = NEWN(m->arena, int, m->nin + 1);
    for (int i = 0; i < m->nin; i++) {
        const Value *v = g->top->param[i];
        io_of(m->arena, v->name, v->type, &m->in[i]);
        if (graph_open_type(v->type)) open->input[open->n++] = i;
    }
    for (int i = 0; i < m->nout; i++)
        io_of(m->arena, g->top->result_name[i], g->top->result_type[i], &m->out[i]);
    m->ncarry = g->ncarry;
    m->carry_input = arena_memdup(m->arena, g->carry_input, sizeof(int) * (size_t)g->ncarry);
    m->carry_output = arena_memdup(m->arena, g->carry_output, sizeof(int) * (size_t)g->ncarry);
    open->path = copy_text(m->arena, path);
    open->o = copy_options(m->arena, o, open->n);
    m->target = open->o.target;
}

braid_status rt_open_ranks(struct braid_model *m, const char *path, const braid_options *o,
                           RtLoad *load, braid_error *e) {
    jmp_buf jb;
    if (!(m->open = calloc(1, sizeof *m->open))) return rt_fail(e, BRAID_MEMORY, "out of memory");
    m->open->load = load;
    pthread_mutex_init(&m->open->lock, NULL);
    m->diag.top = &jb;
    if (setjmp(jb) == 0) read_model(m, path, o);
    m->diag.top = NULL;
    m->diag.progress = NULL;
    arena_free(m->open->imported);
    m->open->imported = NULL;
    return m->diag.status ? rt_fail_diag(e, &m->diag) : BRAID_OK;
}

static void variant_free(Variant *v) {
    if (!v) return;
    braid_model_free(v->m);
    free(v->seen);
    free(v->why);
    free(v);
}

void rt_open_free(struct RtOpen *open) {
    if (!open) return;
    for (Variant *v = open->variant, *next; v; v = next) {
        next = v->next;
        variant_free(v);
    }
    pthread_mutex_destroy(&open->lock);
    free(open);
}

int32_t rt_open_device_type(const struct braid_model *m) {
    const Device *d = device_find(m->target); /* NULL: the interpreter */
    const Backend of = d ? d->backend : BACKEND_C;
    return of == BACKEND_CUDA       ? kDLCUDA
           : of == BACKEND_HIP      ? kDLROCM
           : of == BACKEND_EMULATED ? kDLExtDev
                                    : kDLCPU;
}

/* ---- compiling for ranks --------------------------------------------------------------------- */
/* Notes in v that the model does not work with these ranks; the message names the ranks first. */
static braid_status refuse(const struct braid_model *m, Variant *v, const braid_error *why,
                           braid_error *e) {
    const struct RtOpen *open = m->open;
    Sb s = {0};
    for (int i = 0; i < open->n; i++)
        if (v->seen[i].rank >= 0)
            sb_printf(&s, "%sinput %s of rank %d", s.n ? " and " : "", m->in[open->input[i]].name,
                      v->seen[i].rank);
    sb_printf(&s, "%s%s", s.n ? ": " : "", why->message);
    v->st = why->status == BRAID_MODEL ? BRAID_INPUT : why->status;
    braid_status st = rt_fail(e, v->st, "%s", s.p);
    v->why = s.p;
    return st;
}

static braid_status compile_variant(const struct braid_model *m, Variant *v, braid_error *e) {
    struct RtOpen *open = m->open;
    braid_options o = open->o;
    braid_shape *shape = (braid_shape *)(uintptr_t)o.shape + o.shape_count;
    braid_error why = {0};
    int64_t(*dim)[MAX_RANK] = calloc((size_t)open->n, sizeof *dim);
    if (!dim) return rt_fail(e, BRAID_MEMORY, "out of memory");
    for (int i = 0; i < open->n; i++) { /* the rank of an empty optional does not matter */
        int rank = v->seen[i].rank < 0 ? 0 : v->seen[i].rank;
        for (int k = 0; k < rank; k++) dim[i][k] = k == rank - 1 ? v->seen[i].length : -1;
        shape[i] = (braid_shape){m->in[open->input[i]].name, rank, dim[i]};
    }
    o.shape_count += open->n;
    braid_status st = open->load(open->path, &o, &v->m, &why);
    free(dim);
    if (!st) return BRAID_OK;
    if (st == BRAID_MODEL || st == BRAID_UNSUPPORTED) return refuse(m, v, &why, e);
    return rt_fail(e, st, "%s", why.message);
}

static bool is_short(const RtSeen *s) {
    return s->rank > 0 && s->length >= 0 && s->length <= MAX_RANK;
}

/* Makes the variant for these tensors. After an error that may be temporary, *to stays NULL. */
static braid_status new_variant(const struct braid_model *m, const RtSeen *seen, bool exact,
                                Variant **to, braid_error *e) {
    struct RtOpen *open = m->open;
    Variant *v = calloc(1, sizeof *v);
    if (!v || !(v->seen = calloc((size_t)open->n + 1, sizeof *v->seen))) {
        variant_free(v);
        return rt_fail(e, BRAID_MEMORY, "out of memory");
    }
    v->exact = exact;
    for (int i = 0; i < open->n; i++) {
        v->seen[i] = seen[open->input[i]];
        if (!exact || !is_short(&v->seen[i])) v->seen[i].length = -1;
    }
    braid_status st = compile_variant(m, v, e);
    if (st && !v->st) {
        variant_free(v);
        return st;
    }
    v->next = open->variant;
    open->variant = *to = v;
    return st;
}

static bool variant_fits(const struct RtOpen *open, const Variant *v, const RtSeen *seen) {
    for (int i = 0; i < open->n; i++) {
        const RtSeen *a = &v->seen[i], *b = &seen[open->input[i]];
        if (a->rank != b->rank || (a->length >= 0 && a->length != b->length)) return false;
        if (v->exact && is_short(b) && a->length < 0) return false;
    }
    return true;
}

/* Finds or makes the variant for a run's tensors: for their ranks alone, or if that cannot be
 * compiled, also for the lengths of short last axes. */
static braid_status find_variant(const struct braid_model *m, const RtSeen *seen, Variant **to,
                                 braid_error *e) {
    struct RtOpen *open = m->open;
    bool any = false;
    for (int i = 0; i < open->n; i++) any = any || is_short(&seen[open->input[i]]);
    for (int exact = 0;; exact++) {
        Variant *v = open->variant;
        braid_status st;
        while (v && !(v->exact == exact && variant_fits(open, v, seen))) v = v->next;
        if (v)
            st = v->st ? rt_fail(e, v->st, "%s", v->why) : BRAID_OK;
        else
            st = new_variant(m, seen, exact, &v, e);
        *to = v;
        if (!st || !v || exact || !any) return st;
    }
}

bool rt_open_draws(const struct braid_model *m) {
    bool draws = false;
    pthread_mutex_lock(&m->open->lock);
    for (const Variant *v = m->open->variant; v; v = v->next)
        draws = draws || (v->m && braid_model_draws(v->m));
    pthread_mutex_unlock(&m->open->lock);
    return draws;
}

/* ---- sessions -------------------------------------------------------------------------------- */
void rt_ranked_free(struct RtRanked *r) {
    for (struct RtRanked *next; r; r = next) {
        next = r->next;
        braid_session_free(r->s);
        free(r);
    }
}

braid_session *rt_last_session(braid_session *s) {
    if (!s->model->open) return NULL;
    pthread_mutex_lock(&s->lock);
    braid_session *last = s->ranked ? s->ranked->s : NULL;
    pthread_mutex_unlock(&s->lock);
    return last;
}

/* Moves the session for variant v to the front; makes it if there is none. */
static braid_status ranked_session(braid_session *s, Variant *v, braid_error *e) {
    struct RtRanked **at = &s->ranked, *r;
    braid_status st = BRAID_OK;
    while (*at && (*at)->variant != v) at = &(*at)->next;
    r = *at;
    if (r) {
        *at = r->next;
    } else {
        if (!(r = calloc(1, sizeof *r))) return rt_fail(e, BRAID_MEMORY, "out of memory");
        r->variant = v;
        st = braid_session_new(v->m, &s->options, &r->s, e);
        if (!st && s->stream) st = braid_session_set_stream(r->s, s->stream, e);
        if (st) {
            braid_session_free(r->s);
            free(r);
            return st;
        }
        r->older = atomic_load(&s->newest);
        atomic_store(&s->newest, r);
    }
    r->next = s->ranked;
    s->ranked = r;
    return BRAID_OK;
}

void rt_ranked_cancel(braid_session *s) {
    for (const struct RtRanked *r = atomic_load(&s->newest); r; r = r->older)
        braid_session_cancel(r->s);
}

braid_status rt_ranked_session(braid_session *s, const RtSeen *seen, braid_session **to,
                               braid_error *e) {
    struct RtOpen *open = s->model->open;
    Variant *v = NULL;
    pthread_mutex_lock(&open->lock);
    braid_status st = find_variant(s->model, seen, &v, e);
    pthread_mutex_unlock(&open->lock);
    if (st) return st;
    pthread_mutex_lock(&s->lock);
    st = ranked_session(s, v, e);
    if (!st && s->seed.given) st = braid_session_set_seed(s->ranked->s, s->seed.value, e);
    if (!st) *to = s->ranked->s;
    pthread_mutex_unlock(&s->lock);
    return st;
}

braid_status rt_ranked_stream(braid_session *s, void *stream, braid_error *e) {
    braid_status st = BRAID_OK;
    pthread_mutex_lock(&s->lock);
    s->stream = stream;
    for (struct RtRanked *r = s->ranked; r && !st; r = r->next)
        st = braid_session_set_stream(r->s, stream, e);
    pthread_mutex_unlock(&s->lock);
    return st;
}

braid_status rt_ranked_finish(braid_session *s, braid_error *e) {
    braid_status st = BRAID_OK;
    pthread_mutex_lock(&s->lock);
    for (struct RtRanked *r = s->ranked; r; r = r->next) {
        braid_status one = braid_session_finish(r->s, st ? NULL : e);
        if (!st) st = one;
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}
