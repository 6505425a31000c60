/* math.h: elementary functions on float, branch-free so that loops over them vectorize.
 *
 * Pasted after scalar.h. A target whose multiply-add is written otherwise defines BK_FMA in front.
 *
 * The functions are defined on all floats as in C: denormal arguments and results, signed zeros,
 * infinities and NaN (whose payload is not kept). Results may differ in the last place between
 * machines with and without fused multiply-add. Errors in units in the last place of the result:
 *
 *              bound   largest measured, fused / not fused
 *     exp      1.1     1.009 / 0.977   all floats
 *     sigmoid  2       1.892 / 1.905   all floats
 *     tanh     1.5     1.464 / 1.459   all floats
 *     erf      1.5     1.067 / 1.242   all floats
 *     log      1       0.866 / 0.866   all floats
 *     log1p    1.5     1.430 / 1.430   all floats
 *     sin      1.6     1.566 / 1.571   every 61st float
 *     cos      1.6     1.570 / 1.570   every 61st float
 *     pow      0.6     0.531           2^27 pairs with results all over the range
 */

/* a * b + c, rounded once where that is as fast. */
#if defined(BK_FMA)
#elif defined(__FMA__) || defined(__aarch64__)
#define BK_FMA(a, b, c) __builtin_fmaf(a, b, c)
#else
#define BK_FMA(a, b, c) ((a) * (b) + (c))
#endif

#define BK_INF __builtin_inff()
#define BK_NAN __builtin_nanf("")

/* ---- exp and what is made of it -------------------------------------------------------------- */
/* x = n log 2 + r, |r| < 0.347: x in units of log 2, to whole ones, behind 1.5 * 2^23. Shifted left
 * by 23, to the place of the exponent, its bits are those of n + 254: of twice the exponent's bias,
 * for two factors. */
#define BK_WHOLE (0x1.8p23f + 254)
BK_INLINE float bk_split(float x) { return BK_FMA(x, 1.44269504f, BK_WHOLE); }

/* e^x = 2^n (1 + p): returns p; x and k = bk_split(x) as above. */
BK_INLINE float bk_exp_part(float x, float k) {
    float m = k - BK_WHOLE;
    float r =
        BK_FMA(m, -1.42860677e-6f, BK_FMA(m, -0.693145752f, x)); /* the first product is exact */
    float p = 1.38145441e-3f;
    p = BK_FMA(p, r, 8.36874545e-3f);
    p = BK_FMA(p, r, 4.1668389e-2f);
    p = BK_FMA(p, r, 0.166665211f);
    p = BK_FMA(p, r, 0.49999994f);
    return BK_FMA(p, r * r, r);
}
/* (1 + p) 2^n, by two factors, so that results in the denormal range are right. */
BK_INLINE float bk_scale(float p, float k) {
    uint32_t both = bk_asu(k) << 23, one = bk_asu(k) << 22 & 0xff800000u;
    float a = bk_asf(one);
    return BK_FMA(p, a, a) * bk_asf(both - one);
}
/* 2^n for n in [-126, 127]. */
BK_INLINE float bk_two_to(float k) { return bk_asf((bk_asu(k) << 23) - 0x3f800000u); }

/* bk_split(x) for all x, n bounded to [-150, 130]: below a result is 0, above infinite. As
 * integers, which compilers know as one instruction each; x itself has to be bounded below where
 * NaN stays. */
BK_INLINE float bk_split_all(float x) {
    const int32_t least = (int32_t)0x4b400000 + 104, most = (int32_t)0x4b400000 + 384;
    int32_t k = (int32_t)bk_asu(bk_split(x));
    k = k > most ? most : k;
    k = k < least ? least : k;
    return bk_asf((uint32_t)k);
}

BK_INLINE float bk_expf(float x) {
    float k = bk_split_all(x);
    return bk_scale(bk_exp_part(x < -104.0f ? -104.0f : x, k), k);
}

/* With e = e^-|x| = 2^n (1 + p): 1 / (1 + e), or e / (1 + e) on the negative side, in the form
 * 2^n (1 + (p - e) / (1 + e)) away from 0: it rounds its large terms only once. */
BK_INLINE float bk_sigmoidf(float x) {
    bool low = x < -0.34f;
    float c = -__builtin_fabsf(x);
    float k = bk_split_all(c), p = bk_exp_part(c < -104.0f ? -104.0f : c, k), e = bk_scale(p, k);
    float q = (low ? p - e : x < 0 ? e : 1.0f) / (1.0f + e);
    /* By its bits: a second use of the condition would make gcc compute both quotients. */
    return bk_asf((bk_asu(bk_scale(q, k)) & BK_MASK(low)) | (bk_asu(q) & ~BK_MASK(low)));
}

