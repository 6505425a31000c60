// graph.cc: stream capture, and the library of matrix products (driver.inc).
#include "driver.inc"
#include "internal.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>

using namespace emu;

namespace {

struct Graph {
    std::vector<std::function<int()>> steps;
};
Graph *capturing; // the steps recorded on captured_stream, or null
void *captured_stream;
bool capture_strict, capture_broken; // mode 0; a call that it forbids was made

struct Blas {
    void *stream;
};

bool library_is(const char *what) {
    const char *s = getenv("BRAID_EMULATE_LIBRARY");
    return s && !strcmp(s, what);
}

// Whether a matrix of `columns` columns, `ld` elements apart, is within device memory.
bool inside(const void *p, size_t size, int rows, int columns, int ld) {
    size_t all =
        static_cast<size_t>(ld) * static_cast<size_t>(columns - 1) + static_cast<size_t>(rows);
    return ld >= rows && heap_inside(reinterpret_cast<uintptr_t>(p), all * size);
}

// CUDA's numbers of element types.
enum { t_f32 = 0, t_f16 = 2, t_bf16 = 14 };
size_t size_of(int type) { return type == t_f32 ? 4 : 2; }

float get(const void *p, int type, long long at) {
    if (type == t_f32) return static_cast<const float *>(p)[at];
    uint32_t bits = static_cast<const uint16_t *>(p)[at], word = bits << 16;
    float f;
    if (type == t_f16) {
        int e = static_cast<int>(bits >> 10 & 31), m = static_cast<int>(bits & 1023);
        f = e == 31 ? (m ? NAN : INFINITY)
                    : ldexpf(static_cast<float>(e ? m + 1024 : m), (e ? e : 1) - 25);
        return bits >> 15 ? -f : f;
    }
    memcpy(&f, &word, sizeof f);
    return f;
}

// Stores an element, rounded to nearest, ties to even.
void put(void *p, int type, long long at, float f) {
    if (type == t_f32) {
        static_cast<float *>(p)[at] = f;
        return;
    }
    uint32_t word;
    memcpy(&word, &f, sizeof f);
    uint32_t bits = (word + 0x7fff + (word >> 16 & 1)) >> 16;
    if (f != f)
        bits = type == t_f16 ? 0x7e00 : 0x7fc0;
    else if (type == t_f16 && std::isinf(f))
        bits = word >> 31 << 15 | 0x7c00;
    else if (type == t_f16) {
        int e = f != 0 && ilogbf(f) > -14 ? ilogbf(f) : -14;
        long m = e > 15 ? 0 : lrintf(ldexpf(fabsf(f), 10 - e)); // 2048 carries into the exponent
        bits = e > 15 ? 0x7c00 : static_cast<uint32_t>(m + ((e + 14) << 10));
        bits |= word >> 31 << 15;
    }
    static_cast<uint16_t *>(p)[at] = static_cast<uint16_t>(bits);
}

} // namespace

bool emu::capture_step(const void *stream, std::function<int()> step) {
    if (!capturing || stream != captured_stream) return false;
    capturing->steps.push_back(std::move(step));
    return true;
}
bool emu::capture_on(const void *stream) { return capturing && stream == captured_stream; }

bool emu::capture_forbids() {
    if (!capturing || !capture_strict) return false;
    return capture_broken = true;
}

int emu_stream_is_capturing(void *stream, int *status) {
    *status = capture_on(stream);
    return EMU_SUCCESS;
}
int emu_stream_begin_capture(void *stream, int mode) {
    if (!stream || capturing) return EMU_INVALID_VALUE;
    capture_strict = mode == 0;
    capture_broken = false;
    capturing = new Graph;
    captured_stream = stream;
    return EMU_SUCCESS;
}
int emu_stream_end_capture(void *stream, void **graph) {
    if (!capture_on(stream)) return EMU_INVALID_VALUE;
    *graph = capturing;
    capturing = nullptr;
    if (!capture_broken) return EMU_SUCCESS;
    delete static_cast<Graph *>(*graph);
    *graph = nullptr;
    return EMU_CAPTURE_INVALIDATED;
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
    return emu_blas_gemm_typed(handle, turn_a, turn_b, m, n, k, alpha, a, t_f32, lda, next_a, b,
                               t_f32, ldb, next_b, beta, c, t_f32, ldc, next_c, batch, 68, -1);
}
int emu_blas_gemm_typed(void *handle, int turn_a, int turn_b, int m, int n, int k,
                        const void *alpha, const void *a, int type_a, int lda, long long next_a,
                        const void *b, int type_b, int ldb, long long next_b, const void *beta,
                        void *c, int type_c, int ldc, long long next_c, int batch, int compute,
                        int algorithm) {
    if (library_is("fails")) return 13;
    if (m < 1 || n < 1 || k < 1 || batch < 1 || compute != 68 || algorithm != -1 ||
        type_a != type_b || *static_cast<const float *>(alpha) != 1 ||
        *static_cast<const float *>(beta) != 0)
        return 7;
    auto matrix = [](const void *p, int type, long long at) {
        return static_cast<const char *>(p) + at * static_cast<long long>(size_of(type));
    };
    for (int i = 0; i < batch; i++)
        if (!inside(matrix(a, type_a, i * next_a), size_of(type_a), turn_a ? k : m, turn_a ? m : k,
                    lda) ||
            !inside(matrix(b, type_b, i * next_b), size_of(type_b), turn_b ? n : k, turn_b ? k : n,
                    ldb) ||
            !inside(matrix(c, type_c, i * next_c), size_of(type_c), m, n, ldc))
            return 7;
    auto product = [=] {
        for (int i = 0; i < batch; i++)
            for (long long y = 0; y < n; y++) {
                long long column = i * next_c + y * ldc;
                for (long long x = 0; x < m; x++) {
                    float sum = 0;
                    for (long long r = 0; r < k; r++)
                        sum += get(a, type_a, i * next_a + (turn_a ? x * lda + r : r * lda + x)) *
                               get(b, type_b, i * next_b + (turn_b ? r * ldb + y : y * ldb + r));
                    put(c, type_c, column + x, sum);
                }
                memory_written(reinterpret_cast<uintptr_t>(matrix(c, type_c, column)),
                               static_cast<size_t>(m) * size_of(type_c));
            }
        return EMU_SUCCESS;
    };
    if (capture_step(static_cast<Blas *>(handle)->stream, product)) return 0;
    return product();
}
