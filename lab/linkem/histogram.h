/* Histogram of durations in nanoseconds with 1/16 relative resolution, for the emulator's account of its own error. */
#ifndef LINKEM_HISTOGRAM_H
#define LINKEM_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_STEPS 16
#define HISTOGRAM_BUCKETS (64 * HISTOGRAM_STEPS)

struct histogram {
    uint64_t total;
    uint64_t maximum_ns;
    uint32_t count[HISTOGRAM_BUCKETS];
};

static inline unsigned histogram_bucket(uint64_t value_ns) {
    if (value_ns < HISTOGRAM_STEPS)
        return (unsigned)value_ns;
    unsigned exponent = 63U - (unsigned)__builtin_clzll(value_ns);
    unsigned step = (unsigned)(value_ns >> (exponent - 4)) & (HISTOGRAM_STEPS - 1);
    return (exponent - 3) * HISTOGRAM_STEPS + step;
}

/* The lowest value of a bucket, in nanoseconds. */
static inline uint64_t histogram_value(unsigned bucket) {
    if (bucket < HISTOGRAM_STEPS)
        return bucket;
    unsigned exponent = bucket / HISTOGRAM_STEPS + 3;
    return (1ULL << exponent) + ((uint64_t)(bucket % HISTOGRAM_STEPS) << (exponent - 4));
}

static inline void histogram_add(struct histogram *histogram, uint64_t value_ns) {
    histogram->count[histogram_bucket(value_ns)]++;
    histogram->total++;
    if (value_ns > histogram->maximum_ns)
        histogram->maximum_ns = value_ns;
}

/* Quantile in nanoseconds; 0 when nothing was recorded. */
static inline uint64_t histogram_quantile(const struct histogram *histogram, double quantile) {
    uint64_t rank = (uint64_t)(quantile * (double)histogram->total);
    uint64_t seen = 0;
    for (unsigned bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++) {
        seen += histogram->count[bucket];
        if (seen > rank)
            return histogram_value(bucket);
    }
    return histogram->maximum_ns;
}

#endif
