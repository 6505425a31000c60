/* braid.h: the whole public C API of Braid.
 *
 * Conventions:
 *  - Every function that can fail returns a braid_status. Its last parameters are the results, then
 *    a `braid_error *` for the message of a failure (may be NULL). Results are written only on
 *    BRAID_OK.
 *  - No function exits, prints, or keeps global state.
 *  - Every function may be called from any thread. Threads may share a braid_model and a
 *    braid_session (runs of one session wait for each other). They may not share a braid_value that
 *    one of them changes.
 *  - A result belongs to the caller, who frees it with the function that the comment names.
 *    Arguments are borrowed for the call, unless a comment says "taken".
 *  - Set a structure that has a `struct_size` to zero, then set its size. A zero field means the
 *    default; programs built with an older header keep working.
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
    BRAID_RUNTIME = 4,     /* a check at run time failed: index, shape, iteration limit */
    BRAID_MEMORY = 5,      /* out of memory */
    BRAID_IO = 6,          /* a file cannot be read or written, a tool cannot be run */
    BRAID_USAGE = 7,       /* the API was used wrongly */
    BRAID_CANCELLED = 8    /* ended by braid_session_cancel, or by braid_options.progress */
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
    /* Small types: each element is a code of at most 8 bits in a byte of its own, whose other bits
     * are 0 (as in NumPy arrays of ml_dtypes; the int4 -1 is 15). ONNX files and DLPack tensors
     * pack codes of fewer than 8 bits, the first code in the lowest bits. */
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

/* "float32", …; "unknown" when `dtype` is none of the enum. */
BRAID_API const char *braid_dtype_name(braid_dtype dtype);
/* Bytes of an element in a braid_value; 0 when `dtype` is none of the enum. */
BRAID_API size_t braid_dtype_size(braid_dtype dtype);

/* Highest rank of a tensor. */
#define BRAID_RANK_LIMIT 12

typedef enum braid_kind { BRAID_TENSOR = 0, BRAID_SEQUENCE = 1, BRAID_OPTIONAL = 2 } braid_kind;

/* An input or output as the model declares it. The strings and arrays live as long as the model. */
typedef struct braid_io {
    const char *name;
    braid_kind kind;
    braid_kind element;          /* BRAID_OPTIONAL: what it may hold; else the same as kind */
    braid_dtype dtype;           /* of the tensor or the items; BRAID_DTYPE_NONE: not declared */
    int32_t rank;                /* of a tensor; -1: not declared */
    const int64_t *dim;          /* rank entries; -1: not fixed */
    const char *const *dim_name; /* rank entries: the name of a dimension not fixed, or NULL */
} braid_io;

/* ---- values: tensors, sequences, optionals --------------------------------------------------- */
typedef struct braid_value braid_value;

/* Makes a dense row-major tensor of shape dim[rank]. `data` is copied; NULL gives zeros. Free it
 * with braid_value_free. BRAID_USAGE: a wrong dtype, rank or size. BRAID_MEMORY. */
BRAID_API braid_status braid_value_new_tensor(braid_dtype dtype, int32_t rank, const int64_t *dim,
                                              const void *data, braid_value **value,
                                              braid_error *error);
/* The same without a copy: `data` stays the caller's and must outlive the value. */
BRAID_API braid_status braid_value_borrow_tensor(braid_dtype dtype, int32_t rank,
                                                 const int64_t *dim, void *data,
                                                 braid_value **value, braid_error *error);
/* Makes an empty sequence of tensors of type `dtype`. */
BRAID_API braid_status braid_value_new_sequence(braid_dtype dtype, braid_value **value,
                                                braid_error *error);
/* Makes an optional that holds `element` (a tensor or sequence; taken, but only on BRAID_OK). NULL:
 * an empty optional. */
BRAID_API braid_status braid_value_new_optional(braid_value *element, braid_value **value,
                                                braid_error *error);
/* Appends a tensor to a sequence. `tensor` is taken, but only on BRAID_OK. BRAID_USAGE: `sequence`
 * is not a sequence, or the dtypes differ. */
BRAID_API braid_status braid_value_append(braid_value *sequence, braid_value *tensor,
                                          braid_error *error);
/* Frees a value and all that it holds. NULL is fine. */
BRAID_API void braid_value_free(braid_value *value);

BRAID_API braid_kind braid_value_kind(const braid_value *value);
BRAID_API braid_dtype braid_value_dtype(const braid_value *value); /* optional: of its element */
BRAID_API int32_t braid_value_rank(const braid_value *value);      /* 0: not a tensor */
BRAID_API const int64_t *braid_value_dim(const braid_value *value);
BRAID_API void *braid_value_data(const braid_value *value); /* NULL: not a tensor */
/* Elements of a tensor, items of a sequence, or 0 or 1 for an optional. */
BRAID_API int64_t braid_value_count(const braid_value *value);
/* Item `i` of a sequence, or the element of an optional (i = 0); NULL: there is none. It belongs to
 * `value`. */
