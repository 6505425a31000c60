/* machine.cu: measures the costs of operations on the GPU it runs on, and writes them as JSON.
 *
 *     nvcc -std=c++17 -O3 -arch=sm_90 --fmad=false -I ../.. -o machine machine.cu
 *     ./machine FILE.json
 *
 * The file is rewritten after each measurement, so that the results stay if a later one fails or
 * hangs. "measured" has all numbers; "costs" has those for `braid device --import FILE.json`: a row
 * of the device table (scheduler/cost/device.h), where most numbers are for one multiprocessor.
 *
 * A cost is the difference between a kernel that does something many times and one that does it few
 * times, each the fastest of several runs. The grid barrier, the flags and the functions called
 * "ours" are those of compiled programs. */
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#define BK_THREADS 256
#define BK_WARP 32
#define BK_GIVEN_AT -1
#define BK_SHARED_BYTES 16384
/* Chips below 9.0 have no clusters. */
#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 900
#define CLUSTERS
#define BK_CLUSTER 8
#else
#define BK_CLUSTER 1
#endif
#include "include/braid_model.h"
#include "codegen/text/gpu/ctx.inc"
#include "codegen/text/gpu/prelude.inc"
#include "codegen/text/scalar.inc"
#include "codegen/text/math.inc"
#include "codegen/text/gpu/team.inc"
#include "codegen/text/gpu/dots.inc"

namespace cg = cooperative_groups;

#define WORDS 2048    /* float4s of shared memory that are read: 32 KB */
#define ELEMENTS 4096 /* floats of a block, for the costs of operations: 16 KB */
#define RUNS 7

/* ---- kernels: each does n times what its name says ---- */
__global__ void nothing() {}

__global__ void __launch_bounds__(BK_THREADS) block_barriers(int n) {
    for (int i = 0; i < n; i++) __syncthreads();
}

__global__ void __launch_bounds__(BK_THREADS) grid_barriers(bk_ctx *run, int n) {
    bk_ctx *k = bk_begin(run);
    for (int i = 0; i < n; i++) bk_barrier(k, (int)blockIdx.x);
    bk_end();
}
__global__ void __launch_bounds__(BK_THREADS) grid_flags(bk_ctx *run, int n) {
    bk_ctx *k = bk_begin(run);
    for (int i = 0; i < n; i++) {
        bk_gather(k, (int)blockIdx.x, 0);
        bk_release(k, (int)blockIdx.x, 0);
    }
    bk_end();
}
__global__ void __launch_bounds__(BK_THREADS) grid_syncs(int n) {
    cg::grid_group grid = cg::this_grid();
    for (int i = 0; i < n; i++) grid.sync();
}

/* A word on a line of its own. */
struct line_word {
    unsigned at, pad[BK_LINE / 4 - 1];
};
/* Two blocks answer each other n times. The words have the value `base` at the beginning. */
__global__ void round_trips(line_word *word, int n, unsigned base) {
    if (threadIdx.x != 0) return;
    line_word *mine = &word[blockIdx.x], *other = &word[1 - blockIdx.x];
    for (unsigned turn = base + 1; turn <= base + (unsigned)n; turn++) {
        if (blockIdx.x == 0) {
            bk_fence();
            BK_LOOK(unsigned, &mine->at) = turn;
        }
        while (BK_LOOK(unsigned, &other->at) != turn) {}
        bk_fence();
        if (blockIdx.x == 1) BK_LOOK(unsigned, &mine->at) = turn;
    }
}

/* The address depends on i, so that the compiler cannot move loads out of the loop. */
__device__ float read_words(const float4 *p, int n) {
    float4 sum = make_float4(0, 0, 0, 0);
    for (int i = 0; i < n; i++)
#pragma unroll
        for (int j = 0; j < WORDS; j += BK_THREADS) {
            const float4 v = p[(threadIdx.x + j + 64 * i) & (WORDS - 1)];
            sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
        }
    return sum.x + sum.y + sum.z + sum.w;
}
__device__ void fill_words(float4 *p) {
    for (int j = threadIdx.x; j < WORDS; j += BK_THREADS) p[j] = make_float4(j, 1, 2, 3);
    __syncthreads();
}
/* A linked ring through all words, in steps of 33 words. */
__device__ void fill_ring(int *p) {
    for (int j = threadIdx.x; j < 4 * WORDS; j += BK_THREADS) p[j] = (j + 33) & (4 * WORDS - 1);
    __syncthreads();
}
__device__ int walk(const int *p, int n) {
    int at = 0;
    for (int i = 0; i < n; i++) at = p[at];
    return at;
}

