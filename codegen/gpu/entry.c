/* entry.c: the end of the host's text of a program for GPUs: sessions, their memory on the device, launches,
 * and braid_model().
 *
 * Pasted after braid_model.h, gpu/ctx.h, entry.h, calls.h and driver.h. Beside what entry.h asks for, the text before it
 * defines
 *   BK_TARGET          "cuda:sm_90", …
 *   BK_BACKEND         see driver.h
 *   BK_THREADS         threads of a block
 *   BK_SHARED_BYTES    dynamic shared memory of a block
 *   BK_UNITS           blocks that the program was scheduled for, 0: as many as there may be
 *   BK_WEIGHTS_SIZE    bytes of bk_weights[]
 *   BK_CODE_FILE       optional: the code object, a file for the assembler; none for the emulator
 *   BK_FIXED           1: no run can need more memory than the first, the shapes of all outputs are those that
 *                      bk_outputs declares, and each output lies at the same place in every run: of working
 *                      memory, of the weights or of an input
 *   BK_INPUT_ALIGN     optional: alignment that the kernel needs of its inputs' data, bytes
 */
#ifdef BK_CODE_FILE
__asm__(".pushsection .rodata,\"a\"\n"
        ".balign 64\n"
        "bk_code:\n"
        ".incbin \"" BK_CODE_FILE "\"\n"
        ".popsection\n");
extern const unsigned char bk_code[] __attribute__((visibility("hidden")));
#else
static const unsigned char bk_code[1];
#endif
/* How far a recursion that was too deep is followed to tell how deep it is; the emulator is slow. */
#define BK_MEASURED_DEPTH ((int64_t)1 << (BK_BACKEND == 2 ? 12 : 20))
#define BK_MEASURED_BYTES ((size_t)1 << 28) /* of memory */
#ifndef BK_INPUT_ALIGN
#define BK_INPUT_ALIGN 1
#endif

/* A context that sessions of this library are in, with what they share there. The list is under bk_lock. */
typedef struct bk_device {
    struct bk_device *next;
    int refs;
    void *context;
    int primary; /* the device's own, which is held */
    int number;
    char name[100];
    void *module, *function;
    uint64_t weights;
    int most; /* blocks that run at once */
} bk_device;
static bk_device *bk_devices;

/* The beginning of a session's block of device memory; the grid barrier's words follow it. What the host
 * writes in front of a launch and what it reads behind it are one piece each. */
typedef struct bk_image {
    bk_ctx k;
    unsigned long long cap_need[BK_NSLOT + 1];
    braid_tensor_v1 out[BK_NOUT + 1];
    braid_tensor_v1 in[BK_NIN + 1];
    char *slot[BK_NSLOT + 1];
    int64_t cap[BK_NSLOT + 1];
} bk_image;
#define BK_IMAGE_BYTES ((sizeof(bk_image) + BK_LINE - 1) / BK_LINE * BK_LINE)
#define BK_TURN_AT offsetof(bk_ctx, turn)     /* what is read begins here */
#define BK_ZERO_AT offsetof(bk_ctx, fault)    /* what is 0 at the beginning of a run */
#define BK_READ_END offsetof(bk_image, in)
#define BK_ZERO_END offsetof(bk_image, out)

/* Tables of inputs that may wait to be copied at the same time. */
#define BK_TABLES 8
typedef braid_tensor_v1 bk_table[BK_NIN + 1];

/* Memory that both sides reach. */
typedef struct bk_pinned {
    bk_image up, down;
    bk_table table[BK_TABLES];
} bk_pinned;

