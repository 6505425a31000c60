/* braid_model.h: what a library made by `braid compile` looks like from outside.
 *
 * A compiled model is a shared library that needs nothing of Braid. It exports one function,
 * braid_model(), whose table has all the rest. Link against the library, or open it:
 *
 *     void *lib = dlopen("./model.so", RTLD_NOW | RTLD_LOCAL);
 *     const braid_model_v1 *(*get)(void) = (const braid_model_v1 *(*)(void))dlsym(lib,
 * "braid_model"); const braid_model_v1 *m = get();         // then check m->abi_version ==
 * BRAID_ABI_VERSION void *session; m->session_new(NULL, &session); m->run(session, in, out,
 * message, sizeof message);   // in[ninput], out[noutput] … // read out[] before the next run
 *     m->session_free(session);
 *
 * Status codes (int): 0 done, 3 an input is wrong, 4 a run-time check failed (an index, a shape,
 * the iteration cap) or the device did, 5 out of memory, 6 something that the library needs is
 * missing: the file of weights beside it (LIBRARY.weights), the GPU's driver, a GPU that it was
 * compiled for, 7 wrong use (a session entered by two threads at once).
 *
 * Sessions are independent of each other. One session is for one thread at a time.
 */
#ifndef BRAID_MODEL_H
#define BRAID_MODEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BRAID_ABI_VERSION 1
#define BRAID_MAX_RANK 12

/* A tensor: row-major, dense, its data aligned to its elements. `dtype` has ONNX's numbers: 1
 * float32, 2 uint8, 3 int8, 4 uint16, 5 int16, 6 int32, 7 int64, 9 bool (one byte, 0 or 1), 10
 * float16, 11 float64, 12 uint32, 13 uint64, 16 bfloat16; and of one byte with a code in its low
 * bits, the others 0: 17 float8e4m3fn, 18 float8e4m3fnuz, 19 float8e5m2, 20 float8e5m2fnuz, 21
 * uint4, 22 int4, 23 float4e2m1, 24 float8e8m0, 25 uint2, 26 int2, 27 float6e2m3, 28 float6e3m2. A
 * sequence is a packed blob: dtype 2
 * (bytes), rank 1, dim[0] its bytes. An optional without element has data NULL and rank -1. */
typedef struct braid_tensor_v1 {
    void *data; /* may be NULL when the tensor has no elements */
    int32_t dtype;
    int32_t rank;
    int64_t dim[BRAID_MAX_RANK];
} braid_tensor_v1;

/* Kinds of inputs and outputs. */
enum {
    BRAID_IO_TENSOR = 0,
    BRAID_IO_SEQUENCE = 1,
    BRAID_IO_OPTIONAL_TENSOR = 2,
    BRAID_IO_OPTIONAL_SEQUENCE = 3
};

/* An input or output as the model declares it. For sequences dtype is that of the items and rank
 * is -1. */
typedef struct braid_io_v1 {
    const char *name;
    int32_t kind;
    int32_t dtype;                        /* 0: not declared */
    int32_t rank;                         /* -1: not declared */
    int64_t dim[BRAID_MAX_RANK];          /* -1: not fixed */
    const char *dim_name[BRAID_MAX_RANK]; /* name of a dimension that is not fixed, or NULL */
} braid_io_v1;

typedef struct braid_session_config_v1 {
    uint32_t struct_size; /* sizeof(braid_session_config_v1) */
    int32_t threads; /* units of execution, the caller's thread included; 0: the library's choice */
    int64_t max_iterations; /* of any one loop; 0: 2^31. More is a run-time fault */
    int64_t stack_depth;    /* of recursion; 0: 10000. More is a run-time fault */
    int32_t device; /* 1 + the number of the GPU; 0: the one that the calling thread has a context
                     * of, else $BRAID_DEVICE, else the first */
    char *message;  /* takes what was wrong when there is no session; NULL: not wanted */
    size_t message_size;
    int64_t max_memory; /* bytes of working memory; 0: a quarter of what the machine has left when
                         * the session is made, on top of what the program always needs (on a GPU:
                         * what the device has). More is status 5 */
} braid_session_config_v1;

