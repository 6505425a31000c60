/* braid.h: the whole public C API of Braid.
 *
 * Conventions
 *  - Every function that can fail returns a braid_status. Its last parameters are the results, then
 * a `braid_error *` that takes the message of a failure (NULL: not wanted). Results are written
 *    only on BRAID_OK.
 *  - Nothing exits, prints, or keeps global state. All functions may be called from any thread; a
 *    braid_model and a braid_session may be shared by threads (runs of one session wait for each
 * other), a braid_value that someone changes may not.
 *  - What a function returns through a result belongs to the caller, who frees it with the function
 * that its comment names. Arguments are borrowed for the call unless a comment says "taken".
 *  - Structures with a `struct_size` are set to zero and given their size: fields that are zero
 * mean the default, and programs built with an older header keep working.
 */
#ifndef BRAID_H
#define BRAID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "braid_dlpack.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRAID_VERSION "0.1.0"
#if defined(__GNUC__)
#define BRAID_API __attribute__((visibility("default")))
#else
#define BRAID_API
#endif

/* ---- errors ---------------------------------------------------------------------------------- */
typedef enum braid_status {
    BRAID_OK = 0,
    BRAID_MODEL = 1,       /* the model is invalid */
    BRAID_UNSUPPORTED = 2, /* the model is valid but needs something that Braid does not support */
    BRAID_INPUT = 3,       /* an input tensor or file is wrong */
    BRAID_RUNTIME = 4,     /* a check at run time failed: index, shape, iteration cap */
    BRAID_MEMORY = 5,      /* out of memory */
    BRAID_IO = 6,          /* a file cannot be read or written, a tool cannot be run */
    BRAID_USAGE = 7        /* the API was used wrongly */
} braid_status;

typedef struct braid_error {
    braid_status status;
    char message[1024]; /* one line, NUL-terminated */
} braid_error;

BRAID_API const char *braid_version(void);
/* "ok", "invalid model", …; never NULL. */
BRAID_API const char *braid_status_text(braid_status status);

/* ---- types ----------------------------------------------------------------------------------- */
/* Element types, with the numbers of ONNX's TensorProto.DataType. */
typedef enum braid_dtype {
    BRAID_DTYPE_NONE = 0,
    BRAID_FLOAT32 = 1,
    BRAID_UINT8 = 2,
    BRAID_INT8 = 3,
    BRAID_UINT16 = 4,
    BRAID_INT16 = 5,
    BRAID_INT32 = 6,
    BRAID_INT64 = 7,
    BRAID_BOOL = 9, /* one byte, 0 or 1 */
    BRAID_FLOAT16 = 10,
    BRAID_FLOAT64 = 11,
    BRAID_UINT32 = 12,
    BRAID_UINT64 = 13,
    BRAID_BFLOAT16 = 16,
    /* Small types: an element is a code of at most 8 bits in a byte of its own, whose other bits
     * are 0 (as in NumPy arrays of ml_dtypes; int4 -1 is 15). ONNX files and DLPack tensors hold
     * codes of less than 8 bits packed, the first one lowest. */
    BRAID_FLOAT8E4M3FN = 17,
    BRAID_FLOAT8E4M3FNUZ = 18,
    BRAID_FLOAT8E5M2 = 19,
    BRAID_FLOAT8E5M2FNUZ = 20,
    BRAID_UINT4 = 21,
    BRAID_INT4 = 22,
    BRAID_FLOAT4E2M1 = 23,
    BRAID_FLOAT8E8M0 = 24,
    BRAID_UINT2 = 25,
    BRAID_INT2 = 26,
    BRAID_FLOAT6E2M3 = 27,
    BRAID_FLOAT6E3M2 = 28
} braid_dtype;

/* "float32", …; "unknown" for other numbers. */
BRAID_API const char *braid_dtype_name(braid_dtype dtype);
/* Bytes of an element in a braid_value; 0 for other numbers. */
BRAID_API size_t braid_dtype_size(braid_dtype dtype);

/* The most axes that a tensor may have. */
#define BRAID_RANK_LIMIT 12

typedef enum braid_kind { BRAID_TENSOR = 0, BRAID_SEQUENCE = 1, BRAID_OPTIONAL = 2 } braid_kind;

