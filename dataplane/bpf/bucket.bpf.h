/* A token bucket as one number: the time at which it will be empty of debt (CLOCK_MONOTONIC, ns). A packet that would
 * put that further ahead than the depth exceeds. It is moved by compare and exchange, so that processors need no lock.
 */
#pragma once

#define CHART_BUCKET_MTU_BYTES 1500ull
#define BUCKET_NS_PER_S 1000000000ull
#define BUCKET_ATTEMPTS 8

/* Put `bytes` into a bucket; false when they exceed it, and then it stays as it was. A depth is never less than two
 * full packets, or nothing would ever fit. */
static __always_inline bool bucket_conforms(__u64 *at_ns, __u64 bytes, __u64 rate_bps, __u64 depth_ns, __u64 now_ns) {
    __u64 cost_ns = bytes * 8 * BUCKET_NS_PER_S / rate_bps;
    __u64 least_ns = 2 * CHART_BUCKET_MTU_BYTES * 8 * BUCKET_NS_PER_S / rate_bps;
    __u64 limit_ns = now_ns + max(depth_ns, least_ns);
    for (int i = 0; i < BUCKET_ATTEMPTS; i++) {
        __u64 seen = *(volatile __u64 *)at_ns;
        __u64 next = max(seen, now_ns) + cost_ns;
        if (next > limit_ns)
            return false;
        if (__sync_val_compare_and_swap(at_ns, seen, next) == seen)
            return true;
    }
    return false;
}