/* Near 0 an odd polynomial, else 1 - 2 / (1 + e^2|x|). */
BK_INLINE float bk_tanhf(float x) {
    float a = __builtin_fabsf(x), z = a * a;
    float p = -6.29629754e-3f;
    p = BK_FMA(p, z, 2.10893285e-2f);
    p = BK_FMA(p, z, -5.38573079e-2f);
    p = BK_FMA(p, z, 0.133326441f);
    p = BK_FMA(p, z, -0.333333194f);
    p = BK_FMA(p * z, a, a);
    float c = a > 9.5f ? 9.5f : a;
    c += c;
    float k = bk_split(c), e = bk_exp_part(c, k), s = bk_two_to(k);
    float t = 1.0f - 2.0f / (BK_FMA(e, s, s) + 1.0f);
    return __builtin_copysignf(a < 0.55f ? p : t, x);
}

/* Near 0 an odd polynomial, else 1 - exp(-Q(|x|)). */
BK_INLINE float bk_erff(float x) {
    float a = __builtin_fabsf(x), z = a * a;
    float p = -5.95897087e-4f;
    p = BK_FMA(p, z, 4.98725241e-3f);
    p = BK_FMA(p, z, -2.67629158e-2f);
    p = BK_FMA(p, z, 0.112817302f);
    p = BK_FMA(p, z, -0.376124889f);
    p = BK_FMA(p, z, 0.128379151f);
    p = BK_FMA(p, a, a);
    float t = a > 4.0f ? 4.0f : a;
    float q = 1.04272222e-5f;
    q = BK_FMA(q, t, -3.14816687e-4f);
    q = BK_FMA(q, t, 3.61023028e-3f);
    q = BK_FMA(q, t, -2.36944202e-2f);
    q = BK_FMA(q, t, 0.106158957f);
    q = BK_FMA(q, t, 0.635198057f);
    q = BK_FMA(q, t, 0.128637075f);
    q = -BK_FMA(q, t, t);
    float k = bk_split(q), e = bk_exp_part(q, k), s = bk_two_to(k);
    q = 1.0f - BK_FMA(e, s, s);
    return __builtin_copysignf(a < 0.92f ? p : q, x);
}

/* ---- logarithms ------------------------------------------------------------------------------ */
/* n log 2 + log(1 + f) for f in [sqrt(1/2) - 1, sqrt(2) - 1]. */
BK_INLINE float bk_log_in(float n, float f) {
    float z = f * f;
    float p = -7.63448626e-2f;
    p = BK_FMA(p, f, 0.127615646f);
    p = BK_FMA(p, f, -0.13160181f);
    p = BK_FMA(p, f, 0.142017603f);
    p = BK_FMA(p, f, -0.166233584f);
    p = BK_FMA(p, f, 0.200012267f);
    p = BK_FMA(p, f, -0.250008196f);
    p = BK_FMA(p, f, 0.333333313f);
    p = BK_FMA(n, 1.42860677e-6f, p * f * z);
    p = BK_FMA(z, -0.5f, p);
    return BK_FMA(n, 0.693145752f, f + p);
}

BK_INLINE float bk_logf(float x) {
    bool tiny = x < 0x1p-126f;
    uint32_t u = bk_asu(tiny ? x * 0x1p23f : x) - 0x3f3504f3u; /* from sqrt(1/2) on */
    float n = (float)((int32_t)u >> 23) - (tiny ? 23.0f : 0.0f);
    float y = bk_log_in(n, bk_asf((u & 0x7fffffu) + 0x3f3504f3u) - 1.0f);
    y = x < BK_INF ? y : x;
    return x > 0 ? y : x == 0 ? -BK_INF : BK_NAN;
}