BRAID_API braid_value *braid_value_item(const braid_value *value, int64_t i);

/* Reads FILE.npy, or FILE.pb (an ONNX TensorProto, SequenceProto or OptionalProto), as a value for
 * the input `io`. The kind and dtype of `io` decide how the bytes are read; shapes are not
 * compared. Free the value with braid_value_free. BRAID_IO: the file cannot be read. BRAID_INPUT:
 * it is not such a file. */
BRAID_API braid_status braid_value_read(const char *path, const braid_io *io, braid_value **value,
                                        braid_error *error);
/* Writes `value` in the format that the name ends in: .npy (tensors only) or .pb. */
BRAID_API braid_status braid_value_write(const braid_value *value, const char *path,
                                         braid_error *error);

/* ---- compiling and loading ------------------------------------------------------------------- */
/* Wraps a step model in a loop. Each scan input gets one more axis, over which the loop iterates;
 * each carry output is the next iteration's carry input. Without scan inputs there is no loop: the
 * model stays as it is, and its state is only named (braid_model_carry). As `braid compile --scan
 * --carry`. */
typedef struct braid_fold {
    int32_t scan_count;
    const char *const *scan_input;
    const int32_t *scan_axis;
    int32_t carry_count;
    const char *const *carry_input, *const *carry_output;
} braid_fold;

/* The shape of an input whose rank the file does not declare. Without it, braid_load compiles for
 * the ranks of each run's tensors, and braid_compile for the few ranks that the model allows. */
typedef struct braid_shape {
    const char *input;
    int32_t rank;
    const int64_t *dim; /* rank entries; -1: any size */
} braid_shape;

typedef struct braid_options {
    uint32_t struct_size;
    /* "cpu" (or NULL); "interp": the interpreter; "cuda:sm_90", "hip:gfx90a", …: a GPU;
     * "emulate:cuda", "emulate:hip": a small GPU's emulator on the CPU; "emulate:sm_90",
     * "emulate:gfx90a": one as large as these chips. */
    const char *target;
    /* Instruction set, as the C compiler's -march names it; NULL: this machine's. With a name the
     * costs are those of the table, not those measured on this machine. */
    const char *cpu;
    const braid_fold *fold; /* NULL: none */
    /* Also write the generated text here; NULL: do not. For a GPU this file gets the device code,
     * and EMIT_PATH.host.c the host code. */
    const char *emit_path;
    bool tune;     /* measure candidates while compiling */
    bool no_cache; /* braid_load: compile anew and keep nothing, but object files that are the same
                    * for many models, in cache_dir if one is given */
    const char *cache_dir; /* NULL: $BRAID_CACHE, $XDG_CACHE_HOME/braid or ~/.cache/braid */
    /* Forced choices, "NAME=on,NAME=off,NAME=VALUE", for tests and diagnosis (`braid explain` shows
     * the names); NULL: none. BRAID_USAGE: there is no such choice. */
    const char *schedule;
    int32_t threads; /* to schedule for; 0: as many as this process may use */
    /* With `tune`: inputs to measure with, by name; the others are random. BRAID_INPUT or
     * BRAID_RUNTIME: the model does not run with them. Tuning stops after tune_seconds (0: 60). */
    int32_t tune_input_count, tune_seconds;
    const char *const *tune_input_name;
    const braid_value *const *tune_input;
    int32_t shape_count; /* BRAID_USAGE: the file declares another shape */
    const braid_shape *shape;
    /* By default, dimensions of inputs that have one name must have equal sizes: a run where they
     * differ is BRAID_RUNTIME. True: names mean nothing. */
    bool ignore_dim_names;
    /* The model itself, in memory: model_size bytes of an ONNX file, borrowed for the call; NULL:
     * it is read from the path. Then the path is only what messages call it (it need not exist),
     * and its folder is where the model's external data lies. */
    const void *model_data;
    size_t model_size;
    /* Called in the calling thread: when a step begins, and a few times a second during it. `step`
     * says what is done ("running the C compiler"), `seconds` is the time since the call began.
     * Returning false gives up: BRAID_CANCELLED. NULL: nothing is called. */
    bool (*progress)(void *user, const char *step, double seconds);
    void *progress_user;
    const char *cc; /* the C compiler's command, words apart by spaces; NULL: $CC, else cc */
    /* The library also counts times and trips of its constructs (braid_session_profile). */
    bool profile;
    /* "NAMESPACE::NAME": in a process that has PyTorch, the library registers itself as this
     * operator when it is loaded. NULL: it does not. */
    const char *torch_name;
    /* braid_compile: instead of a library (library_path is NULL) write C files and a Makefile that
     * make it into this folder, which is made if it is missing. Not for emulated targets. A
     * compiler is asked only about a `cpu` other than x86-64, x86-64-v2, -v3, -v4, armv8… and
     * armv9…. */
    const char *emit_folder;
    /* "f16", "bf16", "int8": float32 weights may be stored so, with results that differ by that
     * rounding, where a run is faster for it (int8: one scale for each column of a product). NULL:
     * they stay float32. On CPUs only; elsewhere it changes nothing. */
    const char *weights;
} braid_options;