typedef struct bk_session {
    bk_device *device;
    const bk_driver *d;
    void *stream;        /* of runs on the host's tensors */
    void *done;          /* event behind the last run */
    void *read[BK_TABLES]; /* events behind the copies of the tables */
    int table;           /* the next one to use */
    bk_pinned *pinned;
    bk_table now;        /* inputs as the device has them */
    braid_tensor_v1 out[BK_NOUT + 1]; /* BK_FIXED: of the last run that was waited for… */
    int out_input[BK_NOUT + 1];       /* …and which input one lies in, -1: none */
    uint64_t block, arena, input, slot[BK_NSLOT + 1];
    size_t input_bytes, output_bytes;
    char *output;        /* on the host */
    int nunit;
    _Atomic int busy;
    int stale;           /* the image is not what the device has */
    int dirty;           /* 1: what should be 0 may not be; 2: nor are the barrier's words in step */
    int placed;          /* out[] is known */
    int deep;            /* the last run ended because it was too deep */
    int pending;         /* runs that were enqueued and not waited for */
    void *last;          /* their stream */
    unsigned turn;
    int64_t restarts, barriers; /* of the last run */
    char lost[700];      /* what made the device unusable, "" when nothing did */
} bk_session;

/* ---- errors ------------------------------------------------------------------------------------- */
/* Whether nothing works any more in the context after this result. */
static int bk_is_final(int r) {
    return r == 4 || r == 201 || r == 214 || r == 220 || r == 226 || r == 700 || r == 702 || r == 709 || r == 710 ||
           (r >= 714 && r <= 719) || r == 721;
}

static int bk_fail(bk_session *s, int r, const char *what, char *message, size_t size) {
    char text[700];
    snprintf(text, sizeof text, "%s", bk_error_text(s->d, r));
#if BK_BACKEND == 2
    if (*emu_last_report()) snprintf(text, sizeof text, "%s", emu_last_report());
#endif
    if (bk_is_final(r) && !s->lost[0]) snprintf(s->lost, sizeof s->lost, "%s", text);
    s->dirty = 2;
    bk_say(message, size, "device %d (%s): %s: %s", s->device->number, s->device->name, what, text);
    return r == BK_E_MEMORY ? BK_ST_MEMORY : BK_ST_RUNTIME;
}
#define BK_TRY(call, what)                                                                                             \
    do {                                                                                                               \
        int r_ = call;                                                                                                 \
        if (r_) return bk_fail(s, r_, what, message, size);                                                            \
    } while (0)

/* Makes the session's context the thread's until bk_out. */
static int bk_in(bk_session *s, char *message, size_t size) {
    if (s->lost[0]) {
        bk_say(message, size, "device %d (%s) was lost: %s", s->device->number, s->device->name, s->lost);
        return BK_ST_RUNTIME;
    }
    BK_TRY(s->d->context_push(s->device->context), "entering its context");
    return BK_ST_OK;
}
static void bk_out(const bk_driver *d) {
    void *context;
    d->context_pop(&context);
}

/* ---- devices ------------------------------------------------------------------------------------ */
/* The library has this context's module and weights no longer; bk_lock is held. */
static void bk_device_drop(bk_device *v) {
    const bk_driver *d = bk_driver_open;
    if (--v->refs > 0) return;
    for (bk_device **p = &bk_devices; *p; p = &(*p)->next)
        if (*p == v) {
            *p = v->next;
            break;
        }
    if (v->context && d->context_push(v->context) == 0) {
        if (v->weights) d->free(v->weights);
        if (v->module) d->module_unload(v->module);
        bk_out(d);
    }
    if (v->primary) d->primary_release(v->number);
    free(v);
}
static void bk_device_free(bk_device *v) {
    pthread_mutex_lock(&bk_lock);
    bk_device_drop(v);
    pthread_mutex_unlock(&bk_lock);
}

