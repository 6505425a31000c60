/* driver.h: the emulated GPU's driver, with the functions and meanings of the CUDA driver API.
 *
 * A C header. Argument order and result codes are CUDA's (CUresult as int, 0 is success). Handles
 * are opaque pointers, device addresses are uint64_t (and are addresses of this process too).
 * Everything runs when it is called, on the calling thread: a stream, an event must be valid but
 * never waits. Any number of host threads may call; launches of one library run one after the
 * other.
 *
 * All functions are hidden in the library that libbraid_emulate.a is linked into: every emulated
 * library has a device of its own.
 */
#ifndef BRAID_EMULATE_DRIVER_H
#define BRAID_EMULATE_DRIVER_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(hidden)

/* Result codes that the emulator uses. */
enum {
    EMU_SUCCESS = 0,
    EMU_INVALID_VALUE = 1,
    EMU_OUT_OF_MEMORY = 2,
    EMU_NOT_INITIALIZED = 3,
    EMU_INVALID_DEVICE = 101,
    EMU_INVALID_CONTEXT = 201,
    EMU_INVALID_HANDLE = 400,
    EMU_NOT_FOUND = 500,
    EMU_ILLEGAL_ADDRESS = 700,  /* out of bounds */
    EMU_OUT_OF_RESOURCES = 701, /* a block needs more than a multiprocessor has */
    EMU_LAUNCH_TIMEOUT = 702,   /* deadlock */
    EMU_MISALIGNED_ADDRESS = 716,
    EMU_LAUNCH_FAILED = 719, /* race, divergence, read of uninitialized memory */
    EMU_COOPERATIVE_TOO_LARGE = 720
};

/* What the first report of the calling thread's last launch said: one line, beginning with file and
 * line of the kernel's text; "" when there was none. Valid until the thread's next launch. */
const char *emu_last_report(void);

int emu_get_error_string(int error, const char **text);
int emu_get_error_name(int error, const char **text);

int emu_init(unsigned flags);
int emu_driver_get_version(int *version);
int emu_device_get_count(int *count);
int emu_device_get(int *device, int ordinal);
int emu_device_get_name(char *name, int size, int device);
/* CUDA's CUdevice_attribute numbers; EMU_INVALID_VALUE for one that the emulator has no answer to.
 */
int emu_device_get_attribute(int *value, int attribute, int device);
int emu_device_total_mem(size_t *bytes, int device);

int emu_device_primary_ctx_retain(void **context, int device);
int emu_device_primary_ctx_release(int device);
int emu_ctx_set_current(void *context);
int emu_ctx_get_current(void **context);
int emu_ctx_push_current(void *context);
int emu_ctx_pop_current(void **context);
int emu_ctx_get_device(int *device);
int emu_ctx_synchronize(void);
/* CU_LIMIT_STACK_SIZE (0) sizes the threads' stacks; other limits are accepted. */
int emu_ctx_set_limit(int limit, size_t value);
int emu_ctx_get_limit(size_t *value, int limit);

/* The kernels are linked into the library: the image is not looked at and may be NULL. */
int emu_module_load_data(void **module, const void *image);
int emu_module_unload(void *module);
/* A kernel is an extern "C" __global__ function of the text that takes one pointer. */
int emu_module_get_function(void **function, void *module, const char *name);
int emu_func_get_attribute(int *value, int attribute, void *function);
int emu_func_set_attribute(void *function, int attribute, int value);
int emu_occupancy_max_active_blocks(int *blocks, void *function, int threads, size_t shared);

int emu_mem_alloc(uint64_t *address, size_t bytes);
int emu_mem_free(uint64_t address);
int emu_mem_alloc_async(uint64_t *address, size_t bytes, void *stream);
int emu_mem_free_async(uint64_t address, void *stream);
int emu_mem_get_info(size_t *available, size_t *total);
int emu_mem_host_alloc(void **memory, size_t bytes, unsigned flags);
int emu_mem_free_host(void *memory);
int emu_memcpy_htod(uint64_t to, const void *from, size_t bytes);
int emu_memcpy_dtoh(void *to, uint64_t from, size_t bytes);
int emu_memcpy_dtod(uint64_t to, uint64_t from, size_t bytes);
int emu_memcpy_htod_async(uint64_t to, const void *from, size_t bytes, void *stream);
int emu_memcpy_dtoh_async(void *to, uint64_t from, size_t bytes, void *stream);
int emu_memcpy_dtod_async(uint64_t to, uint64_t from, size_t bytes, void *stream);
int emu_memset_d8(uint64_t to, unsigned char value, size_t count);
int emu_memset_d8_async(uint64_t to, unsigned char value, size_t count, void *stream);
int emu_memset_d32(uint64_t to, unsigned value, size_t count);
int emu_memset_d32_async(uint64_t to, unsigned value, size_t count, void *stream);

