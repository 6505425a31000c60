/* entry.h: what the ends of emitted programs have in common (cpu/entry.c, gpu/entry.c), and what
 * the text before them defines: BK_NAME            the graph's name, a string BK_NIN, BK_NOUT
 * counts; bk_inputs[], bk_outputs[]: braid_io_v1, at least one entry each BK_ARENA           bytes
 * of working memory at the start (size_t) BK_NSLOT           growable buffers; may be 0 BK_NSITE
 * fault texts; bk_sites[]: const char *, at least one entry BK_SLOT_BYTES      optional: of a
 * growable buffer at the start BK_WEIGHTS_CHECK   optional: bk_weights is NULL when the file of
 * weights is missing BK_DRAWS           optional: the program draws random numbers
 */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BK_ST_OK = 0,
    BK_ST_INPUT = 3,
    BK_ST_RUNTIME = 4,
    BK_ST_MEMORY = 5,
    BK_ST_IO = 6,
    BK_ST_USAGE = 7
};
#define BK_MAX_BYTES ((size_t)1 << 40)
#ifdef BK_DRAWS
#define BK_DRAWN 1
#else
#define BK_DRAWN 0
#endif
#ifndef BK_SLOT_BYTES
#define BK_SLOT_BYTES 65536
#endif

static void bk_say(char *message, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void bk_say(char *message, size_t size, const char *fmt, ...) {
    if (!message || size == 0) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, size, fmt, ap);
    va_end(ap);
}

static const char *bk_dtype_name(int t) {
    static const char *const name[] = {
        "none",           "float32",    "uint8",          "int8",       "uint16",    "int16",
        "int32",          "int64",      "string",         "bool",       "float16",   "float64",
        "uint32",         "uint64",     "complex64",      "complex128", "bfloat16",  "float8e4m3fn",
        "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "uint4",      "int4",      "float4e2m1",
        "float8e8m0",     "uint2",      "int2",           "float6e2m3", "float6e3m2"};
    return t >= 0 && t < (int)(sizeof name / sizeof name[0]) ? name[t] : "unknown";
}
static size_t bk_dtype_size(int t) {
    switch (t) {
    case 2:
    case 3:
    case 9: return 1;
    case 4:
    case 5:
    case 10:
    case 16: return 2;
    case 1:
    case 6:
    case 12: return 4;
    case 7:
    case 11:
    case 13: return 8;
    default: return t >= 17 && t <= 28; /* a code */
    }
}

/* "float32[2,n,?]" into text. */
static void bk_shape_text(char *text, size_t size, int dtype, int rank, const int64_t *dim,
                          const char *const *dim_name) {
    size_t n = (size_t)snprintf(text, size, "%s", dtype ? bk_dtype_name(dtype) : "any type");
    if (rank < 0) return;
    for (int i = 0; i < rank && n < size; i++) {
        const char *sep = i ? "," : "[";
        if (dim[i] >= 0)
            n += (size_t)snprintf(text + n, size - n, "%s%lld", sep, (long long)dim[i]);
        else
            n += (size_t)snprintf(text + n, size - n, "%s%s", sep,
                                  dim_name && dim_name[i] ? dim_name[i] : "?");
    }
    if (n < size) snprintf(text + n, size - n, rank ? "]" : "[]");
}

/* Whether t is what io declares; else says why. */
static int bk_check_input(const braid_io_v1 *io, const braid_tensor_v1 *t, char *message,
                          size_t size) {
    char want[256], got[256];
    if (t->rank == -1 && !t->data) {
        if (io->kind >= BRAID_IO_OPTIONAL_TENSOR) return BK_ST_OK;
        bk_say(message, size, "input '%s' is missing", io->name);
        return BK_ST_INPUT;
    }
    if (t->rank < 0 || t->rank > BRAID_MAX_RANK) {
        bk_say(message, size, "input '%s': rank %d is not between 0 and %d", io->name, (int)t->rank,
               BRAID_MAX_RANK);
        return BK_ST_INPUT;
    }
    if (io->kind == BRAID_IO_SEQUENCE || io->kind == BRAID_IO_OPTIONAL_SEQUENCE) {
        if (t->rank == 1 && t->dtype == 2 && t->data && t->dim[0] > 0) return BK_ST_OK;
        bk_say(message, size, "input '%s': expected a packed sequence", io->name);
        return BK_ST_INPUT;
    }
    size_t bytes = bk_dtype_size(t->dtype), had = bytes;
    int zero = 0, bad = bytes == 0;
    for (int i = 0; i < t->rank; i++) {
        if (t->dim[i] < 0)
            bad = 1;
        else if (t->dim[i] == 0)
            zero = 1;
        else if (bytes > ((size_t)1 << 62) / (size_t)t->dim[i])
            bad = 1;
        else
            bytes *= (size_t)t->dim[i];
        if (bad) break;
    }
    if (bad) {
        bk_say(message, size,
               had ? "input '%s': a dimension is negative or too large"
                   : "input '%s': its element type is not supported",
               io->name);
        return BK_ST_INPUT;
    }
    if (!t->data && !zero) {
        bk_say(message, size, "input '%s' has no data", io->name);
        return BK_ST_INPUT;
    }
    int same = !io->dtype || io->dtype == t->dtype;
    if (io->rank >= 0) {
        same = same && io->rank == t->rank;
        for (int i = 0; same && i < io->rank; i++) same = io->dim[i] < 0 || io->dim[i] == t->dim[i];
    }
    if (same) return BK_ST_OK;
    bk_shape_text(want, sizeof want, io->dtype, io->rank, io->dim, io->dim_name);
    bk_shape_text(got, sizeof got, t->dtype, t->rank, t->dim, NULL);
    bk_say(message, size, "input '%s': expected %s, got %s", io->name, want, got);
    return BK_ST_INPUT;
}

