/* Seeded random numbers: xoshiro256** (Blackman and Vigna, 2018) seeded by splitmix64.
 * Each use of chance in a direction has a stream of its own, so that switching one impairment on never changes what
 * another one does: the n-th packet on the wire is lost or not by seed and n alone. */
#ifndef LINKEM_PRNG_H
#define LINKEM_PRNG_H

#include <stdint.h>

struct prng {
    uint64_t state[4];
};

static inline uint64_t prng_splitmix(uint64_t *seed) {
    uint64_t value = (*seed += 0x9e3779b97f4a7c15ULL);
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
    return value ^ (value >> 31);
}

static inline void prng_seed(struct prng *prng, uint64_t seed) {
    for (int i = 0; i < 4; i++)
        prng->state[i] = prng_splitmix(&seed);
}

static inline uint64_t prng_rotate(uint64_t value, int bits) {
    return (value << bits) | (value >> (64 - bits));
}

static inline uint64_t prng_next(struct prng *prng) {
    uint64_t *s = prng->state;
    uint64_t result = prng_rotate(s[1] * 5, 7) * 9;
    uint64_t shifted = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = prng_rotate(s[3], 45);
    return result;
}

/* Uniform in [0, 1). */
static inline double prng_uniform(struct prng *prng) {
    return (double)(prng_next(prng) >> 11) * 0x1.0p-53;
}

#endif
