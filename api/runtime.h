/* runtime.h: declarations that the files of api/ share. The public ones are in include/braid.h.
 *
 * These functions allocate with malloc and return a braid_status. They do not unwind: errors that
 * the compiler raises are caught where it is called.
 */
#ifndef BRAID_RUNTIME_H
#define BRAID_RUNTIME_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "codegen/compile.h"
#include "codegen/text/seed.inc"
#include "include/braid.h"
#include "include/braid_model.h"
#include "scheduler/cost/store.h"
#include "utask/utask.h"

/* Fills *e (may be NULL) and returns s. Line breaks in the message become spaces. */
braid_status rt_fail(braid_error *e, braid_status s, const char *fmt, ...) PRINTF(3, 4);
/* Fills *e with the error that the compiler left in d, and returns its status. */
braid_status rt_fail_diag(braid_error *e, const Diag *d);

/* ---- values (value.c) ------------------------------------------------------------------------ */
struct braid_value {
    braid_kind kind;
    braid_dtype dtype; /* of the tensor, the items, or the element */
    int rank;          /* of a tensor */
    int64_t dim[MAX_RANK];
    int64_t count; /* elements */
    void *data;
    bool owns;           /* data is freed with the value */
    int nitem, capacity; /* items of a sequence; optional: 0 or 1 */
    braid_value **item;
};
#define RT_MAX_BYTES ((int64_t)1 << 46)

/* Bytes of a tensor with these dims; -1: a dim is negative, or the size is above RT_MAX_BYTES. */
int64_t rt_tensor_bytes(braid_dtype dtype, int rank, const int64_t *dim);
/* Makes a value for `io`: a tensor (a dim that is not known becomes 1), an empty sequence, or NULL
 * for an optional. Floats are uniform in [-1, 1), drawn with *seed; small floats are any finite
 * code of magnitude at most 1, but float8e8m0 is 1. Integers and bool are 0. BRAID_INPUT: the rank
 * is not declared. */
braid_status rt_value_random(const braid_io *io, uint64_t *seed, braid_value **v, braid_error *e);
/* braid_value_new_tensor whose elements are undefined. */
braid_status rt_value_new_output(braid_dtype dtype, int rank, const int64_t *dim, braid_value **v,
                                 braid_error *e);
/* Makes a tensor value. The malloc'd `data` is taken, also on failure. */
braid_status rt_value_take(braid_dtype dtype, int rank, const int64_t *dim, void *data,
                           braid_value **v, braid_error *e);

/* ---- files (file.c, npy.c, proto.c) ---------------------------------------------------------- */
/* Reads a whole file; *bytes is malloc'd. */
braid_status rt_read_file(const char *path, void **bytes, size_t *n, braid_error *e);
/* The real path of a file to be written, after following links: *real, malloc'd. BRAID_IO: it is
 * neither a regular file nor a new one in an existing folder. */
braid_status rt_output_path(const char *path, char **real, braid_error *e);
/* Writes such a file through a temporary file beside it and a rename. Messages name the file. */
braid_status rt_write_file(const char *path, const void *bytes, size_t n, braid_error *e);
/* Makes a value from the bytes of a .npy file. `dtype` is what the input declares, or
 * BRAID_DTYPE_NONE. It decides whether two opaque bytes ('V2') are a bfloat16. If it is a small
 * type, arrays with one byte per element are of that type: the bytes are codes ('V1', 'u1', or
 * 'f1', NumPy's name for float8e5m2), or the values of an integer type ('i1'). Messages do not name
 * the file. */
braid_status npy_parse(const void *bytes, size_t n, braid_dtype dtype, braid_value **v,
                       braid_error *e);
/* Appends tensor v as a .npy file. */
void npy_print(Sb *s, const braid_value *v);
/* Appends v as an ONNX TensorProto, SequenceProto or OptionalProto. */
void proto_print(Sb *s, const braid_value *v);
/* Makes a value from the bytes of a .pb file, as `io` declares. Messages do not name the file. */
braid_status proto_parse(const void *bytes, size_t n, const braid_io *io, braid_value **v,
                         braid_error *e);

