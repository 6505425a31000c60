/* gpu_blas.c: a stand-in for a vendor's library of products beside gpu_driver.c, with the names of
 * GPU_NAMES. It makes them in single steps, checks what it is given, and fails where it is told to.
 */
#include <stdlib.h>
#include <string.h>
#include "codegen/emulate/driver.h"
#include "tests/gpu_driver.h"

#define WORKSPACE ((size_t)32 << 20)

typedef struct Blas {
    void *stream, *workspace;
} Blas;

typedef struct Gemm {
    int turned[2], m, n, k, ld[3], batch;
    const float *a, *b;
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

static int gemm(const void *data) {
    Gemm g;
    memcpy(&g, data, sizeof g);
    for (int i = 0; i < g.batch; i++)
        for (int y = 0; y < g.n; y++)
            for (int x = 0; x < g.m; x++) {
                float sum = 0;
                for (int r = 0; r < g.k; r++)
                    sum += g.a[i * g.next[0] + (g.turned[0] ? x * g.ld[0] + r : r * g.ld[0] + x)] *
                           g.b[i * g.next[1] + (g.turned[1] ? r * g.ld[1] + y : y * g.ld[1] + r)];
                g.c[i * g.next[2] + y * g.ld[2] + x] = sum;
            }
    gpu_driver.products++;
    return 0;
}

static int is_matrix(const float *p, int rows, int columns, int ld) {
    return ld >= rows &&
           gpu_driver_memory(p, ((size_t)ld * (size_t)(columns - 1) + (size_t)rows) * sizeof *p);
}

static int start(const Blas *h, Gemm g, const float *alpha, const float *beta) {
    const int as_it_is = GPU_NAMES == 1 ? 111 : 0;
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
        if (!is_matrix(g.a + i * g.next[0], g.turned[0] ? g.k : g.m, g.turned[0] ? g.m : g.k,
                       g.ld[0]) ||
            !is_matrix(g.b + i * g.next[1], g.turned[1] ? g.n : g.k, g.turned[1] ? g.k : g.n,
                       g.ld[1]) ||
            !is_matrix(g.c + i * g.next[2], g.m, g.n, g.ld[2]))
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
    Gemm g = {{turn_a, turn_b}, m, n, k, {lda, ldb, ldc}, 1, a, b, c, {0}};
    return start(handle, g, alpha, beta);
}
int emu_blas_sgemm_batched(void *handle, int turn_a, int turn_b, int m, int n, int k,
                           const float *alpha, const float *a, int lda, long long next_a,
                           const float *b, int ldb, long long next_b, const float *beta, float *c,
                           int ldc, long long next_c, int batch) {
    Gemm g = {{turn_a, turn_b}, m, n, k, {lda, ldb, ldc}, batch, a, b, c, {next_a, next_b, next_c}};
    return batch < 2 ? wrong() : start(handle, g, alpha, beta);
}

#if GPU_NAMES < 2
#include "codegen/gpu/calls.h"
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