/* Chooses a device and a context on it. */
static int bk_device_pick(bk_device *v, int wanted, char *message, size_t size) {
    const bk_driver *d = bk_driver_open;
    const bk_backend *b = bk_backend_now;
    const char *env = getenv("BRAID_DEVICE");
    void *now = NULL, *own = NULL;
    int count = 0, device = 0, active = 1;
    unsigned flags;
    int r = d->device_count(&count);
    if (r || !count) {
        bk_say(message, size, "no %s device on this machine%s%s", b->name, r ? ": " : "", r ? bk_error_text(d, r) : "");
        return BK_ST_IO;
    }
    if (d->context_now(&now) || (now && d->context_device(&v->number))) now = NULL;
    if (wanted || !now) {
        int ordinal = wanted ? wanted - 1 : env && *env ? atoi(env) : 0;
        if (ordinal < 0 || ordinal >= count) {
            bk_say(message, size, "there is no %s device %d on this machine, which has %d", b->name, ordinal, count);
            return BK_ST_USAGE;
        }
        if ((r = d->device_get(&device, ordinal))) {
            bk_say(message, size, "%s device %d: %s", b->name, ordinal, bk_error_text(d, r));
            return BK_ST_IO;
        }
        if (!now || v->number != device) now = NULL;
        v->number = device;
    }
    if (d->device_name(v->name, sizeof v->name, v->number)) snprintf(v->name, sizeof v->name, "unknown");
    v->name[sizeof v->name - 1] = 0;
    v->context = now;
    /* The device's own context is held, so that it lives as long as the sessions in it. */
    if (now && d->primary_state && d->primary_state(v->number, &flags, &active)) active = 0;
    if (now && !active) return BK_ST_OK;
    r = d->primary_retain(&own, v->number);
    if (r && !now) {
        bk_say(message, size, "device %d (%s): making a context: %s", v->number, v->name, bk_error_text(d, r));
        return r == BK_E_MEMORY ? BK_ST_MEMORY : BK_ST_RUNTIME;
    }
    if (!r && now && own != now) {
        d->primary_release(v->number);
        r = 1;
    }
    v->primary = !r;
    if (!now) v->context = own;
    return BK_ST_OK;
}

/* Whether the device can run code for BK_TARGET. */
static int bk_device_check(const bk_device *v, char *message, size_t size) {
    const bk_driver *d = bk_driver_open;
    const char *target = strchr(BK_TARGET, ':') + 1;
    char have[300] = "";
    int cooperative = 0, good = 1;
    if (BK_BACKEND == 0) {
        int major = 0, minor = 0, sm = atoi(target + strlen("sm_"));
        if (d->device_attribute(&major, BK_CC_MAJOR, v->number) || d->device_attribute(&minor, BK_CC_MINOR, v->number))
            major = 0;
        snprintf(have, sizeof have, "sm_%d%d", major, minor);
        good = major == sm / 10 && minor >= sm % 10;
    } else if (d->properties) {
        union {
            char bytes[8192];
            uint64_t aligned;
        } p;
        memset(&p, 0, sizeof p);
        if (d->properties(&p, v->number) == 0 && strncmp(p.bytes + d->arch_at, "gfx", 3) == 0) {
            snprintf(have, sizeof have, "%.250s", p.bytes + d->arch_at);
            have[strcspn(have, ":")] = 0; /* features follow */
            good = strcmp(have, target) == 0;
        }
    }
    if (!good) {
        bk_say(message, size, "compiled for %s, but device %d (%s) is %s", BK_TARGET, v->number, v->name, have);
        return BK_ST_IO;
    }
    if (d->device_attribute(&cooperative, bk_backend_now->cooperative, v->number) || !cooperative) {
        bk_say(message, size, "device %d (%s) cannot launch cooperative kernels", v->number, v->name);
        return BK_ST_IO;
    }
    return BK_ST_OK;
}

/* How many blocks run at once; says why when not even one does. The context is the thread's. */
static int bk_device_fit(bk_session *s, char *message, size_t size) {
    bk_device *v = s->device;
    const bk_driver *d = s->d;
    const bk_backend *b = bk_backend_now;
    int processors = 0, blocks = 0, have_registers = 0, have_shared = 0, registers = 0, own = 0, threads = 0;
    BK_TRY(d->device_attribute(&processors, b->multiprocessors, v->number), "counting its multiprocessors");
    BK_TRY(d->device_attribute(&have_shared, b->shared, v->number), "asking for its shared memory");
    BK_TRY(d->device_attribute(&have_registers, b->registers, v->number), "asking for its registers");
    BK_TRY(d->function_attribute(&registers, BK_FUNCTION_REGISTERS, v->function), "asking for the kernel's registers");
    BK_TRY(d->function_attribute(&threads, BK_FUNCTION_THREADS, v->function), "asking for the kernel's threads");
    BK_TRY(d->function_attribute(&own, BK_FUNCTION_SHARED, v->function), "asking for the kernel's shared memory");
    if (BK_SHARED_BYTES + own <= have_shared && BK_THREADS <= threads) {
        if (BK_SHARED_BYTES && d->function_set)
            BK_TRY(d->function_set(v->function, BK_FUNCTION_DYNAMIC, BK_SHARED_BYTES), "setting its shared memory");
        BK_TRY(d->occupancy(&blocks, v->function, BK_THREADS, BK_SHARED_BYTES), "asking for the occupancy");
    }
    v->most = blocks * processors;
    if (v->most > 0) return BK_ST_OK;
    bk_say(message, size,
           "no block of the kernel fits on device %d (%s): it has %d threads with %d registers each and %lld bytes of "
           "shared memory; the device has %d registers and %d bytes for a block",
           v->number, v->name, BK_THREADS, registers, (long long)BK_SHARED_BYTES + own, have_registers, have_shared);
    return BK_ST_IO;
}

