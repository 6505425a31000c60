/* kernel.h: the kernel of a group: how its elements are computed.
 *
 * A group says what its members are over a domain that units share. Its kernel is everything else
 * that the emitter prints: the members' expressions over the axes that loops go over, which of a
 * few kinds it is, and what that kind has chosen (roles of axes, tile, order of packed constants,
 * what stays on chip, memory of a block). Each kind has a file in this folder, which says what it
 * needs and chooses, and one in codegen/emit/cpu or codegen/emit/gpu, which prints it. */
#ifndef BRAID_KERNEL_H
#define BRAID_KERNEL_H

#include "scheduler/kernel/packed.h"

typedef enum KernelKind {
    KERNEL_NONE,        /* there are no elements */
    KERNEL_LOOPS,       /* a loop for each axis, the last one over lanes */
    KERNEL_LANES,       /* the loops of reductions around the one over lanes (lanes.h) */
    KERNEL_SLIDING,     /* reductions over windows along the lanes (sliding.h) */
    KERNEL_HALVES,      /* float16 in memory, float32 in registers (halves.h) */
    KERNEL_TRANSPOSE,   /* reads along another axis than it stores along (transpose.h) */
    KERNEL_CONTRACTION, /* sums of products by micro-kernels (contraction.h) */
    KERNEL_CONVOLUTION, /* sums of products with constants, by blocks (convolution.h) */
    KERNEL_WINOGRAD,    /* the same over windows of 3 x 3, by fewer products */
    KERNEL_SPARSE,      /* the same with constants that are mostly zero (sparse.h) */
    KERNEL_INTEGER,     /* int32 sums of products of 8-bit integers (integer.h) */
    KERNEL_DEPTHWISE,   /* sums over windows of which each lane has its own (depthwise.h) */
    KERNEL_PLANES,      /* sums over windows along rows (planes.h) */
    KERNEL_ATTENTION,   /* softmax-weighted sums by blocks of keys (attend.h) */
    KERNEL_DOTS,        /* sums of products by a block of threads (dots.h) */
    KERNEL_THREADS,     /* elements or sums dealt out to a block of threads (threads.h) */
    KERNEL_KINDS
} KernelKind;

/* What a unit reads of a packed constant: so many pieces, of each the positions that it has of the
 * split axis. On GPUs it may stay on chip for the whole run (scheduler/plan/onchip.h). */
typedef struct OwnPart {
    const Packed *packed;
    bool whole;                      /* all of it, by every unit */
    int64_t pieces;                  /* of so many positions each */
    int64_t choice;                  /* of which a run of the group reads one; 1: it reads all */
    int64_t n, grain, words;         /* positions, shared in grains; of one position */
    const struct Resident *resident; /* NULL: keeping it would gain nothing */
    bool near;                       /* it stays on chip, as far as is known */
    bool ahead; /* units fetch it in front of the barrier that they pass before the group */
} OwnPart;

typedef struct Kernel {
    Program *p;
    Cx *c;
    Arena *a;
    Stmt *s; /* the group */
    KernelKind kind;
    bool apart;  /* its function is not inlined into the control flow, but compiled beside it */
    int lanes;   /* of a vector of float32; 1: there are no vectors */
    int nthread; /* of a block that compute it; 0: there are no threads */
    int n;
    Tensor **t; /* members */
    /* Of each member: what is stored and where, over the axes below. */
    Expr **value, **position;
    int naxis;
    Axis *axis[MAX_RANK]; /* of the loops, outermost first, none of extent 1 */
    Axis *split;          /* shared among the units, in grains; NULL: unit 0 computes all */
    Expr *grain;
    Axis
        *second; /* … which units next to each other share, where there are more (Stmt.op.second) */
    /* along which a strip has a range (Stmt.op.strip), each of its positions `apiece` of the
     * kernel's; or NULL */
    Axis *strip;
    Expr *apiece;
    struct Framing
        *frame;      /* around the values: axes, value and position are those inside; or NULL */
    int step;        /* loops: neighbours along the last axis that are computed side by side */
    int64_t scratch; /* bytes of a block's own memory, while the group runs */
    OwnPart *own;    /* in the order in which they are read */
    int nown;
    union { /* by kind */
        const struct LanesKernel *by_lanes;
        const struct SlidingKernel *sliding;
        const struct HalvesKernel *halves;
        const struct TransposeKernel *transpose;
        const struct Contraction *contraction;
        const struct Convolution *convolution;
        const struct Winograd *winograd;
        const struct SparseKernel *sparse;
        const struct Integer *integer;
        const struct Depthwise *depthwise;
        const struct PlanesKernel *planes;
        const struct AttentionKernel *attention;
        const struct DotsKernel *dots;
        const struct ThreadsKernel *threads;
    };
} Kernel;

/* Joins neighbouring axes along which every access is contiguous. */
void kernel_collapse(Kernel *k);
/* Whether the kernel begins and ends where it is told to along its strip. */
bool kernel_has_strips(const Kernel *k);
/* Vectors that tiles of `nv` over `lanes` positions of axis v may take, wherever units begin. */
int64_t tile_vectors(const Kernel *k, const Axis *v, int64_t lanes, int nv);

#endif
