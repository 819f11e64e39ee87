/* SCONE: throughput advice that routers write into packets of QUIC connections (Thomson et al., Standard Communication
 * with Network Elements (SCONE) Protocol), for BPF programs and user space alike.
 *
 * A SCONE packet is the first QUIC packet of a datagram: long header bit, a signal of 7 bits, one of two versions that
 * differ in their highest bit, which is the signal's lowest. Signal n stands for 100 kb/s x 10^(n/20), 127 for unknown.
 * Nothing here reads more than CHART_SCONE_OCTETS, calls libc, allocates or loops without a bound. */
#pragma once

#include "advice.h"

#define CHART_SCONE_OCTETS 5  /* that tell a SCONE packet and its signal, from the start of UDP's data */
#define CHART_SCONE_CHANGED 2 /* of these, that a new signal is written to */
#define CHART_SCONE_HIGHEST 126u
#define CHART_SCONE_UNKNOWN 127u
/* Advice holds so long ("Monitoring Period"). */
#define CHART_SCONE_PERIOD_NS 67000000000ull
/* Datagrams of one flow that are changed in a period to the same advice: "a few times" ("Damage to Other Protocols").
 */
#define CHART_SCONE_UPDATES 8u
/* Changed advice goes out beside these, but not more often than this. */
#define CHART_SCONE_CHANGE_NS 1000000000ull

/* What each signal stands for, bits per second, rounded up: a rate reaches a signal only when it is no less. The last
 * entry keeps the search in the table. */
static const __u64 chart_scone_rates[128] = {
    100000,       112202,       125893,       141254,       158490,       177828,       199527,       223873,
    251189,       281839,       316228,       354814,       398108,       446684,       501188,       562342,
    630958,       707946,       794329,       891251,       1000000,      1122019,      1258926,      1412538,
    1584894,      1778280,      1995263,      2238722,      2511887,      2818383,      3162278,      3548134,
    3981072,      4466836,      5011873,      5623414,      6309574,      7079458,      7943283,      8912510,
    10000000,     11220185,     12589255,     14125376,     15848932,     17782795,     19952624,     22387212,
    25118865,     28183830,     31622777,     35481339,     39810718,     44668360,     50118724,     56234133,
    63095735,     70794579,     79432824,     89125094,     100000000,    112201846,    125892542,    141253755,
    158489320,    177827942,    199526232,    223872114,    251188644,    281838294,    316227767,    354813390,
    398107171,    446683593,    501187234,    562341326,    630957345,    707945785,    794328235,    891250939,
    1000000000,   1122018455,   1258925412,   1412537545,   1584893193,   1778279411,   1995262315,   2238721139,
    2511886432,   2818382932,   3162277661,   3548133893,   3981071706,   4466835922,   5011872337,   5623413252,
    6309573445,   7079457844,   7943282348,   8912509382,   10000000000,  11220184544,  12589254118,  14125375447,
    15848931925,  17782794101,  19952623150,  22387211386,  25118864316,  28183829313,  31622776602,  35481338924,
    39810717056,  44668359216,  50118723363,  56234132520,  63095734449,  70794578439,  79432823473,  89125093814,
    100000000000, 112201845431, 125892541180, 141253754463, 158489319247, 177827941004, 199526231497, ~0ull,
};

/* What was written into a flow's packets. */
struct chart_scone_flow {
    __u64 period_ns;  /* when the period began, CLOCK_MONOTONIC */
    __u64 changed_ns; /* when other advice than before was written last */
    __u32 updates;    /* datagrams of this period that were changed with the same advice as before */
    __u8 signal;      /* written last */
    __u8 known;       /* 0: nothing was written yet */
    /* Of the monitoring period that began at monitored_ns and the one before it: the highest signal that was the flow's
     * advice, plus one; 0: none. */
    __u8 highest_plus_one;
    __u8 before_plus_one;
    __u8 advised; /* the newest */
    __u8 unused[3];
    __u64 monitored_ns;
    __u64 noted_ns; /* its newest SCONE packet with advice */
    __u64 debt_ns;  /* when what the flow sent is paid off at the rate it may have, CLOCK_MONOTONIC */
};

