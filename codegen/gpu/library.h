/* library.h: products by the vendor's library between the launches of a run, and graphs of both
 * (after device.h, in programs that have such products).
 *
 * Phase 2 i + 1 of the kernel is product i; a library that is there does it, and the kernel where
 * there is none, or where it fails. A sequence that comes again is captured in a graph when the
 * driver can do that. The text in front defines
 *   BK_NPRODUCT   how many products there are
 *   BK_PRODUCTS   initializers of bk_product
 *   BK_SIZES      statements that set what depends on the inputs' sizes, in[]: numbers in p[], an
 *                 array of products, and how many bytes slots need[] for their operands
 *   BK_IDLE       for each phase, 1: the kernel has nothing to do in it
 */
#define BK_PHASES (2 * BK_NPRODUCT + 1)
#define BK_WORKSPACE ((size_t)32 << 20) /* of the library, as on the largest devices */
#define BK_GRAPH_AFTER 2                /* equal runs in front of one that is captured */

/* The functions of BK_GRAPH and BK_BLAS (calls.h). What is not there is NULL: then there are no
 * graphs, or there is no library. */
typedef struct bk_calls {
#define BK_FIELD(field, parameters, cuda, hip, emulator) int(*field) parameters;
    BK_GRAPH(BK_FIELD)
    BK_BLAS(BK_FIELD)
#undef BK_FIELD
} bk_calls;

/* As in scheduler/library.h. An operand, or the result, begins at[] elements and base[] bytes
 * behind the beginning of an input or of what else it is in. */
enum { BK_IN_ARENA = -1, BK_IN_WEIGHTS = -2 };
#define BK_IN_SLOT(i) (-3 - (i))
enum { BK_F32, BK_F16, BK_BF16 }; /* of the operands, of the result */
typedef struct bk_product {
    int64_t m, n, k, batch, ld[3], next[3], at[3];
    int turned[2], type[2], from[3];
    uint64_t base[3];
    void *place[3]; /* in a run; NULL: not in that memory */
} bk_product;
static const bk_product bk_products[] = {BK_PRODUCTS};
static const unsigned char bk_idle[BK_PHASES] = {BK_IDLE};

/* A session's. */
typedef struct bk_library {
    const bk_calls *calls;
    void *handle; /* NULL: the kernel does the products */
    uint64_t workspace;
    void *graph;                     /* of runs that are like the last one */
    int graphs;                      /* the driver can make them */
    int equal;                       /* runs like it */
    bk_product product[BK_NPRODUCT]; /* of it */
} bk_library;

