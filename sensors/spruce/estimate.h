/* From times of packets to available bandwidth. Pure.
 *
 * A pair is sent with the gap that the bottleneck needs for one packet. What the gap has grown by at the far end is
 * what other traffic took in between: A = C * (1 - (out - in) / in), averaged over pairs at Poisson moments.
 *
 * Departures from the original:
 * - The gap is a little shorter than one packet's time. With the very time, every delay of the second packet on its way
 *   to the bottleneck lets the link fall idle and looks like traffic, while haste shows nowhere.
 * - Above 25 Mb/s a "pair" has several gaps, because one of 20 us is lost in the noise of timestamps and looks at the
 * link for too short a time; the formula holds for the whole of it.
 * - Nothing is clipped per pair: the original takes single values into 0..1.8, which bends the mean as soon as noise or
 *   bursts go beyond. Only the mean is kept within 0..C.
 * - A pair looks at the link for one packet's time, so bursts make its mean vary widely. The first packets of pairs,
 * and small single packets sent at Poisson moments between them, also tell how often they found the link idle, which is
 * the share of time in which it is (Wolff, "Poisson Arrivals See Time Averages", 1982): A = C * share. Both means are
 *   weighed by their errors. Where several links of a path are loaded, the idle share is that of all at once and lower
 *   than that of the bottleneck, as is the pairs' value; spruce means paths with one bottleneck.
 * - The delay without waiting is the lower envelope of all delays, a straight line because the clocks of the two ends
 *   drift (Moon, Skelly, Towsley, "Estimation and Removal of Clock Skew from Network Delay Measurements", 1999). */
#ifndef CHART_SENSORS_SPRUCE_ESTIMATE_H
#define CHART_SENSORS_SPRUCE_ESTIMATE_H

#include <stdbool.h>
#include <stddef.h>

#include "train_check.h"

/* Of the time that the bottleneck needs for a packet. */
#define SPRUCE_GAP_SHARE 0.85
#define SPRUCE_PAIRS_MAX 500
#define SPRUCE_SINGLES_MAX 10
#define SPRUCE_LOOKS_MAX (SPRUCE_PAIRS_MAX * (SPRUCE_SINGLES_MAX + 1))

struct spruce_pair {
    double sent_us;    /* between first and last packet, at the sender */
    double arrived_us; /* the same at the receiver */
    double planned_us;
    double service_us; /* what the packets behind the first need at the bottleneck */
};

/* Whether a pair says something of the path, or of a processor that was away: it must have left as planned, cannot have
 * come faster than the bottleneck carries it, and no burst of other traffic adds more than TRAIN_BURST_PACKETS full
 * packets (TRAIN_JUMP_US where these take less). */
enum train_state spruce_judge_pair(const struct spruce_pair *pair, double capacity_bps);

/* A packet that came at a Poisson moment. */
struct spruce_look {
    double at_us;    /* sender's clock */
    double delay_us; /* receiver's clock minus sender's */
    unsigned bytes;  /* IP packet; delays are compared among packets of one size */
};

struct spruce_samples {
    size_t pair_count;
    struct spruce_pair pairs[SPRUCE_PAIRS_MAX];
    size_t look_count;
    struct spruce_look looks[SPRUCE_LOOKS_MAX];
    double own_share; /* of the capacity, that our own packets took meanwhile */
};

struct spruce_estimate {
    double share;       /* of the capacity that is available, 0..1 */
    double pairs_share; /* by pairs alone, not limited */
    double pairs_error; /* standard error */
    double idle_share;  /* by idle moments alone */
    double idle_error;
    size_t pairs_used; /* others were spoilt */
};

/* False when there are too few samples of either kind. Changes the order of the looks. */
bool spruce_estimate(struct spruce_samples *samples, double capacity_bps, struct spruce_estimate *ret_estimate);
/* Whether a link of this capacity is slow enough for looking whether it is idle. */
bool spruce_looks_help(double capacity_bps);
/* Gaps of a pair on a link of this capacity. */
unsigned spruce_gaps(double capacity_bps);

#endif
