/* runtime.h: what the files of api/ share. include/braid.h is the public side.
 *
 * The runtime allocates with malloc and returns a braid_status; nothing here unwinds, except that
 * calls into the compiler do, which are caught where they are made.
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

/* Fills *e (when not NULL) and returns s. Line breaks in the message become spaces. */
braid_status rt_fail(braid_error *e, braid_status s, const char *fmt, ...) PRINTF(3, 4);
/* The error that the compiler left in d. */
braid_status rt_fail_diag(braid_error *e, const Diag *d);

/* ---- values (value.c) -------------------------------------------------------------------------
 */
struct braid_value {
    braid_kind kind;
    braid_dtype dtype; /* of the tensor, the items, or the element's */
    int rank;          /* tensor */
    int64_t dim[MAX_RANK];
    int64_t count; /* elements */
    void *data;
    bool owns;           /* data is ours to free */
    int nitem, capacity; /* sequence items; optional: 0 or 1 */
    braid_value **item;
};
#define RT_MAX_BYTES ((int64_t)1 << 46)

/* Bytes of a tensor of these dims; -1 when a dim is negative or the size is out of reason. */
int64_t rt_tensor_bytes(braid_dtype dtype, int rank, const int64_t *dim);
/* A value for `io`: floats uniform in [-1, 1) drawn with *seed (small ones: any finite code of
 * magnitude 1 at most; float8e8m0 1), integers and bool 0, unknown dims 1; an empty sequence; NULL
 * for an optional. BRAID_INPUT: its rank is not declared. */
braid_status rt_value_random(const braid_io *io, uint64_t *seed, braid_value **v, braid_error *e);
/* A tensor value that takes over malloc'd `data` (also on failure). */
braid_status rt_value_take(braid_dtype dtype, int rank, const int64_t *dim, void *data,
                           braid_value **v, braid_error *e);

/* ---- files (file.c, npy.c, proto.c) -------------------------------------------------------------
 */
/* The whole of a file, malloc'd. */
braid_status rt_read_file(const char *path, void **bytes, size_t *n, braid_error *e);
/* Where a file that is to be written really lies: behind links. Malloc'd. It must be a regular file
 * or a new one in a folder that is there; else BRAID_IO with a message. */
braid_status rt_output_path(const char *path, char **real, braid_error *e);
/* Writes there by way of a temporary file beside it and a rename. Messages name the file. */
braid_status rt_write_file(const char *path, const void *bytes, size_t n, braid_error *e);
/* The value in the bytes of a .npy file. `dtype` is what the input declares or BRAID_DTYPE_NONE: it
 * decides whether two opaque bytes ('V2') are a bfloat16, and makes a small type of arrays with a
 * byte for each element: codes ('V1', 'u1', and 'f1', NumPy's name of float8e5m2), or for integer
 * types the values ('i1'). Messages do not name the file. */
braid_status npy_parse(const void *bytes, size_t n, braid_dtype dtype, braid_value **v,
                       braid_error *e);
/* Appends a .npy file with tensor v. */
void npy_print(Sb *s, const braid_value *v);
/* Appends v as an ONNX TensorProto, SequenceProto or OptionalProto. */
void proto_print(Sb *s, const braid_value *v);
/* The value in the bytes of a .pb file, read as `io` declares. Messages do not name the file. */
braid_status proto_parse(const void *bytes, size_t n, const braid_io *io, braid_value **v,
                         braid_error *e);

/* ---- models (load.c, model.c, library.c) ---------------------------------------------------- */
struct braid_model {
    _Atomic int refs;
    const char *name, *target;
    int nin, nout;
    braid_io *in, *out;
    /* target interp: */
    Arena *arena; /* owns program, and all strings of the ios */
    Diag diag;
    Program *program;
    Interp *interp;
    /* a compiled library: */
    void *handle;
    const braid_model_v1 *lib; /* &table, or NULL */
    braid_model_v1 table;      /* the library's, as far as it has it */
    char *folder;              /* removed at the end; NULL: none */
    struct RtOpen *open;       /* compiled for the ranks that runs bring (open.c), or NULL */
};

struct braid_model *rt_model_new(void); /* of nothing yet; NULL: no memory */
void rt_model_retain(struct braid_model *m);
/* m, which is new, becomes that of a compiled library. */
braid_status rt_model_library(struct braid_model *m, const char *path, braid_error *e);

/* ---- sessions (session.c, dlpack.c, device.c) ------------------------------------------------ */
struct braid_session {
    struct braid_model *model;
    pthread_mutex_t lock; /* held while running and while results are copied out */
    void *lib_session;    /* of a compiled library */
    void *stream;         /* of runs on device tensors */
    InterpConfig interp;
    bk_seed seed; /* of the interpreter's runs */
    struct RtRanked
        *ranked; /* of an open model: sessions for certain ranks, the last run's first */
    braid_session_options options;
};

/* ---- models whose inputs leave their ranks open (open.c) --------------------------------------
 */
/* m becomes such a model. `load` is braid_load, which makes a model of it for certain ranks. */
typedef braid_status RtLoad(const char *path, const braid_options *o, struct braid_model **m,
                            braid_error *e);
braid_status rt_open_ranks(struct braid_model *m, const char *path, const braid_options *o,
                           RtLoad *load, braid_error *e);
