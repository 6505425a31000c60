/* draw.h: random bits, the same on every target: C11 and C++17, for hosts and devices.
 *
 * A pure function of a key and a counter, so that elements need no order and no state: whoever
 * wants element i of a stream computes it. Philox 4x32-10 (Salmon et al., "Parallel random numbers:
 * as easy as 1, 2, 3", 2011) with a counter of 64 bits; the first 64 of its 128 bits come back.
 * Keys of further streams are draws themselves. BK_INLINE is the qualifier of a function.
 */
#ifndef BK_DRAW_H
#define BK_DRAW_H

/* One of the ten rounds: written out, so that loops around draws become lane loops. */
#define BK_DRAW_ROUND                                                                              \
    p = (uint64_t)a * 0xD2511F53u;                                                                 \
    q = (uint64_t)c * 0xCD9E8D57u;                                                                 \
    a = (uint32_t)(q >> 32) ^ b ^ k;                                                               \
    c = (uint32_t)(p >> 32) ^ d ^ l;                                                               \
    b = (uint32_t)q;                                                                               \
    d = (uint32_t)p;                                                                               \
    k += 0x9E3779B9u;                                                                              \
    l += 0xBB67AE85u
BK_INLINE uint64_t bk_draw(uint64_t key, uint64_t counter) {
    uint32_t a = (uint32_t)counter, b = (uint32_t)(counter >> 32), c = 0, d = 0;
    uint32_t k = (uint32_t)key, l = (uint32_t)(key >> 32);
    uint64_t p, q;
    BK_DRAW_ROUND;
    BK_DRAW_ROUND;
    BK_DRAW_ROUND;
    BK_DRAW_ROUND;
    BK_DRAW_ROUND;
    BK_DRAW_ROUND;
    BK_DRAW_ROUND;
    BK_DRAW_ROUND;
    BK_DRAW_ROUND;
    BK_DRAW_ROUND;
    return (uint64_t)b << 32 | a;
}
#undef BK_DRAW_ROUND
#endif