/* Where the tensors of run_on lie, with DLPack's numbers. */
enum {
    BRAID_DEVICE_CPU = 1,
    BRAID_DEVICE_CUDA = 2,
    BRAID_DEVICE_HIP = 10,
    BRAID_DEVICE_EMULATED = 12 /* memory_new's, of the emulator in the library */
};

/* What stat() knows; -1 for others. */
enum {
    BRAID_STAT_BARRIERS = 0,    /* synchronizations of all units in the last run */
    BRAID_STAT_ARENA_BYTES = 1, /* working memory that the session holds */
    BRAID_STAT_RESTARTS = 2,    /* times that the last run began again with more memory */
    BRAID_STAT_THREADS = 3,     /* units of the session: threads, or thread blocks of a GPU */
    BRAID_STAT_DEVICE = 4       /* the number of its GPU */
};

/* Directions of memory_copy; with BRAID_COPY_WAIT it waits for the stream. */
enum { BRAID_COPY_IN = 0, BRAID_COPY_OUT = 1, BRAID_COPY_ON = 2, BRAID_COPY_WAIT = 4 };

typedef struct braid_model_v1 {
    uint32_t abi_version; /* BRAID_ABI_VERSION */
    uint32_t struct_size; /* sizeof(braid_model_v1); later versions only append */
    const char *name;     /* the graph's name */
    const char *target;   /* "cpu", "cuda:sm_90", … */
    int32_t ninput, noutput;
    const braid_io_v1 *input, *output; /* in graph order */

    /* Makes a session: starts its threads and takes its first working memory. `config` may be NULL.
     * On a GPU the context that it is in (the thread's, see braid_session_config_v1.device) has to
     * outlive it. */
    int (*session_new)(const braid_session_config_v1 *config, void **session);
    /* Ends the session's threads. NULL is fine. No run may be in progress. */
    void (*session_free)(void *session);
    /* Runs the model on in[ninput], which is borrowed and not written. On 0, out[noutput] is
     * filled; its data belongs to the session (or is an input's own) and is good until the next run
     * or the end of the session. Else `message` (NUL-terminated, cut at message_size; may be NULL)
     * says why, and out[] is as it was. */
    int (*run)(void *session, const braid_tensor_v1 *in, braid_tensor_v1 *out, char *message,
               size_t message_size);
    int64_t (*stat)(void *session, int which);

    /* From here on: where struct_size reaches. Up to memory_copy NULL on the CPU. */
    int32_t device_type; /* of the tensors that run_on takes */
    /* Runs the model on tensors in the device's memory, after what `stream` (a CUstream or
     * hipStream_t; NULL: the default one) holds so far; what comes after it there sees the outputs.
     * They are the session's, as run's are; no input is copied. When the library knows every shape
     * and size beforehand, the call only enqueues the run (but the first of a session may wait),
     * and a fault in it is what the next call or finish() returns; else it waits for the stream. */
    int (*run_on)(void *session, void *stream, const braid_tensor_v1 *in, braid_tensor_v1 *out,
                  char *message, size_t message_size);
    /* Waits for the runs that are enqueued, and returns the fault of the first that failed; those
     * behind it may have no outputs either. */
    int (*finish)(void *session, char *message, size_t message_size);
    /* Memory of the session's device, which outlives the session: its address and what to free it
     * by, from any thread. */
    int (*memory_new)(void *session, size_t bytes, void **memory, void **data, char *message,
                      size_t message_size);
    void (*memory_free)(void *memory);
    /* Enqueues a copy on `stream`: BRAID_COPY_IN from the host's memory, _OUT to it, _ON between
     * the device's own. */
    int (*memory_copy)(void *session, void *stream, int direction, void *to, const void *from,
                       size_t bytes, char *message, size_t message_size);

    int32_t draws; /* 1: outputs depend on random numbers */
    /* The seed of the random numbers of the session's following runs: equal runs by one seed draw
     * equal numbers. Until then every run has another one. No run may be in progress. */
    int (*set_seed)(void *session, uint64_t seed);
} braid_model_v1;

const braid_model_v1 *braid_model(void);

#ifdef __cplusplus
}
#endif
#endif