/* Module and weights, into a context that has none yet. It is the thread's. */
static int bk_device_fill(bk_session *s, char *message, size_t size) {
    bk_device *v = s->device;
    const bk_driver *d = s->d;
    int r = d->module_load(&v->module, bk_code);
    if (r == BK_E_NO_BINARY) {
        bk_say(message, size, "compiled for %s, which device %d (%s) cannot run", BK_TARGET, v->number, v->name);
        return BK_ST_IO;
    }
    BK_TRY(r, "loading the code");
    BK_TRY(d->module_function(&v->function, v->module, "braid_kernel"), "finding the kernel");
    int st = bk_device_fit(s, message, size);
    if (st) return st;
    if (BK_WEIGHTS_SIZE) {
        BK_TRY(d->alloc(&v->weights, BK_WEIGHTS_SIZE), "taking memory for the weights");
        BK_TRY(d->copy_in(v->weights, bk_weights, BK_WEIGHTS_SIZE, s->stream), "copying the weights");
        BK_TRY(d->stream_wait(s->stream), "copying the weights");
    }
    return BK_ST_OK;
}

/* ---- memory ------------------------------------------------------------------------------------- */
/* Device memory of `bytes` in place of what is there, whose content is not needed. */
static int bk_renew(bk_session *s, uint64_t *address, size_t bytes, char *message, size_t size) {
    if (*address) s->d->free(*address);
    *address = 0;
    if (bytes > BK_MAX_BYTES) return bk_fail(s, BK_E_MEMORY, "taking memory", message, size);
    BK_TRY(s->d->alloc(address, bytes ? bytes : 256), "taking memory");
    return BK_ST_OK;
}

/* Takes the memory that the session should have. Nothing runs. */
static int bk_take(bk_session *s, size_t arena, char *message, size_t size) {
    bk_image *up = &s->pinned->up, *down = &s->pinned->down;
    size_t had = up->k.arena_size;
    int st = BK_ST_OK;
    if (!s->arena || arena > up->k.arena_size) {
        s->stale = 1;
        up->k.arena_size = 0;
        if ((st = bk_renew(s, &s->arena, arena, message, size))) goto out;
        up->k.arena = (char *)(uintptr_t)s->arena;
        up->k.arena_size = arena;
        s->placed = 0;
    }
    for (int i = 0; i < BK_NSLOT; i++) {
        int64_t need = (int64_t)down->cap_need[i];
        if (s->slot[i] && need <= up->cap[i]) continue;
        need = bk_slot_room(up->cap[i], need);
        up->cap[i] = 0;
        s->stale = 1;
        if ((st = bk_renew(s, &s->slot[i], (size_t)need, message, size))) goto out;
        up->cap[i] = need;
        up->slot[i] = (char *)(uintptr_t)s->slot[i];
    }
    return BK_ST_OK;
out:
    memset(down->cap_need, 0, sizeof down->cap_need); /* the next run asks for itself */
    return st == BK_ST_MEMORY ? bk_say_memory(had, message, size) : st;
}

