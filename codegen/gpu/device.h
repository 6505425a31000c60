/* device.h: sessions of a program for GPUs, what goes wrong with them, and the devices that they
 * are on (after driver.h; entry.c says what the text defines). */
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
/* A context that sessions of this library are in, with what they share there. The list is under
 * bk_lock. */
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

/* The beginning of a session's block of device memory; the grid barrier's words follow it. What the
 * host writes in front of a launch and what it reads behind it are one piece each. */
typedef struct bk_image {
    bk_ctx k;
    unsigned long long cap_need[BK_NSLOT + 1];
    braid_tensor_v1 out[BK_NOUT + 1];
    braid_tensor_v1 in[BK_NIN + 1];
    char *slot[BK_NSLOT + 1];
    int64_t cap[BK_NSLOT + 1];
    bk_copy_of deliver[BK_NOUT + 1];
} bk_image;
#define BK_IMAGE_BYTES ((sizeof(bk_image) + BK_LINE - 1) / BK_LINE * BK_LINE)
#define BK_TURN_AT offsetof(bk_ctx, turn)  /* what is read begins here */
#define BK_ZERO_AT offsetof(bk_ctx, fault) /* what is 0 at the beginning of a run */
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
    void *stream;          /* of runs on the host's tensors */
    void *done;            /* event behind the last run */
    void *read[BK_TABLES]; /* events behind the copies of the tables */
    int table;             /* the next one to use */
    bk_pinned *pinned;
    bk_table now;                     /* inputs as the device has them */
    braid_tensor_v1 out[BK_NOUT + 1]; /* BK_STAYS: of the last run that was waited for… */
    int out_input[BK_NOUT + 1];       /* …and which input one lies in, -1: none */
    uint64_t block, arena, input, slot[BK_NSLOT + 1];
    int64_t most; /* bytes of arena and slots */
    uint64_t
        delivered; /* BK_FIXED without BK_STAYS: copies of the outputs of runs on device tensors */
    size_t input_bytes, output_bytes;
    char *output; /* on the host */
    int nunit;
    _Atomic int busy;
    bk_seed seed;
    int stale;   /* the image is not what the device has */
    int dirty;   /* 1: what should be 0 may not be; 2: nor are the barrier's words in step */
    int placed;  /* out[] is known */
    int deep;    /* the last run ended because it was too deep */
    int pending; /* runs that were enqueued and not waited for */
    void *last;  /* their stream */
    unsigned turn;
    int64_t restarts, barriers; /* of the last run */
    struct bk_library *library; /* library.h */
    char lost[700];             /* what made the device unusable, "" when nothing did */
} bk_session;

