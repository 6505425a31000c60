/* gpu_blas.c: a stand-in for a vendor's library of products beside gpu_driver.c, with the names of
 * GPU_NAMES. It makes them in single steps, checks what it is given, and fails where it is told to.
 */
#include <stdlib.h>
#include <string.h>
#include "codegen/emulate/driver.inc"
#include "tests/unit/gpu_driver.h"

#define WORKSPACE ((size_t)32 << 20)

typedef struct Blas {
    void *stream, *workspace;
} Blas;

typedef struct Gemm {
    int turned[2], m, n, k, ld[3], batch;
    int half; /* the operands are bfloat16 */
    const void *a, *b;
    float *c;
    long long next[3];
} Gemm;

static int wrong(void) {
    gpu_driver.bad++;
    return 7;
}

int emu_blas_create(void **handle) {
    int r = gpu_driver_call();
    if (r || gpu_driver.no_library) return r ? r : 1;
    *handle = calloc(1, sizeof(Blas));
    return gpu_driver_alive(1);
}
int emu_blas_destroy(void *handle) {
    free(handle);
    return gpu_driver_alive(-1);
}
int emu_blas_set_stream(void *handle, void *stream) {
    Blas *h = handle;
    h->stream = stream;
    h->workspace = NULL; /* as cuBLAS does */
    return gpu_driver_call();
}
int emu_blas_set_workspace(void *handle, void *workspace, size_t bytes) {
    Blas *h = handle;
    h->workspace = workspace;
    return bytes < WORKSPACE || !gpu_driver_memory(workspace, bytes) ? wrong() : gpu_driver_call();
}

static float get(const Gemm *g, const void *p, long long at) {
    if (!g->half) return ((const float *)p)[at];
    uint32_t word = (uint32_t)((const uint16_t *)p)[at] << 16;
    float f;
    memcpy(&f, &word, sizeof f);
    return f;
}

static int gemm(const void *data) {
    Gemm g;
    memcpy(&g, data, sizeof g);
    for (int i = 0; i < g.batch; i++)
        for (int y = 0; y < g.n; y++)
            for (int x = 0; x < g.m; x++) {
                float sum = 0;
                for (int r = 0; r < g.k; r++) {
                    int a = g.turned[0] ? x * g.ld[0] + r : r * g.ld[0] + x;
                    int b = g.turned[1] ? r * g.ld[1] + y : y * g.ld[1] + r;
                    sum += get(&g, g.a, i * g.next[0] + a) * get(&g, g.b, i * g.next[1] + b);
                }
                g.c[i * g.next[2] + y * g.ld[2] + x] = sum;
            }
    gpu_driver.products++;
    return 0;
}

static int is_matrix(const void *p, long long at, size_t size, int rows, int columns, int ld) {
    size_t all = (size_t)ld * (size_t)(columns - 1) + (size_t)rows;
    return ld >= rows && gpu_driver_memory((const char *)p + at * (long long)size, all * size);
}