void rt_open_free(struct RtOpen *open);
void rt_ranked_free(struct RtRanked *r);
/* What a run brings for an input. */
typedef struct RtSeen {
    int rank;       /* -1: no tensor, or none there */
    int64_t length; /* of the last axis */
} RtSeen;
/* The session of s for a run with these tensors, one for each input. It lives as long as s.
 * BRAID_INPUT: the model does not work with their ranks. */
braid_status rt_ranked_session(braid_session *s, const RtSeen *seen, braid_session **to,
                               braid_error *e);
/* That of the last run, NULL: there was none. */
braid_session *rt_last_session(braid_session *s);
/* braid_model_device_type, braid_session_set_stream and _finish for open models. */
bool rt_open_draws(const struct braid_model *m); /* of the ranks that came so far */
int32_t rt_open_device_type(const struct braid_model *m);
braid_status rt_ranked_stream(braid_session *s, void *stream, braid_error *e);
braid_status rt_ranked_finish(braid_session *s, braid_error *e);
/* BRAID_INPUT when v is no value for the input. */
braid_status rt_check_input(const braid_io *io, const braid_value *v, braid_error *e);
/* A declared input or output in the public form; strings and arrays in arena a. */
void rt_program_io(Arena *a, const Io *from, braid_io *io);

braid_dtype rt_from_dl(DLDataType t); /* BRAID_DTYPE_NONE: not supported */
DLDataType rt_to_dl(braid_dtype t);
bool rt_is_dense(const DLTensor *t);
bool rt_is_packed(braid_dtype t); /* in DLPack tensors several elements share a byte */
/* Whether the run's tensors are in the memory of the session's device; BRAID_INPUT when they are
 * here and there. */
braid_status rt_on_device(braid_session *s, const DLTensor *const *in, bool *on, braid_error *e);
/* braid_session_run_dlpack for those. */
braid_status rt_run_on_device(braid_session *s, const DLTensor *const *in, DLManagedTensor **out,
                              braid_error *e);

/* Whether it is a compiled library (of anything) and no model. */
bool rt_is_library(const char *path);
/* Opens a compiled library into m. */
braid_status rt_open_library(const char *path, struct braid_model *m, braid_error *e);

/* BRAID_USAGE, with the names that there are, when there is no such target. */
braid_status rt_target(const char *target, braid_error *e);
/* A copy of the caller's options with its defaults; BRAID_USAGE when they make no sense. */
braid_status rt_options(const braid_options *from, braid_options *o, braid_error *e);
/* The compiler's form of the options; `fold` is room that *c points to. */
void rt_compile_options(const braid_options *o, FoldSpec *fold, CompileOptions *c);

/* ---- compiling (build.c, job.c, tune.c, cache.c, folder.c) ------------------------------------------------------------- */
typedef struct RtChoices {
    Measured *p; /* measured choices of the scheduler, malloc'd, sorted by key */
    int n;
    Device device; /* with this machine's numbers, if `calibrated` */
    bool calibrated;
} RtChoices;
typedef struct RtJob { /* a compilation */
    Diag d;
    Arena *arena;
    Program *p;
    Texts texts;
    CompileOptions o;
    FoldSpec fold;
} RtJob;
/* `o` and `choices` (NULL: none) are borrowed until the end. */
void rt_job_begin(RtJob *j, const braid_options *o, const RtChoices *choices);
braid_status rt_job_emit(RtJob *j, const char *model_path, braid_error *e); /* to j->texts */
braid_status rt_job_build(RtJob *j, const char *folder, const char *file, braid_error *e);
void rt_job_end(RtJob *j);
/* Measures what the scheduler can choose in the model and is not in *choices yet, adds that, and
 * keeps it in the store for device `key` (NULL: BRAID_USAGE, it is not this machine). Shows
 * progress on a terminal. */
braid_status rt_tune(const char *model_path, const braid_options *o, Store *s, const char *key,
                     RtChoices *choices, braid_error *e);
/* The model has inputs whose rank only a run knows (CompileOptions.by_run): not an error. */
#define RT_OPEN ((braid_status)-1)
/* Compiles to FOLDER/FILE and what it needs beside it. RT_OPEN, with by_run. */
braid_status rt_build(const char *model_path, const braid_options *o, bool by_run,
                      const char *folder, const char *file, braid_error *e);
/* The library for the model, from the cache where it can be (fresh: but made anew): *path. RT_OPEN:
 * there is none. When
 * there is no cache, *folder is the temporary folder it lies in, for the caller to remove; else
 * NULL. Both are malloc'd. */
braid_status rt_cached_library(const char *model_path, const braid_options *o, bool fresh,
                               char **path, char **folder, braid_error *e);
/* Where the cache is; malloc'd, NULL: nowhere. */
char *rt_cache_folder(const braid_options *o);
/* mkdir -p; false when it cannot be, or somebody else could put libraries there. */
bool rt_make_folders(char *path);
/* Whether it is a folder or file of this user that no other one can change. */
bool rt_is_own(const char *path);
/* What was measured on this machine, kept in the cache; NULL, which is an empty store, when there
 * is none or o wants none. `write`: made when it is not there. store_close. */
Store *rt_store(const braid_options *o, bool write);
/* A new empty folder PREFIX.XXXXXX; malloc'd name. */
braid_status rt_temp_folder(const char *prefix, char **folder, braid_error *e);
void rt_remove_folder(const char *folder);
/* malloc'd text, or NULL when there is no memory. */
char *rt_text(const char *fmt, ...) PRINTF(1, 2);

#endif
