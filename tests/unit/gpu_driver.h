/* gpu_driver.h: a stand-in for a GPU's driver (gpu_driver.c), with the names of the emulator's,
 * CUDA's and HIP's. It runs a C function as the kernel, checks what it is given, counts what is
 * alive, and fails where it is told to. */
#ifndef BRAID_TEST_GPU_DRIVER_H
#define BRAID_TEST_GPU_DRIVER_H
#include <stddef.h>
#include <stdint.h>

typedef struct GpuDriver {
    int calls;     /* since it was last set to 0 */
    int fail_at;   /* this call fails, 0: none… */
    int fail_with; /* …with this result */
    int devices;
    int capability; /* 10 * major + minor */
    const char *arch;
    int cooperative, processors, blocks; /* that fit on a multiprocessor */
    int shared;                          /* bytes that a block may have */
    int64_t room;                        /* device memory that is left */
    int busy;                            /* events are not ready, when asked without waiting */
    /* A run of the kernel with the address that it got as its argument; a result of the driver's.
     */
    int (*kernel)(void *argument, int grid);
    int alive; /* memory, modules, streams, events, held and pushed contexts */
    int waits, copies, fills, launches;
    int bad; /* calls that made no sense: other memory than what is there, no context, … */
    void *last_stream;
    int cluster;                /* blocks of the clusters of the last launch that had some */
    int graphs, graph_launches; /* that were made; and launched */
    int products, kept;         /* products that the library made, or kept in a graph */
    int no_capture, no_library, no_product; /* what fails always */
} GpuDriver;
extern GpuDriver gpu_driver;
/* A step of work: what `run` does with the copy of `data`. */
typedef struct GpuStep {
    int (*run)(const void *data);
    char data[200];
} GpuStep;
/* Does the step, or keeps it where the stream is being captured. */
int gpu_driver_step(void *stream, const GpuStep *step);
/* What every call of a library begins with: 0, or the result that it fails with. */
int gpu_driver_call(void);
/* The same for one that makes, or frees, something that is alive. */
int gpu_driver_alive(int change);
/* Whether device memory of so many bytes is there. */
int gpu_driver_memory(const void *p, size_t bytes);
/* The contexts of this thread: sets the current one (NULL: none). */
void gpu_driver_context(void *context);
void *gpu_driver_primary(int device);

#endif