/* As log(1 + x), with what the sum lost put back behind it. */
BK_INLINE float bk_log1pf(float x) {
    float s = 1.0f + x, lost = x < 1.0f ? x - (s - 1.0f) : 1.0f - (s - x);
    uint32_t u = bk_asu(s) - 0x3f3504f3u;
    int32_t n = (int32_t)u >> 23;
    float f = bk_asf((u & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    f += lost * bk_asf((uint32_t)(127 - (n > 126 ? 126 : n)) << 23); /* beyond, it is nothing */
    float y = bk_log_in((float)n, f);
    y = x < BK_INF ? y : x;
    y = __builtin_fabsf(x) < 0x1p-25f ? x : y;
    return x > -1.0f ? y : x == -1.0f ? -BK_INF : BK_NAN;
}

/* ---- sine and cosine ------------------------------------------------------------------------- */
/* a = n pi / 2 + r, |r| <= pi / 4, a >= 0: returns r; the low two bits of *n are those of n.
 * 2 a / pi is formed in double with the digits of 2 / pi that matter: an argument from 2^50 on is
 * scaled down by 2^(27 i), and 2 / pi up by it, less its multiples of 4. In three parts, so that
 * all but the last product are exact, each less its integer. */
BK_INLINE float bk_quadrant(float a, uint32_t *n) {
    bool s = a < 0x1p50f, t = a < 0x1p77f, u = a < 0x1p104f;
    double x = a * (s ? 1.0f : t ? 0x1p-27f : u ? 0x1p-54f : 0x1p-81f);
    double hi = s ? 0x1.45f306cp-1 : t ? -0x1.1b1bbecp-1 : u ? 0x1.4a7f09ep+0 : -0x1.505c15ap+0;
    double mid = s ? 0x1.c9c882cp-29 : t ? 0x1.29fc274p-29 : u ? -0x1.4170564p-29 : 0x1.377036cp-29;
    double lo = s   ? -0x1.ac07b1505c159p-57
                : t ? 0x1.7d1f534ddc0dbp-57
                : u ? -0x1.911f924eb5336p-57
                    : 0x1.8a5664f10e410p-57;
    double p = x * hi, i = p + 0x1.8p52, q = x * mid, j = q + 0x1.8p52;
    p -= i - 0x1.8p52;
    q -= j - 0x1.8p52;
    double k = p + q + 0x1.8p52;
    *n = (uint32_t)(bk_asu64(i) + bk_asu64(j) + bk_asu64(k));
    return (float)((p - (k - 0x1.8p52) + q + x * lo) * 0x1.921fb54442d18p+0);
}

BK_INLINE float bk_sin_in(float r) { /* |r| <= pi / 4 */
    float z = r * r;
    float p = BK_FMA(-1.9515281e-4f, z, 8.3321603e-3f);
    return BK_FMA(BK_FMA(p, z, -0.166666552f) * z, r, r);
}
BK_INLINE float bk_cos_in(float r) {
    float z = r * r;
    float p = BK_FMA(2.44623261e-5f, z, -1.38876133e-3f);
    return BK_FMA(BK_FMA(p, z, 4.1666653e-2f) * z, z, BK_FMA(z, -0.5f, 1.0f));
}

BK_INLINE float bk_sinf(float x) {
    uint32_t n;
    float a = __builtin_fabsf(x), r = bk_quadrant(a, &n), s = bk_sin_in(r), c = bk_cos_in(r);
    float y = bk_asf(bk_asu(n & 1 ? c : s) ^ (n & 2) << 30 ^ (bk_asu(x) & 0x80000000u));
    return a < BK_INF ? y : BK_NAN;
}
BK_INLINE float bk_cosf(float x) {
    uint32_t n;
    float a = __builtin_fabsf(x), r = bk_quadrant(a, &n), s = bk_sin_in(r), c = bk_cos_in(r);
    float y = bk_asf(bk_asu(n & 1 ? s : c) ^ ((n + 1) & 2) << 30);
    return a < BK_INF ? y : BK_NAN;
}

/* ---- power ----------------------------------------------------------------------------------- */
/* 2^(y log2 |x|) in double, rounded once; then the sign and the cases that have no logarithm. */
BK_INLINE float bk_powf(float x, float y) {
    float ax = __builtin_fabsf(x), ay = __builtin_fabsf(y);
    uint64_t u = bk_asu64(ax) + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu); /* from sqrt(1/2) on */
    double n = bk_asd(u >> 52 | 0x4330000000000000u) - (0x1p52 + 1023);
    double m = bk_asd((u & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu), s = (m - 1) / (m + 1),
           z = s * s;
    double p = 0x1.21b173d237dc0p-2;
    p = p * z + 0x1.47954d3b6df8ap-2;
    p = p * z + 0x1.a61a2efd44bb1p-2;
    p = p * z + 0x1.2776c293044c2p-1;
    p = p * z + 0x1.ec709dc53c91bp-1;
    p = p * z + 0x1.71547652b8251p+1;
    p = p * s + n;
    p = ax < BK_INF ? p : (double)ax;
    p = (double)y * (ax == 0 ? (double)-BK_INF : p);
    p = p < -200.0 ? -200.0 : p;
    p = p > 200.0 ? 200.0 : p;
    double k = p + 0x1.8p52, f = p - (k - 0x1.8p52);
    double q = 0x1.41fb54187113dp-13;
    q = q * f + 0x1.5f3ed7a0c4f85p-10;
    q = q * f + 0x1.3b2d4ea7616d1p-7;
    q = q * f + 0x1.c6aee791f8860p-5;
    q = q * f + 0x1.ebfbdc3898ebdp-3;
    q = q * f + 0x1.62e430afcfb8fp-1;
    q = q * f + 1.0;
    float r = (float)(q * bk_asd((bk_asu64(k) << 52) + 0x3ff0000000000000u));
    /* Is y an integer, is it odd? From 2^23 on all are integers, from 2^24 on none is odd. */
    float h = ay < 0x1p23f ? ay + 0x1p23f : ay;
    uint32_t broken = BK_MASK((ay < 0x1p23f) & (h - 0x1p23f != ay));
    uint32_t odd = BK_MASK(ay < 0x1p24f) & bk_asu(h) & ~broken;
    r = ax == 1 ? 1.0f : r;
    r = bk_asf(bk_asu(r) ^ (bk_asu(x) & odd << 31));
    r = bk_asf(bk_asu(r) | (BK_MASK((x < 0) & (ax < BK_INF)) & broken)); /* all bits: NaN */
    r = ((x != x) | (y != y)) ? x + y : r;
    return ((x == 1) | (y == 0)) ? 1.0f : r;
}
