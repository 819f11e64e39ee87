/* From times of packets to available bandwidth; see estimate.h. */
#include "estimate.h"

#include <math.h>
#include <stdlib.h>

#define FULL_PACKET_BITS 12000.0
/* One gap of a pair for so much capacity, and at most so many. */
#define GAP_PER_BPS 25e6
#define GAPS_MAX 24u
/* A pair whose sender was late or early by more than this share says little. */
#define SENDER_TOLERANCE 0.1
#define PAIRS_MIN 10u
#define LOOKS_MIN 30u
/* A pair that came within this share of the time that its packets need was handed over in one go. */
#define HASTE_SHARE 0.5
/* A packet that waited less did not wait: hosts need that long to wake up. */
#define NO_WAIT_US 24.0
#define NO_WAIT_PACKET_SHARE 0.04
/* Looks count only where a full packet takes so many times longer. */
#define LOOKS_PACKET_TIMES 20.0
/* What the idle share may be wrong by for other reasons than chance, and how much more for each no-wait time within a
 * packet's. */
#define IDLE_ERROR_FLOOR 0.015
#define IDLE_ERROR_SHARE 0.3

unsigned spruce_gaps(double capacity_bps) {
    double gaps = ceil(capacity_bps / GAP_PER_BPS);

    return gaps < 1 ? 1 : gaps > GAPS_MAX ? GAPS_MAX : (unsigned)gaps;
}

static double packet_us(double capacity_bps) {
    return FULL_PACKET_BITS / capacity_bps * 1e6;
}

static double no_wait_us(double capacity_bps) {
    return fmax(NO_WAIT_US, NO_WAIT_PACKET_SHARE * packet_us(capacity_bps));
}

bool spruce_looks_help(double capacity_bps) {
    return packet_us(capacity_bps) >= LOOKS_PACKET_TIMES * no_wait_us(capacity_bps);
}

enum train_state spruce_judge_pair(const struct spruce_pair *pair, double capacity_bps) {
    double burst_us = fmax(TRAIN_JUMP_US, TRAIN_BURST_PACKETS * packet_us(capacity_bps));

    if (fabs(pair->sent_us - pair->planned_us) > SENDER_TOLERANCE * pair->planned_us)
        return TRAIN_OFF_PLAN;
    if (pair->arrived_us < HASTE_SHARE * pair->service_us || pair->arrived_us - pair->service_us > burst_us)
        return TRAIN_HELD;
    return TRAIN_CLEAN;
}

static void judge_pairs(const struct spruce_samples *samples, double capacity_bps, struct spruce_estimate *estimate) {
    double sum = 0, squares = 0;
    size_t n = 0;

    for (size_t i = 0; i < samples->pair_count; i++) {
        const struct spruce_pair *pair = &samples->pairs[i];
        double share;

        if (spruce_judge_pair(pair, capacity_bps) != TRAIN_CLEAN)
            continue;
        share = 1 - (pair->arrived_us - pair->service_us) / pair->sent_us;
        sum += share;
        squares += share * share;
        n++;
    }
    estimate->pairs_used = n;
    if (n == 0)
        return;
    estimate->pairs_share = sum / (double)n;
    estimate->pairs_error =
        sqrt(fmax(squares / (double)n - estimate->pairs_share * estimate->pairs_share, 1e-6) / (double)n);
}

static int by_size_and_time(const void *a, const void *b) {
    const struct spruce_look *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return (x->at_us > y->at_us) - (x->at_us < y->at_us);
}

static double turn(const struct spruce_look *a, const struct spruce_look *b, const struct spruce_look *c) {
    return (b->at_us - a->at_us) * (c->delay_us - a->delay_us) - (b->delay_us - a->delay_us) * (c->at_us - a->at_us);
}

/* The edge of the lower convex hull over the middle of the time is the line below all delays that is nearest to them.
 */
static void remove_envelope(struct spruce_look *looks, size_t count) {
    double middle_us = 0;
    size_t *hull = calloc(count, sizeof(*hull));
    size_t size = 0;
    size_t edge = 0;
    double slope, base_us, from_us;

    if (!hull)
        return;
    for (size_t i = 0; i < count; i++) {
        middle_us += looks[i].at_us / (double)count;
        while (size >= 2 && turn(&looks[hull[size - 2]], &looks[hull[size - 1]], &looks[i]) <= 0)
            size--;
        hull[size++] = i;
    }
    while (edge + 2 < size && looks[hull[edge + 1]].at_us < middle_us)
        edge++;
    base_us = looks[hull[edge]].delay_us;
    from_us = looks[hull[edge]].at_us;
    slope = size < 2 || looks[hull[edge + 1]].at_us <= from_us
                ? 0
                : (looks[hull[edge + 1]].delay_us - base_us) / (looks[hull[edge + 1]].at_us - from_us);
    for (size_t i = 0; i < count; i++)
        looks[i].delay_us -= base_us + slope * (looks[i].at_us - from_us);
    free(hull);
}

static void judge_looks(struct spruce_samples *samples, double capacity_bps, struct spruce_estimate *estimate) {
    double limit_us = no_wait_us(capacity_bps);
    double n = (double)samples->look_count;
    size_t idle = 0, little = 0;

    qsort(samples->looks, samples->look_count, sizeof(samples->looks[0]), by_size_and_time);
    for (size_t from = 0, to; from < samples->look_count; from = to) {
        for (to = from; to < samples->look_count && samples->looks[to].bytes == samples->looks[from].bytes; to++)
            ;
        remove_envelope(samples->looks + from, to - from);
    }
    for (size_t i = 0; i < samples->look_count; i++) {
        idle += samples->looks[i].delay_us <= limit_us;
        little += samples->looks[i].delay_us > limit_us && samples->looks[i].delay_us <= 2 * limit_us;
    }
    /* Some found the link busy and waited hardly at all; as many as waited a little longer. */
    estimate->idle_share = fmax(0, ((double)idle - (double)little) / n);
    /* Our own packets are gone before we look again where the link is free, but where it is busy they make it busier.
     */
    estimate->idle_share += samples->own_share * (1 - estimate->idle_share);
    estimate->idle_error = hypot(sqrt(fmax(estimate->idle_share * (1 - estimate->idle_share), 1 / n) / n),
                                 IDLE_ERROR_FLOOR + IDLE_ERROR_SHARE * limit_us / packet_us(capacity_bps));
}

bool spruce_estimate(struct spruce_samples *samples, double capacity_bps, struct spruce_estimate *ret_estimate) {
    struct spruce_estimate estimate = {0};
    double pairs_weight = 0, idle_weight = 0;

    judge_pairs(samples, capacity_bps, &estimate);
    if (estimate.pairs_used >= PAIRS_MIN)
        pairs_weight = 1 / (estimate.pairs_error * estimate.pairs_error);
    if (samples->look_count >= LOOKS_MIN && spruce_looks_help(capacity_bps)) {
        judge_looks(samples, capacity_bps, &estimate);
        idle_weight = 1 / (estimate.idle_error * estimate.idle_error);
    }
    if (pairs_weight <= 0)
        return false;
    estimate.share =
        (estimate.pairs_share * pairs_weight + estimate.idle_share * idle_weight) / (pairs_weight + idle_weight);
    estimate.share = fmin(1, fmax(0, estimate.share));
    *ret_estimate = estimate;
    return true;
}