/* An input or output as the model declares it. The strings and arrays live as long as the model. */
typedef struct braid_io {
    const char *name;
    braid_kind kind;
    braid_kind element;          /* BRAID_OPTIONAL: what it may hold; else the same as kind */
    braid_dtype dtype;           /* of the tensor or the items; BRAID_DTYPE_NONE: not declared */
    int32_t rank;                /* tensors; -1: not declared */
    const int64_t *dim;          /* rank entries; -1: not fixed */
    const char *const *dim_name; /* rank entries; names of dimensions that are not fixed, or NULL */
} braid_io;

/* ---- values: tensors, sequences, optionals ----------------------------------------------------
 */
typedef struct braid_value braid_value;

/* A tensor of `rank` dimensions `dim`, row-major. `data` is copied; NULL gives zeros.
 * BRAID_USAGE: a bad dtype, rank or size. BRAID_MEMORY. Free with braid_value_free. */
BRAID_API braid_status braid_value_new_tensor(braid_dtype dtype, int32_t rank, const int64_t *dim,
                                              const void *data, braid_value **value,
                                              braid_error *error);
/* The same without a copy: `data` stays the caller's and has to outlive the value. */
BRAID_API braid_status braid_value_borrow_tensor(braid_dtype dtype, int32_t rank,
                                                 const int64_t *dim, void *data,
                                                 braid_value **value, braid_error *error);
/* An empty sequence of tensors of type `dtype`. */
BRAID_API braid_status braid_value_new_sequence(braid_dtype dtype, braid_value **value,
                                                braid_error *error);
/* An optional that holds `element` (a tensor or sequence; taken), or nothing when it is NULL. */
BRAID_API braid_status braid_value_new_optional(braid_value *element, braid_value **value,
                                                braid_error *error);
/* Appends a tensor (taken, on BRAID_OK only) to a sequence. BRAID_USAGE: not a sequence, or another
 * dtype. */
BRAID_API braid_status braid_value_append(braid_value *sequence, braid_value *tensor,
                                          braid_error *error);
/* Frees a value and all that it holds. NULL is fine. */
BRAID_API void braid_value_free(braid_value *value);

BRAID_API braid_kind braid_value_kind(const braid_value *value);
BRAID_API braid_dtype braid_value_dtype(const braid_value *value); /* optional: of its element */
BRAID_API int32_t braid_value_rank(const braid_value *value);      /* tensors; else 0 */
BRAID_API const int64_t *braid_value_dim(const braid_value *value);
BRAID_API void *braid_value_data(const braid_value *value); /* tensors; else NULL */
BRAID_API int64_t
braid_value_count(const braid_value *value); /* elements of a tensor, items else */
/* Item `i` of a sequence, or the element of an optional (i = 0); NULL when there is none. It
 * belongs to the value. */
BRAID_API braid_value *braid_value_item(const braid_value *value, int64_t i);

/* Reads FILE.npy, or FILE.pb (an ONNX TensorProto, SequenceProto or OptionalProto) as a value for
 * the input `io`, which settles what the file's bytes mean; shapes are not compared. BRAID_IO:
 * cannot be read. BRAID_INPUT: not such a file. */
BRAID_API braid_status braid_value_read(const char *path, const braid_io *io, braid_value **value,
                                        braid_error *error);
/* Writes a tensor as .npy, anything as .pb, by the ending of the name. */
BRAID_API braid_status braid_value_write(const braid_value *value, const char *path,
                                         braid_error *error);

/* ---- compiling and loading ---------------------------------------------------------------------
 */
/* Wraps a step model in a loop over one more axis of the `scan` inputs, with outputs carried back
 * to inputs: see `braid compile --scan`, `--carry`. */
typedef struct braid_fold {
    int32_t scan_count;
    const char *const *scan_input;
    const int32_t *scan_axis;
    int32_t carry_count;
    const char *const *carry_input, *const *carry_output;
} braid_fold;

/* The shape of an input that the file leaves open: without it the rank is the one that a run
 * brings (braid_load), or a few are compiled (braid_compile). */
typedef struct braid_shape {
    const char *input;
    int32_t rank;
    const int64_t *dim; /* rank entries; -1: any size */
} braid_shape;

