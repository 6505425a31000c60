/* calibrate.c: a program that measures the machine it runs on, for the scheduler's table of
 * devices.
 *
 * Pasted after ctx.h, prelude.h, scalar.h and math.h, and before entry.c, so that it is compiled,
 * loaded and run as models are, with the same barrier and the same functions. Its input is bytes:
 * of data that lies in L1, in L2, in the last cache, and in none. Its output, one after the other:
 *   gflops of a core; GB/s read from each of the four by one core; ns of a barrier of all units, of
 * a simple and of an expensive operation on one element, of a simple one without lanes, and of a
 * group. 0 is what could not be measured. Every number is the best of many short tries: other
 * processes can only make it worse. */
#include <stdlib.h>

#define BK_NAME "calibrate"
#define BK_NIN 1
#define BK_NOUT 1
#define BK_ARENA ((size_t)131072)
#define BK_NSLOT 0
#define BK_NSITE 0
static const char *const bk_sites[] = {0};
static const braid_io_v1 bk_inputs[] = {{"bytes", BRAID_IO_TENSOR, 7, 1, {4}, {0}}};
static const braid_io_v1 bk_outputs[] = {{"numbers", BRAID_IO_TENSOR, 11, 1, {10}, {0}}};

#define BK_TRY_NS 25000000 /* for one number, from its second try on */
#define BK_CROSSINGS 50
#define BK_BARRIER_MOST_NS 3000.0 /* more than that was spent sleeping */
#define BK_N 2048                 /* elements of a small array: three of them fit in L1 */

/* Assigns to `best` the least ns of WORK. */
#define BK_BEST(best, WORK)                                                                        \
    do {                                                                                           \
        int64_t begin_ = bk_clock(), now_ = begin_;                                                \
        best = 1e30;                                                                               \
        for (int try_ = 0; try_ < 3 || now_ - begin_ < BK_TRY_NS; try_++) {                        \
            int64_t from_ = bk_clock();                                                            \
            WORK;                                                                                  \
            now_ = bk_clock();                                                                     \
            if ((double)(now_ - from_) < best) best = (double)(now_ - from_);                      \
        }                                                                                          \
        if (best < 1) best = 1;                                                                    \
    } while (0)
/* Keeps a value that nothing uses. */
#define BK_KEEP(x) __asm__ volatile("" : : "r"(x) : "memory")

/* 2 * 12 * BK_VEC * n operations. */
BK_KERNEL float bk_peak(int64_t n, bk_vf x, bk_vf y) {
    BK_CONTRACT
    bk_vf a = x, b = x + y, c = b + y, d = c + y, e = d + y, f = e + y; /* all different */
    bk_vf g = f + y, h = g + y, i = h + y, j = i + y, k = j + y, l = k + y;
    for (int64_t t = 0; t < n; t++) {
        a = a * x + y, b = b * x + y, c = c * x + y, d = d * x + y, e = e * x + y, f = f * x + y;
        g = g * x + y, h = h * x + y, i = i * x + y, j = j * x + y, k = k * x + y, l = l * x + y;
        __asm__ volatile("" : : : "memory");
    }
    a = (a + b + c) + (d + e + f) + (g + h + i) + (j + k + l);
    return a[0];
}

/* Reads n floats, a multiple of 8 vectors, `times` times. */
static __attribute__((noinline)) float bk_read(const float *p, int64_t n, int64_t times) {
    bk_vf a = bk_splat(0), b = a, c = a, d = a, e = a, f = a, g = a, h = a;
    for (int64_t t = 0; t < times; t++) {
        for (int64_t i = 0; i < n; i += 8 * BK_VEC) {
            a += bk_loadv(p + i), b += bk_loadv(p + i + BK_VEC);
            c += bk_loadv(p + i + 2 * BK_VEC), d += bk_loadv(p + i + 3 * BK_VEC);
            e += bk_loadv(p + i + 4 * BK_VEC), f += bk_loadv(p + i + 5 * BK_VEC);
            g += bk_loadv(p + i + 6 * BK_VEC), h += bk_loadv(p + i + 7 * BK_VEC);
        }
        __asm__ volatile("" : : : "memory");
    }
    a = (a + b) + (c + d) + (e + f) + (g + h);
    return a[0];
}

