/* The 16-bit rate (Brassil et al., The CHART System, section 2; ATM's RM cell has the same parts in another order).
 *
 *   bit 15 reserved 0 | bit 14 non-zero | bits 13-5 mantissa m | bits 4-0 exponent e
 *
 * Value (1 + m/512) * 2^e kbit/s = 125 * (512 + m) * 2^e / 64 bit/s; 1 kb/s to 4.29 Tb/s. In whole bit/s the value is
 * rounded down; that matters below 64 kb/s only. Encoding gives the largest word whose decoded value does not exceed
 * the rate, so what was granted is never rounded up and decode(encode(decode(w))) = decode(w). Error below 1/512.
 */
#ifndef CHART_QOS_RATE_H
#define CHART_QOS_RATE_H

#include "qos_types.h"

#define CHART_RATE_RESERVED 0x8000u
#define CHART_RATE_NONZERO 0x4000u
#define CHART_RATE_MAX 0x7fffu
#define CHART_RATE_MAX_BPS (125ull * (1023ull << 31) / 64)

/* Bit/s of a rate word; the reserved bit is not looked at. */
CHART_INLINE __u64 chart_rate_decode(__u16 word) {
    __u64 significand = 512 + ((word >> 5) & 0x1ff);

    if (!(word & CHART_RATE_NONZERO))
        return 0;
    return 125 * (significand << (word & 31)) / 64;
}

/* Rate word of `rate_bps`, rounded down; below 1 kb/s it is 0, above 4.29 Tb/s the largest word. */
CHART_INLINE __u16 chart_rate_encode(__u64 rate_bps) {
    __u64 scaled, top;
    __u32 exponent = 0, step;

    if (rate_bps >= CHART_RATE_MAX_BPS)
        return CHART_RATE_MAX;
    /* Largest N with floor(125 N / 64) <= rate. */
    scaled = (64 * rate_bps + 63) / 125;
    if (scaled < 512)
        return 0;
    top = scaled >> 9;
    for (step = 16; step; step >>= 1) {
        if (top >> step) {
            top >>= step;
            exponent += step;
        }
    }
    return (__u16)(CHART_RATE_NONZERO | (((scaled >> exponent) & 0x1ff) << 5) | exponent);
}

/* A number that orders words as their rates are ordered: the words themselves do not, the exponent is in the low bits.
 */
CHART_INLINE __u32 chart_rate_order(__u16 word) {
    if (!(word & CHART_RATE_NONZERO))
        return 0;
    return 1 + (((__u32)(word & 31) << 9) | ((word >> 5) & 0x1ff));
}

/* The word of the lower rate. */
CHART_INLINE __u16 chart_rate_min(__u16 first, __u16 second) {
    return chart_rate_order(second) < chart_rate_order(first) ? second : first;
}

#endif