/* NULL is the default stream. */
int emu_stream_create(void **stream, unsigned flags);
int emu_stream_destroy(void *stream);
int emu_stream_synchronize(void *stream);
int emu_stream_query(void *stream);
int emu_stream_wait_event(void *stream, void *event, unsigned flags);
int emu_event_create(void **event, unsigned flags);
int emu_event_destroy(void *event);
int emu_event_record(void *event, void *stream);
int emu_event_synchronize(void *event);
int emu_event_query(void *event);
int emu_event_elapsed_time(float *milliseconds, void *start, void *end);

/* Runs blocks in waves, as many at a time as fit. `extra` must be NULL. */
int emu_launch_kernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                      void *stream, void **params, void **extra);
/* Refused (EMU_COOPERATIVE_TOO_LARGE) when not all blocks fit at once. */
int emu_launch_cooperative_kernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                  unsigned block_x, unsigned block_y, unsigned block_z,
                                  unsigned shared, void *stream, void **params);

/* As CUlaunchConfig and CUlaunchAttribute. */
enum { EMU_LAUNCH_COOPERATIVE = 2, EMU_LAUNCH_CLUSTER_DIMENSION = 4 };
typedef struct emu_launch_attribute {
    unsigned id;
    unsigned pad;
    union {
        char bytes[64];
        int cooperative;
        struct {
            unsigned x, y, z;
        } cluster;
    } value;
} emu_launch_attribute;
typedef struct emu_launch_config {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z;
    unsigned shared;
    void *stream;
    emu_launch_attribute *attribute;
    unsigned attributes;
} emu_launch_config;
/* `config`: emu_launch_config. */
int emu_launch_kernel_ex(const void *config, void *function, void **params, void **extra);
/* The largest cluster that the configuration allows; how many such clusters fit at once. */
int emu_occupancy_max_potential_cluster_size(int *size, void *function, const void *config);
int emu_occupancy_max_active_clusters(int *clusters, void *function, const void *config);

/* Capture (graph.cc): launches and products on the stream are kept instead of run; a copy there
 * fails. */
int emu_stream_begin_capture(void *stream, int mode);
int emu_stream_end_capture(void *stream, void **graph);
int emu_graph_instantiate(void **exec, void *graph, unsigned long long flags);
int emu_graph_launch(void *exec, void *stream);
int emu_graph_exec_destroy(void *exec);
int emu_graph_destroy(void *graph);

/* cuBLAS (graph.cc), as far as Braid calls it. $BRAID_EMULATE_LIBRARY: "none", no handle can be
 * made; "fails", no product can. */
int emu_blas_create(void **handle);
int emu_blas_destroy(void *handle);
int emu_blas_set_stream(void *handle, void *stream);
int emu_blas_set_workspace(void *handle, void *workspace, size_t bytes);
int emu_blas_sgemm(void *handle, int turn_a, int turn_b, int m, int n, int k, const float *alpha,
                   const float *a, int lda, const float *b, int ldb, const float *beta, float *c,
                   int ldc);
int emu_blas_sgemm_batched(void *handle, int turn_a, int turn_b, int m, int n, int k,
                           const float *alpha, const float *a, int lda, long long next_a,
                           const float *b, int ldb, long long next_b, const float *beta, float *c,
                           int ldc, long long next_c, int batch);
int emu_blas_gemm_typed(void *handle, int turn_a, int turn_b, int m, int n, int k,
                        const void *alpha, const void *a, int type_a, int lda, long long next_a,
                        const void *b, int type_b, int ldb, long long next_b, const void *beta,
                        void *c, int type_c, int ldc, long long next_c, int batch, int compute,
                        int algorithm);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