/* Bytes of a checked tensor. */
static size_t bk_bytes(const braid_tensor_v1 *t) {
    size_t n = bk_dtype_size(t->dtype);
    for (int i = 0; i < t->rank; i++) n *= (size_t)t->dim[i];
    return t->rank < 0 ? 0 : n;
}
static size_t bk_round(size_t bytes) { return (bytes + 255) / 256 * 256; }

/* ---- a run -------------------------------------------------------------------------------------- */
/* Makes the device's table of inputs `in`, whose data is on the device. */
static int bk_put_table(bk_session *s, void *stream, const braid_tensor_v1 *in, char *message, size_t size) {
    bk_table want;
    memset(want, 0, sizeof want);
    for (int i = 0; i < BK_NIN; i++) {
        want[i] = (braid_tensor_v1){.data = in[i].data, .dtype = in[i].dtype, .rank = in[i].rank};
        for (int j = 0; j < in[i].rank; j++) want[i].dim[j] = in[i].dim[j];
    }
    if (!BK_NIN || (!s->dirty && memcmp(want, s->now, sizeof want) == 0)) return BK_ST_OK;
    int i = s->table;
    BK_TRY(s->d->event_wait(s->read[i]), "waiting for an earlier run");
    s->table = (i + 1) % BK_TABLES;
    memcpy(s->pinned->table[i], want, sizeof want);
    memset(s->now, -1, sizeof s->now);
    BK_TRY(s->d->copy_in(s->block + offsetof(bk_image, in), s->pinned->table[i], sizeof want, stream),
           "copying the inputs' shapes");
    BK_TRY(s->d->event_record(s->read[i], stream), "copying the inputs' shapes");
    memcpy(s->now, want, sizeof want);
    return BK_ST_OK;
}

/* Enqueues a run and the copy of what it comes to. */
static int bk_launch(bk_session *s, void *stream, const braid_tensor_v1 *in, char *message, size_t size) {
    const bk_driver *d = s->d;
    bk_image *up = &s->pinned->up, *down = &s->pinned->down;
    void *params[] = {&s->block};
    s->deep = 0;
    int st = bk_put_table(s, stream, in, message, size);
    if (st) return st;
    if (s->stale) {
        size_t slots = offsetof(bk_image, slot);
        BK_TRY(d->copy_in(s->block, up, BK_TURN_AT, stream), "copying the run's numbers");
        BK_TRY(d->copy_in(s->block + slots, up->slot, sizeof *up - slots, stream), "copying the run's numbers");
    }
    if (s->dirty) BK_TRY(d->fill(s->block + BK_ZERO_AT, 0, BK_ZERO_END - BK_ZERO_AT, stream), "clearing the run's state");
    if (s->dirty > 1) {
        BK_TRY(d->fill(s->block + BK_TURN_AT, 0, sizeof(unsigned), stream), "clearing the barrier");
        BK_TRY(d->fill(s->block + BK_IMAGE_BYTES, 0, (size_t)(s->nunit + 1) * sizeof(bk_word), stream),
               "clearing the barrier");
        s->turn = 0;
    }
    BK_TRY(d->launch(s->device->function, (unsigned)s->nunit, 1, 1, BK_THREADS, 1, 1, BK_SHARED_BYTES, stream, params),
           "launching the kernel");
    int r = d->copy_out((char *)down + BK_TURN_AT, s->block + BK_TURN_AT, BK_READ_END - BK_TURN_AT, stream);
    if (!r) r = d->event_record(s->done, stream);
    if (r) { /* it runs, but there is no way to hear of it */
        d->stream_wait(stream);
        s->pending = 0;
        return bk_fail(s, r, "running the kernel", message, size);
    }
    s->pending++;
    s->last = stream;
    s->stale = s->dirty = 0;
    return BK_ST_OK;
}

/* What the runs that are over have come to: a status; *grow when the last wants more memory. */
static int bk_judge(bk_session *s, int *grow, char *message, size_t size) {
    const bk_ctx *k = &s->pinned->down.k;
    unsigned turns = k->turn - s->turn;
    s->barriers = s->nunit > 1 && s->pending ? (int64_t)turns / s->pending : 0;
    s->turn = k->turn;
    s->pending = 0;
    *grow = 0;
    s->dirty = k->state != BK_OK || k->fault || k->deep;
    if (k->state == BK_OK && !k->fault) return BK_ST_OK;
    s->deep = k->fault && k->deep > 0 && k->deep <= BK_NSITE;
    if (k->state != BK_GROW || k->fault) return bk_say_fault(k->fault, message, size);
    *grow = 1;
    return BK_ST_OK;
}