__global__ void __launch_bounds__(BK_THREADS) read_shared(int n, float *out) {
    __shared__ float4 words[WORDS];
    fill_words(words);
    out[blockIdx.x * BK_THREADS + threadIdx.x] = read_words(words, n);
}
__global__ void __launch_bounds__(BK_THREADS) walk_shared(int n, float *out) {
    __shared__ int ring[4 * WORDS];
    fill_ring(ring);
    if (threadIdx.x == 0) out[blockIdx.x] = (float)walk(ring, n);
}

__global__ void __launch_bounds__(BK_THREADS) cluster_barriers(bk_ctx *run, int n) {
    bk_begin(run);
    for (int i = 0; i < n; i++) bk_cluster_barrier();
    bk_end();
}
__global__ void __launch_bounds__(BK_THREADS) cluster_syncs(int n) {
#ifdef CLUSTERS
    for (int i = 0; i < n; i++) cg::this_cluster().sync();
#endif
}
/* A barrier of the cluster by a word of each block at which all others arrive. */
__global__ void __launch_bounds__(BK_THREADS) cluster_arrivals(int n) {
#ifdef CLUSTERS
    __shared__ uint64_t word;
    cg::cluster_group cluster = cg::this_cluster();
    const unsigned own = (unsigned)__cvta_generic_to_shared(&word), blocks = cluster.num_blocks();
    unsigned other = 0;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(own), "r"(blocks) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (threadIdx.x < blocks)
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                     : "=r"(other)
                     : "r"(own), "r"(threadIdx.x));
    cluster.sync();
    for (int i = 0; i < n; i++) {
        __syncthreads();
        if (threadIdx.x < blocks)
            asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(other)
                         : "memory");
        unsigned done = 0;
        while (!done)
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 "
                         "p, [%1], %2; "
                         "selp.u32 %0, 1, 0, p; }"
                         : "=r"(done)
                         : "r"(own), "r"((unsigned)i & 1)
                         : "memory");
    }
    cluster.sync();
#endif
}
/* The shared memory of the next block of the cluster. Its constructor waits until all blocks have
 * filled theirs; `wait` waits until all have read, before a block ends. */
template <typename T> struct Next {
    const T *p;
    __device__ Next(T *own) {
#ifdef CLUSTERS
        cg::cluster_group cluster = cg::this_cluster();
        cluster.sync();
        p = cluster.map_shared_rank(own, (cluster.block_rank() + 1) % cluster.num_blocks());
#else
        p = own;
#endif
    }
    __device__ void wait() {
#ifdef CLUSTERS
        cg::this_cluster().sync();
#endif
    }
};
__global__ void __launch_bounds__(BK_THREADS) read_cluster(int n, float *out) {
    __shared__ float4 words[WORDS];
    fill_words(words);
    Next<float4> next(words);
    out[blockIdx.x * BK_THREADS + threadIdx.x] = read_words(next.p, n);
    next.wait();
}
__global__ void __launch_bounds__(BK_THREADS) walk_cluster(int n, float *out) {
    __shared__ int ring[4 * WORDS];
    fill_ring(ring);
    Next<int> next(ring);
    if (threadIdx.x == 0) out[blockIdx.x] = (float)walk(next.p, n);
    next.wait();
}