typedef struct braid_options {
    uint32_t struct_size;
    const char *target; /* "cpu" (NULL); "interp", the interpreter; "cuda:sm_90", "hip:gfx90a", …
                         * for GPUs; "emulate:cuda", "emulate:hip" for the emulator of one */
    const char
        *cpu; /* instruction set, as the C compiler's -march names it; NULL: this machine's */
    const braid_fold *fold;
    const char *emit_path; /* where to write the generated text as well; for GPUs this is the
                            * device's part, and EMIT_PATH.host.c the host's */
    bool tune;             /* measure candidates while compiling */
    bool no_cache;         /* braid_load: compile anew, leave nothing behind */
    const char *cache_dir; /* NULL: $BRAID_CACHE, $XDG_CACHE_HOME/braid or ~/.cache/braid */
    const char *schedule;  /* choices forced, "NAME=on,NAME=off,NAME=VALUE", for
                              tests and diagnosis (see `braid explain`); NULL: none. BRAID_USAGE: no
                              such one */
    int32_t threads;       /* to schedule for; 0: as many as this process may use */
    /* With `tune`: the inputs to measure with, by name; the others are random (BRAID_INPUT,
     * BRAID_RUNTIME when the model does not run with them). Stops after tune_seconds (0: 60). */
    int32_t tune_input_count, tune_seconds;
    const char *const *tune_input_name;
    const braid_value *const *tune_input;
    int32_t shape_count; /* BRAID_USAGE when the file declares another shape */
    const braid_shape *shape;
    bool ignore_dim_names; /* one name on several dimensions of the inputs is no promise that their
                            * sizes are equal; else a run that breaks it is BRAID_RUNTIME */
} braid_options;

/* Compiles the ONNX model `model_path` to the shared library `library_path` (see braid_model.h).
 * Nothing is left at library_path on failure. BRAID_IO: a file, or no C compiler ($CC, cc). */
BRAID_API braid_status braid_compile(const char *model_path, const braid_options *options,
                                     const char *library_path, braid_error *error);

/* No typedef: braid_model is the function that compiled libraries export (braid_model.h). */
struct braid_model;

/* Opens `path`: an ONNX model, which is compiled into the cache (or prepared for the interpreter),
 * or a library made by braid_compile, whose code is trusted. Free with braid_model_free. */
BRAID_API braid_status braid_load(const char *path, const braid_options *options,
                                  struct braid_model **model, braid_error *error);
/* Sessions of the model keep what they need: the order of frees does not matter. */
BRAID_API void braid_model_free(struct braid_model *model);

BRAID_API const char *braid_model_name(const struct braid_model *model);
BRAID_API const char *braid_model_target(const struct braid_model *model);
BRAID_API int32_t braid_model_input_count(const struct braid_model *model);
BRAID_API int32_t braid_model_output_count(const struct braid_model *model);
/* The i-th input or output in graph order; NULL when i is out of range. Valid until the model is
 * freed. */
BRAID_API const braid_io *braid_model_input(const struct braid_model *model, int32_t i);
BRAID_API const braid_io *braid_model_output(const struct braid_model *model, int32_t i);
/* Whether outputs depend on random numbers; of a model that leaves ranks open, as far as runs have
 * brought them. */
BRAID_API bool braid_model_draws(const struct braid_model *model);
/* Its index, or -1. */
BRAID_API int32_t braid_model_find_input(const struct braid_model *model, const char *name);

/* ---- running -----------------------------------------------------------------------------------
 */
typedef struct braid_session braid_session;

typedef struct braid_session_options {
    uint32_t struct_size;
    int32_t threads;        /* the caller's thread included; 0: the library's choice */
    int64_t max_iterations; /* of any one loop; 0: 2^31. Reaching it is BRAID_RUNTIME */
    int64_t stack_depth;    /* of recursion; 0: 10000. Going deeper is BRAID_RUNTIME */
    int32_t device; /* 1 + the number of the GPU; 0: the one that the calling thread has a context
                     * of, else $BRAID_DEVICE, else the first */
    int64_t max_memory; /* bytes of working memory; 0: a quarter of what the machine has left now,
                         * on top of what the program always needs (on a GPU: what the device has).
                         * Needing more is BRAID_MEMORY, and the message names the loop or node */
} braid_session_options;

