/* Plans of chirps; see plan.h. */
#include "plan.h"

#include <math.h>
#include <string.h>

/* The knee's gap that we like: far above timestamp noise, short enough for several chirps per second. */
#define KNEE_GAP_US 200.0
/* Below this, headers that links add weigh too much. */
#define PACKET_MIN_BYTES 576.0

void chirp_plan_make(struct chirp_plan *plan, double low_bps, double high_bps, double spread, double shift,
                     uint32_t packet_bytes) {
    double bits = 8.0 * packet_bytes;
    double rate_bps = low_bps * pow(spread, shift);
    double at_us = 0;

    memset(plan, 0, sizeof(*plan));
    plan->low_bps = rate_bps;
    plan->train.packet_bytes = packet_bytes;
    plan->train.departures_us[0] = 0;
    plan->train.packets = 1;
    do {
        at_us += bits / rate_bps * 1e6;
        plan->high_bps = rate_bps;
        plan->train.departures_us[plan->train.packets++] = at_us;
        rate_bps *= spread;
    } while (rate_bps <= high_bps * pow(spread, shift) && plan->train.packets < TRAIN_PACKETS_MAX);
}

double chirp_plan_duration_us(const struct chirp_plan *plan) {
    return plan->train.departures_us[plan->train.packets - 1];
}

double chirp_shift(unsigned number) {
    return fmod(number * 0.6180339887498949, 1.0);
}

uint32_t chirp_packet_bytes(double expected_bps, uint32_t largest_bytes) {
    double bytes = fmax(PACKET_MIN_BYTES, expected_bps * KNEE_GAP_US / 8e6);

    return bytes < largest_bytes ? (uint32_t)bytes : largest_bytes;
}
