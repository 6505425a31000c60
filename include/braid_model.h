/* braid_model.h: the interface of a library made by `braid compile`.
 *
 * A compiled model is a shared library that needs nothing of Braid. It exports one function,
 * braid_model(), which returns a table with everything else. Link against the library, or open it:
 *
 *     void *lib = dlopen("./model.so", RTLD_NOW | RTLD_LOCAL);
 *     const braid_model_v1 *(*get)(void);
 *     *(void **)&get = dlsym(lib, "braid_model");
 *     const braid_model_v1 *m = get(); // check that m->abi_version == BRAID_ABI_VERSION
 *     void *session;
 *     m->session_new(NULL, &session);
 *     m->run(session, in, out, message, sizeof message); // in[ninput], out[noutput]
 *     ... // read out[] before the next run
 *     m->session_free(session);
 *
 * Functions that return int return a status:
 *     0  done
 *     3  an input is wrong
 *     4  a run-time check failed (an index, a shape, the iteration limit), or the device did
 *     5  out of memory
 *     6  something is missing that the library needs: the weights file beside it (LIBRARY.weights),
 *        the GPU's driver, or a GPU that it was compiled for
 *     7  wrong use: two threads entered one session at once
 *     8  cancel() ended the run
 *
 * Sessions are independent of each other. Only one thread at a time may use a session.
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

/* A dense row-major tensor, whose data is aligned to its elements. `dtype` is a number of ONNX's
 * TensorProto.DataType:
 *     1 float32    2 uint8     3 int8      4 uint16    5 int16     6 int32    7 int64
 *     9 bool      10 float16  11 float64  12 uint32   13 uint64   16 bfloat16
 * A bool is one byte, 0 or 1. Elements of the following types are one byte, with a code in its low
 * bits and 0 in the others:
 *    17 float8e4m3fn   18 float8e4m3fnuz   19 float8e5m2   20 float8e5m2fnuz
 *    21 uint4          22 int4             23 float4e2m1   24 float8e8m0
 *    25 uint2          26 int2             27 float6e2m3   28 float6e3m2
 * A sequence is a packed blob: dtype 2, rank 1, dim[0] bytes. An empty optional has data NULL and
 * rank -1. */
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

/* An input or output as the model declares it. For a sequence, dtype is that of its items, and rank
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
    int64_t max_iterations; /* limit for each loop; 0: 2^31. Needing more is status 4 */
    int64_t stack_depth;    /* limit for recursion; 0: 10000. Going deeper is status 4 */
    /* 1 + the number of the GPU. 0: the GPU of the calling thread's current context, else
     * $BRAID_DEVICE, else the first one. */
    int32_t device;
    /* Gets the reason when session_new fails; may be NULL. */
    char *message;
    size_t message_size;
    /* Limit for working memory, in bytes. 0: what the program always needs plus a quarter of the
     * memory that the machine has left when the session is made (on a GPU: all that the device
     * has). Needing more is status 5. */
    int64_t max_memory;
    /* A counter that is 0 at first, of the whole process: sessions with several threads count there
     * how many of them run, and share the CPUs. It must live as long as the session. NULL: those of
     * this library count for themselves. */
    int32_t *teams;
} braid_session_config_v1;

/* Where the tensors of run_on lie: DLPack's device types. */
enum {
    BRAID_DEVICE_CPU = 1,
    BRAID_DEVICE_CUDA = 2,
    BRAID_DEVICE_HIP = 10,
    BRAID_DEVICE_EMULATED = 12 /* memory of the emulator in the library, from memory_new */
};

/* What stat() can return; it returns -1 for other numbers, and for what is not known. */
enum {
    BRAID_STAT_BARRIERS = 0,    /* barriers of all units in the last run */
    BRAID_STAT_ARENA_BYTES = 1, /* working memory that the session holds */
    BRAID_STAT_RESTARTS = 2,    /* times that the last run restarted with more memory */
    BRAID_STAT_THREADS = 3,     /* units of the session: threads, or thread blocks of a GPU */
    BRAID_STAT_DEVICE = 4,      /* the number of the session's GPU */
    BRAID_STAT_NODES = 5,       /* activations of recursions that were numbered before they ran, */
    BRAID_STAT_HEIGHTS = 6,     /* and their heights, of the last run */
    BRAID_STAT_NUMBERING_NS = 7 /* what that took in the last run, if it came after renumber */
};

