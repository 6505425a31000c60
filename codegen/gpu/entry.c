/* entry.c: the end of the host's text of a program for GPUs: its sessions and braid_model().
 *
 * Pasted after braid_model.h, gpu/ctx.h, entry.h, calls.h, driver.h, device.h and run.h. Beside
 * what entry.h asks for, the text before all that defines BK_TARGET          "cuda:sm_90", …
 *   BK_BACKEND         see driver.h
 *   BK_THREADS         threads of a block
 *   BK_CLUSTER         blocks of a cluster, 1: there are no clusters
 *   BK_SHARED_BYTES    dynamic shared memory of a block
 *   BK_UNITS           blocks that the program was scheduled for, 0: as many as there may be
 *   BK_WEIGHTS_SIZE    bytes of bk_weights[]
 *   BK_CODE_FILE       optional: the code object, a file for the assembler; none for the emulator
 *   BK_FIXED           1: no run can need more memory than BK_ARENA, and the types and shapes of
 * all outputs are those that bk_outputs declares BK_STAYS           1: each output lies at the same
 * place in every run: of working memory, of the weights or of an input BK_NPRODUCT, …     optional:
 * see library.h, which is pasted behind device.h then BK_INPUT_ALIGN     optional: alignment that
 * the kernel needs of its inputs' data, bytes
 */
static void bk_session_free(void *session) {
    bk_session *s = session;
    if (!s) return;
    const bk_driver *d = s->d;
    if (s->device && d->context_push(s->device->context) == 0) {
        if (s->pending) d->event_wait(s->done);
#ifdef BK_NPRODUCT
        bk_library_free(s);
#endif
        for (int i = 0; i < BK_NSLOT; i++)
            if (s->slot[i]) d->free(s->slot[i]);
        if (s->arena) d->free(s->arena);
        if (s->input) d->free(s->input);
        if (s->delivered) d->free(s->delivered);
        if (s->block) d->free(s->block);
        if (s->output) d->host_free(s->output);
        if (s->pinned) d->host_free(s->pinned);
        for (int i = 0; i < BK_TABLES; i++)
            if (s->read[i]) d->event_free(s->read[i]);
        if (s->done) d->event_free(s->done);
        if (s->stream) d->stream_free(s->stream);
        bk_out(d);
    }
    if (s->device) bk_device_free(s->device);
    free(s);
}

/* What a session has for itself. Its context is the thread's. */
static int bk_session_fill(bk_session *s, const braid_session_config_v1 *c, char *message,
                           size_t size) {
    const bk_driver *d = s->d;
    s->nunit = c->threads ? c->threads : BK_UNITS ? BK_UNITS : s->device->most;
    if (s->nunit > s->device->most) s->nunit = s->device->most;
    s->nunit = s->nunit < BK_CLUSTER ? BK_CLUSTER
                                     : s->nunit / BK_CLUSTER * BK_CLUSTER; /* whole clusters */
    size_t bytes = BK_IMAGE_BYTES + (size_t)(s->nunit + 1) * sizeof(bk_word);
    BK_TRY(d->event_new(&s->done, BK_EVENT_UNTIMED), "making an event");
    for (int i = 0; i < BK_TABLES; i++)
        BK_TRY(d->event_new(&s->read[i], BK_EVENT_UNTIMED), "making an event");
    BK_TRY(d->host_alloc((void **)&s->pinned, sizeof *s->pinned, 0), "taking memory");
    memset(s->pinned, 0, sizeof *s->pinned);
    memset(s->now, -1, sizeof s->now);
    BK_TRY(d->alloc(&s->block, bytes), "taking memory");
    BK_TRY(d->fill(s->block, 0, bytes, s->stream), "clearing memory");
    BK_TRY(d->stream_wait(s->stream), "clearing memory");
    bk_ctx *k = &s->pinned->up.k;
#define BK_ON_DEVICE(field) (void *)(uintptr_t)(s->block + offsetof(bk_image, field))
    k->in = BK_ON_DEVICE(in);
    k->out = BK_ON_DEVICE(out);
    k->slot = BK_ON_DEVICE(slot);
    k->cap = BK_ON_DEVICE(cap);
    k->cap_need = BK_ON_DEVICE(cap_need);
#undef BK_ON_DEVICE
    k->weights = (const char *)(uintptr_t)s->device->weights;
    k->go = (bk_word *)(uintptr_t)(s->block + BK_IMAGE_BYTES);
    k->arrive = k->go + 1;
    k->max_iterations = c->max_iterations;
    k->stack_depth = k->depth_cap = c->stack_depth ? c->stack_depth : 10000;
    s->most = c->max_memory;
    if (!s->most) { /* a device's own memory is the limit; an emulated one's is the host's */
        int64_t share = BK_BACKEND == 2 ? bk_memory_share() : INT64_MAX;
        s->most = share < INT64_MAX ? share + (int64_t)BK_ARENA : share;
    }
    s->stale = 1;
#ifdef BK_NPRODUCT
    int st = bk_library_new(s, message, size);
    if (st) return st;
#endif
    return bk_take(s, BK_ARENA, message, size);
}