/* ---- errors ---------------------------------------------------------------------------------- */
/* Whether nothing works any more in the context after this result. */
static int bk_is_final(int r) {
    return r == 4 || r == 201 || r == 214 || r == 220 || r == 226 || r == 700 || r == 702 ||
           r == 709 || r == 710 || (r >= 714 && r <= 719) || r == 721;
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
#define BK_TRY(call, what)                                                                         \
    do {                                                                                           \
        int r_ = call;                                                                             \
        if (r_) return bk_fail(s, r_, what, message, size);                                        \
    } while (0)

/* Makes the session's context the thread's until bk_out. */
static int bk_in(bk_session *s, char *message, size_t size) {
    if (s->lost[0]) {
        bk_say(message, size, "device %d (%s) was lost: %s", s->device->number, s->device->name,
               s->lost);
        return BK_ST_RUNTIME;
    }
    BK_TRY(s->d->context_push(s->device->context), "entering its context");
    return BK_ST_OK;
}
static void bk_out(const bk_driver *d) {
    void *context;
    d->context_pop(&context);
}

/* ---- devices --------------------------------------------------------------------------------- */
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
        bk_say(message, size, "no %s device on this machine%s%s", b->name, r ? ": " : "",
               r ? bk_error_text(d, r) : "");
        return BK_ST_IO;
    }
    if (d->context_now(&now) || (now && d->context_device(&v->number))) now = NULL;
    if (wanted || !now) {
        int ordinal = wanted ? wanted - 1 : env && *env ? atoi(env) : 0;
        if (ordinal < 0 || ordinal >= count) {
            bk_say(message, size, "there is no %s device %d on this machine, which has %d", b->name,
                   ordinal, count);
            return BK_ST_USAGE;
        }
        if ((r = d->device_get(&device, ordinal))) {
            bk_say(message, size, "%s device %d: %s", b->name, ordinal, bk_error_text(d, r));
            return BK_ST_IO;
        }
        if (!now || v->number != device) now = NULL;
        v->number = device;
    }
    if (d->device_name(v->name, sizeof v->name, v->number))
        snprintf(v->name, sizeof v->name, "unknown");
    v->name[sizeof v->name - 1] = 0;
    v->context = now;
    /* The device's own context is held, so that it lives as long as the sessions in it. */
    if (now && d->primary_state && d->primary_state(v->number, &flags, &active)) active = 0;
    if (now && !active) return BK_ST_OK;
    r = d->primary_retain(&own, v->number);
    if (r && !now) {
        bk_say(message, size, "device %d (%s): making a context: %s", v->number, v->name,
               bk_error_text(d, r));
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
        if (d->device_attribute(&major, BK_CC_MAJOR, v->number) ||
            d->device_attribute(&minor, BK_CC_MINOR, v->number))
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
        bk_say(message, size, "compiled for %s, but device %d (%s) is %s", BK_TARGET, v->number,
               v->name, have);
        return BK_ST_IO;
    }
    if (d->device_attribute(&cooperative, bk_backend_now->cooperative, v->number) || !cooperative) {
        bk_say(message, size, "device %d (%s) cannot launch cooperative kernels", v->number,
               v->name);
        return BK_ST_IO;
    }
    return BK_ST_OK;
}

#if BK_CLUSTER > 1
/* As CUlaunchConfig and CUlaunchAttribute. */
typedef struct bk_launch_attribute {
    unsigned id, pad;
    union {
        char bytes[64];
        int cooperative;
        unsigned cluster[3];
    } value;
} bk_launch_attribute;
typedef struct bk_launch_config {
    unsigned grid[3], block[3], shared;
    void *stream;
    bk_launch_attribute *attribute;
    unsigned attributes;
} bk_launch_config;

static bk_launch_config bk_configure(bk_launch_attribute attribute[2], int nunit, void *stream) {
    attribute[0] = (bk_launch_attribute){.id = 2, .value.cooperative = 1};
    attribute[1] = (bk_launch_attribute){.id = 4, .value.cluster = {BK_CLUSTER, 1, 1}};
    return (bk_launch_config){
        {(unsigned)nunit, 1, 1}, {BK_THREADS, 1, 1}, BK_SHARED_BYTES, stream, attribute, 2};
}
static int bk_enqueue(const bk_driver *d, void *function, int nunit, void *stream, void **params) {
    bk_launch_attribute attribute[2];
    const bk_launch_config c = bk_configure(attribute, nunit, stream);
    return d->launch_clusters(&c, function, params, NULL);
}
/* How many blocks run at once, all in clusters. */
static int bk_occupancy(const bk_driver *d, void *function, int processors, int *blocks) {
    bk_launch_attribute attribute[2];
    const bk_launch_config c = bk_configure(attribute, BK_CLUSTER, NULL);
    (void)processors;
    int clusters = 0, r = d->occupancy_clusters(&clusters, function, &c);
    *blocks = clusters * BK_CLUSTER;
    return r;
}
#else
static int bk_enqueue(const bk_driver *d, void *function, int nunit, void *stream, void **params) {
    return d->launch(function, (unsigned)nunit, 1, 1, BK_THREADS, 1, 1, BK_SHARED_BYTES, stream,
                     params);
}
static int bk_occupancy(const bk_driver *d, void *function, int processors, int *blocks) {
    int r = d->occupancy(blocks, function, BK_THREADS, BK_SHARED_BYTES);
    *blocks *= processors;
    return r;
}
#endif