/* Directions of memory_copy. Add BRAID_COPY_WAIT to wait for the stream afterwards. */
enum { BRAID_COPY_IN = 0, BRAID_COPY_OUT = 1, BRAID_COPY_ON = 2, BRAID_COPY_WAIT = 4 };

/* A `stream` of run_into. */
#define BRAID_IN_CPU_MEMORY ((void *)(uintptr_t)-1)

/* ---- profiles ---- */
/* Kinds of parts of a program. */
enum {
    BRAID_PART_PROGRAM = 0, /* the whole of it */
    BRAID_PART_LOOP = 1,
    BRAID_PART_BRANCH = 2,
    BRAID_PART_ARM = 3,        /* of the branch around it */
    BRAID_PART_CALL = 4,       /* of a recursive function */
    BRAID_PART_FUNCTION = 5,   /* the body of one; its executions are activations */
    BRAID_PART_ACTIVATION = 6, /* a deeper activation inlined there */
    BRAID_PART_GROUP = 7,      /* operators computed together */
    BRAID_PART_BODY = 8,       /* an operator with a hand-written body */
    BRAID_PART_PRODUCT = 9,    /* by the vendor's library, between launches; not timed */
    BRAID_PART_BARRIER = 10    /* a place where units wait */
};
typedef struct braid_part_v1 {
    int32_t parent; /* its index, less than this part's; -1: this is the program */
    int32_t kind;
    int32_t statement; /* number in the scheduled tree, in preorder; -1: none */
    /* 1: each execution is timed; n: about one in n, by each unit; 0: it is only counted. */
    int32_t every;
    int32_t step;      /* of a loop: the model's iterations that one trip makes */
    const char *level; /* of the units that run it, or that wait: "team", "core", … */
    const char *name;  /* of a value, function, operator or arm; of a barrier its reason; or NULL */
    const char *path;  /* of the node in the model; or NULL */
} braid_part_v1;
/* What one unit counted of a part. */
typedef struct braid_part_count_v1 {
    int64_t executions, timed; /* and how many of them were timed */
    double ns;                 /* of the timed executions, with the parts inside */
    int64_t trips;             /* of a loop: of all executions; `least`, `most`: of one */
    int64_t least;
    int64_t most; /* of a function or activation: its depth in the deepest activation */
} braid_part_count_v1;
/* A timed execution. `begin_ns` and `end_ns` count from the first unit's begin of the run. */
typedef struct braid_event_v1 {
    int32_t part;
    uint32_t trips; /* of a loop: of this execution; else 0 */
    double begin_ns, end_ns;
} braid_event_v1;
typedef struct braid_profile_v1 {
    uint32_t struct_size; /* sizeof(braid_profile_v1) */
    int32_t npart, nunit;
    const braid_part_v1 *part;        /* a part before those in it */
    const braid_part_count_v1 *count; /* of part i by unit u: count[u * npart + i] */
    int64_t runs;                     /* those that are counted */
    double run_ns;                    /* of the unit that took longest, in all of them */
    const char *clock;                /* what was read: "tsc", "clock64", … */
    /* The events of the last run: nevent[0] of unit 0, then those of unit 1, …, in the order of
     * their ends. A unit keeps the last 16384; dropped[u]: how many were older. */
    const int64_t *nevent, *dropped;
    const braid_event_v1 *event;
} braid_profile_v1;

