/* base.h: arena, vectors, strings, hash map, diagnostics.
 *
 * Everything the compiler allocates comes from one arena per compilation and dies with it, so that
 * an error anywhere can unwind to the API boundary (setjmp there, `err` here) and free all of it.
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

/* Highest rank of any tensor, and so the length of every dims array. */
#define MAX_RANK 12

/* ---- data types: numbers are those of ONNX TensorProto.DataType ---------------------------- */
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
    /* Small types, see base/small.c: */
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
const char *dtype_name(int t);       /* "float32", "int8"…; also names unsupported ONNX types */
bool dtype_is_float(DType t);        /* f16, bf16, f32, f64: what is computed with */
bool dtype_is_int(DType t);          /* integers of 8 bits and more, not bool */
bool dtype_is_signed(DType t);       /* signed integers and floats, of all sizes */

/* ---- small types: float8…, float6…, float4e2m1, int4, uint4, int2, uint2 (base/small.c) ------
 * An element is a code of at most 8 bits. In memory a code has a byte of its own, whose other bits
 * are 0; files hold the codes packed. Codes are moved, and converted from and to the other types;
 * nothing is computed with them. */
typedef struct Small {
    uint8_t bits;     /* of a code */
    bool is_float;    /* sign, exponent, mantissa; else a number, in two's complement if signed */
    uint8_t mantissa; /* bits; float8e8m0 has neither these nor a sign */
    uint8_t bias;     /* of the exponent */
    bool fnuz;        /* there is no -0: its code is the only NaN */
    /* Codes without the sign: the largest finite one; infinity and NaN, where there are such. What
     * lies above `top` is one of them. */
    uint8_t top;
    int16_t inf, nan; /* -1: none */
} Small;
const Small *dtype_small(DType t); /* NULL: t is not a small type */
static inline unsigned small_mask(const Small *s) { return (1u << s->bits) - 1; }
double small_value(DType t, unsigned code);
/* Bytes of n codes in a file: the first code is in the lowest bits. */
size_t small_packed(DType t, int64_t n);
void small_pack(DType t, int64_t n, const uint8_t *code, uint8_t *to); /* in place, too */
void small_unpack(DType t, int64_t n, const uint8_t *from, uint8_t *code);

/* Scalar conversions with ONNX/IEEE semantics (round half to even; NaN kept). */
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);
float bf16_to_f32(uint16_t h);
uint16_t f32_to_bf16(float f);
/* Reads or writes element `i` of an array of type `t`. Integers and bool go through int64 (uint64
 * bits for DT_U64, wrapping on store), floats through double (rounded on store). Of a small type
 * …_f gives the value (and cannot set it), …_i reads and writes the code. */
double elem_get_f(DType t, const void *data, int64_t i);
int64_t elem_get_i(DType t, const void *data, int64_t i);
void elem_set_f(DType t, void *data, int64_t i, double v);
void elem_set_i(DType t, void *data, int64_t i, int64_t v);
/* Wraps an int64 to the range of integer type `t` (sign- or zero-extended back to 64 bits), or of
 * codes. */
int64_t int_wrap(DType t, int64_t v);
/* The least and the largest value of an integer type or bool; the bits of one of DT_U64. */
int64_t int_least(DType t);
int64_t int_most(DType t);
/* Float value to integer of type `t`: truncation; NaN and out of range give what x86 and ONNX
 * Runtime give, computed without undefined behaviour. */
int64_t float_to_int(DType t, double v);

/* ---- arena ---------------------------------------------------------------------------------- */
typedef struct Arena Arena;
struct Diag;
Arena *arena_new(struct Diag *d);      /* allocation failure raises BRAID_ST_MEMORY on d */
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
/* Text is malloc'd, or lies in arena `a`. Without memory: raises on the arena's or the given Diag;
 * with neither, the text is lost, p is an empty string and `failed` stays set. */
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
void sb_fail(Sb *s); /* as if there had been no memory for s; raises when s would */
void sb_free(Sb *s);

/* ---- hash map from string or 64-bit key to pointer, in an arena ------------------------------ */
typedef struct Map Map;
Map *map_new(Arena *a);
void *map_get(const Map *m, const char *key);       /* NULL when absent */
void map_set(Map *m, const char *key, void *value); /* key is copied */
void *map_geti(const Map *m, uint64_t key);
void map_seti(Map *m, uint64_t key, void *value);
uint64_t hash_bytes(const void *p, size_t n, uint64_t seed);

/* ---- diagnostics ----------------------------------------------------------------------------- */
typedef enum {
    ST_OK = 0,
    ST_MODEL = 1,       /* the model is invalid */
    ST_UNSUPPORTED = 2, /* the model is valid but needs something Braid does not support */
    ST_INPUT = 3,       /* an input tensor or file is wrong */
    ST_RUNTIME = 4,     /* a run-time check failed: index, division, iteration cap, shape */
    ST_MEMORY = 5,      /* out of memory */
    ST_IO = 6,          /* a file cannot be read or written, a tool cannot be run */
    ST_USAGE = 7        /* the API or command line was used wrongly */
} Status;

typedef struct Diag {
    Status status;
    char message[1024];
    jmp_buf *top; /* innermost handler; `err` jumps there */
} Diag;

/* Runs `body` with errors caught: `if (TRY(d, jb)) { … } else { …error… } ` is spelled out where it
 * is used, because setjmp must live in the caller's frame: jmp_buf jb, *up = d->top; d->top = &jb;
 *     if (setjmp(jb) == 0) { …; d->top = up; } else { d->top = up; …d->status, d->message… }
 */
/* The user's fault: sets status and message and unwinds. `path` names the node, or NULL. */
_Noreturn void err(Diag *d, Status st, const char *path, const char *fmt, ...) PRINTF(4, 5);
/* Our fault: prints and aborts. */
_Noreturn void die(const char *fmt, ...) PRINTF(1, 2);
#define ASSERT(c) ((c) ? (void)0 : die("%s:%d: assertion failed: %s", __FILE__, __LINE__, #c))

/* Checked arithmetic on sizes: false when the result leaves [0, 2^62]. */
bool mul_size(int64_t a, int64_t b, int64_t *r);
bool add_size(int64_t a, int64_t b, int64_t *r);

#endif