/* The whole grid reads `count` float4s of global memory, not through L1. */
__global__ void __launch_bounds__(BK_THREADS)
    read_global(const float4 *p, int64_t count, int n, float *out) {
    float4 sum = make_float4(0, 0, 0, 0);
    const int64_t step = (int64_t)gridDim.x * BK_THREADS,
                  mine = (int64_t)blockIdx.x * BK_THREADS + threadIdx.x;
    for (int i = 0; i < n; i++) {
        const int64_t shift = (int64_t)i * 1024 % count; /* as in read_words */
#pragma unroll 8
        for (int64_t j = mine; j < count; j += step) {
            const float4 v = __ldcg(&p[j + shift < count ? j + shift : j + shift - count]);
            sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
        }
    }
    out[mine] = sum.x + sum.y + sum.z + sum.w;
}
__global__ void fill_global_ring(int *p, int count, int step) {
    for (int j = (int)(blockIdx.x * blockDim.x + threadIdx.x); j < count;
         j += (int)(gridDim.x * blockDim.x))
        p[j] = (int)(((int64_t)j + step) % count);
}
/* Goes on where the last launch ended, because the words that it read are in a cache now. */
__global__ void walk_global(const int *p, int n, int *from) {
    int at = *from;
    for (int i = 0; i < n; i++) at = __ldcg(&p[at]);
    *from = at;
}

__global__ void __launch_bounds__(BK_THREADS) multiply_adds(int n, float *out) {
    float x[8];
    for (int j = 0; j < 8; j++) x[j] = (float)(threadIdx.x + j);
#pragma unroll 4
    for (int i = 0; i < n; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) x[j] = __fmaf_rn(x[j], 0.999f, 0.5f);
    float sum = 0;
    for (int j = 0; j < 8; j++) sum += x[j];
    out[blockIdx.x * BK_THREADS + threadIdx.x] = sum;
}
/* In place in global memory; each block has its own part. */
__global__ void __launch_bounds__(BK_THREADS) operations(float *x, int n) {
    x += (int64_t)blockIdx.x * ELEMENTS;
    for (int i = 0; i < n; i++)
#pragma unroll 4
        for (int j = threadIdx.x; j < ELEMENTS; j += BK_THREADS)
            x[j] = __fmaf_rn(x[j], 0.999f, 0.5f);
}
__global__ void __launch_bounds__(BK_THREADS) functions(float *x, int n) {
    x += (int64_t)blockIdx.x * ELEMENTS;
    for (int i = 0; i < n; i++)
#pragma unroll 4
        for (int j = threadIdx.x; j < ELEMENTS; j += BK_THREADS) x[j] = bk_tanhf(x[j] + 1);
}
/* A step of a recurrent layer of 256 as it is emitted (codegen/emit/gpu/dots.c): all units' last
 * outputs come from L2 into the block's memory, where two columns of weights for each of four gates
 * have been from the beginning; a warp makes a sum; two threads compute the gates and write. With
 * `grid` all blocks meet behind each step, else a block reads what it wrote itself. */
#define WIDE 256
__global__ void __launch_bounds__(BK_THREADS)
    resident_steps(bk_ctx *run, float *x, int n, bool grid) {
    bk_ctx *k = bk_begin(run);
    const int unit = (int)blockIdx.x, lane = (int)threadIdx.x % 32, sum = (int)threadIdx.x / 32;
    float *const w = (float *)(bk_shared() + BK_SHARED_OWN), *const in = w + 8 * WIDE,
                 *const sums = in + WIDE;
    if (!grid) x += (int64_t)unit * 2 * WIDE;
    for (int i = threadIdx.x; i < 8 * WIDE; i += BK_THREADS) w[i] = 1e-3f * (float)(i % 7);
    for (int i = 0; i < n; i++) {
        const float *const now = x + i % 2 * WIDE;
        float *const next = x + (1 - i % 2) * WIDE;
        bk_block();
        for (int at = bk_thread(); at < WIDE / 4; at += bk_threads())
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
            bk_copy4((float4 *)in + at, now + 4 * at, true, true);
#else
            ((float4 *)in)[at] = ((const float4 *)now)[at];
#endif
        bk_copied();
        bk_block();
        float acc = 0;
        BK_UNROLL for (int at = 0; at < WIDE / 4; at += 32) acc = bk_dot4(
            ((const float4 *)w)[sum * WIDE / 4 + at + lane], ((const float4 *)in)[at + lane], acc);
        acc = bk_team_sum(acc);
        if (lane == 0) sums[sum] = acc;
        bk_block();
        if (threadIdx.x < 2) {
            const float *const s = sums + threadIdx.x;
            const float c =
                bk_sigmoidf(s[0]) * in[threadIdx.x] + bk_sigmoidf(s[2]) * bk_tanhf(s[4]);
            next[(unit * 2 + (int)threadIdx.x) % WIDE] = bk_sigmoidf(s[6]) * bk_tanhf(c);
        }
        if (grid)
            bk_barrier(k, unit);
        else
            __threadfence();
    }
    bk_end();
}
/* x = f(x), n times: what waits for a function waits so long. */
struct F_fma {
    static __device__ float of(float x) { return __fmaf_rn(x, 0.999f, 0.5f); }
};
struct F_exp {
    static __device__ float of(float x) { return bk_expf(-x); }
};
struct F_sigmoid {
    static __device__ float of(float x) { return bk_sigmoidf(x); }
};
struct F_tanh {
    static __device__ float of(float x) { return bk_tanhf(x + 1); }
};
struct F_division {
    static __device__ float of(float x) { return 1.5f / (x + 1); }
};
struct F_root {
    static __device__ float of(float x) { return sqrtf(x + 1); }
};
template <typename F> __global__ void chain(int n, float *out) {
    float x = out[threadIdx.x];
    for (int i = 0; i < n; i++) x = F::of(x);
    out[threadIdx.x] = x;
}
/* A store, and a fence behind it. */
__global__ void fences(int n, float *out) {
    for (int i = 0; i < n; i++) {
        BK_LOOK(float, out + threadIdx.x) = (float)i;
        bk_fence();
    }
}