#if BK_BACKEND == 2
static const bk_calls *bk_find_calls(void) {
#define BK_FIELD(field, parameters, cuda, hip, emulator) .field = emulator,
    static const bk_calls calls = {BK_GRAPH(BK_FIELD) BK_BLAS(BK_FIELD)};
#undef BK_FIELD
    return &calls;
}
#else
static const char *const bk_blas_name[2][5] = {
    {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so"},
    {"librocblas.so.5", "librocblas.so.4", "librocblas.so.3", "librocblas.so"}};

/* Opened once, and not closed. */
static const bk_calls *bk_find_calls(void) {
    static const struct {
        size_t at;
        const char *name[2];
    } row[] = {
#define BK_FIELD(field, parameters, cuda, hip, emulator) {offsetof(bk_calls, field), {#cuda, #hip}},
        BK_GRAPH(BK_FIELD) BK_BLAS(BK_FIELD)
#undef BK_FIELD
    };
    static bk_calls calls;
    static int known;
    pthread_mutex_lock(&bk_lock);
    void *library[2] = {known ? NULL : bk_open(bk_backend_now->library),
                        known ? NULL : bk_open(bk_blas_name[BK_BACKEND])};
    int there[2] = {library[0] != NULL, library[1] != NULL};
    for (size_t i = 0; !known && i < sizeof row / sizeof row[0]; i++) {
        int blas = row[i].at >= offsetof(bk_calls, create);
        void *p = library[blas] ? dlsym(library[blas], row[i].name[BK_BACKEND]) : NULL;
        memcpy((char *)&calls + row[i].at, &p, sizeof p);
        if (!p && !strstr(row[i].name[BK_BACKEND], "_none")) there[blas] = 0;
    }
    if (!known && !there[0]) calls.capture = NULL;
    if (!known && !there[1]) calls.create = NULL;
    known = 1;
    pthread_mutex_unlock(&bk_lock);
    return &calls;
}
#endif

/* The session goes on without the library. */
static void bk_library_drop(bk_session *s) {
    bk_library *l = s->library;
    if (l->handle) l->calls->destroy(l->handle);
    if (l->workspace) s->d->free(l->workspace);
    l->handle = NULL;
    l->workspace = 0;
}
static void bk_graph_drop(bk_library *l) {
    if (l->graph) l->calls->graph_free(l->graph);
    l->graph = NULL;
}

static void bk_library_free(bk_session *s) {
    if (!s->library) return;
    bk_graph_drop(s->library);
    bk_library_drop(s);
    free(s->library);
}

/* Its context is the thread's. */
static int bk_library_new(bk_session *s, char *message, size_t size) {
    bk_library *l = s->library = calloc(1, sizeof *l);
    if (!l) return bk_say_memory(0, sizeof *l, message, size);
    l->calls = bk_find_calls();
    l->graphs = l->calls->capture != NULL;
    if (!l->calls->create || l->calls->create(&l->handle)) l->handle = NULL;
    /* rocBLAS has memory of its own from the beginning, cuBLAS would take some for each graph. */
    if (l->handle && BK_BACKEND != 1 && s->d->alloc(&l->workspace, BK_WORKSPACE))
        bk_library_drop(s);
    return BK_ST_OK;
}

/* ---- sizes and places ------------------------------------------------------------------------ */
/* A number that is too large is INT64_MAX. */
static inline int64_t bk_multiply(int64_t a, int64_t b) {
    int64_t r;
    return __builtin_mul_overflow(a, b, &r) ? INT64_MAX : r;
}
static inline int64_t bk_add(int64_t a, int64_t b) {
    int64_t r;
    return __builtin_add_overflow(a, b, &r) ? INT64_MAX : r;
}
static inline int64_t bk_subtract(int64_t a, int64_t b) {
    int64_t r;
    return __builtin_sub_overflow(a, b, &r) ? INT64_MAX : r;
}
static inline int64_t bk_least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t bk_most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Of a run on these inputs. */
static void bk_size_products(const braid_tensor_v1 *in, bk_product *p, int64_t *need) {
    (void)in, (void)need;
    memcpy(p, bk_products, sizeof bk_products);
    BK_SIZES
}

/* Has the next bk_take take the slots that the host knows the sizes of. */
static void bk_want_slots(bk_session *s, const braid_tensor_v1 *in) {
    bk_product p[BK_NPRODUCT];
    int64_t need[BK_NSLOT + 1] = {0};
    unsigned long long *want = s->pinned->down.cap_need;
    bk_size_products(in, p, need);
    for (int i = 0; i < BK_NSLOT; i++)
        if (need[i] > 0 && (unsigned long long)need[i] > want[i])
            want[i] = (unsigned long long)need[i];
}

/* Where the elements of matrix j of p are, when all of them are in the memory that it is in. */
static void *bk_place_matrix(const bk_session *s, const bk_product *p, int j) {
    const bk_image *up = &s->pinned->up;
    const int from = p->from[j], slot = -3 - from, turned = j < 2 && p->turned[j];
    const int64_t shape[3][2] = {{p->m, p->k}, {p->k, p->n}, {p->m, p->n}};
    uint64_t begin = from == BK_IN_ARENA     ? s->arena
                     : from == BK_IN_WEIGHTS ? s->device->weights
                     : from < 0              ? s->slot[slot]
                                             : (uintptr_t)s->now[from].data;
    size_t bytes = from == BK_IN_ARENA     ? up->k.arena_size
                   : from == BK_IN_WEIGHTS ? BK_WEIGHTS_SIZE
                   : from < 0              ? (size_t)up->cap[slot]
                                           : bk_bytes(&s->now[from]);
    int64_t last = bk_add(bk_multiply(shape[j][!turned] - 1, p->ld[j]), shape[j][turned] - 1);
    last = bk_add(bk_add(last, bk_multiply(p->batch - 1, p->next[j])), p->at[j]);
    const uint64_t element = p->type[j == 2] == BK_F32 ? 4 : 2;
    if (last < 0 || (uint64_t)last >= BK_MAX_BYTES ||
        p->base[j] + ((uint64_t)last + 1) * element > bytes)
        return NULL;
    return (void *)(uintptr_t)(begin + p->base[j] + (uint64_t)p->at[j] * element);
}

/* The products of a run on the inputs that the device has been told of. */
static void bk_find_products(const bk_session *s, bk_product *p) {
    int64_t need[BK_NSLOT + 1];
    bk_size_products(s->now, p, need);
    for (int i = 0; i < BK_NPRODUCT; i++)
        for (int j = 0; j < 3; j++) p[i].place[j] = bk_place_matrix(s, &p[i], j);
}

/* A product; not 0: it is not made. */
static int bk_library_product(const bk_library *l, const bk_product *p) {
    static const float one = 1, zero = 0;
    static const int number[2][3] = {{0, 2, 14}, {151, 150, 168}};     /* of a type, by library */
    const int rocblas = BK_BACKEND == 1, as_it_is = rocblas ? 111 : 0; /* the transpose's follows */
    const int turn_a = as_it_is + p->turned[0], turn_b = as_it_is + p->turned[1];
    const int type = number[rocblas][p->type[0]], to = number[rocblas][p->type[1]];
    const int m = (int)p->m, n = (int)p->n, k = (int)p->k, batch = (int)p->batch;
    const int lda = (int)p->ld[0], ldb = (int)p->ld[1], ldc = (int)p->ld[2];
    const void *a = p->place[0], *b = p->place[1];
    void *c = p->place[2];
    const bk_calls *f = l->calls;
    if (p->type[0] != BK_F32 && rocblas)
        return f->gemm_to(l->handle, turn_a, turn_b, m, n, k, &one, a, type, lda, p->next[0], b,
                          type, ldb, p->next[1], &zero, c, to, ldc, p->next[2], c, to, ldc,
                          p->next[2], batch, number[1][BK_F32], 0, 0, 0);
    if (p->type[0] != BK_F32) /* sums are of float32: CUBLAS_COMPUTE_32F, by whatever algorithm */
        return f->gemm_typed(l->handle, turn_a, turn_b, m, n, k, &one, a, type, lda, p->next[0], b,
                             type, ldb, p->next[1], &zero, c, to, ldc, p->next[2], batch, 68, -1);
    if (batch == 1)
        return f->gemm(l->handle, turn_a, turn_b, m, n, k, &one, a, lda, b, ldb, &zero, c, ldc);
    return f->gemm_batched(l->handle, turn_a, turn_b, m, n, k, &one, a, lda, p->next[0], b, ldb,
                           p->next[1], &zero, c, ldc, p->next[2], batch);
}
/* Whether a library can: sizes that are 0, or not what the program takes for granted, are left to
 * the kernel. */
static int bk_is_able(const bk_product *p) {
    const int64_t number[] = {p->m, p->n, p->k, p->batch, p->ld[0], p->ld[1], p->ld[2]};
    for (int i = 0; i < 7; i++)
        if (number[i] < 1 || number[i] > INT32_MAX) return 0;
    return p->place[0] && p->place[1] && p->place[2];
}

/* Enqueues all phases. A library that fails once is not called again. */
static int bk_start_each(bk_session *s, void *stream) {
    bk_library *l = s->library;
    int r = 0;
    if (l->handle &&
        (l->calls->set_stream(l->handle, stream) ||
         (l->workspace &&
          l->calls->set_workspace(l->handle, (void *)(uintptr_t)l->workspace, BK_WORKSPACE))))
        bk_library_drop(s);
    for (int i = 0; i < BK_PHASES && !r; i++) {
        const bk_product *p = &l->product[i / 2];
        if (i % 2 && l->handle && bk_is_able(p)) {
            if (!bk_library_product(l, p)) continue;
            bk_library_drop(s);
        }
        if (!bk_idle[i]) r = bk_start(s, stream, i);
    }
    return r;
}

/* Makes the graph of a run; where that goes wrong, there are no more attempts. */
static void bk_graph_new(bk_session *s) {
    bk_library *l = s->library;
    const bk_calls *c = l->calls;
    void *graph = NULL;
    const int had = l->handle != NULL, relaxed = 2;
    l->graphs = 0;
    if (c->capture(s->stream, relaxed)) return;
    int r = bk_start_each(s, s->stream);
    if (c->captured(s->stream, &graph)) graph = NULL;
    if (!r && graph && had == (l->handle != NULL)) l->graphs = !c->graph_make(&l->graph, graph, 0);
    if (!l->graphs) l->graph = NULL;
    if (graph) c->captured_free(graph);
}

/* Enqueues a run's launches and products. */
static int bk_start_all(bk_session *s, void *stream) {
    bk_library *l = s->library;
    bk_product p[BK_NPRODUCT];
    bk_find_products(s, p);
    if (memcmp(p, l->product, sizeof p)) {
        if (l->graph && s->pending) s->d->event_wait(s->done); /* it may be running */
        bk_graph_drop(l);
        l->equal = 0;
        memcpy(l->product, p, sizeof p);
    }
    if (!l->graph && l->graphs && l->equal++ >= BK_GRAPH_AFTER) bk_graph_new(s);
    if (l->graph && !l->calls->graph_launch(l->graph, stream)) return 0;
    if (l->graph) l->graphs = 0;
    bk_graph_drop(l);
    return bk_start_each(s, stream);
}