/* Whether UDP's data, of which CHART_SCONE_OCTETS are there, begins with a SCONE packet. */
CHART_ADVICE_INLINE int chart_scone_is(const __u8 *data) {
    return (data[0] & 0x80) && (data[1] & 0x7f) == 0x6f && data[2] == 0x7d && data[3] == 0xc0 && data[4] == 0xfd;
}

CHART_ADVICE_INLINE __u32 chart_scone_signal(const __u8 *data) {
    return (__u32)(data[0] & 0x3f) << 1 | data[1] >> 7;
}

/* Write a signal, up to CHART_SCONE_UNKNOWN; the reserved bit and the other bits of the version stay. */
CHART_ADVICE_INLINE void chart_scone_write(__u8 *data, __u32 signal) {
    data[0] = (__u8)((data[0] & 0xc0) | (signal >> 1 & 0x3f));
    data[1] = (__u8)((data[1] & 0x7f) | (signal & 1) << 7);
}

/* The highest signal that stands for no more than a rate in bits per second; 0 (100 kb/s) also for less than that. */
CHART_ADVICE_INLINE __u32 chart_scone_encode(__u64 rate_bps) {
    __u32 signal = 0, step;

    for (step = 64; step; step >>= 1)
        if (chart_scone_rates[(signal + step) & 127] <= rate_bps)
            signal += step;
    return signal < CHART_SCONE_HIGHEST ? signal : CHART_SCONE_HIGHEST;
}

/* Advice that a flow has now, whether a datagram says it or not ("Monitoring Flows": the highest of two periods). */
CHART_ADVICE_INLINE void chart_scone_note(struct chart_scone_flow *flow, __u32 signal, __u64 now_ns) {
    __u64 passed_ns = now_ns - flow->monitored_ns;

    flow->noted_ns = now_ns;
    flow->advised = (__u8)signal;
    if (!flow->highest_plus_one || passed_ns >= CHART_SCONE_PERIOD_NS) {
        flow->before_plus_one = passed_ns < 2 * CHART_SCONE_PERIOD_NS ? flow->highest_plus_one : 0;
        flow->highest_plus_one = 0;
        flow->monitored_ns = now_ns;
    }
    if (flow->highest_plus_one <= signal)
        flow->highest_plus_one = (__u8)(signal + 1);
}

/* What a flow may send over a monitoring period, bits per second: the highest advice of this period and the one before;
 * 0: it had none. */
CHART_ADVICE_INLINE __u64 chart_scone_limit_bps(const struct chart_scone_flow *flow, __u64 now_ns) {
    __u64 passed_ns = now_ns - flow->monitored_ns;
    __u32 highest = flow->highest_plus_one, before = passed_ns < CHART_SCONE_PERIOD_NS ? flow->before_plus_one : 0;

    if (passed_ns >= 2 * CHART_SCONE_PERIOD_NS)
        return 0;
    highest = before > highest ? before : highest;
    return highest ? chart_scone_rates[(highest - 1) & 127] : 0;
}

/* Whether a datagram of a flow may be changed to a signal now, and note that it is: changed advice at once, else a few
 * datagrams of a period, so that a protocol that only looks like QUIC keeps working. */
CHART_ADVICE_INLINE int chart_scone_may_write(struct chart_scone_flow *flow, __u32 signal, __u64 now_ns) {
    if (!flow->known || now_ns - flow->period_ns >= CHART_SCONE_PERIOD_NS) {
        flow->period_ns = now_ns;
        flow->updates = 0;
    }
    if (flow->known && flow->signal != signal && now_ns - flow->changed_ns >= CHART_SCONE_CHANGE_NS) {
        flow->changed_ns = now_ns;
    } else {
        if (flow->updates >= CHART_SCONE_UPDATES)
            return 0;
        flow->updates++;
    }
    flow->known = 1;
    flow->signal = (__u8)signal;
    return 1;
}