/* ---- the host's part ---- */
static cudaDeviceProp card;
static cudaStream_t stream;
static float *scratch; /* device memory for what the threads of the largest grid here write */
static const char *path;
static std::string problem; /* of the current measurement */

struct Number {
    std::string name, unit, about, problem;
    double value;
    std::string cost; /* the name in the device's row, or ""; there it is value * factor */
    double factor;
};
static std::vector<Number> numbers;

static bool good(cudaError_t e, const char *what) {
    if (e == cudaSuccess) return true;
    if (problem.empty()) problem = std::string(what) + ": " + cudaGetErrorString(e);
    cudaGetLastError();
    return false;
}

static void put_text(FILE *f, const std::string &s) {
    fputc('"', f);
    for (char c : s)
        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else
            fputc((unsigned char)c < ' ' ? ' ' : c, f);
    fputc('"', f);
}

static int attribute(cudaDeviceAttr a) {
    int v = 0;
    cudaDeviceGetAttribute(&v, a, 0);
    return v;
}

static void save(void) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    const std::string part = std::string(path) + ".part";
    FILE *f = fopen(part.c_str(), "w");
    if (!f) {
        perror(part.c_str());
        exit(1);
    }
    fprintf(f, "{\"name\": ");
    put_text(f, card.name);
    fprintf(f,
            ",\n \"target\": \"cuda:sm_%d%d\", \"driver\": \"%d.%d\", \"multiprocessors\": %d, "
            "\"clock_mhz\": %d, "
            "\"memory_bytes\": %lld, \"l2_bytes\": %d, \"shared_bytes\": %lld,\n \"measured\": [",
            card.major, card.minor, driver / 1000, driver % 1000 / 10, card.multiProcessorCount,
            attribute(cudaDevAttrClockRate) / 1000, (long long)card.totalGlobalMem,
            card.l2CacheSize, (long long)card.sharedMemPerBlockOptin);
    int n = 0;
    for (const Number &k : numbers) {
        fprintf(f, "%s\n  {\"name\": \"%s\", \"unit\": \"%s\", \"value\": ", n++ ? "," : "",
                k.name.c_str(), k.unit.c_str());
        if (k.problem.empty())
            fprintf(f, "%.6g", k.value);
        else
            fprintf(f, "null, \"problem\": "), put_text(f, k.problem);
        fprintf(f, ", \"about\": ");
        put_text(f, k.about);
        fprintf(f, "}");
    }
    fprintf(f, "],\n \"costs\": {\"team_bytes\": %d", card.l2CacheSize);
    for (const Number &k : numbers)
        if (!k.cost.empty() && k.problem.empty())
            fprintf(f, ", \"%s\": %.6g", k.cost.c_str(), k.value * k.factor);
    fprintf(f, "}}\n");
    if (fclose(f) || rename(part.c_str(), path)) {
        perror(path);
        exit(1);
    }
}