/* Waits for the runs that are enqueued. */
static int bk_settle(bk_session *s, int *grow, char *message, size_t size) {
    *grow = 0;
    if (!s->pending) return BK_ST_OK;
    int r = s->d->event_wait(s->done);
    if (r) s->pending = 0;
    BK_TRY(r, "running the kernel");
    return bk_judge(s, grow, message, size);
}
/* The same for runs that cannot grow: of earlier calls. */
static int bk_settle_earlier(bk_session *s, char *message, size_t size) {
    int grow, st = bk_settle(s, &grow, message, size);
    return !st && grow ? bk_say_fault(0, message, size) : st;
}

/* The recursion went too deep: says how deep it wants to go. It is run again with a higher limit, and what comes out is
 * dropped. */
static void bk_say_depth(bk_session *s, void *stream, const braid_tensor_v1 *in, char *message, size_t size) {
    bk_image *up = &s->pinned->up, *down = &s->pinned->down;
    const int site = down->k.deep - 1;
    const int64_t limit = up->k.stack_depth;
    int64_t deepest = limit;
    size_t arena = up->k.arena_size, taken = 0;
    int grow = 1, known = 0;
    up->k.depth_cap = limit > BK_MEASURED_DEPTH ? limit : BK_MEASURED_DEPTH;
    for (s->stale = 1; grow && !known && taken <= BK_MEASURED_BYTES;) {
        int st = bk_launch(s, stream, in, NULL, 0);
        if (!st) st = bk_settle(s, &grow, NULL, 0);
        known = !st && !grow;
        int64_t last = (int64_t)down->k.deepest - !known; /* something may have ended it in its deepest activation */
        if (last > deepest) deepest = last;
        if (st) break;
        arena = taken = bk_arena_room(arena, down->k.arena_need);
        for (int i = 0; i < BK_NSLOT; i++) taken += (size_t)bk_slot_room(up->cap[i], (int64_t)down->cap_need[i]);
        if (grow && taken <= BK_MEASURED_BYTES && bk_take(s, arena, NULL, 0)) break;
    }
    /* The next run takes what it needs. */
    for (int i = 0; i < BK_NSLOT; i++) {
        if (s->slot[i]) s->d->free(s->slot[i]);
        s->slot[i] = 0;
        up->cap[i] = 0;
    }
    if (s->arena) s->d->free(s->arena);
    s->arena = 0;
    up->k.arena_size = 0;
    up->k.depth_cap = limit;
    s->stale = 1;
    memset(down->cap_need, 0, sizeof down->cap_need);
    bk_say(message, size, "%s %s%lld; the limit is %lld (--stack-depth)", bk_sites[site], known ? "" : "more than ",
           (long long)deepest, (long long)limit);
}

/* Runs on tensors in device memory until it is done, with as much memory as it takes. */
static int bk_complete(bk_session *s, void *stream, const braid_tensor_v1 *in, char *message, size_t size) {
    bk_image *up = &s->pinned->up, *down = &s->pinned->down;
    size_t arena = up->k.arena_size > BK_ARENA ? up->k.arena_size : BK_ARENA;
    for (s->restarts = 0;; s->restarts++) {
        int grow, st = bk_take(s, arena, message, size);
        if (!st) st = bk_launch(s, stream, in, message, size);
        if (!st) st = bk_settle(s, &grow, message, size);
        if (st && s->deep) bk_say_depth(s, stream, in, message, size);
        if (st) return st;
        if (!grow) break;
        arena = bk_arena_room(arena, down->k.arena_need);
    }
    memset(down->cap_need, 0, sizeof down->cap_need);
    for (int i = 0; i < BK_NOUT; i++) { /* nothing but what the kernel wrote says so */
        const braid_tensor_v1 *t = &down->out[i];
        size_t bytes = bk_dtype_size(t->dtype);
        int bad = t->rank < -1 || t->rank > BRAID_MAX_RANK || (t->rank >= 0 && !bytes);
        for (int j = 0; !bad && j < t->rank; j++)
            if (t->dim[j] < 0 || (t->dim[j] && bytes > BK_MAX_BYTES / (size_t)t->dim[j])) bad = 1;
            else bytes *= (size_t)t->dim[j];
        if (bad) return bk_say_fault(0, message, size);
    }
    return BK_ST_OK;
}