/* A session owns working memory and threads. Free with braid_session_free. */
BRAID_API braid_status braid_session_new(struct braid_model *model,
                                         const braid_session_options *options,
                                         braid_session **session, braid_error *error);
BRAID_API void braid_session_free(braid_session *session);

/* Runs the model on one value for each input, in graph order; NULL for an optional without element.
 * An optional input also takes a plain tensor or sequence. Fills `out` with one new value for each
 * output (free each with braid_value_free): tensors row-major, optionals as BRAID_OPTIONAL.
 * BRAID_INPUT: kind, dtype or shape of an input is not what the model declares; BRAID_RUNTIME: a
 * check failed, the message has the node's path. `out` is untouched unless BRAID_OK. */
BRAID_API braid_status braid_session_run(braid_session *session, const braid_value *const *in,
                                         braid_value **out, braid_error *error);
/* The same for DLPack tensors. Outputs are new; whoever ends up with one calls its deleter.
 * Optionals without element are NULL on both sides. Inputs are all in CPU memory, with any strides,
 * and then so are the outputs; or all in the memory of the session's GPU (braid_model_device_type),
 * dense: then the run is enqueued on the session's stream, and the outputs are copies there, good
 * for what follows on that stream. A run whose shapes are known beforehand is not waited for: what
 * is wrong with it is the status of the next run or of braid_session_finish. Tensors of elements of
 * less than a byte are packed, lanes 1, dense, and only in CPU memory. BRAID_USAGE: the model has
 * sequences, or such outputs on the device. BRAID_INPUT: inputs here and there, or on another
 * device. */
BRAID_API braid_status braid_session_run_dlpack(braid_session *session, const DLTensor *const *in,
                                                DLManagedTensor **out, braid_error *error);

/* ---- GPUs ---------------------------------------------------------------------------------------
 */
/* Where the tensors of runs on the device lie: kDLCUDA, kDLROCM; kDLExtDev: in the memory of the
 * emulator in the library, where only braid_session_to_device puts some; kDLCPU: there are no such
 * runs. */
BRAID_API int32_t braid_model_device_type(const struct braid_model *model);
/* The stream (CUstream, hipStream_t) that runs on device tensors are enqueued on; NULL, as at the
 * beginning: the default one. It has to live until those runs are over. */
BRAID_API braid_status braid_session_set_stream(braid_session *session, void *stream,
                                                braid_error *error);
/* Waits for the runs that are enqueued; the status of the first that failed. */
BRAID_API braid_status braid_session_finish(braid_session *session, braid_error *error);
/* A copy of a dense tensor in CPU memory on the session's GPU (whoever ends up with it calls its
 * deleter; the session may be gone by then), and of one there as a value. Both wait for the
 * session's stream. */
BRAID_API braid_status braid_session_to_device(braid_session *session, const DLTensor *host,
                                               DLManagedTensor **device, braid_error *error);
BRAID_API braid_status braid_session_to_host(braid_session *session, const DLTensor *device,
                                             braid_value **host, braid_error *error);

/* The seed of the random numbers of the session's following runs: equal runs by one seed draw equal
 * numbers, on all targets. Until it is set every run has a seed of its own. Operators whose
 * attribute `seed` is set draw the same numbers in every run. BRAID_USAGE: the library was made
 * before there were random numbers. */
BRAID_API braid_status braid_session_set_seed(braid_session *session, uint64_t seed,
                                              braid_error *error);

typedef enum braid_stat {
    BRAID_SYNCHRONIZATIONS = 0, /* barriers of all threads in the last run */
    BRAID_WORKING_BYTES = 1,    /* working memory that the session holds */
    BRAID_RESTARTS = 2,         /* times that the last run began again with more memory */
    BRAID_THREADS = 3,          /* threads of the session; of a GPU, blocks of threads */
    BRAID_DEVICE = 4            /* the number of its GPU */
} braid_stat;
/* -1 when it is not known for this target. */
BRAID_API int64_t braid_session_stat(braid_session *session, braid_stat which);

#ifdef __cplusplus
}
#endif
#endif