/* ---- models (load.c, model.c, load_library.c) ------------------------------------------------ */
struct braid_model {
    _Atomic int refs;
    const char *name, *target;
    int nin, nout;
    braid_io *in, *out;
    int ncarry; /* state: positions of inputs and outputs */
    const int32_t *carry_input, *carry_output;
    /* With target interp: */
    Arena *arena; /* owns the program and all strings of the ios */
    Diag diag;
    Program *program;
    Interp *interp;
    /* With a compiled library: */
    void *handle;
    const braid_model_v1 *lib; /* &table; NULL: no library */
    braid_model_v1 table;      /* copy of the library's; fields that it lacks are 0 */
    char *folder;              /* removed with the model; NULL: none */
    /* With undeclared ranks, where runs decide what to compile (open.c); else NULL. */
    struct RtOpen *open;
};

struct braid_model *rt_model_new(void); /* an empty one; NULL: out of memory */
void rt_model_retain(struct braid_model *m);
/* Makes the new m the model of a compiled library. */
braid_status rt_model_library(struct braid_model *m, const char *path, braid_error *e);

/* ---- sessions (session.c, run.c, dlpack.c, device_tensors.c)
 * ---------------------------------------- */
struct braid_session {
    struct braid_model *model;
    pthread_mutex_t lock; /* held during a run and while its results are copied */
    void *lib_session;    /* of a compiled library */
    void *stream;         /* for runs on device tensors */
    InterpConfig interp;
    _Atomic int cancelled; /* the interpreter's run is to end */
    bk_seed seed;          /* of the interpreter's runs */
    /* Of an open model: a session for each combination of ranks; that of the last run is first. */
    struct RtRanked *ranked;
    _Atomic(struct RtRanked *) newest; /* the same, in a list that only grows at its front */
    braid_session_options options;
};

/* ---- open models: some inputs have no declared rank (open.c) --------------------------------- */
/* Makes m such a model. `load` is braid_load: it compiles the file for given ranks. */
typedef braid_status RtLoad(const char *path, const braid_options *o, struct braid_model **m,
                            braid_error *e);
braid_status rt_open_ranks(struct braid_model *m, const char *path, const braid_options *o,
                           RtLoad *load, braid_error *e);
void rt_open_free(struct RtOpen *open);
void rt_ranked_free(struct RtRanked *r);
/* The rank and length of a run's input. */
typedef struct RtSeen {
    int rank;       /* -1: not a tensor, or absent */
    int64_t length; /* of the last axis */
} RtSeen;
/* The session below s for a run with these tensors, one entry for each input. It lives as long as
 * s. BRAID_INPUT: the model does not work with their ranks. */
braid_status rt_ranked_session(braid_session *s, const RtSeen *seen, braid_session **to,
                               braid_error *e);
void rt_ranked_cancel(braid_session *s); /* all their runs; async-signal-safe */
/* The session of the last run; NULL: there was no run. */
braid_session *rt_last_session(braid_session *s);
/* Has the next run number the activations of recursions anew, and measure it. False: it cannot. */
bool rt_renumber(braid_session *s);
/* BRAID_STAT_…, of the last run. */
int64_t rt_stat(braid_session *s, int which);
/* braid_model_device_type, braid_session_set_stream and _finish for open models. */
bool rt_open_draws(const struct braid_model *m); /* for the ranks of runs so far */
int32_t rt_open_device_type(const struct braid_model *m);
braid_status rt_ranked_stream(braid_session *s, void *stream, braid_error *e);
braid_status rt_ranked_finish(braid_session *s, braid_error *e);
/* BRAID_INPUT: v does not fit the input. */
braid_status rt_check_input(const braid_io *io, const braid_value *v, braid_error *e);
/* Puts a declared input or output into the public form; strings and arrays are in arena a. */
void rt_program_io(Arena *a, const Io *from, braid_io *io);

braid_dtype rt_from_dl(DLDataType t); /* BRAID_DTYPE_NONE: not supported */
DLDataType rt_to_dl(braid_dtype t);
bool rt_is_dense(const DLTensor *t);
bool rt_is_packed(braid_dtype t); /* elements share bytes in DLPack tensors */
/* *on: whether the run's tensors are in the memory of the session's device. BRAID_INPUT: some are
 * and some are not. */
braid_status rt_on_device(braid_session *s, const DLTensor *const *in, bool *on, braid_error *e);
/* braid_session_run_dlpack for such tensors. */
braid_status rt_run_on_device(braid_session *s, const DLTensor *const *in, DLManagedTensor **out,
                              braid_error *e);