/* Copies the host's inputs to the device; table gets where they are. */
static int bk_upload(bk_session *s, const braid_tensor_v1 *in, bk_table table, char *message, size_t size) {
    size_t need = 256, at = 0;
    for (int i = 0; i < BK_NIN; i++) need += bk_round(bk_bytes(&in[i]));
    if (need > s->input_bytes) {
        s->input_bytes = 0;
        int st = bk_renew(s, &s->input, need, message, size);
        if (st) return st;
        s->input_bytes = need;
    }
    for (int i = 0; i < BK_NIN; i++) {
        size_t bytes = bk_bytes(&in[i]);
        table[i] = in[i];
        if (in[i].rank >= 0) table[i].data = (void *)(uintptr_t)(s->input + at);
        if (bytes) BK_TRY(s->d->copy_in(s->input + at, in[i].data, bytes, s->stream), "copying the inputs");
        at += bk_round(bytes);
    }
    return BK_ST_OK;
}

/* Copies the outputs to the host. */
static int bk_download(bk_session *s, braid_tensor_v1 *out, char *message, size_t size) {
    const bk_image *down = &s->pinned->down;
    size_t need = 64, at = 0;
    for (int i = 0; i < BK_NOUT; i++) need += bk_round(bk_bytes(&down->out[i]));
    if (need > s->output_bytes) {
        if (s->output) s->d->host_free(s->output);
        s->output = NULL;
        s->output_bytes = 0;
        BK_TRY(s->d->host_alloc((void **)&s->output, need, 0), "taking memory for the outputs");
        s->output_bytes = need;
    }
    for (int i = 0; i < BK_NOUT; i++) {
        size_t bytes = bk_bytes(&down->out[i]);
        uint64_t from = (uintptr_t)down->out[i].data;
        if (bytes) BK_TRY(s->d->copy_out(s->output + at, from, bytes, s->stream), "copying the outputs");
        at += bk_round(bytes);
    }
    BK_TRY(s->d->stream_wait(s->stream), "copying the outputs");
    at = 0;
    for (int i = 0; i < BK_NOUT; i++) {
        out[i] = down->out[i];
        out[i].data = out[i].rank < 0 ? NULL : s->output + at;
        at += bk_round(bk_bytes(&down->out[i]));
    }
    return BK_ST_OK;
}

static int bk_run_host(bk_session *s, const braid_tensor_v1 *in, braid_tensor_v1 *out, char *message, size_t size) {
    bk_table table;
    int st = bk_settle_earlier(s, message, size);
    if (!st) st = bk_check_inputs(in, message, size);
    if (!st) st = bk_upload(s, in, table, message, size);
    if (!st) st = bk_complete(s, s->stream, table, message, size);
    if (!st) st = bk_download(s, out, message, size);
    /* Nothing may read the caller's memory after this call. */
    if (st && !s->lost[0]) s->d->stream_wait(s->stream);
    return st;
}

/* Remembers where the outputs of a run are. */
static void bk_place(bk_session *s, const braid_tensor_v1 *in) {
    memcpy(s->out, s->pinned->down.out, sizeof s->out);
    for (int i = 0; i < BK_NOUT; i++) {
        uint64_t at = (uintptr_t)s->out[i].data;
        s->out_input[i] = -1;
        for (int j = 0; j < BK_NIN; j++) {
            uint64_t from = (uintptr_t)in[j].data;
            if (in[j].rank < 0 || at < from || at - from >= bk_bytes(&in[j])) continue;
            s->out_input[i] = j;
            s->out[i].data = (void *)(uintptr_t)(at - from);
        }
    }
    s->placed = 1;
}

