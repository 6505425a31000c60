// keep.cu: what of the weights the blocks keep in their own memory (codegen/text/gpu/dots.inc).
#define BK_WARP 32
#define BK_THREADS 64
#define BK_CLUSTER 1
#define BK_GIVEN_AT -1
#define BK_SHARED_BYTES 1024
#include "include/braid_model.h"
#include "codegen/text/gpu/ctx.inc"
#include "codegen/text/gpu/prelude.inc"
#include "codegen/text/scalar.inc"
#include "codegen/text/gpu/team.inc"
#include "codegen/text/gpu/dots.inc"
#include "tests/emulate/data.h"
#define KERNEL extern "C" __global__ void __launch_bounds__(BK_THREADS)

// Constants in parts of so many words, and a small one: as many are kept as have room.
static __device__ void keep(Data *d, int words, int first, int second, int third) {
    const int unit = (int)blockIdx.x, nunit = (int)gridDim.x;
    const float *w = (const float *)d->in; // word i has the bits i
    int top = BK_SHARED_OWN, wrong = 0;
    const float *a = bk_keep(w, &top, 1, nunit, 1, words, unit, nunit);
    const float *b = bk_keep(w, &top, 1, nunit, 1, words, unit, nunit);
    const float *c = bk_keep(w, NULL, 1, nunit, 1, words, unit, nunit);
    const float *e = bk_keep(w, &top, 1, nunit, 1, 4, unit, nunit);
    bk_kept();
    if (threadIdx.x != 0) return;
    for (int i = 0; i < words; i++)
        wrong += __float_as_int(a[i]) != unit * words + i ||
                 __float_as_int(b[i]) != unit * words + i ||
                 __float_as_int(c[i]) != unit * words + i;
    d->out[unit] = !wrong && e[0] == w[unit * 4] && bk_on_chip(a) == first &&
                   bk_on_chip(b) == second && !bk_on_chip(c) && bk_on_chip(e) == third;
}
// test all 4 64 1024: ok sum=4
KERNEL all(Data *d) { keep(d, 32, 1, 1, 1); }
// The parts of a run with fewer blocks are larger: the first is kept, and a small one behind it.
// test first_ones 2 64 1024: ok sum=2
KERNEL first_ones(Data *d) { keep(d, 96, 1, 0, 1); }
// test none 1 64 1024: ok sum=1
KERNEL none(Data *d) { keep(d, 256, 0, 0, 1); }