/* Four simple operations on an element. */
static __attribute__((noinline)) void bk_simple(const float *restrict x, const float *restrict y,
                                                float *restrict z, int64_t n) {
    BK_SIMD
    for (int64_t i = 0; i < n; i++) {
        float a = x[i] + y[i], b = a * y[i];
        z[i] = bk_maxf(b, x[i]) - a;
    }
}
/* Three expensive ones. */
static __attribute__((noinline)) void bk_costly(const float *restrict x, float *restrict z,
                                                int64_t n) {
    BK_SIMD
    for (int64_t i = 0; i < n; i++) z[i] = bk_expf(bk_tanhf(x[i])) + bk_sigmoidf(x[i]);
}
/* Four simple ones, and a check that keeps the lanes away. */
static __attribute__((noinline)) int bk_checked(bk_ctx *k, const float *x, const int64_t *at,
                                                float *z, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        int64_t j = at[i] < 0 ? at[i] + n : at[i];
        if ((uint64_t)j >= (uint64_t)n) {
            bk_fault(k, 0);
            return BK_FAULT;
        }
        z[i] = (x[j] + x[i]) * x[i];
    }
    return BK_OK;
}
/* A group of a few elements, shared among units. */
static __attribute__((noinline)) void bk_small(bk_ctx *k, int unit, int nunit, const float *x,
                                               float *z, int64_t n) {
    int64_t grains = (n + 15) / 16, from = grains * unit / nunit * 16,
            to = grains * (unit + 1) / nunit * 16;
    if (to > n) to = n;
    BK_SIMD
    for (int64_t i = from; i < to; i++) z[i] = x[i] + 1.0f;
    BK_KEEP(k);
}

/* GB/s from `bytes` that lie side by side. */
static double bk_read_gbps(int64_t bytes) {
    int64_t n = bytes / (int64_t)(32 * BK_VEC) * 8 * BK_VEC,
            times = (256 << 10) / (bytes > 0 ? bytes : 1) + 1;
    float *p = n > 0 ? aligned_alloc(64, (size_t)n * 4) : NULL;
    double best, sum = 0;
    if (!p) return 0;
    for (int64_t i = 0; i < n; i++) p[i] = 0;
    BK_BEST(best, sum += bk_read(p, n, times));
    BK_KEEP(&sum);
    free(p);
    return (double)n * 4 * (double)times / best;
}

static void bk_measure(bk_ctx *k, double *r) {
    const int64_t *bytes = k->in[0].data;
    float *x = (float *)(k->arena + 1024), *y = x + BK_N, *z = y + BK_N;
    int64_t *at = (int64_t *)(z + BK_N);
    double best, sum = 0;
    for (int64_t i = 0; i < BK_N; i++) {
        x[i] = (float)(i % 97) * 0.05f - 2.4f;
        y[i] = (float)(i % 89) * 0.02f - 1.0f;
        at[i] = i * 5 % BK_N;
    }
    BK_BEST(best, sum += bk_peak(2000, bk_splat(0.999f), bk_splat(0.001f)));
    r[0] = 2.0 * 12 * BK_VEC * 2000 / best;
    for (int i = 0; i < 4; i++) r[1 + i] = bk_read_gbps(bytes[i]);
    BK_BEST(best, for (int t = 0; t < 40; t++) bk_simple(x, y, z, BK_N));
    r[6] = best / (40.0 * 4 * BK_N);
    BK_BEST(best, for (int t = 0; t < 4; t++) bk_costly(x, z, BK_N));
    r[7] = best / (4.0 * 3 * BK_N);
    BK_BEST(best, for (int t = 0; t < 10; t++) bk_checked(k, x, at, z, BK_N));
    r[8] = best / (10.0 * 4 * BK_N);
    /* One needs what the one before wrote. What the compiler does not know is not left out. */
    volatile int64_t few = 8, units = 1;
    BK_BEST(
        best, for (int t = 0; t < 1000; t++) {
            bk_small(k, 0, (int)units, x, z, few);
            bk_small(k, 0, (int)units, z, x, few);
        });
    r[9] = best / 2000;
    BK_KEEP(&sum);
}

static int braid_kernel(bk_ctx *k, int unit, int nunit) {
    double *r = (double *)k->arena;
    int *more = (int *)(k->arena + 512);
    int64_t begin = bk_clock();
    double least = 1e30;
    /* Unit 0 tells the others when to stop: later, when so far the units never ran at the same
     * time. */
    for (int go = 1; go;) {
        int64_t from = bk_clock();
        for (int i = 0; i < BK_CROSSINGS; i++)
            if (bk_barrier(k, unit) != BK_OK) return BK_FAULT;
        int64_t now = bk_clock();
        if ((double)(now - from) < least) least = (double)(now - from);
        if (unit == 0)
            *more = now - begin <
                    (least < BK_CROSSINGS * BK_BARRIER_MOST_NS ? BK_TRY_NS : 12 * BK_TRY_NS);
        if (bk_barrier(k, unit) != BK_OK) return BK_FAULT;
        go = *more;
        if (bk_barrier(k, unit) != BK_OK) return BK_FAULT;
    }
    if (unit > 0) return BK_OK;
    memset(r, 0, 10 * sizeof *r);
    if (nunit > 1 && least < BK_CROSSINGS * BK_BARRIER_MOST_NS) r[5] = least / BK_CROSSINGS;
    bk_measure(k, r);
    k->out[0] = (braid_tensor_v1){r, 11, 1, {10}};
    return BK_OK;
}
