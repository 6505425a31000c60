/* math.h: elementary functions on float, branch-free so that loops over them vectorize. */

/* 2^n for n in [-252, 254], in two factors so that results in the denormal range are right. */
BK_INLINE float bk_scale(float x, int32_t n) {
    int32_t a = n / 2, b = n - a;
    uint32_t ua = (uint32_t)(a + 127) << 23, ub = (uint32_t)(b + 127) << 23;
    float fa, fb;
    memcpy(&fa, &ua, 4);
    memcpy(&fb, &ub, 4);
    return x * fa * fb;
}

BK_INLINE float bk_expf(float x) {
    float c = x < -110.0f ? -110.0f : x > 90.0f ? 90.0f : x;
    float n = c * 1.44269504088896341f + 12582912.0f; /* rounds to the nearest integer */
    n -= 12582912.0f;
    float r = c - n * 0.693145751953125f;
    r -= n * 1.428606765330187e-6f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    float y = bk_scale(p, (int32_t)n);
    return x != x ? x : y;
}

BK_INLINE float bk_sigmoidf(float x) {
    float e = bk_expf(x < 0 ? x : -x); /* at most 1 */
    float s = 1.0f / (1.0f + e);
    return x < 0 ? e * s : x != x ? x : s;
}

BK_INLINE float bk_tanhf(float x) {
    float a = fabsf(x);
    /* Small arguments: odd polynomial; else 1 - 2 / (exp(2a) + 1). */
    float z = x * x;
    float p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    p = p * z * x + x;
    float e = bk_expf(2.0f * (a > 12.0f ? 12.0f : a));
    float t = 1.0f - 2.0f / (e + 1.0f);
    t = x < 0 ? -t : t;
    return a < 0.625f ? p : x != x ? x : t;
}

BK_INLINE float bk_erff(float x) {
    return erff(x);
}

BK_INLINE float bk_logf(float x) {
    return logf(x);
}
