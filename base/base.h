/* base.h: arena, vectors, strings, hash map, diagnostics.
 *
 * Everything that the compiler allocates comes from one arena per compilation. So an error anywhere
 * can unwind to the API boundary (setjmp there, `err` here), where the arena is freed.
 */
#ifndef BRAID_BASE_H
#define BRAID_BASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define PRINTF(f, a) __attribute__((format(printf, f, a)))

/* Highest rank of any tensor: the length of every array of dims. */
#define MAX_RANK 12

/* ---- data types: the numbers of ONNX TensorProto.DataType ----------------------------------- */
typedef enum {
    DT_NONE = 0,
    DT_F32 = 1,
    DT_U8 = 2,
    DT_I8 = 3,
    DT_U16 = 4,
    DT_I16 = 5,
    DT_I32 = 6,
    DT_I64 = 7,
    DT_BOOL = 9,
    DT_F16 = 10,
    DT_F64 = 11,
    DT_U32 = 12,
    DT_U64 = 13,
    DT_BF16 = 16,
    /* small types, see base/small.c: */
    DT_F8E4M3FN = 17,
    DT_F8E4M3FNUZ = 18,
    DT_F8E5M2 = 19,
    DT_F8E5M2FNUZ = 20,
    DT_U4 = 21,
    DT_I4 = 22,
    DT_F4E2M1 = 23,
    DT_F8E8M0 = 24,
    DT_U2 = 25,
    DT_I2 = 26,
    DT_F6E2M3 = 27,
    DT_F6E3M2 = 28
} DType;

bool dtype_supported(int onnx_type); /* one of the enum above except DT_NONE */
size_t dtype_size(DType t);          /* bytes of an element in memory */
const char *dtype_name(int t);       /* "float32", "int8", …; also names unsupported ONNX types */
bool dtype_is_float(DType t);        /* f16, bf16, f32, f64: floats that kernels compute with */
bool dtype_is_int(DType t);          /* integers of 8 bits and more, not bool */
bool dtype_is_signed(DType t);       /* signed integers and floats, of all sizes */

/* ---- small types: float8…, float6…, float4e2m1, int4, uint4, int2, uint2 (base/small.c) ------
 * An element is a code of at most 8 bits. In memory each code has a byte of its own, whose other
 * bits are 0; files hold the codes packed. Kernels only move codes and convert them from and to
 * other types. */
typedef struct Small {
    uint8_t bits;     /* of a code */
    bool is_float;    /* sign, exponent, mantissa; else an integer (two's complement if signed) */
    uint8_t mantissa; /* bits; float8e8m0 has no mantissa and no sign */
    uint8_t bias;     /* of the exponent */
    bool fnuz;        /* there is no -0: its code is the only NaN */
    /* Codes, without the sign bit: the largest finite value, infinity, NaN (-1: there is none).
     * Every code above `top` is infinity or NaN. */
    uint8_t top;
    int16_t inf, nan;
} Small;
const Small *dtype_small(DType t); /* NULL: t is not a small type */
static inline unsigned small_mask(const Small *s) { return (1u << s->bits) - 1; }
double small_value(DType t, unsigned code);
/* Bytes of n packed codes. The first code is in the lowest bits. */
size_t small_packed(DType t, int64_t n);
void small_pack(DType t, int64_t n, const uint8_t *code, uint8_t *to); /* `to` may be `code` */
void small_unpack(DType t, int64_t n, const uint8_t *from, uint8_t *code);

/* Scalar conversions with ONNX/IEEE semantics (round half to even; NaN stays NaN). */
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);
float bf16_to_f32(uint16_t h);
uint16_t f32_to_bf16(float f);
/* Read or write element `i` of an array of type `t`. Integers and bool pass as int64 (DT_U64: the
 * uint64's bits) and wrap on store; floats pass as double and are rounded on store. For a small
 * type, elem_get_f gives the value, elem_set_f must not be called, and the _i functions read and
 * write the code. */
double elem_get_f(DType t, const void *data, int64_t i);
int64_t elem_get_i(DType t, const void *data, int64_t i);
void elem_set_f(DType t, void *data, int64_t i, double v);
void elem_set_i(DType t, void *data, int64_t i, int64_t v);
/* Wraps an int64 to the range of integer type `t` (sign- or zero-extended back to 64 bits), or to
 * the codes of small type `t`. */
int64_t int_wrap(DType t, int64_t v);
/* The least and the largest value of an integer type or bool; the bits of one of DT_U64. */
int64_t int_least(DType t);
int64_t int_most(DType t);
/* Converts a float to an integer of type `t` by truncation. NaN and values out of range give what
 * x86 and ONNX Runtime give, without undefined behaviour. */
int64_t float_to_int(DType t, double v);

/* ---- arena ---------------------------------------------------------------------------------- */
typedef struct Arena Arena;
struct Diag;
Arena *arena_new(struct Diag *d);      /* out of memory: raises ST_MEMORY on d */
void arena_free(Arena *a);             /* NULL is fine */
void *arena_alloc(Arena *a, size_t n); /* zeroed, 64-byte aligned for n >= 64, else 16 */
size_t arena_bytes(const Arena *a);
char *arena_strdup(Arena *a, const char *s);
char *arena_strndup(Arena *a, const char *s, size_t n);
char *arena_printf(Arena *a, const char *fmt, ...) PRINTF(2, 3);
void *arena_memdup(Arena *a, const void *p, size_t n);
#define NEW(a, T) ((T *)arena_alloc((a), sizeof(T)))
#define NEWN(a, T, n) ((T *)arena_alloc((a), sizeof(T) * (size_t)(n)))