/* Compiles the ONNX model `model_path` to the shared library `library_path` (see braid_model.h). On
 * failure nothing is left at library_path. BRAID_IO: a file cannot be read or written, or the C
 * compiler ($CC, or cc) cannot be run. */
BRAID_API braid_status braid_compile(const char *model_path, const braid_options *options,
                                     const char *library_path, braid_error *error);

/* Not a typedef, because compiled libraries export a function braid_model (braid_model.h). */
struct braid_model;

/* Opens `path`. An ONNX model is compiled into the cache (or prepared for the interpreter). A
 * library made by braid_compile is loaded: its code is trusted. Free the model with
 * braid_model_free. */
BRAID_API braid_status braid_load(const char *path, const braid_options *options,
                                  struct braid_model **model, braid_error *error);
/* Frees the model. It may be freed before its sessions, which keep what they need. */
BRAID_API void braid_model_free(struct braid_model *model);

BRAID_API const char *braid_model_name(const struct braid_model *model);
BRAID_API const char *braid_model_target(const struct braid_model *model);
BRAID_API int32_t braid_model_input_count(const struct braid_model *model);
BRAID_API int32_t braid_model_output_count(const struct braid_model *model);
/* The i-th input or output in graph order; NULL when i is out of range. Valid until the model is
 * freed. */
BRAID_API const braid_io *braid_model_input(const struct braid_model *model, int32_t i);
BRAID_API const braid_io *braid_model_output(const struct braid_model *model, int32_t i);
/* Whether outputs depend on random numbers. For a model with undeclared ranks: as far as is known
 * from the runs so far. */
BRAID_API bool braid_model_draws(const struct braid_model *model);
/* The index of the input `name`, or -1. */
BRAID_API int32_t braid_model_find_input(const struct braid_model *model, const char *name);
/* The state that was folded into the model (braid_fold): output *output of one run is input *input
 * of the next. The order is that of braid_fold. BRAID_USAGE: i is out of range. */
BRAID_API int32_t braid_model_carry_count(const struct braid_model *model);
BRAID_API braid_status braid_model_carry(const struct braid_model *model, int32_t i, int32_t *input,
                                         int32_t *output, braid_error *error);

/* ---- running --------------------------------------------------------------------------------- */
typedef struct braid_session braid_session;

typedef struct braid_session_options {
    uint32_t struct_size;
    int32_t threads;        /* the caller's thread included; 0: the library's choice */
    int64_t max_iterations; /* limit for each loop; 0: 2^31. Needing more is BRAID_RUNTIME */
    int64_t stack_depth;    /* limit for recursion; 0: 10000. Going deeper is BRAID_RUNTIME */
    /* 1 + the number of the GPU. 0: the GPU of the calling thread's current context, else
     * $BRAID_DEVICE, else the first one. */
    int32_t device;
    /* Limit for working memory, in bytes. 0: what the program always needs plus a quarter of the
     * memory that the machine has left now (on a GPU: all that the device has). A run that needs
     * more is BRAID_MEMORY; the message names the loop or node. */
    int64_t max_memory;
} braid_session_options;

/* Makes a session, which owns working memory and threads. `options` may be NULL. Free it with
 * braid_session_free. */
BRAID_API braid_status braid_session_new(struct braid_model *model,
                                         const braid_session_options *options,
                                         braid_session **session, braid_error *error);
BRAID_API void braid_session_free(braid_session *session);

/* Runs the model on one value for each input, in graph order. An optional input also takes a plain
 * tensor or sequence, or NULL for an empty optional. Fills `out` with one new value for each output
 * (free each with braid_value_free): tensors are row-major, optionals are BRAID_OPTIONAL. `out` is
 * written only on BRAID_OK. BRAID_INPUT: the kind, dtype or shape of an input is not what the model
 * declares. BRAID_RUNTIME: a check failed; the message has the node's path. */
BRAID_API braid_status braid_session_run(braid_session *session, const braid_value *const *in,
                                         braid_value **out, braid_error *error);
