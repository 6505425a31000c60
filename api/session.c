/* session.c: sessions: what runs of a model share, and what ends a run. */
#include <stdlib.h>

#include "codegen/text/memory.inc"
#include "api/runtime.h"

/* Of all sessions of this process. */
static int32_t teams;

braid_status braid_session_new(struct braid_model *model, const braid_session_options *options,
                               braid_session **session, braid_error *e) {
    braid_session_options o = {0};
    if (!model || !session) return rt_fail(e, BRAID_USAGE, "a null pointer was given");
    if (options) {
        size_t n = options->struct_size;
        if (n < sizeof options->struct_size)
            return rt_fail(e, BRAID_USAGE, "the options' struct_size is not set");
        memcpy(&o, options, n < sizeof o ? n : sizeof o);
    }
    if (o.threads < 0 || o.max_iterations < 0 || o.stack_depth < 0 || o.device < 0 ||
        o.max_memory < 0)
        return rt_fail(
            e, BRAID_USAGE,
            "threads, max_iterations, stack_depth, device and max_memory cannot be negative");
    braid_session *s = calloc(1, sizeof *s);
    if (!s) return rt_fail(e, BRAID_MEMORY, "out of memory");
    s->interp.max_iterations = o.max_iterations ? o.max_iterations : (int64_t)1 << 31;
    s->interp.stack_depth = o.stack_depth;
    s->interp.max_memory = o.max_memory;
    s->interp.cancelled = &s->cancelled;
    if (!model->lib && !o.max_memory) s->interp.max_memory = bk_memory_share();
    s->options = o;
    s->options.struct_size = sizeof o;
    if (model->lib) {
        char message[sizeof e->message] = "";
        braid_session_config_v1 c = {.struct_size = sizeof c,
                                     .threads = o.threads,
                                     .max_iterations = o.max_iterations,
                                     .stack_depth = o.stack_depth,
                                     .device = o.device,
                                     .message = message,
                                     .message_size = sizeof message,
                                     .max_memory = o.max_memory,
                                     .teams = &teams};
        int st = model->lib->session_new(&c, &s->lib_session);
        if (st) {
            free(s);
            return rt_fail(e, (braid_status)st, "%s",
                           *message ? message : "no memory or threads for a session");
        }
    }
    pthread_mutex_init(&s->lock, NULL);
    rt_model_retain(model);
    s->model = model;
    *session = s;
    return BRAID_OK;
}

void braid_session_free(braid_session *s) {
    if (!s) return;
    if (s->model->lib) s->model->lib->session_free(s->lib_session);
    rt_ranked_free(s->ranked);
    pthread_mutex_destroy(&s->lock);
    braid_model_free(s->model);
    free(s);
}

braid_status braid_session_set_seed(braid_session *s, uint64_t seed, braid_error *e) {
    const braid_model_v1 *lib = s->model->lib;
    if (lib && !lib->set_seed)
        return rt_fail(e, BRAID_USAGE, "the library knows no seed: compile the model again");
    pthread_mutex_lock(&s->lock);
    if (lib)
        lib->set_seed(s->lib_session, seed);
    else
        bk_seed_set(&s->seed, seed);
    pthread_mutex_unlock(&s->lock);
    return BRAID_OK;
}

int64_t rt_stat(braid_session *s, int which) {
    braid_session *last = rt_last_session(s);
    if (last) return rt_stat(last, which);
    if (!s->model->lib) return which == BRAID_STAT_THREADS ? 1 : -1;
    pthread_mutex_lock(&s->lock);
    int64_t n = s->model->lib->stat(s->lib_session, which);
    pthread_mutex_unlock(&s->lock);
    return n;
}
int64_t braid_session_stat(braid_session *s, braid_stat which) { return rt_stat(s, (int)which); }

bool rt_renumber(braid_session *s) {
    braid_session *last = rt_last_session(s);
    if (last) return rt_renumber(last);
    const braid_model_v1 *lib = s->model->lib;
    if (!lib || !lib->renumber) return false;
    pthread_mutex_lock(&s->lock);
    lib->renumber(s->lib_session);
    pthread_mutex_unlock(&s->lock);
    return true;
}

/* Only atomics: it may be called from a signal handler. */
void braid_session_cancel(braid_session *s) {
    if (!s) return;
    const braid_model_v1 *lib = s->model->lib;
    rt_ranked_cancel(s);
    if (!lib)
        atomic_store(&s->cancelled, 1);
    else if (lib->cancel)
        lib->cancel(s->lib_session);
}