/* How many blocks run at once; says why when not even one does. The context is the thread's. */
static int bk_device_fit(bk_session *s, char *message, size_t size) {
    bk_device *v = s->device;
    const bk_driver *d = s->d;
    const bk_backend *b = bk_backend_now;
    int processors = 0, blocks = 0, have_registers = 0, have_shared = 0, registers = 0, own = 0,
        threads = 0;
    BK_TRY(d->device_attribute(&processors, b->multiprocessors, v->number),
           "counting its multiprocessors");
    BK_TRY(d->device_attribute(&have_shared, b->shared, v->number), "asking for its shared memory");
    BK_TRY(d->device_attribute(&have_registers, b->registers, v->number),
           "asking for its registers");
    BK_TRY(d->function_attribute(&registers, BK_FUNCTION_REGISTERS, v->function),
           "asking for the kernel's registers");
    BK_TRY(d->function_attribute(&threads, BK_FUNCTION_THREADS, v->function),
           "asking for the kernel's threads");
    BK_TRY(d->function_attribute(&own, BK_FUNCTION_SHARED, v->function),
           "asking for the kernel's shared memory");
    if (BK_SHARED_BYTES + own <= have_shared && BK_THREADS <= threads) {
        if (BK_SHARED_BYTES && d->function_set)
            BK_TRY(d->function_set(v->function, BK_FUNCTION_DYNAMIC, BK_SHARED_BYTES),
                   "setting its shared memory");
        BK_TRY(bk_occupancy(d, v->function, processors, &blocks), "asking for the occupancy");
    }
    v->most = blocks;
    if (v->most > 0) return BK_ST_OK;
    bk_say(message, size,
           "no %s of the kernel fits on device %d (%s): a block has %d threads with %d registers "
           "each and %lld bytes of "
           "shared memory; the device has %d registers and %d bytes for a block",
           BK_CLUSTER > 1 ? "cluster" : "block", v->number, v->name, BK_THREADS, registers,
           (long long)BK_SHARED_BYTES + own, have_registers, have_shared);
    return BK_ST_IO;
}

/* Module and weights, into a context that has none yet. It is the thread's. */
static int bk_device_fill(bk_session *s, char *message, size_t size) {
    bk_device *v = s->device;
    const bk_driver *d = s->d;
    int r = d->module_load(&v->module, bk_code);
    if (r == BK_E_NO_BINARY) {
        bk_say(message, size, "compiled for %s, which device %d (%s) cannot run", BK_TARGET,
               v->number, v->name);
        return BK_ST_IO;
    }
    BK_TRY(r, "loading the code");
    BK_TRY(d->module_function(&v->function, v->module, "braid_kernel"), "finding the kernel");
    int st = bk_device_fit(s, message, size);
    if (st) return st;
    if (BK_WEIGHTS_SIZE) {
        BK_TRY(d->alloc(&v->weights, BK_WEIGHTS_SIZE), "taking memory for the weights");
        BK_TRY(d->copy_in(v->weights, bk_weights, BK_WEIGHTS_SIZE, s->stream),
               "copying the weights");
        BK_TRY(d->stream_wait(s->stream), "copying the weights");
    }
    return BK_ST_OK;
}

/* ---- for all runs ---------------------------------------------------------------------------- */
/* Bytes of a checked tensor. */
static size_t bk_bytes(const braid_tensor_v1 *t) {
    size_t n = bk_dtype_size(t->dtype);
    for (int i = 0; i < t->rank; i++) n *= (size_t)t->dim[i];
    return t->rank < 0 ? 0 : n;
}
/* Enqueues a launch; of several in a run, this one. */
static int bk_start(const bk_session *s, void *stream, int phase) {
    uint64_t run = s->block + (unsigned)phase;
    void *params[] = {&run};
    return bk_enqueue(s->d, s->device->function, s->nunit, stream, params);
}
