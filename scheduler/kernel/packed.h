/* packed.h: constants in the order in which a kernel reads them.
 *
 * A kernel plans what lies where; the emitter fills in the data (codegen/emit/emit_packed.c). An
 * array holds, for each position of the outer dimensions, one line of each source after the other:
 * its elements along the inner dimensions, and zeros behind them. */
#ifndef BRAID_PACKED_H
#define BRAID_PACKED_H

#include "utask/utask.h"

#define PACK_SOURCES 16
#define PACK_DIMS (4 * MAX_RANK)

typedef struct PackSource {
    const Const *data;
    int64_t base, stride[PACK_DIMS]; /* of the first element; along each dimension */
    int64_t step;                    /* to the next code of a word */
} PackSource;

/* Arrays of 8-bit integers for sums in int32 (integer.h). Their dimensions are vectors, axes of the
 * sum, and lanes. */
typedef enum PackForm {
    PACK_PLAIN,
    PACK_STEPS, /* `step` neighbours along the last `run` axes, taken as one, lie together for each
                   lane, zeros behind the last ones: int8, of uint8 less 128; or int16, less the
                   zero point */
    PACK_SUMS,  /* int32, of each lane: the sum of all elements less the zero point */
    PACK_ZEROS, /* int32, of each lane: the zero point, of uint8 less 128 */
} PackForm;

typedef struct Packed {
    const char *what; /* the tensor that the first source is of */
    int nsource, nouter, ninner;
    PackSource source[PACK_SOURCES];
    int64_t extent[PACK_DIMS]; /* of the outer dimensions, then of the inner ones */
    int64_t line;              /* elements of a source's line */
    /* Outer dimension `tile` and the innermost dimension make up an axis of `limit` positions, tile
     * by tile; what lies beyond is zero. -1: there is none. */
    int tile;
    int64_t limit;
    DType dtype; /* of the elements: float32, 16 bits, words of codes, or as the form has it */
    int bits;    /* of a code; a word of 32 has those of neighbours along the last outer dimension,
                    from the low bits on; those of 8 bits lie one line behind the other in the line
                    of words; 0: no codes */
    int64_t steps; /* codes along it */
    bool ten_bits; /* float32, rounded as matrix units take it */
    bool winograd; /* instead of a window of 3 x 3 elements, by the first two outer dimensions, the
                      4 x 4 that F(2 x 2, 3 x 3) makes of it */
    PackForm form;
    int step, run;   /* PACK_STEPS */
    PackSource zero; /* the zero points along the lanes; data NULL: all are zero_is */
    int64_t zero_is;
    int64_t count; /* elements of the array */
    int number;    /* among the program's arrays, in order of first use */
} Packed;

typedef struct PackedSet { /* Program.packed */
    Map *known;
    VEC(Packed *) all;
} PackedSet;

/* Takes axis x out of position *rest as dimension d of a source: its stride and its extent, which
 * are constants. */
void packed_axis(Cx *c, Packed *p, PackSource *s, int d, Expr **rest, Axis *x);
/* The program's array that is packed as `like` says, which is complete but for count and number. */
const Packed *packed_intern(Program *p, const Packed *like);

#endif
