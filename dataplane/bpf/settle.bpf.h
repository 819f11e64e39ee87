/* What the control that follows trinity is told, so that it goes on from the last rate instead of looking for one: the
 * end of a rate must not be the beginning of a burst. Without this BBR begins with its STARTUP (2.9 times the rate it
 * finds) and CUBIC, which knows no window before, grows by 5 % in every round trip.
 *
 * Both are told through their own state, by the kernel's type information; a kernel without these types or a control of
 * another name starts from the window alone. */
#pragma once

#include "common.bpf.h"

/* bbr: bandwidths are packets per microsecond, shifted. */
#define BBR_BANDWIDTH_SHIFT 24

/* Set a bit field where the running kernel has it. */
#define settle_bits(object, field, value)                                                                              \
    do {                                                                                                               \
        __u32 *word = (void *)(object) + __CORE_RELO(object, field, BYTE_OFFSET);                                      \
        __u32 lower = __CORE_RELO(object, field, RSHIFT_U64) - __CORE_RELO(object, field, LSHIFT_U64);                 \
        __u32 bits = 64 - __CORE_RELO(object, field, RSHIFT_U64);                                                      \
        __u32 mask = ((1u << bits) - 1) << lower;                                                                      \
        *word = (*word & ~mask) | (((__u32)(value) << lower) & mask);                                                  \
    } while (0)

/* The pipe is full at this rate: no STARTUP, and for 48 round trips the rate that it uses for a path with a policer;
 * afterwards it looks for more as always. */
static __always_inline void settle_bbr(struct sock *sk, __u64 packets_per_s) {
    struct bbr *bbr = (void *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
    __u64 bandwidth = (packets_per_s << BBR_BANDWIDTH_SHIFT) / 1000000;

    if (!bpf_core_field_exists(bbr->lt_bw) || !bpf_core_field_exists(bbr->full_bw_reached))
        return;
    bbr->lt_bw = (__u32)min(bandwidth, (__u64)~0u);
    settle_bits(bbr, lt_use_bw, 1);
    settle_bits(bbr, full_bw_reached, 1);
}

/* The present window is the plateau: growth goes on from it by the cubic function. */
static __always_inline void settle_cubic(struct sock *sk, __u32 window_packets) {
    struct bictcp *cubic = (void *)((struct inet_connection_sock *)sk)->icsk_ca_priv;

    if (bpf_core_field_exists(cubic->last_max_cwnd))
        cubic->last_max_cwnd = window_packets;
}