/* Makes a measurement and saves it. `cost` and `factor`: see Number. */
static void measure(const char *name, const char *unit, const char *about,
                    const std::function<double()> &by, const char *cost = "", double factor = 1) {
    problem.clear();
    const double value = by();
    good(cudaDeviceSynchronize(), "afterwards");
    if (problem.empty() && !(value > 0 && value < 1e15)) problem = "no plausible value";
    numbers.push_back({name, unit, about, problem, value, cost, factor});
    if (problem.empty())
        printf("%-26s %12.5g %s\n", name, value, unit);
    else
        printf("%-26s failed: %s\n", name, problem.c_str());
    fflush(stdout);
    save();
}

/* The shape of a launch. */
struct Shape {
    int blocks, threads = BK_THREADS;
    size_t shared = 0;
    bool cooperative = false; /* all blocks run at once */
    int cluster = 0;          /* blocks of a cluster, 0: no clusters */
};
static cudaLaunchConfig_t configure(const Shape &s, cudaLaunchAttribute a[2]) {
    cudaLaunchConfig_t c = {};
    c.gridDim = dim3((unsigned)s.blocks);
    c.blockDim = dim3((unsigned)s.threads);
    c.dynamicSmemBytes = s.shared;
    c.stream = stream;
    c.attrs = a;
    if (s.cooperative) {
        a[c.numAttrs].id = cudaLaunchAttributeCooperative;
        a[c.numAttrs++].val.cooperative = 1;
    }
    if (s.cluster) {
        a[c.numAttrs].id = cudaLaunchAttributeClusterDimension;
        a[c.numAttrs].val.clusterDim.x = (unsigned)s.cluster;
        a[c.numAttrs].val.clusterDim.y = a[c.numAttrs].val.clusterDim.z = 1;
        c.numAttrs++;
    }
    return c;
}
template <typename... P, typename... A>
static bool launch(const Shape &s, void (*kernel)(P...), A... arguments) {
    cudaLaunchAttribute a[2];
    const cudaLaunchConfig_t c = configure(s, a);
    return good(cudaLaunchKernelEx(&c, kernel, static_cast<P>(arguments)...), "launch");
}