/* Finds what sessions share on the chosen device, or makes it; bk_lock is held. */
static int bk_session_device(bk_session *s, int wanted, char *message, size_t size) {
    int st = bk_driver_begin(message, size);
    if (st) return st;
    s->d = bk_driver_open;
    bk_device *v = calloc(1, sizeof *v), *had = bk_devices;
    if (!v) {
        bk_say(message, size, "no memory for a session");
        return BK_ST_MEMORY;
    }
    v->refs = 1;
    st = bk_device_pick(v, wanted, message, size);
    while (!st && had && had->context != v->context) had = had->next;
    if (st || had) {
        bk_device_drop(v);
        if (!st) {
            s->device = had;
            had->refs++;
        }
        return st;
    }
    s->device = v; /* not in the list until it is complete */
    st = bk_device_check(v, message, size);
    if (!st) st = bk_in(s, message, size);
    if (st) return st;
    int r = s->d->stream_new(&s->stream, BK_STREAM_NON_BLOCKING);
    st = r ? bk_fail(s, r, "making a stream", message, size) : bk_device_fill(s, message, size);
    bk_out(s->d);
    if (st) return st;
    v->next = bk_devices;
    bk_devices = v;
    return BK_ST_OK;
}

static int bk_session_new(const braid_session_config_v1 *config, void **session) {
    braid_session_config_v1 c;
    int st = bk_config(config, session, &c);
    if (st) return st;
    char *message = c.message;
    size_t size = c.message_size;
    bk_session *s = calloc(1, sizeof *s);
    if (!s) {
        bk_say(message, size, "no memory for a session");
        return BK_ST_MEMORY;
    }
    pthread_mutex_lock(&bk_lock);
    st = bk_session_device(s, c.device, message, size);
    pthread_mutex_unlock(&bk_lock);
    if (!st) st = bk_in(s, message, size);
    if (!st) {
        int r = s->stream ? 0 : s->d->stream_new(&s->stream, BK_STREAM_NON_BLOCKING);
        st = r ? bk_fail(s, r, "making a stream", message, size)
               : bk_session_fill(s, &c, message, size);
        bk_out(s->d);
    }
    if (st) {
        bk_session_free(s);
        return st;
    }
    *session = s;
    return BK_ST_OK;
}

static int bk_run(void *session, const braid_tensor_v1 *in, braid_tensor_v1 *out, char *message,
                  size_t size) {
    bk_session *s = session;
    int st = bk_enter(s ? &s->busy : NULL, in, out, message, size);
    if (st) return st;
    st = bk_in(s, message, size);
    if (!st) {
        st = bk_run_host(s, in, out, message, size);
        bk_out(s->d);
    }
    atomic_store(&s->busy, 0);
    return st;
}

static int bk_run_on(void *session, void *stream, const braid_tensor_v1 *in, braid_tensor_v1 *out,
                     char *message, size_t size) {
    bk_session *s = session;
    int st = bk_enter(s ? &s->busy : NULL, in, out, message, size);
    if (st) return st;
    st = bk_in(s, message, size);
    if (!st) {
        st = bk_run_device(s, stream, in, out, message, size);
        bk_out(s->d);
    }
    atomic_store(&s->busy, 0);
    return st;
}