/* The same with memory from the caller: where out[i] is not NULL, it is a dense tensor of output
 * i's dtype and of the shape that this run gives it, and gets the result; it stays the caller's.
 * Where out[i] is NULL, it is set to a new value as by braid_session_run. No tensor may overlap an
 * input or another one. On failure `out` is not written; nor are the tensors, except that they may
 * hold anything after BRAID_MEMORY, BRAID_CANCELLED and BRAID_USAGE. BRAID_USAGE: out[i] has
 * another dtype or shape, or output i is not a tensor. */
BRAID_API braid_status braid_session_run_into(braid_session *session, const braid_value *const *in,
                                              braid_value **out, braid_error *error);
/* Ends the run in progress, which returns BRAID_CANCELLED soon (a loop looks once an iteration).
 * Without a run in progress nothing happens. On a GPU nothing does; its emulator looks where blocks
 * wait for each other. May be called from any thread and from a signal handler. */
BRAID_API void braid_session_cancel(braid_session *session);
/* braid_session_run for DLPack tensors. Outputs are new; their last owner calls the deleter. An
 * empty optional is NULL, as an input and as an output. Inputs must lie all in one of two places:
 *  - in CPU memory, with any strides; then the outputs do too;
 *  - in the memory of the session's GPU (braid_model_device_type), dense. Then the run is
 *    enqueued on the session's stream, and the outputs are new tensors in that memory, valid for
 *    work that is enqueued on the stream afterwards. If all shapes are known beforehand, the call
 *    does not wait: an error of the run is the status of the next run or of braid_session_finish.
 * Tensors with elements below one byte must be packed (lanes 1), dense, and in CPU memory.
 * BRAID_USAGE: the model has sequences, or outputs on the device with elements below one byte.
 * BRAID_INPUT: the inputs lie in different places, or on another device. */
BRAID_API braid_status braid_session_run_dlpack(braid_session *session, const DLTensor *const *in,
                                                DLManagedTensor **out, braid_error *error);

/* ---- GPUs ------------------------------------------------------------------------------------ */
/* The DLPack device type of tensors for runs on the device: kDLCUDA or kDLROCM. kDLExtDev: memory
 * of the emulator in the library; only braid_session_to_device makes tensors there. kDLCPU: the
 * model does not run on a device. */
BRAID_API int32_t braid_model_device_type(const struct braid_model *model);
/* Sets the stream (CUstream, hipStream_t) on which runs on device tensors are enqueued. NULL, the
 * initial value: the default stream. The stream must live until those runs are done. */
BRAID_API braid_status braid_session_set_stream(braid_session *session, void *stream,
                                                braid_error *error);
/* Waits for all enqueued runs and returns the status of the first that failed. */
BRAID_API braid_status braid_session_finish(braid_session *session, braid_error *error);
/* Copy a dense tensor from CPU memory to the session's GPU, and from there to a value. Both wait
 * for the session's stream. The last owner of *device calls its deleter, also after the session is
 * freed. Free *host with braid_value_free. */
BRAID_API braid_status braid_session_to_device(braid_session *session, const DLTensor *host,
                                               DLManagedTensor **device, braid_error *error);
BRAID_API braid_status braid_session_to_host(braid_session *session, const DLTensor *device,
                                             braid_value **host, braid_error *error);

/* Sets the seed of the random numbers for the session's following runs. Equal runs with one seed
 * draw equal numbers, on all targets. Until a seed is set, every run has a new one. Operators whose
 * attribute `seed` is set draw the same numbers in every run. BRAID_USAGE: the library is too old
 * to have random numbers. */
BRAID_API braid_status braid_session_set_seed(braid_session *session, uint64_t seed,
                                              braid_error *error);

typedef enum braid_stat {
    BRAID_SYNCHRONIZATIONS = 0, /* barriers of all threads in the last run */
    BRAID_WORKING_BYTES = 1,    /* working memory that the session holds */
    BRAID_RESTARTS = 2,         /* times that the last run restarted with more memory */
    BRAID_THREADS = 3,          /* threads of the session; on a GPU, thread blocks */
    BRAID_DEVICE = 4            /* the number of the session's GPU */
} braid_stat;
/* -1: not known for this target. */
BRAID_API int64_t braid_session_stat(braid_session *session, braid_stat which);

/* Writes to *json what the runs since the last call (or the session's begin) took and counted, as
 * JSON text, and begins to count anew; README.md describes it. Free it with braid_text_free. The
 * model must be compiled with braid_options.profile, for another target than interp: else
 * BRAID_USAGE. Also BRAID_USAGE: there was no run. */
BRAID_API braid_status braid_session_profile(braid_session *session, char **json,
                                             braid_error *error);
/* Frees a text that a function of this header made. NULL is fine. */
BRAID_API void braid_text_free(char *text);

#ifdef __cplusplus
}
#endif
#endif
