/* Quick-Start: a host asks the routers on its way for the rate to begin with (Floyd, Allman, Jain and Sarolahti, RFC
 * 4782), for BPF programs and user space alike.
 *
 * The option is eight octets: 25 in IPv4 (with its length), 0x26 in IPv6's hop-by-hop options. Rate N stands for 40
 * kb/s x 2^N with headers, 0 for none. Each router lowers the rate or lets it stand, and decrements the QS TTL as it
 * does the packet's, so that the receiver sees whether all of them took part. Fields of the nonce, two bits for each
 * step of the rate, are random anew for each step that a router lowers it, so that a receiver that reports more is
 * found out. Nothing here reads more than CHART_QS_OCTETS, calls libc, allocates or loops without a bound. */
#pragma once

#include "advice.h"

#define CHART_QS_OCTETS 8u
#define CHART_QS_IPV4 25u
#define CHART_QS_IPV4_LENGTH 8u
#define CHART_QS_IPV6 0x26u
#define CHART_QS_IPV6_LENGTH 6u /* of an IPv6 option: without type and length */
#define CHART_QS_REPORT 8u      /* function of a Report of Approved Rate, which no router changes */
#define CHART_QS_RATE_MAX 15u
#define CHART_QS_UNIT_BPS 40000ull
/* A link is underutilized below this part of its capacity where nobody says another (appendix D, qs_thresh). */
#define CHART_QS_THRESHOLD_PERMILLE 900u
/* What was approved counts for two of these, "recent_qs_approvals". */
#define CHART_QS_INTERVAL_NS 150000000ull

/* What a link approved: by the interval in which it did, bits per second. */
struct chart_qs_approvals {
    __u64 interval;
    __u64 approved_bps;
    __u64 approved_before_bps;
};

/* What of an option a router looks at. */
enum chart_qs_kind { CHART_QS_NONE, CHART_QS_REQUEST, CHART_QS_OTHER };

/* What an option's eight octets are; a report, and what asks for nothing, is left alone. `ipv6`: 1 or 0. */
CHART_ADVICE_INLINE enum chart_qs_kind chart_qs_kind(const __u8 *option, int ipv6) {
    if (option[0] != (ipv6 ? CHART_QS_IPV6 : CHART_QS_IPV4) ||
        option[1] != (ipv6 ? CHART_QS_IPV6_LENGTH : CHART_QS_IPV4_LENGTH))
        return CHART_QS_NONE;
    return option[2] >> 4 == 0 && (option[2] & 0xf) ? CHART_QS_REQUEST : CHART_QS_OTHER;
}

CHART_ADVICE_INLINE __u32 chart_qs_rate(const __u8 *option) {
    return option[2] & 0xf;
}

CHART_ADVICE_INLINE __u64 chart_qs_bps(__u32 rate) {
    return rate ? CHART_QS_UNIT_BPS << (rate & CHART_QS_RATE_MAX) : 0;
}

/* The highest rate that stands for no more than so many bits per second. */
CHART_ADVICE_INLINE __u32 chart_qs_encode(__u64 bps) {
    __u32 rate = 0, step;

    for (step = 8; step; step >>= 1)
        if (chart_qs_bps(rate + step) <= bps)
            rate += step;
    return rate;
}

/* 30 bits; the two of the step from rate K to K - 1 are bits 2K - 1 and 2K - 2, the highest being bit 29. */
CHART_ADVICE_INLINE __u32 chart_qs_nonce(const __u8 *option) {
    return ((__u32)option[4] << 24 | (__u32)option[5] << 16 | (__u32)option[6] << 8 | option[7]) >> 2;
}

CHART_ADVICE_INLINE void chart_qs_put_nonce(__u8 *option, __u32 nonce) {
    option[4] = (__u8)(nonce >> 22);
    option[5] = (__u8)(nonce >> 14);
    option[6] = (__u8)(nonce >> 6);
    option[7] = (__u8)((nonce & 0x3f) << 2 | (option[7] & 3));
}

/* The request is refused: no rate, no QS TTL, no nonce (section 3.3). */
CHART_ADVICE_INLINE void chart_qs_refuse(__u8 *option) {
    option[2] &= 0xf0;
    option[3] = 0;
    chart_qs_put_nonce(option, 0);
}

/* Approve up to a rate: no higher than asked for; `hops`: by how much the router decremented the packet's TTL;
 * `random`: 30 fresh bits for the nonce. */
CHART_ADVICE_INLINE void chart_qs_approve(__u8 *option, __u32 rate, __u32 hops, __u32 random) {
    __u32 asked = chart_qs_rate(option), steps;

    option[3] = (__u8)(option[3] - hops);
    if (rate >= asked)
        return;
    option[2] = (__u8)((option[2] & 0xf0) | rate);
    steps = ((1u << 2 * asked) - 1) & ~((1u << 2 * rate) - 1);
    chart_qs_put_nonce(option, (chart_qs_nonce(option) & ~steps) | (random & steps));
}

/* Approve as much of a rate as keeps a link underutilized, and count it; 0: none (appendix D, the target algorithm).
 * `spare_bps`: what of the threshold the link's busiest moment lately left. */
CHART_ADVICE_INLINE __u32 chart_qs_take(struct chart_qs_approvals *approvals, __u32 rate, __u64 spare_bps,
                                        __u64 now_ns) {
    __u64 interval = now_ns / CHART_QS_INTERVAL_NS, recent_bps;
    __u32 free;

    if (approvals->interval != interval) {
        approvals->approved_before_bps = approvals->interval + 1 == interval ? approvals->approved_bps : 0;
        approvals->approved_bps = 0;
        approvals->interval = interval;
    }
    recent_bps = approvals->approved_bps + approvals->approved_before_bps;
    free = spare_bps > recent_bps ? chart_qs_encode(spare_bps - recent_bps) : 0;
    if (free < rate)
        rate = free;
    approvals->approved_bps += chart_qs_bps(rate);
    return rate;
}

/* The spare rate of a link, bits per second: what of the threshold (permille of the capacity) its busiest moment lately
 * left. */
CHART_ADVICE_INLINE __u64 chart_qs_spare_bps(__u64 capacity_bps, __u32 threshold_permille, __u64 peak_bps) {
    __u64 threshold_bps = capacity_bps / 1000 * threshold_permille;

    return threshold_bps > peak_bps ? threshold_bps - peak_bps : 0;
}
