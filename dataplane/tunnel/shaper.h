/* A token bucket over what the tunnel's connections are given (bytes of frames): the tunnel is to get its target, and
 * TCP's ups and downs take place in the room above it. A frame may overdraw the bucket, so that sizes do not matter.
 * Pure. */
#ifndef ITM_SHAPER_H
#define ITM_SHAPER_H

#include <stdbool.h>
#include <stdint.h>

/* So much of what could not be sent, in time, is made up for later. */
#define SHAPER_DEPTH_US 200000U
#define SHAPER_RATE_MAX_BPS 1000000000000ULL

struct shaper {
    uint64_t rate_bps; /* 0: no limit */
    uint64_t filled_at_us;
    double tokens_bytes;
};

/* The same rate again changes nothing. */
void shaper_set(struct shaper *shaper, uint64_t rate_bps, uint64_t now_us);
/* Fills the bucket up to now; whether a frame may go. */
bool shaper_open(struct shaper *shaper, uint64_t now_us);
void shaper_spend(struct shaper *shaper, uint64_t bytes);
/* When a frame may go next; now_us when it may now. */
uint64_t shaper_open_at_us(const struct shaper *shaper, uint64_t now_us);

#endif
