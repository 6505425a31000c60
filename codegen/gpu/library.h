/* library.h: products by the vendor's library between the launches of a run, and graphs of both (after device.h, in
 * programs that have such products).
 *
 * Phase 2 i + 1 of the kernel is product i; a library that is there does it, and the kernel where there is none, or
 * where it fails. A sequence that comes again is captured in a graph when the driver can do that. The text in front
 * defines
 *   BK_NPRODUCT   how many products there are
 *   BK_PRODUCTS   initializers of bk_product
 *   BK_IDLE       for each phase, 1: the kernel has nothing to do in it
 */
#define BK_PHASES (2 * BK_NPRODUCT + 1)
#define BK_WORKSPACE ((size_t)32 << 20) /* of the library, as it likes it on the largest devices */
#define BK_GRAPH_AFTER 2                /* equal runs in front of one that is captured */

/* The functions of BK_GRAPH and BK_BLAS (calls.h). What is not there is NULL: then there are no graphs, or there is no
 * library. */
typedef struct bk_calls {
#define BK_FIELD(field, parameters, cuda, hip, emulator) int(*field) parameters;
    BK_GRAPH(BK_FIELD)
    BK_BLAS(BK_FIELD)
#undef BK_FIELD
} bk_calls;

/* As in scheduler/library.h; an operand or result begins `at` bytes behind the beginning of input `from`. */
enum { BK_IN_ARENA = -1, BK_IN_WEIGHTS = -2 };
typedef struct bk_product {
    int m, n, k, batch, turned[2], ld[3];
    long long next[3];
    int from[3];
    uint64_t at[3];
} bk_product;
static const bk_product bk_products[] = {BK_PRODUCTS};
static const unsigned char bk_idle[BK_PHASES] = {BK_IDLE};

/* A session's. */
typedef struct bk_library {
    const bk_calls *calls;
    void *handle; /* NULL: the kernel does the products */
    uint64_t workspace;
    void *graph;  /* of the runs with operands at `at` */
    int graphs;   /* the driver can make them */
    int equal;    /* runs with these */
    uint64_t at[BK_NPRODUCT][3];
} bk_library;

#if BK_BACKEND == 2
static const bk_calls *bk_find_calls(void) {
#define BK_FIELD(field, parameters, cuda, hip, emulator) .field = emulator,
    static const bk_calls calls = {BK_GRAPH(BK_FIELD) BK_BLAS(BK_FIELD)};
#undef BK_FIELD
    return &calls;
}
#else
static const char *const bk_blas_name[2][5] = {{"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so"},
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
    void *library[2] = {known ? NULL : bk_open(bk_backend_now->library), known ? NULL : bk_open(bk_blas_name[BK_BACKEND])};
    int there[2] = {library[0] != NULL, library[1] != NULL};
    for (size_t i = 0; !known && i < sizeof row / sizeof row[0]; i++) {
        int blas = row[i].at >= offsetof(bk_calls, create);
        void *p = library[blas] ? dlsym(library[blas], row[i].name[BK_BACKEND]) : NULL;
        memcpy((char *)&calls + row[i].at, &p, sizeof p);
        if (!p) there[blas] = 0;
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
    if (!l) return bk_say_memory(sizeof *l, message, size);
    l->calls = bk_find_calls();
    l->graphs = l->calls->capture != NULL;
    if (!l->calls->create || l->calls->create(&l->handle)) l->handle = NULL;
    /* rocBLAS has memory of its own from the beginning, cuBLAS would take some for each graph. */
    if (l->handle && BK_BACKEND != 1 && s->d->alloc(&l->workspace, BK_WORKSPACE)) bk_library_drop(s);
    return BK_ST_OK;
}

/* Where operands and results are in a run on the inputs that the device has been told of. */
static void bk_find_operands(const bk_session *s, uint64_t at[BK_NPRODUCT][3]) {
    for (int i = 0; i < BK_NPRODUCT; i++)
        for (int j = 0; j < 3; j++) {
            int from = bk_products[i].from[j];
            at[i][j] = bk_products[i].at[j] + (from == BK_IN_ARENA     ? s->arena
                                               : from == BK_IN_WEIGHTS ? s->device->weights
                                                                       : (uintptr_t)s->now[from].data);
        }
}

/* Product i; not 0: it is not made. */
static int bk_library_product(const bk_library *l, int i) {
    static const float one = 1, zero = 0;
    const bk_product *p = &bk_products[i];
    const float *a = (const float *)(uintptr_t)l->at[i][0], *b = (const float *)(uintptr_t)l->at[i][1];
    float *c = (float *)(uintptr_t)l->at[i][2];
    const int as_it_is = BK_BACKEND == 1 ? 111 : 0; /* the transpose's number follows */
    int turn_a = as_it_is + p->turned[0], turn_b = as_it_is + p->turned[1];
    if (p->batch == 1)
        return l->calls->gemm(l->handle, turn_a, turn_b, p->m, p->n, p->k, &one, a, p->ld[0], b, p->ld[1], &zero, c,
                              p->ld[2]);
    return l->calls->gemm_batched(l->handle, turn_a, turn_b, p->m, p->n, p->k, &one, a, p->ld[0], p->next[0], b,
                                  p->ld[1], p->next[1], &zero, c, p->ld[2], p->next[2], p->batch);
}

/* Enqueues all phases. A library that fails once is not called again. */
static int bk_start_each(bk_session *s, void *stream) {
    bk_library *l = s->library;
    int r = 0;
    if (l->handle && (l->calls->set_stream(l->handle, stream) ||
                      (l->workspace &&
                       l->calls->set_workspace(l->handle, (void *)(uintptr_t)l->workspace, BK_WORKSPACE))))
        bk_library_drop(s);
    for (int i = 0; i < BK_PHASES && !r; i++) {
        if (i % 2 && l->handle) {
            if (!bk_library_product(l, i / 2)) continue;
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
    uint64_t at[BK_NPRODUCT][3];
    bk_find_operands(s, at);
    if (memcmp(at, l->at, sizeof at)) {
        bk_graph_drop(l);
        l->equal = 0;
        memcpy(l->at, at, sizeof at);
    }
    if (!l->graph && l->graphs && l->equal++ >= BK_GRAPH_AFTER) bk_graph_new(s);
    if (l->graph && !l->calls->graph_launch(l->graph, stream)) return 0;
    if (l->graph) l->graphs = 0;
    bk_graph_drop(l);
    return bk_start_each(s, stream);
}
