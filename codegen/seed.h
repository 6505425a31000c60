/* seed.h: the seed of a session's runs, for hosts: of the library's sessions and the interpreter's.
 */
#ifndef BK_SEED_H
#define BK_SEED_H
#include <stdint.h>
#include <time.h>

typedef struct bk_seed {
    uint64_t value;
    int given; /* by the caller: then it is every run's */
} bk_seed;

static inline uint64_t bk_seed_mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Of the next run. What nobody gave is a new one each time, from the clock and where things lie. */
static inline uint64_t bk_seed_next(bk_seed *s) {
    if (s->given) return s->value;
    if (!s->value) {
        struct timespec t = {0, 0};
        timespec_get(&t, TIME_UTC);
        s->value = bk_seed_mix((uint64_t)t.tv_sec * 1000000007u + (uint64_t)t.tv_nsec);
        s->value ^= bk_seed_mix((uint64_t)(uintptr_t)s ^ (uint64_t)(uintptr_t)&t << 32);
    }
    s->value += 0x9e3779b97f4a7c15u;
    return bk_seed_mix(s->value);
}

static inline void bk_seed_set(bk_seed *s, uint64_t seed) {
    s->value = seed;
    s->given = 1;
}
#endif
