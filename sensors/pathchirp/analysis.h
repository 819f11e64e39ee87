/* Analysis of one chirp: pathChirp's excursion segmentation (Ribeiro, Riedi, Baraniuk, Navratil, Cottrell, "pathChirp:
 * Efficient Available Bandwidth Estimation for Network Paths", PAM 2003, section 3). Pure: times in, a rate out.
 *
 * Departures from the original, all for links that lose packets and hosts that are busy:
 * - Rates come from measured departure times, not from the plan, so a late sender does not bend the result.
 * - The rate at which the queue starts to grow lies between the last gap that made no queue and the first that did;
 *   the original takes the latter and so reports up to one spread factor too much; and noise right before the turning
 * point begins the excursion early. We fit the foot of the last excursion: the delays are to follow b + s * (bits that
 * arrived in excess of A), least squares over A, b and s <= 1; A is searched from the gap before the excursion to five
 * after.
 * - Coalescence: packets that arrive closer than half of the shortest gap that was sent were handed over in one batch
 * by a device, an interrupt or a descheduled emulator. Of each batch the last packet, which waited least, stands for
 * all. The original cuts the chirp there.
 * - Spikes: late wake-ups of a busy host delay one or two packets by tens of microseconds. Delays that are gone by one
 * of the two next packets are taken out first; with L = 5 they could not have counted as an excursion anyway, but they
 * can lie right before the turning point and pull it down.
 * - Timestamp noise: an increase counts only when it exceeds both 1 us and what the low-rate half of the same chirp
 * shows as usual difference, and never more than a tenth of the gap.
 * - A chirp in which the queue never grew by itself and yet stands at the end was hit by something else (a processor
 *   that was away, a burst) that covers its turning point: it says nothing, where the original takes the highest rate.
 * - Loss: the original drops a chirp that lost a packet, which leaves nothing at 5 % loss. Delays of the packets that
 *   arrived are still right. Only a fall of the queue over a gap with loss is ambiguous: the lost packet may never have
 *   entered the queue. That fall is taken back, up to the service time of the lost packets; and when packets were lost
 *   right around the turning point the chirp is marked doubtful, so that the caller can prefer others. */
#ifndef CHART_SENSORS_CHIRP_ANALYSIS_H
#define CHART_SENSORS_CHIRP_ANALYSIS_H

#include <stdbool.h>
#include <stddef.h>

#include "exchange.h"

/* Estimates of one run. */
#define CHIRP_ESTIMATES_MAX 64

struct chirp_settings {
    double decrease_factor; /* F: an excursion ends when the queue fell below its peak divided by this; > 1 */
    unsigned busy_period;   /* L: shorter excursions (in gaps) are noise; > 2 */
};

enum chirp_verdict {
    CHIRP_WITHIN,     /* the turning point lies within the chirp's rates */
    CHIRP_BELOW,      /* the queue grew from the first gap on: the estimate is an upper bound */
    CHIRP_ABOVE,      /* the queue never grew: the estimate is a lower bound */
    CHIRP_REORDERED,  /* no estimate */
    CHIRP_DISTURBED,  /* ended with a queue that the chirp did not make: no estimate */
    CHIRP_INCOMPLETE, /* too few packets arrived: no estimate */
};

struct chirp_result {
    enum chirp_verdict verdict;
    double estimate_bps;
    bool doubtful; /* packets were lost around the turning point */
    double noise_us;
    unsigned coalesced; /* packets that were merged into the last of their batch */
};

/* Mean of the estimates of several chirps (pathChirp's smoothing) without those that stand apart from all others: more
 * than three standard deviations from the median, as the median deviation tells them (Hampel, "The Influence Curve and
 * Its Role in Robust Estimation", JASA 1974), and more than a quarter of it. NaN for none. */
double chirp_mean(const double *estimates_bps, size_t count, size_t *ret_left_out);

const char *chirp_verdict_name(enum chirp_verdict verdict);
/* Analyse a chirp of `count` packets of `packet_bits` each (IP packet). */
struct chirp_result chirp_analyse(const struct train_packet *packets, size_t count, double packet_bits,
                                  const struct chirp_settings *settings);

#endif
