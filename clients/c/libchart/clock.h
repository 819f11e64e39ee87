/* The clock of rates: CLOCK_MONOTONIC in nanoseconds, as the kernel's bpf_ktime_get_ns. */
#ifndef CHART_CLOCK_H
#define CHART_CLOCK_H

#include <stdint.h>
#include <time.h>

#define CHART_NS_PER_S 1000000000ull
#define CHART_LOOK_NS 10000000ull /* how often a rate is looked at */

static inline uint64_t chart_now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * CHART_NS_PER_S + (uint64_t)time.tv_nsec;
}

#endif