static int bk_run_device(bk_session *s, void *stream, const braid_tensor_v1 *in, braid_tensor_v1 *out, char *message,
                         size_t size) {
    int st = BK_ST_OK;
    if (s->pending) {
        int r = s->d->event_query(s->done);
        if (r != BK_E_NOT_READY || !BK_FIXED || !s->placed || s->dirty) st = bk_settle_earlier(s, message, size);
        else if (stream != s->last) BK_TRY(s->d->stream_behind(stream, s->done, 0), "waiting for another stream");
    }
    if (!st) st = bk_check_inputs(in, message, size);
    for (int i = 0; i < BK_NIN && !st; i++)
        if (in[i].rank >= 0 && (uintptr_t)in[i].data % BK_INPUT_ALIGN) {
            bk_say(message, size, "input '%s': its data is not aligned to %d bytes", bk_inputs[i].name, BK_INPUT_ALIGN);
            st = BK_ST_INPUT;
        }
    if (st) return st;
    if (BK_FIXED && s->placed) {
        s->restarts = 0;
        st = bk_launch(s, stream, in, message, size);
        for (int i = 0; !st && i < BK_NOUT; i++) {
            out[i] = s->out[i];
            if (s->out_input[i] >= 0)
                out[i].data = (char *)in[s->out_input[i]].data + (uintptr_t)s->out[i].data;
        }
        return st;
    }
    st = bk_complete(s, stream, in, message, size);
    if (st) return st;
    if (BK_FIXED) bk_place(s, in);
    if (BK_NOUT) memcpy(out, s->pinned->down.out, BK_NOUT * sizeof *out);
    return BK_ST_OK;
}

/* ---- the table ---------------------------------------------------------------------------------- */
static void bk_session_free(void *session) {
    bk_session *s = session;
    if (!s) return;
    const bk_driver *d = s->d;
    if (s->device && d->context_push(s->device->context) == 0) {
        if (s->pending) d->event_wait(s->done);
        for (int i = 0; i < BK_NSLOT; i++)
            if (s->slot[i]) d->free(s->slot[i]);
        if (s->arena) d->free(s->arena);
        if (s->input) d->free(s->input);
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
static int bk_session_fill(bk_session *s, const braid_session_config_v1 *c, char *message, size_t size) {
    const bk_driver *d = s->d;
    s->nunit = c->threads ? c->threads : BK_UNITS ? BK_UNITS : s->device->most;
    if (s->nunit > s->device->most) s->nunit = s->device->most;
    size_t bytes = BK_IMAGE_BYTES + (size_t)(s->nunit + 1) * sizeof(bk_word);
    BK_TRY(d->event_new(&s->done, BK_EVENT_UNTIMED), "making an event");
    for (int i = 0; i < BK_TABLES; i++) BK_TRY(d->event_new(&s->read[i], BK_EVENT_UNTIMED), "making an event");
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
    s->stale = 1;
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
        st = r ? bk_fail(s, r, "making a stream", message, size) : bk_session_fill(s, &c, message, size);
        bk_out(s->d);
    }
    if (st) {
        bk_session_free(s);
        return st;
    }
    *session = s;
    return BK_ST_OK;
}

static int bk_run(void *session, const braid_tensor_v1 *in, braid_tensor_v1 *out, char *message, size_t size) {
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

static int bk_run_on(void *session, void *stream, const braid_tensor_v1 *in, braid_tensor_v1 *out, char *message,
                     size_t size) {
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

static int bk_memory_new(void *session, size_t bytes, void **memory, void **data, char *message, size_t size) {
    bk_session *s = session;
    if (message && size) message[0] = 0;
    bk_memory *m = calloc(1, sizeof *m);
    int st = m ? bk_in(s, message, size) : bk_say_memory(bytes, message, size);
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

static int bk_memory_copy(void *session, void *stream, int direction, void *to, const void *from, size_t bytes,
                          char *message, size_t size) {
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
                                   bk_memory_copy};
    return &model;
}
