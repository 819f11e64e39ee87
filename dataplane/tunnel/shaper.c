/* A token bucket, see shaper.h. */
#include "shaper.h"

#define BITS_PER_US 8e6

static double depth_bytes(const struct shaper *shaper) {
    return (double)shaper->rate_bps / BITS_PER_US * SHAPER_DEPTH_US;
}

static void fill(struct shaper *shaper, uint64_t now_us) {
    double depth = depth_bytes(shaper);
    shaper->tokens_bytes += (double)shaper->rate_bps / BITS_PER_US * (double)(now_us - shaper->filled_at_us);
    if (shaper->tokens_bytes > depth)
        shaper->tokens_bytes = depth;
    shaper->filled_at_us = now_us;
}

void shaper_set(struct shaper *shaper, uint64_t rate_bps, uint64_t now_us) {
    if (rate_bps == shaper->rate_bps)
        return;
    /* What was earned at the old rate stays, as far as the new depth goes; from no limit on it begins with nothing. */
    if (shaper->rate_bps)
        fill(shaper, now_us);
    else
        shaper->tokens_bytes = 0;
    shaper->rate_bps = rate_bps;
    shaper->filled_at_us = now_us;
    fill(shaper, now_us);
}

bool shaper_open(struct shaper *shaper, uint64_t now_us) {
    if (!shaper->rate_bps)
        return true;
    fill(shaper, now_us);
    return shaper->tokens_bytes > 0;
}

void shaper_spend(struct shaper *shaper, uint64_t bytes) {
    if (shaper->rate_bps)
        shaper->tokens_bytes -= (double)bytes;
}

uint64_t shaper_open_at_us(const struct shaper *shaper, uint64_t now_us) {
    if (!shaper->rate_bps || shaper->tokens_bytes > 0)
        return now_us;
    /* A byte more, so that it is not found empty again. */
    return shaper->filled_at_us + (uint64_t)((1 - shaper->tokens_bytes) * BITS_PER_US / (double)shaper->rate_bps) + 1;
}
