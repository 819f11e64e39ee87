/* The ends of a TCP connection that uses Quick-Start (Floyd, Allman, Jain and Sarolahti, RFC 4782, section 4), for BPF
 * programs and user space alike: the receiver returns in a TCP option what arrived of a request, the sender compares it
 * with what it asked for. Nothing here reads more than an option, calls libc, allocates or loops without a bound. */
#pragma once

#include "quick_start.h"

/* The response: kind, length, rate, TTL difference, nonce (section 4.2); as long as a request. */
#define CHART_QS_TCP_KIND 27u
#define CHART_QS_TCP_OCTETS 8u
/* A rate begins to be used within a round trip, or this (section 4.4). */
#define CHART_QS_USE_MAX_NS 3000000000ull

/* How long nobody asks towards where a request stayed without an answer. */
#define CHART_QS_PAUSE_MIN_NS 10000000000ull
#define CHART_QS_PAUSE_MAX_NS 600000000000ull

/* An address like that: until when nobody asks, and how long the last pause is. */
struct chart_qs_dropper {
    __u64 until_ns;
    __u64 pause_ns;
};

enum chart_qs_answer {
    CHART_QS_VALID,
    /* Some router took no part, or the rate is higher than what was asked for. */
    CHART_QS_INVALID,
    /* Somebody reports more than arrived: nothing is asked for on this connection any more. */
    CHART_QS_LIE,
};

/* What a request asked for, and what its answer has to agree with. */
struct chart_qs_asked {
    __u32 nonce;
    __u8 rate;
    __u8 ttl_difference;
};

/* The response to a request that arrived in a packet with this TTL (IPv4) or hop limit (IPv6). */
CHART_ADVICE_INLINE void chart_qs_respond(__u8 *response, const __u8 *request, __u8 ttl) {
    response[0] = CHART_QS_TCP_KIND;
    response[1] = CHART_QS_TCP_OCTETS;
    response[2] = (__u8)chart_qs_rate(request);
    response[3] = (__u8)(ttl - request[3]);
    response[4] = request[4];
    response[5] = request[5];
    response[6] = request[6];
    response[7] = request[7] & 0xfc;
}

/* Of a rate K that arrived, the 2K lowest bits of the nonce are those that were sent (section 4.4). */
CHART_ADVICE_INLINE enum chart_qs_answer chart_qs_check(const __u8 *response, const struct chart_qs_asked *asked) {
    __u32 rate = chart_qs_rate(response), covered = (1u << 2 * rate) - 1;

    if (response[3] != asked->ttl_difference || rate > asked->rate)
        return CHART_QS_INVALID;
    return (chart_qs_nonce(response) ^ asked->nonce) & covered ? CHART_QS_LIE : CHART_QS_VALID;
}

/* Segments that a rate carries in a round trip, which is what the window is raised to (section 4.4, equation 3).
 * `segment_bytes`: with headers. */
CHART_ADVICE_INLINE __u64 chart_qs_window(__u64 bps, __u64 rtt_ns, __u32 segment_bytes) {
    return segment_bytes ? bps / 8 * (rtt_ns / 1000) / 1000000 / segment_bytes : 0;
}

/* Count a request that stayed without an answer. Boxes that drop options do so each time, links lose a packet by
 * chance: the pause doubles when the next one comes no later than a pause after the last, and begins anew otherwise.
 */
CHART_ADVICE_INLINE void chart_qs_unanswered(struct chart_qs_dropper *dropper, __u64 now_ns) {
    __u64 pause_ns = CHART_QS_PAUSE_MIN_NS;

    if (dropper->pause_ns && now_ns < dropper->until_ns + dropper->pause_ns)
        pause_ns = dropper->pause_ns < CHART_QS_PAUSE_MAX_NS / 2 ? 2 * dropper->pause_ns : CHART_QS_PAUSE_MAX_NS;
    dropper->pause_ns = pause_ns;
    dropper->until_ns = now_ns + pause_ns;
}
