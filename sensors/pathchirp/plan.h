/* Plans of chirps: which rates, packet sizes and departures, and what a run may cost. Pure. */
#ifndef CHART_SENSORS_CHIRP_PLAN_H
#define CHART_SENSORS_CHIRP_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "exchange.h"

struct chirp_plan {
    double low_bps;
    double high_bps;
    struct train_plan train;
};

/* Gaps shrink by `spread` from the low to the high rate; `shift` in 0..1 moves the whole grid of rates up by that share
 * of one step, so that many chirps do not all fall on the same grid. */
void chirp_plan_make(struct chirp_plan *plan, double low_bps, double high_bps, double spread, double shift,
                     uint32_t packet_bytes);
double chirp_plan_duration_us(const struct chirp_plan *plan);
/* Shift of the n-th chirp: the golden-ratio sequence, evenly spread whatever chirps are used in the end. */
double chirp_shift(unsigned number);
/* Packet size for an available bandwidth: small on slow paths, where a chirp would last too long. */
uint32_t chirp_packet_bytes(double expected_bps, uint32_t largest_bytes);

#endif