/* ---- growable array in an arena: VEC(T) v = {0}; vec_push(arena, &v, x); v.p[i], v.n --------- */
#define VEC(T)                                                                                     \
    struct {                                                                                       \
        T *p;                                                                                      \
        int n, cap;                                                                                \
    }
void *vec_grow_(Arena *a, void *p, int n, int *cap, size_t elem);
#define vec_push(a, v, x)                                                                          \
    ((v)->n == (v)->cap                                                                            \
         ? (void)((v)->p = vec_grow_((a), (v)->p, (v)->n, &(v)->cap, sizeof *(v)->p))              \
         : (void)0,                                                                                \
     (v)->p[(v)->n++] = (x))

/* ---- string builder (free with sb_free) ------------------------------------------------------ */
/* The text is malloc'd, or lies in arena `a`. When out of memory, functions raise on the arena's
 * Diag or on `d`. With neither, the text is lost: p is an empty string and `failed` stays set. */
typedef struct {
    char *p;
    size_t n, cap;
    Arena *a;
    struct Diag *d;
    bool failed;
} Sb;
void sb_printf(Sb *s, const char *fmt, ...) PRINTF(2, 3);
void sb_puts(Sb *s, const char *str);
void sb_write(Sb *s, const char *p, size_t n);
void sb_json(Sb *s, const char *text); /* as a JSON string, with its quotes */
void sb_fail(Sb *s);                   /* treats s as out of memory */
void sb_free(Sb *s);

/* ---- hash map from string or 64-bit key to pointer, in an arena ------------------------------ */
typedef struct Map Map;
Map *map_new(Arena *a);
void *map_get(const Map *m, const char *key);       /* NULL when absent */
void map_set(Map *m, const char *key, void *value); /* key is copied */
void *map_geti(const Map *m, uint64_t key);
void map_seti(Map *m, uint64_t key, void *value);
/* Adds a key to a set of keys; false: it is in it already. */
bool map_add(Map *m, uint64_t key);
uint64_t hash_bytes(const void *p, size_t n, uint64_t seed);

/* ---- progress -------------------------------------------------------------------------------- */
/* Returns false to give up. `seconds` is the time since progress_begin. */
typedef bool ProgressFn(void *user, const char *step, double seconds);
typedef struct Progress { /* a long call, as its caller sees it */
    ProgressFn *tell;
    void *user;
    double begin, told; /* told: seconds after begin, when `tell` was called last in this step */
    char step[120];     /* what is being done; "": nothing yet */
    bool cancelled;     /* `tell` returned false, and is not called any more */
} Progress;
void progress_begin(Progress *p, ProgressFn *tell, void *user);
/* A step begins: tells it. False: give up. NULL is nobody to tell, here and below. */
bool progress_step(Progress *p, const char *fmt, ...) PRINTF(2, 3);
/* To be called often during a step: tells it again a few times a second. False: give up. */
bool progress_ask(Progress *p);
struct Diag;
/* progress_ask for d->progress, which raises ST_CANCELLED. */
void progress_tick(struct Diag *d);

/* ---- diagnostics ----------------------------------------------------------------------------- */
typedef enum {
    ST_OK = 0,
    ST_MODEL = 1,       /* the model is invalid */
    ST_UNSUPPORTED = 2, /* the model is valid but needs something Braid does not support */
    ST_INPUT = 3,       /* an input tensor or file is wrong */
    ST_RUNTIME = 4,     /* a run-time check failed: index, division, iteration cap, shape */
    ST_MEMORY = 5,      /* out of memory */
    ST_IO = 6,          /* a file cannot be read or written, a tool cannot be run */
    ST_USAGE = 7,       /* the API or command line was used wrongly */
    ST_CANCELLED = 8    /* the caller gave up */
} Status;

typedef struct Diag {
    Status status;
    char message[1024];
    jmp_buf *top;       /* innermost handler; `err` jumps there */
    Progress *progress; /* who waits for the work, or NULL */
} Diag;

/* How to catch errors. There is no function for it, because setjmp must run in the catching frame:
 *     jmp_buf jb, *up = d->top;
 *     d->top = &jb;
 *     if (setjmp(jb) == 0) { work; d->top = up; } else { d->top = up; use d->status, d->message }
 */
/* For the user's fault: sets status and message and unwinds. `path` names the node, or NULL. */
_Noreturn void err(Diag *d, Status st, const char *path, const char *fmt, ...) PRINTF(4, 5);
/* Raises the error that was just caught to the next catcher, with its status and message. */
_Noreturn void err_again(Diag *d);
/* For our own fault: prints the message and aborts. */
_Noreturn void die(const char *fmt, ...) PRINTF(1, 2);
#define ASSERT(c) ((c) ? (void)0 : die("%s:%d: assertion failed: %s", __FILE__, __LINE__, #c))

/* A product of sizes: false when the result leaves [0, 2^62]. */
bool mul_size(int64_t a, int64_t b, int64_t *r);
static inline int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t round_up(int64_t a, int64_t to) { return div_up(a, to) * to; }

#endif