static int start(const Blas *h, Gemm g, const float *alpha, const float *beta) {
    const int as_it_is = GPU_NAMES == 1 ? 111 : 0;
    const size_t size = g.half ? 2 : 4;
    GpuStep step = {.run = gemm};
    int r = gpu_driver_call();
    if (r || gpu_driver.no_product) return r ? r : 13;
    if (*alpha != 1 || *beta != 0 || g.m < 1 || g.n < 1 || g.k < 1 ||
        (GPU_NAMES != 1 && !h->workspace))
        return wrong();
    for (int i = 0; i < 2; i++) {
        g.turned[i] -= as_it_is;
        if (g.turned[i] < 0 || g.turned[i] > 1) return wrong();
    }
    for (int i = 0; i < g.batch; i++)
        if (!is_matrix(g.a, i * g.next[0], size, g.turned[0] ? g.k : g.m, g.turned[0] ? g.m : g.k,
                       g.ld[0]) ||
            !is_matrix(g.b, i * g.next[1], size, g.turned[1] ? g.n : g.k, g.turned[1] ? g.k : g.n,
                       g.ld[1]) ||
            !is_matrix(g.c, i * g.next[2], 4, g.m, g.n, g.ld[2]))
            return wrong();
    memcpy(step.data, &g, sizeof g);
    int before = gpu_driver.products;
    r = gpu_driver_step(h->stream, &step);
    gpu_driver.kept += gpu_driver.products == before;
    return r;
}
int emu_blas_sgemm(void *handle, int turn_a, int turn_b, int m, int n, int k, const float *alpha,
                   const float *a, int lda, const float *b, int ldb, const float *beta, float *c,
                   int ldc) {
    Gemm g = {{turn_a, turn_b}, m, n, k, {lda, ldb, ldc}, 1, 0, a, b, c, {0}};
    return start(handle, g, alpha, beta);
}
int emu_blas_sgemm_batched(void *handle, int turn_a, int turn_b, int m, int n, int k,
                           const float *alpha, const float *a, int lda, long long next_a,
                           const float *b, int ldb, long long next_b, const float *beta, float *c,
                           int ldc, long long next_c, int batch) {
    Gemm g = {{turn_a, turn_b},        m, n, k, {lda, ldb, ldc}, batch, 0, a, b, c,
              {next_a, next_b, next_c}};
    return batch < 2 ? wrong() : start(handle, g, alpha, beta);
}

int emu_blas_gemm_typed(void *handle, int turn_a, int turn_b, int m, int n, int k,
                        const void *alpha, const void *a, int type_a, int lda, long long next_a,
                        const void *b, int type_b, int ldb, long long next_b, const void *beta,
                        void *c, int type_c, int ldc, long long next_c, int batch, int compute,
                        int algorithm) {
    Gemm g = {{turn_a, turn_b},        m, n, k, {lda, ldb, ldc}, batch, 1, a, b, c,
              {next_a, next_b, next_c}};
    if (type_a != 14 || type_b != 14 || type_c != 0 || compute != 68 || algorithm != -1 ||
        batch < 1)
        return wrong();
    return start(handle, g, alpha, beta);
}

#if GPU_NAMES < 2
/* rocBLAS's form of it, under the emulator's name for none. */
int emu_none(void *handle, int turn_a, int turn_b, int m, int n, int k, const void *alpha,
             const void *a, int type_a, int lda, long long next_a, const void *b, int type_b,
             int ldb, long long next_b, const void *beta, const void *c, int type_c, int ldc,
             long long next_c, void *d, int type_d, int ldd, long long next_d, int batch,
             int compute, int algorithm, int solution, unsigned flags);
int emu_none(void *handle, int turn_a, int turn_b, int m, int n, int k, const void *alpha,
             const void *a, int type_a, int lda, long long next_a, const void *b, int type_b,
             int ldb, long long next_b, const void *beta, const void *c, int type_c, int ldc,
             long long next_c, void *d, int type_d, int ldd, long long next_d, int batch,
             int compute, int algorithm, int solution, unsigned flags) {
    if (type_a != 168 || type_b != 168 || type_c != 151 || type_d != 151 || c != d || ldc != ldd ||
        next_c != next_d || compute != 151 || algorithm || solution || flags)
        return wrong();
    return emu_blas_gemm_typed(handle, turn_a, turn_b, m, n, k, alpha, a, 14, lda, next_a, b, 14,
                               ldb, next_b, beta, d, 0, ldd, next_d, batch, 68, -1);
}

#include "codegen/text/gpu/calls.inc"
#define GPU_TEXT(x) #x
#define GPU_EXPORT(name, parameters, emulator)                                                     \
    __attribute__((visibility("default"))) int name parameters                                     \
        __attribute__((alias(GPU_TEXT(emulator))));
#if GPU_NAMES == 0
#define GPU_CALL(field, parameters, cuda, hip, emulator) GPU_EXPORT(cuda, parameters, emulator)
#else
#define GPU_CALL(field, parameters, cuda, hip, emulator) GPU_EXPORT(hip, parameters, emulator)
#endif
BK_BLAS(GPU_CALL)
#endif
