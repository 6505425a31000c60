/* dots.h: sums of products by blocks of threads (contract_gpu*.c).
 *
 * The domain is seen as a matrix: columns are positions of axis v, along which one operand (vec)
 * moves and the other (sca) does not; rows are all positions of the axes along which vec does not
 * move; around both are loops over the axes that are left. A block computes bm rows by bv columns
 * at a time. Products that share their sca and their loop are a Part: v's columns times its
 * products. In both operands' copies the reduction's steps lie together: sca's in the block's
 * memory, one row after another; vec's as packed at compile time, one column after another, or
 * where it is not constant in the block's memory, too. */
#ifndef BRAID_CONTRACT_GPU_H
#define BRAID_CONTRACT_GPU_H

#include "codegen/emit/emit.h"
#include "scheduler/kernel/contraction.h"

#define STEPS_UNKNOWN                                                                              \
    64 /* extents that are not known at compile time, as far as shapes depend on them: */
#define COLUMNS_UNKNOWN 64
#define ROWS_UNKNOWN 16

typedef struct Part {
    int n, lead;  /* products; the first one */
    Axis **raxis; /* outermost first */
    int nraxis;
    int64_t length; /* steps; -1: not known */
    Expr *
        when; /* the sums are needed under this condition, the same for all threads; NULL: always */
    bool packed;
    const char
        *weights; /* packed: name of the operand's array; of the pointer when it is kept on chip */
    bool kept;
    int64_t column, all; /* words from one column to the next; of all columns */
    /* A worker is a thread, or a warp where matrix units multiply operands of type `matrix`. Each
     * sums tm x tc pieces of the tile, of high x wide positions, for a share of the steps, so many
     * at once; `team` neighbours add theirs up. Workers' pieces are interleaved, nm x nc of them.
     */
    DType matrix; /* DT_NONE: threads */
    int workers, high, wide, at_once;
    int tm, tc, nm, nc, team;
    bool direct; /* threads load sca themselves, where neighbouring rows lie together; nothing is
                    copied */
    /* Of sca, and of vec: neighbouring rows (columns) lie together, and few neighbouring steps do;
     * it is copied by four steps at once; while threads go on. */
    bool across[2], by_four[2], async[2];
    int chunk;   /* steps whose operands are copied at once */
    int buffers; /* 2: the next chunk is copied while one is multiplied */
    bool whole;  /* sca of all steps is copied once for a block of rows */
    int64_t x, w,
        sums; /* places in the block's memory, in words: copies of sca, of vec, and the tile */
} Part;

typedef struct Dots {
    Group *g;
    int n, npart, nrow, nouter;
    Product p[MAX_PRODUCTS];
    Expr *when[MAX_PRODUCTS];
    Part part[MAX_PRODUCTS];
    Axis *v, *row[MAX_RANK], *outer[MAX_RANK];
    int64_t rows, columns; /* of a unit, as far as known */
    int bm, bv;
    bool by_row;   /* neighbouring threads take neighbouring rows in the epilogue */
    int64_t words; /* of the block's memory */
} Dots;

#define MATRIX_WIDE 16 /* columns of a product by matrix units; its rows: */
#define MATRIX_ROWS(WARP) ((WARP) == 32 ? 8 : 16)
#define MATRIX_BYTES 64 /* of each line that it takes at once */
#define WORD 4

/* Rows and columns of the tile's pieces, some of which may lie outside of it; bytes of an element
 * of their copies. */
static inline int part_rows(const Part *q) { return q->nm * q->tm * q->high; }
static inline int part_columns(const Part *q) { return q->nc * q->tc * q->wide; }
static inline int64_t part_lines(const Part *q, bool vec) {
    return vec ? part_columns(q) : part_rows(q);
}
static inline int part_size(const Part *q) { return q->matrix ? (int)dtype_size(q->matrix) : WORD; }
static inline int64_t dots_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
/* The most positions of axis x that a unit has; `unknown` where that is not known at compile time.
 */
int64_t dots_share(const Group *g, const Axis *x, int64_t unknown);

/* ---- contract_gpu_shape.c ---- */
/* Sets bm, bv and the shape of each part by a model of the time. Requires axes and parts. */
bool dots_shape(Dots *k);
/* Words from a line of so many steps to the next: lines that are read at once lie in different
 * banks. */
int64_t dots_pitch(const Part *q, int64_t steps);

/* ---- contract_gpu_pack.c ---- */
/* Packs the operands, and asks for those read again and again to be kept on chip. Requires the
 * shape. */
void dots_pack(Dots *k);
/* Names the first column of the group's part, or of all columns, of the current positions of outer
 * axes. */
void dots_weights(Dots *k, int part);

/* ---- contract_gpu_micro.c ---- */
/* Copies sca (or vec) of steps [at, at + chunk) of the current rows (columns) into the block's
 * memory, its buffer `buffer`; maybe they come only by bk_copied(). */
void dots_copy(Dots *k, int part, bool vec, const char *at, const char *buffer);
/* Adds what the copies give to the workers' sums `acc`; `at`: the first of their steps. */
void dots_step(Dots *k, int part, const char *at, const char *buffer);
/* The same for all steps of a direct part. */
void dots_direct(Dots *k, int part);
/* Sets how operands can be copied. */
void dots_ways(const Dots *k, Part *q);
/* Puts the sums into the tile. */
void dots_finish(Dots *k, int part);
/* Gives variables to the row axes: virtual row `at`. */
void dots_bind_rows(Dots *k, const char *at);

#endif