/* The device's ns from the beginning of the work to its end: the least of several runs. */
static double time_of(const std::function<bool()> &work) {
    cudaEvent_t begin, end;
    double least = 1e30;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    for (int i = 0; i < RUNS && problem.empty(); i++) {
        float ms = 0;
        cudaEventRecord(begin, stream);
        if (!work()) break;
        cudaEventRecord(end, stream);
        if (!good(cudaEventSynchronize(end), "run")) break;
        cudaEventElapsedTime(&ms, begin, end);
        if (i > 0 && ms * 1e6 < least) least = ms * 1e6;
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return least;
}
/* The ns of doing it once, from doing it `few` and `many` times. */
static double each(int few, int many, const std::function<bool(int)> &work) {
    const double a = time_of([&] { return work(few); });
    const double b = problem.empty() ? time_of([&] { return work(many); }) : 0;
    return (b - a) / (many - few);
}
/* The host's ns from the beginning of the work to the end of the wait. */
static double wall(int times, const std::function<bool()> &work) {
    double least = 1e30;
    for (int i = 0; i < times && problem.empty(); i++) {
        const auto begin = std::chrono::steady_clock::now();
        if (!work() || !good(cudaStreamSynchronize(stream), "run")) break;
        const std::chrono::duration<double, std::nano> t = std::chrono::steady_clock::now() - begin;
        if (t.count() < least) least = t.count();
    }
    return least;
}

/* The context that a host text gives a compiled program, for grids of up to so many blocks. */
static bk_ctx *make_run(int blocks) {
    bk_ctx host = {}, *run = nullptr;
    unsigned *words = nullptr;
    const size_t bytes = BK_WORDS_BYTES(blocks);
    if (!good(cudaMalloc(&words, bytes), "memory") ||
        !good(cudaMalloc(&run, sizeof *run), "memory"))
        return nullptr;
    cudaMemset(words, 0, bytes);
    host.words = words;
    cudaMemcpy(run, &host, sizeof host, cudaMemcpyHostToDevice);
    return run;
}

/* ---- launches ---- */
/* The ns of a node in a chain of empty kernels. */
static double graph_node(void) {
    const int sizes[2] = {100, 1100};
    double t[2] = {0, 0};
    for (int i = 0; i < 2 && problem.empty(); i++) {
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t made = nullptr;
        good(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
        for (int k = 0; k < sizes[i]; k++) launch({1, 32}, nothing);
        good(cudaStreamEndCapture(stream, &graph), "capture");
        if (problem.empty() && good(cudaGraphInstantiate(&made, graph, 0), "graph"))
            t[i] = time_of([&] { return good(cudaGraphLaunch(made, stream), "graph"); });
        if (made) cudaGraphExecDestroy(made);
        if (graph) cudaGraphDestroy(graph);
    }
    return (t[1] - t[0]) / (sizes[1] - sizes[0]);
}

static void launches(int cores) {
    measure("launch", "ns", "an empty kernel behind another in a stream", [] {
        return each(50, 550, [](int n) {
            bool ok = true;
            for (int i = 0; i < n && ok; i++) ok = launch({1, 32}, nothing);
            return ok;
        });
    });
    measure("launch_cooperative", "ns", "the same, cooperative, a block on each multiprocessor",
            [=] {
                return each(50, 550, [=](int n) {
                    bool ok = true;
                    for (int i = 0; i < n && ok; i++)
                        ok = launch({cores, BK_THREADS, 0, true}, nothing);
                    return ok;
                });
            });
    measure(
        "launch_and_wait", "ns", "an empty kernel, until the host knows that it is done",
        [] { return wall(200, [] {
                 return launch({1, 32}, nothing);
             }); }, "host_barrier_ns");
    measure("graph_node", "ns", "an empty kernel behind another in a CUDA graph", graph_node);
}

/* ---- barriers ---- */
static void barriers(int cores) {
    const int few = 100, many = 2100;
    measure(
        "block_barrier", "ns", "256 threads of a block",
        [=] { return each(few, many, [=](int n) { return launch({cores}, block_barriers, n); }); },
        "core_barrier_ns");
    measure("flag_round_trip", "ns", "a block writes a word, another one sees it and answers", [=] {
        line_word *words = nullptr;
        unsigned base = 0;
        if (!good(cudaMalloc(&words, 2 * sizeof *words), "memory")) return 0.0;
        cudaMemset(words, 0, 2 * sizeof *words);
        const double t = each(few, many, [&](int n) {
            const bool ok = launch({2, 32, 0, true}, round_trips, words, n, base);
            base += (unsigned)n;
            return ok;
        });
        cudaFree(words);
        return t;
    });
    bk_ctx *run = make_run(2 * cores);
    auto grid = [=](void (*kernel)(bk_ctx *, int), int blocks) {
        return each(few, many, [=](int n) {
            return launch({blocks, BK_THREADS, BK_SHARED_OWN, true}, kernel, run, n);
        });
    };
    auto synced = [=](int blocks) {
        return each(few, many, [=](int n) {
            return launch({blocks, BK_THREADS, 0, true}, grid_syncs, n);
        });
    };
    measure(
        "grid_barrier", "ns", "ours, of one hop, a block on each multiprocessor",
        [=] { return grid(grid_barriers, cores); }, "team_barrier_ns");
    measure("recurrent_step", "ns",
            "a layer of 256 with weights on chip, as emitted, and the grid's barrier", [=] {
                return each(few, many, [=](int n) {
                    return launch({cores, BK_THREADS, BK_SHARED_BYTES, true}, resident_steps, run,
                                  scratch, n, true);
                });
            });
    measure("grid_barrier_2", "ns", "ours, two blocks on each",
            [=] { return grid(grid_barriers, 2 * cores); });
    measure("grid_barrier_16", "ns", "ours, 16 blocks", [=] { return grid(grid_barriers, 16); });
    measure("grid_flags", "ns", "ours, of two hops: one waits for all, then all for it",
            [=] { return grid(grid_flags, cores); });
    measure("grid_sync", "ns", "cooperative groups, a block on each multiprocessor",
            [=] { return synced(cores); });
    measure("grid_sync_2", "ns", "cooperative groups, two blocks on each",
            [=] { return synced(2 * cores); });
}

static void clusters(void) {
    const int few = 100, many = 2100, size = 8;
    if (card.major < 9) return;
    int at_once = 0;
    measure("clusters_at_once", "", "clusters of 8 that run at the same time", [&] {
        cudaLaunchAttribute a[2];
        const cudaLaunchConfig_t c = configure({size, BK_THREADS, BK_SHARED_OWN, false, size}, a);
        good(cudaOccupancyMaxActiveClusters(&at_once, grid_barriers, &c), "occupancy");
        return (double)at_once;
    });
    const int blocks = at_once ? at_once * size : size;
    bk_ctx *run = make_run(blocks);
    auto met = [=](void (*kernel)(bk_ctx *, int), Shape shape) {
        return each(few, many, [=](int n) { return launch(shape, kernel, run, n); });
    };
    measure(
        "cluster_barrier", "ns", "ours, a cluster of 8",
        [=] {
            return met(cluster_barriers, {size, BK_THREADS, BK_SHARED_OWN, false, size});
        },
        "cluster_barrier_ns");
    measure("grid_barrier_clusters", "ns",
            "ours of the grid, in as many clusters of 8 as run at once", [=] {
                return met(grid_barriers, {blocks, BK_THREADS, BK_SHARED_OWN, true, size});
            });
    good(cudaFuncSetAttribute(cluster_syncs, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
         "clusters of 16");
    for (int n = 2; n <= 16; n *= 2)
        measure(("cluster_sync_" + std::to_string(n)).c_str(), "ns",
                "cooperative groups, a cluster of so many", [=] {
                    return each(few, many, [=](int i) {
                        return launch({n, BK_THREADS, 0, false, n}, cluster_syncs, i);
                    });
                });
    measure("cluster_arrivals", "ns", "a cluster of 8 by mbarriers at which all blocks arrive",
            [=] {
                return each(few, many, [=](int n) {
                    return launch({size, BK_THREADS, 0, false, size}, cluster_arrivals, n);
                });
            });
    const double bytes = 16.0 * WORDS;
    measure(
        "cluster_read", "GB/s",
        "shared memory of another block of a cluster of 8, by one multiprocessor",
        [=] {
            return bytes / each(few, many, [=](int n) {
                       return launch({blocks, BK_THREADS, 0, false, size}, read_cluster, n,
                                     scratch);
                   });
        },
        "cluster_gbps");
    measure(
        "cluster_latency", "ns", "a word of another block's shared memory",
        [=] {
            return each(few, many, [=](int n) {
                return launch({size, BK_THREADS, 0, false, size}, walk_cluster, n, scratch);
            });
        },
        "cluster_load_ns");
}

/* ---- memory ---- */
static void memory(int cores) {
    const int few = 100, many = 2100, blocks = 8 * cores;
    const double bytes = 16.0 * WORDS;
    measure(
        "shared_read", "GB/s", "shared memory, by one multiprocessor",
        [=] {
            return bytes /
                   each(few, many, [=](int n) { return launch({cores}, read_shared, n, scratch); });
        },
        "core_gbps");
    measure(
        "shared_latency", "ns", "a word of shared memory",
        [=] {
            return each(few, many, [=](int n) { return launch({1}, walk_shared, n, scratch); });
        },
        "core_load_ns");
    size_t room = 0, total = 0;
    cudaMemGetInfo(&room, &total);
    const size_t large = room / 2 < (size_t)1 << 30 ? room / 2 : (size_t)1 << 30,
                 small = (size_t)card.l2CacheSize / 4;
    char *buffer = nullptr;
    problem.clear();
    if (!good(cudaMalloc(&buffer, large), "memory")) printf("%s\n", problem.c_str());
    cudaMemset(buffer, 0, large);
    auto rate = [=](size_t size, int few, int many) {
        const int64_t count = (int64_t)(size / 16);
        return 16.0 * (double)count / each(few, many, [=](int n) {
                   return launch({blocks}, read_global, (const float4 *)buffer, count, n, scratch);
               });
    };
    auto latency = [=](size_t size, int step) {
        const int count = (int)(size / 4);
        int *from = (int *)scratch;
        cudaMemset(from, 0, sizeof *from);
        if (!launch({blocks}, fill_global_ring, (int *)buffer, count, step)) return 0.0;
        return each(1000, 5000, [=](int n) {
            return launch({1, 1}, walk_global, (const int *)buffer, n, from);
        });
    };
    measure(
        "l2_read", "GB/s", "a quarter of L2, by all multiprocessors",
        [=] { return rate(small, 20, 220); }, "team_gbps", 1.0 / cores);
    measure(
        "l2_latency", "ns", "a word in L2", [=] { return latency((size_t)1 << 20, 33 * 32 + 1); },
        "load_ns");
    measure(
        "memory_read", "GB/s", "memory, by all multiprocessors", [=] { return rate(large, 2, 6); },
        "dram_gbps", 1.0 / cores);
    measure("memory_latency", "ns", "a word in memory",
            [=] { return latency(large, 1048573 * 33); });
    cudaFree(buffer);
}

/* ---- computing ---- */
static void computing(int cores) {
    const int blocks = 8 * cores;
    measure(
        "multiply_add", "GFLOP/s", "float32, by all multiprocessors",
        [=] {
            return 2.0 * 8 * BK_THREADS * blocks / each(1000, 9000, [=](int n) {
                       return launch({blocks}, multiply_adds, n, scratch);
                   });
        },
        "gflops", 0.5 / cores); /* the row has what products reach: half of the peak */
    cudaMemset(scratch, 0, (size_t)cores * ELEMENTS * sizeof *scratch);
    measure(
        "operation", "ns", "a multiply-add of an element near a block, by one block",
        [=] {
            return each(10, 210, [=](int n) { return launch({cores}, operations, scratch, n); }) /
                   ELEMENTS;
        },
        "element_ns");
    measure(
        "function", "ns", "our tanh of an element near a block, by one block",
        [=] {
            return each(10, 210, [=](int n) { return launch({cores}, functions, scratch, n); }) /
                   ELEMENTS;
        },
        "function_ns");
    bk_ctx *run = make_run(cores);
    measure(
        "group", "ns",
        "a layer of 256 with weights on chip, as emitted, without the grid's barrier",
        [=] {
            return each(100, 2100, [=](int n) {
                return launch({cores, BK_THREADS, BK_SHARED_BYTES, true}, resident_steps, run,
                              scratch, n, false);
            });
        },
        "group_ns");
    auto waits = [](const char *name, const char *about, void (*kernel)(int, float *)) {
        measure(name, "ns", about, [=] {
            return each(100, 2100, [=](int n) { return launch({1, 32}, kernel, n, scratch); });
        });
    };
    waits("multiply_add_latency", "what waits for a multiply-add", chain<F_fma>);
    waits("exp_latency", "for our exp", chain<F_exp>);
    waits("sigmoid_latency", "for our sigmoid", chain<F_sigmoid>);
    waits("tanh_latency", "for our tanh", chain<F_tanh>);
    waits("division_latency", "for a division", chain<F_division>);
    waits("root_latency", "for a square root", chain<F_root>);
    waits("fence", "a store by a warp, and our fence behind it", fences);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: machine FILE.json\n");
        return 2;
    }
    path = argv[1];
    if (!good(cudaGetDeviceProperties(&card, 0), "no GPU") ||
        !good(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "no stream") ||
        !good(cudaMalloc(&scratch, (size_t)card.multiProcessorCount * ELEMENTS * sizeof *scratch),
              "no memory")) {
        fprintf(stderr, "machine: %s\n", problem.c_str());
        return 1;
    }
    const int cores = card.multiProcessorCount;
    cudaMemset(scratch, 0, (size_t)cores * ELEMENTS * sizeof *scratch);
    printf("%s, sm_%d%d, %d multiprocessors\n", card.name, card.major, card.minor, cores);
    /* Until the clocks have risen. */
    wall(300, [=] { return launch({8 * cores}, multiply_adds, 20000, scratch); });
    launches(cores);
    barriers(cores);
    memory(cores);
    computing(cores);
    clusters();
    int failed = 0;
    for (const Number &k : numbers) failed += !k.problem.empty();
    printf("%d measured, %d failed\n", (int)numbers.size() - failed, failed);
    return failed ? 1 : 0;
}
