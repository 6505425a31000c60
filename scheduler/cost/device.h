/* device.h: what the scheduler knows of a device: one table row, with measured numbers where there
 * are any. A level that is absent on a device has no name. */
#ifndef BRAID_DEVICE_H
#define BRAID_DEVICE_H

#include "base/base.h"
#include "utask/level.h"

/* Whose programs a device runs: what the text goes through, and which memory its tensors lie in. */
typedef enum Backend {
    BACKEND_C,
    BACKEND_PLAIN,
    BACKEND_CUDA,
    BACKEND_HIP,
    BACKEND_EMULATED
} Backend;

typedef struct DeviceLevel {
    const char *name;  /* NULL: the device has no such level */
    int units;         /* of the level below that make up one of this; 0: as many as a run has */
    double barrier_ns; /* all of these units synchronize once */
    int64_t bytes;    /* memory that stays near one unit of this level: L1, L2 of a core, the shared
                         cache; on GPUs    registers of a thread, shared memory of a block, L2 */
    double read_gbps; /* from that memory, by one unit of the level */
} DeviceLevel;

typedef struct Device {
    const char *name; /* of the target: "cpu", "cuda:sm_90" */
    Backend backend;
    DeviceLevel level[LEVEL_COUNT];
    double gflops;      /* float32 multiply-adds of one core in products, counted as two */
    double dram_gbps;   /* by one core */
    double element_ns;  /* one simple operation on one element, vectorized, from L1 */
    double function_ns; /* an expensive one: exp, tanh, division */
    double scalar_ns;   /* the same where lanes cannot be used */
    double group_ns;    /* a group begins and ends */
    /* On GPUs, what a thread waits for: a load from memory, from another block's of the cluster,
     * from its block's; an exchange between lanes; a clock cycle, in which a warp begins an
     * instruction; the time until one begins that depends on it; and, where there are matrix units,
     * a product of 64 bytes of each line behind another. 0: not a GPU. */
    double load_ns, cluster_load_ns, core_load_ns, shuffle_ns, cycle_ns, depend_ns, matrix_ns;
    int units;   /* cores of the device; 0: as many as the process may use */
    int lanes;   /* of a vector of float32; 0: as many as the processor has */
    int threads; /* that share a core's work, a block of them; 0: a core runs one thread by lanes */
    int warp;    /* threads that step together */
    uint32_t
        matrix; /* 1 << DType of operands that a warp's matrix units multiply, adding in float32 */
    int matrix_rows; /* lines of one operand that they take at once; of the other 16 */
    bool async;      /* threads go on while what they copy to the block's memory is on its way */
    bool measured;   /* on such a device, not from the table */
} Device;

/* A number of a row that can be measured. */
typedef struct DeviceNumber {
    const char *name; /* "team_barrier_ns": as files and the store have it */
    size_t at;        /* in a Device */
    bool whole;       /* int64_t, else double */
} DeviceNumber;

/* Measured numbers further from the table's, by this factor, are not believed. */
#define DEVICE_FACTOR 20

/* A core is a block of threads, which has memory of its own, and all of them are a grid. */
static inline bool device_is_gpu(const Device *d) { return d->threads > 0; }
/* Bytes of a block's memory that the dialect keeps: BK_SHARED_OWN of codegen/text/gpu/ctx.inc. */
#define SHARED_OWN 512
/* How many of so many units a grid of clusters gets at least: the processors of a part of the chip
 * that are left over when it is full of clusters stay idle (an H100 of 132 has 120 to 128 in
 * clusters of 8). */
static inline int device_clustered(const Device *d, int units) {
    const int cluster = d->level[LEVEL_CLUSTER].units;
    return cluster > 1 && units > cluster ? (units - units / 16) / cluster * cluster : units;
}
/* Blocks of a cluster, which reach each other's memory; 0: there are no clusters. */
static inline int device_cluster(const Device *d) {
    return d->level[LEVEL_CLUSTER].name ? d->level[LEVEL_CLUSTER].units : 0;
}
/* Bandwidth of the nearest memory that holds so many bytes of one unit. */
double device_gbps(const Device *d, double bytes);
/* The row of target `name`, or NULL. */
const Device *device_find(const char *name);
/* Row i, in order; NULL after the last. */
const Device *device_at(int i);

/* Number i, in order; NULL after the last. A row has those that are not 0 in it. */
const DeviceNumber *device_number(int i);
const DeviceNumber *device_number_find(const char *name);
double device_get(const Device *d, const DeviceNumber *n);
void device_set(Device *d, const DeviceNumber *n, double value);

#endif