/* Whether the file is a shared library (not a model). */
bool rt_is_library(const char *path);
/* Opens a compiled library into m. */
braid_status rt_open_library(const char *path, struct braid_model *m, braid_error *e);

/* BRAID_USAGE: there is no such target; the message lists the targets. */
braid_status rt_target(const char *target, braid_error *e);
/* Copies the caller's options and fills in defaults. If the caller wants to know the progress, the
 * copy's progress_user is p, which begins. BRAID_USAGE: they make no sense. */
braid_status rt_options(const braid_options *from, braid_options *o, Progress *p, braid_error *e);
/* The p of such a copy; NULL: nobody wants to know. */
Progress *rt_progress(const braid_options *o);
/* A step begins (base/base.h). BRAID_CANCELLED: the caller gives up. */
braid_status rt_step(const braid_options *o, const char *step, braid_error *e);
/* Puts the options into the compiler's form. *c points to *fold. */
void rt_compile_options(const braid_options *o, FoldSpec *fold, CompileOptions *c);

/* ---- compiling (build.c, job.c, tune.c, cache.c, folder.c) ----------------------------------- */
typedef struct RtChoices {
    Measured *p; /* measured scheduler choices, sorted by key; malloc'd */
    int n;
    Device device; /* if `calibrated`: with numbers measured on this machine */
    bool calibrated;
} RtChoices;
typedef struct RtJob { /* one compilation */
    Diag d;
    Arena *arena;
    Program *p;
    Texts texts;
    CompileOptions o;
    FoldSpec fold;
    char *kept; /* CompileOptions.kept */
} RtJob;
/* `o` and `choices` (may be NULL) are borrowed until rt_job_end. */
void rt_job_begin(RtJob *j, const braid_options *o, const RtChoices *choices);
braid_status rt_job_emit(RtJob *j, const char *model_path, braid_error *e); /* to j->texts */
braid_status rt_job_build(RtJob *j, const char *folder, const char *file, braid_error *e);
/* Writes what makes the library as C files with a Makefile (emit_folder.c). */
braid_status rt_job_folder(RtJob *j, const char *folder, braid_error *e);
void rt_job_end(RtJob *j);
/* Measures the scheduler's choices in the model that are not in *choices yet, adds them to it, and
 * keeps them in the store for device `key`. BRAID_USAGE: `key` is
 * NULL, because the target is not this machine. */
braid_status rt_tune(const char *model_path, const braid_options *o, Store *s, const char *key,
                     RtChoices *choices, braid_error *e);
/* Not an error: the model has inputs whose rank only a run knows (CompileOptions.by_run). */
#define RT_OPEN ((braid_status)-1)
/* Compiles to FOLDER/FILE, with its weights file beside it; or only to o->emit_folder. May return
 * RT_OPEN if by_run. */
braid_status rt_build(const char *model_path, const braid_options *o, bool by_run,
                      const char *folder, const char *file, braid_error *e);
/* *path: the library for the model, from the cache if possible (`fresh`: built again). If there is
 * no cache, the library is in the temporary folder *folder, which the caller removes; else *folder
 * is NULL. Both are malloc'd. RT_OPEN: there is no library. */
braid_status rt_cached_library(const char *model_path, const braid_options *o, bool fresh,
                               char **path, char **folder, braid_error *e);
/* The folder of the cache, malloc'd; NULL: there is none. */
char *rt_cache_folder(const braid_options *o);
/* The folder in it for object files that are kept (CompileOptions.kept): the same. */
char *rt_kept_folder(const braid_options *o);
/* As mkdir -p; false: it failed, or another user could put libraries there. */
bool rt_make_folders(char *path);
/* Whether it is this user's folder or file, and no other user can change it. */
bool rt_is_own(const char *path);
/* Opens the store of this machine's measurements in the cache. NULL, which is an empty store: there
 * is none, or o wants none. `write`: makes it if it is missing. Close it with store_close. */
Store *rt_store(const braid_options *o, bool write);
/* Makes an empty folder PREFIX.XXXXXX; its name is malloc'd. */
braid_status rt_temp_folder(const char *prefix, char **folder, braid_error *e);
void rt_remove_folder(const char *folder);
/* Malloc'd text; NULL: out of memory. */
char *rt_text(const char *fmt, ...) PRINTF(1, 2);

#endif
