/* device.c: the devices, one row each. The numbers of a row are those of a common one of its kind.
 */
#include "scheduler/cost/device.h"

#define HALF (1 << DT_F16)
#define BRAIN (1 << DT_BF16)
#define TF32 (1 << DT_F32)
#define ALL (HALF | BRAIN | TF32)

/* A GPU: name, cores, warp, blocks of a cluster, types and rows of its matrix units, GB/s of its
 * memory, TFLOP/s of all cores, KB of shared memory of a block, MB of L2, ns of a grid barrier.
 * Sources: the vendors' data sheets; barriers: a store travels to L2 and a load brings it, behind a
 * fence: counted from published latencies (eval/gpu/README.md), as is a cluster's. Clusters of 8
 * are the largest that every chip has. Products are expected to reach half of the peak: few blocks
 * must not look as good as many where there is much to compute. */
/* What a thread waits for (codegen/emulate/count.cc says where these are from): with warps of 32 as
 * on an H100, of 64 as on an MI250X. */
#define WAITS(WARP)                                                                                \
    .load_ns = (WARP) == 64 ? 290 : 150, .cluster_load_ns = 103,                                   \
    .core_load_ns = (WARP) == 64 ? 38 : 16.5, .shuffle_ns = (WARP) == 64 ? 30 : 13,                \
    .cycle_ns = (WARP) == 64 ? 2.4 : 0.57, .depend_ns = (WARP) == 64 ? 4.7 : 2.28,                 \
    .matrix_ns = (WARP) == 64 ? 38 : 19
#define GPU(BACKEND, NAME, CORES, WARP, CLUSTER, MATRIX, ROWS, DRAM, TFLOPS, SHARED, L2, BARRIER)  \
    {                                                                                              \
        .name = NAME, .backend = BACKEND,                                                          \
        .level = {[LEVEL_LANE] = {"thread", 1, 0, 1024, 400},                                      \
                  [LEVEL_CORE] = {"block", 256, (WARP) == 64 ? 24 : 12, (int64_t)((SHARED)*1024),  \
                                  200},                                                            \
                  [LEVEL_CLUSTER] = {(CLUSTER) ? "cluster" : NULL, CLUSTER, 200,                   \
                                     (int64_t)((SHARED) * (CLUSTER)*1024), 100},                   \
                  [LEVEL_TEAM] = {"grid", 0, BARRIER, (int64_t)(L2) << 20,                         \
                                  4.0 * (DRAM) / (CORES)},                                         \
                  [LEVEL_HOST] = {"host", 1, 5000, 0, 0}},                                         \
        .gflops = 500.0 * (TFLOPS) / (CORES), .dram_gbps = 1.0 * (DRAM) / (CORES),                 \
        .element_ns = 0.01, .function_ns = 0.05, .scalar_ns = 0.05, .group_ns = 300, WAITS(WARP),  \
        .units = CORES, .lanes = 1, .threads = 256, .warp = WARP, .matrix = MATRIX,                \
        .matrix_rows = ROWS, .async = (MATRIX) == ALL /* both since sm_80 */                       \
    }

/* Chips that the emulator stands for, too. */
#define SM_90(BACKEND, NAME) GPU(BACKEND, NAME, 132, 32, 8, ALL, 8, 3350, 66.9, 227, 50, 600)
#define GFX90A(BACKEND, NAME)                                                                      \
    GPU(BACKEND, NAME, 104, 64, 0, HALF | BRAIN, 16, 1638, 23.9, 64, 8, 1100)

/* The emulator: as large as the chip that it stands for, to count what a model does there; or
 * small, so that its tests are quick and every kind of unit synchronizes with every other. */
#define EMULATED(NAME, BLOCKS, THREADS, WARP, CLUSTER, MATRIX, ROWS)                               \
    {                                                                                              \
        .name = NAME, .backend = BACKEND_EMULATED,                                                 \
        .level = {[LEVEL_LANE] = {"thread", 1, 0, 1024, 400},                                      \
                  [LEVEL_CORE] = {"block", THREADS, 20, 48 << 10, 200},                            \
                  [LEVEL_CLUSTER] = {(CLUSTER) ? "cluster" : NULL, CLUSTER, 40,                    \
                                     (CLUSTER) * (48 << 10), 100},                                 \
                  [LEVEL_TEAM] = {"grid", 0, 200, 1 << 20, 50},                                    \
                  [LEVEL_HOST] = {"host", 1, 5000, 0, 0}},                                         \
        .gflops = 60, .dram_gbps = 25, .element_ns = 0.04, .function_ns = 0.2, .scalar_ns = 0.2,   \
        .group_ns = 100, WAITS(WARP), .units = BLOCKS, .lanes = 1, .threads = THREADS,             \
        .warp = WARP, .matrix = MATRIX, .matrix_rows = ROWS, .async = (MATRIX) == ALL              \
    }

