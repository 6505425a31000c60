/* dots.h: the kernel of sums of products where a unit is a block of threads.
 *
 * The domain is seen as a matrix: columns are positions of axis v, along which one operand (vec)
 * moves and the other (sca) does not; rows are all positions of the axes along which vec does not
 * move; around both are loops over the axes that are left. A block computes bm rows by bv columns
 * at a time. Products that share their sca and their loop are a part: v's columns times its
 * products. In both operands' copies the reduction's steps lie together: sca's in the block's
 * memory, one row after another; vec's as packed at compile time, one column after another, or
 * where it is not constant in the block's memory, too. */
#ifndef BRAID_DOTS_H
#define BRAID_DOTS_H

#include "scheduler/kernel/products.h"

/* Extents that are not known at compile time, as far as shapes depend on them. */
#define STEPS_UNKNOWN 64
#define COLUMNS_UNKNOWN 64
#define ROWS_UNKNOWN 16

/* How the axes that an operand is packed by lie around the one that units share. */
typedef struct DotsOrder {
    bool columns, outer;   /* units share columns; the positions of an outer axis */
    int64_t pieces, words; /* before it; of one of its positions */
    int64_t n;
    Expr *before, *behind; /* numbers of the piece, and of the place along outer axes behind it */
} DotsOrder;

/* How a padded sca is copied as a box of its dimensions. */
typedef struct DotsBox {
    int rank;
    Expr *at[MAX_RANK];                    /* positions of its elements */
    int64_t low[MAX_RANK], high[MAX_RANK]; /* where they are inside; elsewhere the copy is 0 */
    int64_t row[MAX_RANK][MAX_RANK], step[MAX_RANK][MAX_RANK * 2]; /* how far along each axis */
} DotsBox;

typedef struct DotsPart {
    int n, lead;  /* products; the first one */
    Axis **raxis; /* outermost first */
    int nraxis;
    int64_t length; /* steps; -1: not known */
    Expr *
        when; /* the sums are needed under this condition, the same for all threads; NULL: always */
    bool packed;           /* vec is a constant: */
    const Packed *weights; /* its columns in the order in which they are read */
    DotsOrder order;
    const OwnPart *own;  /* what a unit reads of them; NULL: that is not known */
    int64_t column, all; /* words from one column to the next; of all columns */
    /* A worker is a thread, or a warp where matrix units multiply operands of type `matrix`. Each
     * sums tm x tc pieces of the tile, of high x wide positions, for a share of the steps, so many
     * at once; `team` neighbours add theirs up. Workers' pieces are interleaved, nm x nc of them.
     */
    DType matrix; /* DT_NONE: threads */
    int workers, high, wide, at_once;
    int tm, tc, nm, nc, team;
    int unroll;  /* a thread's steps that follow each other without a jump */
    bool direct; /* threads load sca themselves, where neighbouring rows lie together; nothing is
                    copied */
    /* Of sca, and of vec: neighbouring rows (columns) lie together, and few neighbouring steps do;
     * it is copied by four steps at once, which begin at a multiple of four of the tensor's
     * elements; while threads go on; or so many copies of a thread are on their way at once. */
    bool across[2], by_four[2], even[2], async[2];
    int flight[2];
    int chunk;    /* steps whose operands are copied at once */
    int buffers;  /* 2, 3: the next chunks, one or two, are copied while one is multiplied */
    bool whole;   /* sca of all steps is copied once for a block of rows, */
    int64_t span; /* as it lies, so many words from the first to the last; 0: row by row */
    bool staged;  /* packed columns are copied together with sca, unless they stay on chip */
    /* Where that is possible: the last axes of steps lie together and have `run` positions; words
     * from one position to the next of the axes before, and of the row axes; else run is 0. */
    int ntap;
    int64_t run, tap_stride[MAX_RANK * 2], row_stride[MAX_RANK];
    const DotsBox *box; /* a padded sca lies as a box, so large; NULL: it cannot */
    int64_t extent[MAX_RANK];
    int64_t x, w,
        sums; /* places in the block's memory, in words: copies of sca, of vec, and the tile */
} DotsPart;

typedef struct DotsKernel {
    Kernel *g;
    int n, npart, nrow, nouter;
    Product p[MAX_PRODUCTS];
    Expr *when[MAX_PRODUCTS];
    DotsPart part[MAX_PRODUCTS];
    Axis *v, *row[MAX_RANK], *outer[MAX_RANK];
    int64_t rows, columns; /* of a unit, as far as known */
    int bm, bv;
    bool by_row; /* neighbouring threads take neighbouring rows in the epilogue */
    bool units;  /* matrix units multiply what they can */
    bool placed; /* what units read of constants is known */
} DotsKernel;

#define MATRIX_WIDE 16  /* columns of a product by matrix units */
#define MATRIX_BYTES 64 /* of each line that it takes at once */
#define WORD 4
#define IN_FLIGHT 16 /* floats of a thread's copies before it stores what came */

/* Rows and columns of the tile's pieces, some of which may lie outside of it; bytes of an element
 * of their copies. */
static inline int part_rows(const DotsPart *q) { return q->nm * q->tm * q->high; }
static inline int part_columns(const DotsPart *q) { return q->nc * q->tc * q->wide; }
static inline int64_t part_lines(const DotsPart *q, bool vec) {
    return vec ? part_columns(q) : part_rows(q);
}
static inline bool part_copies(const DotsPart *q, bool vec) { /* chunk by chunk */
    return vec ? !q->packed || (q->staged && !q->whole) : !q->whole;
}
static inline int part_size(const DotsPart *q) {
    return q->matrix ? (int)dtype_size(q->matrix) : WORD;
}

/* Makes k such a kernel where the group has sums of products that are worth sharing; false: it is
 * as it was. Requires kernel_collapse. */
bool kernel_dots(Kernel *k);

/* Words from a line of so many steps to the next: lines that are read at once lie in different
 * banks. */
int64_t dots_pitch(const DotsPart *q, int64_t steps);

/* Words of a packed column, with what lies between it and the next. */
int64_t dots_column(const DotsPart *q);

/* The most positions of axis x that a unit has; `unknown` where that is not known at compile time.
 */
int64_t dots_share(const Kernel *g, const Axis *x, int64_t unknown);

/* ---- dots_time.c ---- */
/* Of a unit's sums, in ns, from constants in the block's memory unless what is read of them is
 * known and elsewhere. Requires the shape. */
double dots_ns(const DotsKernel *k);

/* ---- dots_shape.c ---- */
/* Sets bm, bv and the shape of each part by a model of the time, and Kernel.scratch; false: none
 * fits. Requires axes and parts. */
bool dots_shape(DotsKernel *k);

/* ---- dots_box.c ---- */
/* The box of q's sca; NULL: it has none. */
const DotsBox *dots_box(const DotsKernel *k, const DotsPart *q);
/* Lays the box out for a block with so many positions of each row axis: sets q's extents, strides
 * and run. Returns its words; 0: it is too large. */
int64_t dots_box_words(const DotsKernel *k, DotsPart *q, const int64_t *rows);

/* ---- dots_order.c ---- */
/* Sets what constant operands are packed as, and Kernel.own. Requires the shape. */
void dots_order(DotsKernel *k);

#endif