static int bk_check_inputs(const braid_tensor_v1 *in, char *message, size_t size) {
    int st = BK_ST_OK;
    for (int i = 0; i < BK_NIN && !st; i++)
        st = bk_check_input(&bk_inputs[i], &in[i], message, size);
    return st;
}

/* The caller's configuration, of whatever version, with defaults filled in. */
static int bk_config(const braid_session_config_v1 *config, void **session,
                     braid_session_config_v1 *c) {
    memset(c, 0, sizeof *c);
    if (config) {
        size_t first = offsetof(braid_session_config_v1, stack_depth); /* what always was there */
        if (config->struct_size < first) return BK_ST_USAGE;
        memcpy(c, config, config->struct_size < sizeof *c ? config->struct_size : sizeof *c);
    }
    if (c->message && c->message_size) c->message[0] = 0;
    if (c->threads < 0 || c->max_iterations < 0 || c->stack_depth < 0 || c->device < 0 ||
        c->max_memory < 0 || !session) {
        bk_say(c->message, c->message_size, "a number of the session's configuration is negative");
        return BK_ST_USAGE;
    }
    if (!c->max_iterations) c->max_iterations = (int64_t)1 << 31;
#ifdef BK_WEIGHTS_CHECK
    if (!bk_weights) {
        bk_say(c->message, c->message_size, "the library's file of weights is missing or damaged");
        return BK_ST_IO;
    }
#endif
    return BK_ST_OK;
}

/* The session, whose flag is `busy` (NULL: there is none), is this thread's from here until the
 * flag is 0. */
static int bk_enter(_Atomic int *busy, const braid_tensor_v1 *in, const braid_tensor_v1 *out,
                    char *message, size_t size) {
    int idle = 0;
    if (message && size) message[0] = 0;
    if (!busy || (BK_NIN && !in) || (BK_NOUT && !out)) {
        bk_say(message, size, "a null pointer was given to run");
        return BK_ST_USAGE;
    }
    if (atomic_compare_exchange_strong(busy, &idle, 1)) return BK_ST_OK;
    bk_say(message, size, "the session is running in another thread");
    return BK_ST_USAGE;
}

/* What a growable buffer of `cap` bytes, or the working memory, gets when `need` would have done.
 */
static inline int64_t bk_slot_room(int64_t cap, int64_t need) {
    if (need <= cap) return cap ? cap : BK_SLOT_BYTES;
    return need < 2 * cap ? 2 * cap : need;
}
static inline size_t bk_arena_room(size_t arena, size_t need) {
    if (need <= arena) return arena;
    return need > arena + arena / 2 ? need : arena + arena / 2;
}

/* Working memory for a run, and its sum. */
typedef struct bk_wish {
    size_t arena;
    int64_t slot[BK_NSLOT + 1], sum;
} bk_wish;
static int64_t bk_sum(const bk_wish *w) {
    const int64_t most = (int64_t)BK_MAX_BYTES;
    int64_t sum = w->arena < BK_MAX_BYTES ? (int64_t)w->arena : most + 1;
    for (int i = 0; i < BK_NSLOT; i++) sum += w->slot[i] < most ? w->slot[i] : most + 1;
    return sum;
}
/* `need`: in bytes of the arena, of which there are `had`, and of each slot, of which there are
 * cap[]. What grows gets more than that, so that it need not grow again soon: what is good to have,
 * or else what is left of `most`. */
static bk_wish bk_wish_for(size_t had, size_t need, const int64_t *cap, const int64_t *slot_need,
                           int64_t most) {
    bk_wish w = {.arena = bk_arena_room(had, need)};
    for (int i = 0; i < BK_NSLOT; i++) w.slot[i] = bk_slot_room(cap[i], slot_need[i]);
    if ((w.sum = bk_sum(&w)) <= most) return w;
    int64_t grows = need > had;
    if (need > had) w.arena = need;
    for (int i = 0; i < BK_NSLOT; i++)
        if (slot_need[i] > cap[i]) w.slot[i] = slot_need[i], grows++;
    if ((w.sum = bk_sum(&w)) > most || !grows) return w;
    const int64_t more = (most - w.sum) / grows / 64 * 64;
    if (need > had) w.arena += (size_t)more;
    for (int i = 0; i < BK_NSLOT; i++)
        if (slot_need[i] > cap[i]) w.slot[i] += more;
    w.sum = bk_sum(&w);
    return w;
}

/* `wants`: site + 1 of what asked for memory first, 0 when that is not known. */
static int bk_say_limit(int wants, int64_t need, int64_t most, char *message, size_t size) {
    const int known = wants > 0 && wants <= BK_NSITE;
    if (message && size)
        bk_limit_text(message, size, known ? bk_sites[wants - 1] : "the run needs", need, most);
    return BK_ST_MEMORY;
}
static int bk_say_memory(int wants, size_t arena, char *message, size_t size) {
    const int known = wants > 0 && wants <= BK_NSITE;
    bk_say(message, size, "out of memory: %s more than %zu bytes of working memory",
           known ? bk_sites[wants - 1] : "the run needs", arena);
    return BK_ST_MEMORY;
}
/* `fault`: site + 1, 0 when none is known; said: its values, BK_SAID of them. */
static int bk_say_fault(int fault, const int64_t *said, char *message, size_t size) {
    if (fault <= 0 || fault > BK_NSITE)
        bk_say(message, size, "the kernel stopped");
    else if (message && size)
        bk_fault_text(message, size, bk_sites[fault - 1], said);
    return BK_ST_RUNTIME;
}
