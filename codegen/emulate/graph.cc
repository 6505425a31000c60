// graph.cc: what stream capture keeps, and a library of products (driver.h).
#include "driver.h"
#include "internal.h"

#include <cstdlib>
#include <cstring>
#include <functional>

using namespace emu;

namespace {

struct Graph {
    std::vector<std::function<int()>> steps;
};
Graph *capturing; // on this stream
void *captured_stream;

struct Blas {
    void *stream;
};

bool library_is(const char *what) {
    const char *s = getenv("BRAID_EMULATE_LIBRARY");
    return s && !strcmp(s, what);
}

// Rows of a matrix of `columns` columns, `ld` floats apart, are device memory.
bool inside(const float *p, int rows, int columns, int ld) {
    size_t floats =
        static_cast<size_t>(ld) * static_cast<size_t>(columns - 1) + static_cast<size_t>(rows);
    return ld >= rows && heap_inside(reinterpret_cast<uintptr_t>(p), floats * sizeof(float));
}

} // namespace

bool emu::capture_step(const void *stream, std::function<int()> step) {
    if (!capturing || stream != captured_stream) return false;
    capturing->steps.push_back(std::move(step));
    return true;
}
bool emu::capture_on(const void *stream) { return capturing && stream == captured_stream; }

int emu_stream_begin_capture(void *stream, int) {
    if (!stream || capturing) return EMU_INVALID_VALUE;
    capturing = new Graph;
    captured_stream = stream;
    return EMU_SUCCESS;
}
int emu_stream_end_capture(void *stream, void **graph) {
    if (!capture_on(stream)) return EMU_INVALID_VALUE;
    *graph = capturing;
    capturing = nullptr;
    return EMU_SUCCESS;
}
int emu_graph_instantiate(void **exec, void *graph, unsigned long long flags) {
    if (!graph || flags) return EMU_INVALID_VALUE;
    *exec = new Graph(*static_cast<Graph *>(graph));
    return EMU_SUCCESS;
}
int emu_graph_launch(void *exec, void *stream) {
    if (!exec || capture_on(stream)) return EMU_INVALID_VALUE;
    for (const auto &step : static_cast<Graph *>(exec)->steps)
        if (int e = step()) return e;
    return EMU_SUCCESS;
}
int emu_graph_exec_destroy(void *exec) {
    delete static_cast<Graph *>(exec);
    return EMU_SUCCESS;
}
int emu_graph_destroy(void *graph) {
    delete static_cast<Graph *>(graph);
    return EMU_SUCCESS;
}

int emu_blas_create(void **handle) {
    if (library_is("none")) return 1;
    *handle = new Blas{nullptr};
    return 0;
}
int emu_blas_destroy(void *handle) {
    delete static_cast<Blas *>(handle);
    return 0;
}
int emu_blas_set_stream(void *handle, void *stream) {
    static_cast<Blas *>(handle)->stream = stream;
    return 0;
}
int emu_blas_set_workspace(void *, void *workspace, size_t bytes) {
    return heap_inside(reinterpret_cast<uintptr_t>(workspace), bytes) ? 0 : 7;
}
int emu_blas_sgemm(void *handle, int turn_a, int turn_b, int m, int n, int k, const float *alpha,
                   const float *a, int lda, const float *b, int ldb, const float *beta, float *c,
                   int ldc) {
    return emu_blas_sgemm_batched(handle, turn_a, turn_b, m, n, k, alpha, a, lda, 0, b, ldb, 0,
                                  beta, c, ldc, 0, 1);
}
int emu_blas_sgemm_batched(void *handle, int turn_a, int turn_b, int m, int n, int k,
                           const float *alpha, const float *a, int lda, long long next_a,
                           const float *b, int ldb, long long next_b, const float *beta, float *c,
                           int ldc, long long next_c, int batch) {
    if (library_is("fails")) return 13;
    if (m < 1 || n < 1 || k < 1 || batch < 1 || *alpha != 1 || *beta != 0) return 7;
    for (int i = 0; i < batch; i++)
        if (!inside(a + i * next_a, turn_a ? k : m, turn_a ? m : k, lda) ||
            !inside(b + i * next_b, turn_b ? n : k, turn_b ? k : n, ldb) ||
            !inside(c + i * next_c, m, n, ldc))
            return 7;
    auto product = [=] {
        for (int i = 0; i < batch; i++)
            for (int y = 0; y < n; y++) {
                float *column = c + i * next_c + static_cast<long long>(y) * ldc;
                for (int x = 0; x < m; x++) {
                    float sum = 0;
                    for (int r = 0; r < k; r++)
                        sum += a[i * next_a + static_cast<long long>(turn_a ? x : r) * lda +
                                 (turn_a ? r : x)] *
                               b[i * next_b + static_cast<long long>(turn_b ? r : y) * ldb +
                                 (turn_b ? y : r)];
                    column[x] = sum;
                }
                memory_written(reinterpret_cast<uintptr_t>(column),
                               static_cast<size_t>(m) * sizeof(float));
            }
        return EMU_SUCCESS;
    };
    if (capture_step(static_cast<Blas *>(handle)->stream, product)) return 0;
    return product();
}