static const Device devices[] = {
    {.name = "cpu",
     .level = {[LEVEL_LANE] = {"lane", 1, 0, 32 << 10, 200},
               [LEVEL_CORE] = {"core", 16, 0, 1 << 20, 80},
               [LEVEL_TEAM] = {"team", 0, 250, 16 << 20, 25},
               [LEVEL_HOST] = {"host", 1, 20000, 0, 0}},
     .gflops = 100,
     .dram_gbps = 12,
     .element_ns = 0.06,
     .function_ns = 0.8,
     .scalar_ns = 1,
     .group_ns = 12},
    {.name = "plain",
     .backend = BACKEND_PLAIN,
     .level = {[LEVEL_LANE] = {"lane", 1, 0, 32 << 10, 25},
               [LEVEL_CORE] = {"core", 1, 0, 1 << 20, 25},
               [LEVEL_TEAM] = {"team", 1, 0, 16 << 20, 12},
               [LEVEL_HOST] = {"host", 1, 20000, 0, 0}},
     .gflops = 3,
     .dram_gbps = 12,
     .element_ns = 0.5,
     .function_ns = 8,
     .scalar_ns = 1,
     .group_ns = 12,
     .units = 1,
     .lanes = 1},
    GPU(BACKEND_CUDA, "cuda:sm_75", 40, 32, 0, HALF, 8, 320, 8.1, 64, 4, 700),
    GPU(BACKEND_CUDA, "cuda:sm_80", 108, 32, 0, ALL, 8, 1555, 19.5, 163, 40, 650),
    GPU(BACKEND_CUDA, "cuda:sm_86", 82, 32, 0, ALL, 8, 936, 35.6, 99, 6, 650),
    GPU(BACKEND_CUDA, "cuda:sm_89", 128, 32, 0, ALL, 8, 1008, 82.6, 99, 72, 600),
    SM_90(BACKEND_CUDA, "cuda:sm_90"),
    GPU(BACKEND_CUDA, "cuda:sm_100", 148, 32, 8, ALL, 8, 8000, 74.5, 227, 126, 650),
    GPU(BACKEND_HIP, "hip:gfx908", 120, 64, 0, HALF | BRAIN, 16, 1229, 23.1, 64, 8, 1100),
    GFX90A(BACKEND_HIP, "hip:gfx90a"),
    GPU(BACKEND_HIP, "hip:gfx1030", 40, 32, 0, 0, 0, 512, 20.7, 64, 4, 900),
    SM_90(BACKEND_EMULATED, "emulate:sm_90"),
    GFX90A(BACKEND_EMULATED, "emulate:gfx90a"),
    EMULATED("emulate:cuda", 4, 64, 32, 2, ALL, 8),
    EMULATED("emulate:hip", 3, 128, 64, 0, HALF | BRAIN, 16),
};

double device_gbps(const Device *d, double bytes) {
    for (int l = LEVEL_LANE; l <= LEVEL_TEAM; l++)
        if (d->level[l].name && bytes <= (double)d->level[l].bytes) return d->level[l].read_gbps;
    return d->dram_gbps;
}

const Device *device_at(int i) { return i >= 0 && i < (int)COUNT(devices) ? &devices[i] : NULL; }

const Device *device_find(const char *name) {
    for (size_t i = 0; i < COUNT(devices); i++)
        if (strcmp(devices[i].name, name) == 0) return &devices[i];
    return NULL;
}

/* ---- the numbers of a row -------------------------------------------------------------------- */
#define REAL(field)                                                                                \
    { #field, offsetof(Device, field), false }
#define LEVEL(name, l)                                                                             \
    {name "_barrier_ns", offsetof(Device, level[l].barrier_ns), false},                            \
        {name "_bytes", offsetof(Device, level[l].bytes), true}, {                                 \
        name "_gbps", offsetof(Device, level[l].read_gbps), false                                  \
    }

static const DeviceNumber numbers[] = {
    LEVEL("lane", LEVEL_LANE),
    LEVEL("core", LEVEL_CORE),
    LEVEL("cluster", LEVEL_CLUSTER),
    LEVEL("team", LEVEL_TEAM),
    LEVEL("host", LEVEL_HOST),
    REAL(gflops),
    REAL(dram_gbps),
    REAL(element_ns),
    REAL(function_ns),
    REAL(scalar_ns),
    REAL(group_ns),
    REAL(load_ns),
    REAL(cluster_load_ns),
    REAL(core_load_ns),
    REAL(shuffle_ns),
    REAL(cycle_ns),
    REAL(depend_ns),
    REAL(matrix_ns),
};

const DeviceNumber *device_number(int i) {
    return i >= 0 && i < (int)COUNT(numbers) ? &numbers[i] : NULL;
}

const DeviceNumber *device_number_find(const char *name) {
    for (size_t i = 0; i < COUNT(numbers); i++)
        if (strcmp(numbers[i].name, name) == 0) return &numbers[i];
    return NULL;
}

double device_get(const Device *d, const DeviceNumber *n) {
    const char *p = (const char *)d + n->at;
    return n->whole ? (double)*(const int64_t *)p : *(const double *)p;
}

void device_set(Device *d, const DeviceNumber *n, double value) {
    char *p = (char *)d + n->at;
    if (n->whole)
        *(int64_t *)p = (int64_t)value;
    else
        *(double *)p = value;
}
