// turns.cu: the synchronizations of the dialect's grid, in any order: each block writes a value
// before each of them, and those that are to see it read it behind. See turns.c.
#define BK_WARP 32
#define BK_THREADS 64
#define BK_GIVEN_AT -1
#include "tests/emulate/turns.h"
#include "codegen/text/gpu/prelude.inc"

static __device__ void look(Turns *t, int step, int from) {
    if (threadIdx.x == 9 && t->value[step][from] != 1000 * t->launch + 10 * step + from)
        atomicAdd(&t->wrong, 1);
}

extern "C" __global__ void __launch_bounds__(BK_THREADS) braid_kernel(bk_ctx *run) {
    Turns *t = (Turns *)run;
    bk_ctx *k = bk_begin(run);
    const int unit = (int)blockIdx.x, n = (int)gridDim.x;
    int state = BK_OK;
    for (int i = 0; t->step[i] && state == BK_OK; i++) {
        const int one = i % n;
        if ((int)threadIdx.x == i) t->value[i][unit] = 1000 * t->launch + 10 * i + unit;
        switch (t->step[i]) {
        case 'f':
            if (unit == 2 && threadIdx.x == 3) bk_fault(k, 0);
            state = bk_barrier(k, unit);
            break;
        case 'b':
            state = bk_barrier(k, unit);
            for (int b = 0; b < n; b++) look(t, i, b);
            break;
        case 'g':
            bk_gather(k, unit, one);
            for (int b = 0; b < n && unit == one; b++) look(t, i, b);
            break;
        default: state = bk_release(k, unit, one); look(t, i, one);
        }
    }
    bk_end();
}
