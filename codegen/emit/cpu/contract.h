/* contract.h: shared by the files that emit sums of products (contract*.c). */
#ifndef BRAID_CONTRACT_H
#define BRAID_CONTRACT_H

#include "codegen/emit/emit.h"

#define MAX_PRODUCTS 16
#define MAX_SETS 4
#define ROW_BLOCK 64 /* rows of a job */
#define MAX_HEIGHTS 16

typedef struct Product {
    Expr *reduce;
    Expr *vec, *sca; /* loads; of 16 bits only a packed vec, and a sca that does not move along v */
    Expr *vec_flat, *sca_flat;
    bool packed, both; /* both: sca moves along v too */
    Expr *sym;         /* packed: a uniform symbol that its position depends on, or NULL */
    Axis *sym_axis;    /* stands for it */
    bool dot; /* both are contiguous along the only reduction axis; vec moves along v in steps */
    int set, slot;    /* slot: index of its scratch tile */
    int panel, place; /* packed: where its vectors are */
} Product;

/* Packed vector operands of products that run in one loop, as one stream in the order of that loop.
 */
typedef struct Panel {
    int set, n;           /* products */
    int lead;             /* index of the first product */
    int64_t tile, stride; /* floats of one tile, of all tiles */
    int ahead;            /* floats between what is read and what is fetched; 0: nothing is */
    const char *weights;
} Panel;

typedef struct Contraction {
    Group *g;
    int n, nset, npanel;
    Product p[MAX_PRODUCTS];
    Panel panel[MAX_PRODUCTS];
    Axis **raxis[MAX_SETS]; /* per set, outermost first */
    int nraxis[MAX_SETS];
    bool dot[MAX_SETS]; /* the set's products are dot products */
    Axis *v, *m;        /* lanes; rows, or NULL */
    int nv, mr, vt;     /* vectors and rows of a tile; its lanes */
    bool whole;         /* no tile has lanes beyond the domain, or of another unit */
    int height[MAX_HEIGHTS],
        nheight; /* rows that micro-kernels are written for: mr first, falling */
} Contraction;

/* The load behind a factor of a product: of float32, or of 16 bits and converted; or NULL. */
Expr *contract_factor(Expr *e);
/* Whether reduction e is a sum of products of two loads at positions affine in all axes, neither of
 * them of a member of the group; fills *p if so, its operands in the order in which they stand. */
bool contract_product(const Group *g, Expr *e, Product *p);
/* Whether p can run in a loop over these axes: it has as many, of the same extents. If so, p goes
 * over them. */
bool contract_share_axes(Cx *c, Product *p, int n, Axis *const *axis);
/* The axes of a reduction: short loops outside, the longest one inside. */
Axis **contract_order(Arena *a, const Expr *reduce);
Expr *coef_of(Cx *c, Expr *flat, Axis *x); /* of x in flat; NULL: not affine in it */
int64_t axis_size(const Axis *x, int64_t unknown);

/* ---- contract_pack.c ------------------------------------------------------------------------- */
/* p's operand `load` is constant, and so are all extents that it moves along, and its strides: it
 * can be packed. It may also depend on one bounded symbol: the layer, say, of a loop over layers.
 */
bool packable(Cx *c, const Group *g, Product *p, const Expr *load, Expr *flat);
/* Sets nv, mr, vt and the heights by a model of the micro-kernel's time. Requires axes and sets. */
void choose_tile(Contraction *k);
/* Sets the panels, and packs them into the program's weights. Requires the tile. */
void pack_panels(Contraction *k);

/* ---- contract_fetch.c ------------------------------------------------------------------------ */
/* Cache lines of the next tile's part of a panel that the micro-kernel for `rows` rows fetches in
 * each step; 0: it fetches none. It takes a pointer, "next", and a distance, "by". */
int contract_fetches(const Contraction *k, int panel, int rows);
/* Declares them in a tile; back: a condition of tiles that are gone through backwards, or NULL. */
void fetch_tile(const Contraction *k, const char *back);
/* Around the calls for a block of rows; at the beginning fetches what their epilogue will read. */
void fetch_begin(const Contraction *k);
void fetch_end(const Contraction *k);

/* ---- contract_micro.c ------------------------------------------------------------------------ */
/* Emits the call of the micro-kernel of one set for `rows` rows; writes the kernel where it is new.
 * In the group's function the axes v and m are bound to the tile's first lane and row. tail:
 * `lanes` tells how many lanes of operands that are not packed may be read. */
void call_micro(Contraction *k, int set, int rows, bool tail);

typedef struct Micro { /* a micro-kernel while it is written */
    Contraction *k;
    Sb params, args, body;
    int nvalue;
    Map *known; /* expression id -> parameter name */
} Micro;
/* An int64 value inside the micro-kernel: a literal, or a parameter. */
const char *micro_value(Micro *u, Expr *e);
/* Address of a load with all loop axes of the set, and rows and lanes of the tile, at 0. */
const char *micro_base(Contraction *k, int set, Expr *load, Expr *flat);

/* ---- contract_dot.c -------------------------------------------------------------------------- */
/* The same for a set of dot products, for `rows` rows and `hi` lanes as the group's function has
 * them. */
void call_dot(Contraction *k, int set);

#endif