static int bk_finish(void *session, char *message, size_t size) {
    static const braid_tensor_v1 none;
    bk_session *s = session;
    int st = bk_enter(s ? &s->busy : NULL, &none, &none, message, size);
    if (st) return st;
    st = bk_in(s, message, size);
    if (!st) {
        st = bk_settle_earlier(s, message, size);
        bk_out(s->d);
    }
    atomic_store(&s->busy, 0);
    return st;
}

typedef struct bk_memory {
    bk_device *device;
    uint64_t address;
} bk_memory;

static void bk_memory_free(void *memory) {
    bk_memory *m = memory;
    if (!m) return;
    const bk_driver *d = bk_driver_open;
    if (d->context_push(m->device->context) == 0) {
        d->free(m->address);
        bk_out(d);
    }
    bk_device_free(m->device);
    free(m);
}

static int bk_memory_new(void *session, size_t bytes, void **memory, void **data, char *message,
                         size_t size) {
    bk_session *s = session;
    if (message && size) message[0] = 0;
    bk_memory *m = calloc(1, sizeof *m);
    int st = m ? bk_in(s, message, size) : bk_say_memory(0, bytes, message, size);
    if (!st) {
        st = bk_renew(s, &m->address, bytes, message, size);
        bk_out(s->d);
    }
    if (st) {
        free(m);
        return st;
    }
    pthread_mutex_lock(&bk_lock);
    m->device = s->device;
    m->device->refs++;
    pthread_mutex_unlock(&bk_lock);
    *memory = m;
    *data = (void *)(uintptr_t)m->address;
    return BK_ST_OK;
}

static int bk_memory_copy(void *session, void *stream, int direction, void *to, const void *from,
                          size_t bytes, char *message, size_t size) {
    bk_session *s = session;
    if (message && size) message[0] = 0;
    int st = bk_in(s, message, size), r = 0;
    if (st) return st;
    uint64_t a = (uintptr_t)to, b = (uintptr_t)from;
    int way = direction & ~BRAID_COPY_WAIT;
    if (bytes)
        r = way == BRAID_COPY_IN    ? s->d->copy_in(a, from, bytes, stream)
            : way == BRAID_COPY_OUT ? s->d->copy_out(to, b, bytes, stream)
                                    : s->d->copy_on(a, b, bytes, stream);
    if (!r && direction != way) r = s->d->stream_wait(stream);
    if (r) st = bk_fail(s, r, "copying", message, size);
    bk_out(s->d);
    return st;
}

static int bk_set_seed(void *session, uint64_t seed) {
    bk_session *s = session;
    if (!s) return BK_ST_USAGE;
    bk_seed_set(&s->seed, seed);
    return BK_ST_OK;
}

static int64_t bk_stat(void *session, int which) {
    const bk_session *s = session;
    int64_t n = 0;
    switch (which) {
    case BRAID_STAT_BARRIERS: return s->barriers;
    case BRAID_STAT_ARENA_BYTES:
        for (int i = 0; i < BK_NSLOT; i++) n += s->pinned->up.cap[i];
        return n + (int64_t)s->pinned->up.k.arena_size;
    case BRAID_STAT_RESTARTS: return s->restarts;
    case BRAID_STAT_THREADS: return s->nunit;
    case BRAID_STAT_DEVICE: return s->device->number;
    default: return -1;
    }
}

__attribute__((visibility("default"))) const braid_model_v1 *braid_model(void) {
    static const braid_model_v1 model = {BRAID_ABI_VERSION,
                                         sizeof(braid_model_v1),
                                         BK_NAME,
                                         BK_TARGET,
                                         BK_NIN,
                                         BK_NOUT,
                                         bk_inputs,
                                         bk_outputs,
                                         bk_session_new,
                                         bk_session_free,
                                         bk_run,
                                         bk_stat,
                                         BK_BACKEND == 0   ? BRAID_DEVICE_CUDA
                                         : BK_BACKEND == 1 ? BRAID_DEVICE_HIP
                                                           : BRAID_DEVICE_EMULATED,
                                         bk_run_on,
                                         bk_finish,
                                         bk_memory_new,
                                         bk_memory_free,
                                         bk_memory_copy,
                                         BK_DRAWN,
                                         bk_set_seed};
    return &model;
}