typedef struct braid_model_v1 {
    uint32_t abi_version; /* BRAID_ABI_VERSION */
    uint32_t struct_size; /* sizeof(braid_model_v1); later versions only append fields */
    const char *name;     /* the graph's name */
    const char *target;   /* "cpu", "cuda:sm_90", … */
    int32_t ninput, noutput;
    const braid_io_v1 *input, *output; /* in graph order */

    /* Makes a session: starts its threads and allocates its first working memory. `config` may be
     * NULL. On a GPU, the context that the session uses (see braid_session_config_v1.device) must
     * outlive the session. */
    int (*session_new)(const braid_session_config_v1 *config, void **session);
    /* Ends the session's threads and frees its memory. NULL is fine. No run may be in progress. */
    void (*session_free)(void *session);
    /* Runs the model on in[ninput], which is borrowed and not written. On status 0, out[noutput] is
     * filled. Its data belongs to the session (or is an input's own data) and is valid until the
     * next run or the end of the session. On any other status, out[] is not written, and `message`
     * says why (NUL-terminated, cut at message_size; may be NULL). */
    int (*run)(void *session, const braid_tensor_v1 *in, braid_tensor_v1 *out, char *message,
               size_t message_size);
    int64_t (*stat)(void *session, int which);

    /* The following fields exist only as far as struct_size reaches. On the CPU, the functions up
     * to memory_copy are NULL. */
    int32_t device_type; /* of the tensors that run_on takes */
    /* Runs the model on tensors in the device's memory, in the order of `stream` (a CUstream or
     * hipStream_t; NULL: the default stream): after what is enqueued on it, before what is enqueued
     * later, which sees the outputs. The outputs belong to the session, as those of run. No input
     * is copied. If the library knows every shape and size beforehand, the call only enqueues the
     * run, and the next call or finish() returns its error (the first run of a session may wait).
     * Else the call waits for the stream. */
    int (*run_on)(void *session, void *stream, const braid_tensor_v1 *in, braid_tensor_v1 *out,
                  char *message, size_t message_size);
    /* Waits for all enqueued runs and returns the status of the first that failed. The runs after
     * it may have no outputs either. */
    int (*finish)(void *session, char *message, size_t message_size);
    /* Allocates memory of the session's device: its address is *data. It may outlive the session.
     * Free it with memory_free(*memory), from any thread. */
    int (*memory_new)(void *session, size_t bytes, void **memory, void **data, char *message,
                      size_t message_size);
    void (*memory_free)(void *memory);
    /* Enqueues a copy on `stream`: BRAID_COPY_IN from host to device memory, BRAID_COPY_OUT from
     * device to host memory, BRAID_COPY_ON within device memory. */
    int (*memory_copy)(void *session, void *stream, int direction, void *to, const void *from,
                       size_t bytes, char *message, size_t message_size);

    int32_t draws; /* 1: outputs depend on random numbers */
    /* Sets the seed of the random numbers for the session's following runs. Equal runs with one
     * seed draw equal numbers. Until a seed is set, every run has a new one. No run may be in
     * progress. */
    int (*set_seed)(void *session, uint64_t seed);

    /* State: output carry_output[i] of one run is input carry_input[i] of the next, i < ncarry. */
    int32_t ncarry;
    const int32_t *carry_input, *carry_output;
    /* 0: with the default limits, runs on inputs that fit the declarations never return status 4 */
    int32_t fails;
    /* As run or run_on, with outputs in the caller's memory. On a GPU, `stream` is that of run_on;
     * BRAID_IN_CPU_MEMORY: all tensors lie in CPU memory, as those of run. On the CPU it is
     * ignored. For each output, `memory` is called at most once, in the calling thread: before the
     * kernel starts if the output's size is known from the inputs' shapes and the kernel can write
     * there, else after the run. `t` has the output's dtype and shape; the result is the address of
     * `bytes` bytes, aligned to the element, in the memory where the inputs lie. NULL is status 5,
     * unless there are no bytes. An absent optional has no memory.
     * On status 0, out[i].data is that address, also where the output had to be copied there. On
     * any other status, what memory() returned may hold anything. */
    int (*run_into)(void *session, void *stream, const braid_tensor_v1 *in, braid_tensor_v1 *out,
                    void *(*memory)(void *user, int output, const braid_tensor_v1 *t, size_t bytes),
                    void *user, char *message, size_t message_size);
    /* Ends the run in progress with status 8: loops look once an iteration. From any thread, and
     * from signal handlers. On a GPU it has no effect; the emulator
     * looks where blocks wait for each other. */
    void (*cancel)(void *session);
    /* NULL: the library was compiled without a profile. Returns what was counted since the session
     * began or profile was called last, and begins to count anew. It belongs to the session and is
     * valid until the next call. NULL: a run is in progress, or there is no memory. */
    const braid_profile_v1 *(*profile)(void *session);
    /* The next run numbers the activations of recursions though they may be those of the run
     * before, and measures that. NULL: none are numbered, or it cannot be measured. No run may be
     * in progress. */
    void (*renumber)(void *session);
} braid_model_v1;

const braid_model_v1 *braid_model(void);

#ifdef __cplusplus
}
#endif
#endif
