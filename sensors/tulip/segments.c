/* From answers of routers to segments; see segments.h. */
#include "segments.h"

#include <math.h>
#include <string.h>

#include "statistics.h"

/* A counter grows by a few between the answers to one group, whoever else the router answers; chance numbers do not. */
#define COUNTER_STEP_MAX 64
#define COUNTER_GROUPS_MIN 3u
#define COUNTER_SHARE 0.7
/* A segment is to blame for more than this, and for more than so many standard errors. */
#define LOSS_MIN 0.005
#define REORDERING_MIN 0.005
#define QUEUING_MIN_US 300.0
#define STANDARD_ERRORS 2.5

static int step(uint16_t from, uint16_t to) {
    return (int16_t)(uint16_t)(to - from);
}

static bool all_answered(const struct tulip_group *group) {
    for (size_t i = 0; i < TULIP_GROUP; i++)
        if (!group->probes[i].answered)
            return false;
    return true;
}

static bool is_numbered(const struct tulip_group *groups, size_t count) {
    unsigned whole = 0, counted = 0;

    for (size_t i = 0; i < count; i++) {
        const struct tulip_probe *probes = groups[i].probes;
        int first, second;

        if (!all_answered(&groups[i]))
            continue;
        first = step(probes[0].ip_id, probes[1].ip_id);
        second = step(probes[1].ip_id, probes[2].ip_id);
        whole++;
        counted += first != 0 && second != 0 && first + second != 0 && first < COUNTER_STEP_MAX &&
                   first > -COUNTER_STEP_MAX && second < COUNTER_STEP_MAX && second > -COUNTER_STEP_MAX;
    }
    return whole >= COUNTER_GROUPS_MIN && counted >= COUNTER_SHARE * whole;
}

/* Losses of the large probe on the way there, where the numbers of the small ones tell. */
static void judge_numbered_loss(const struct tulip_group *groups, size_t count, struct tulip_hop *hop) {
    unsigned lost = 0;

    hop->loss_samples = 0;
    for (size_t i = 0; i < count; i++) {
        const struct tulip_probe *probes = groups[i].probes;

        if (!probes[0].answered || !probes[2].answered)
            continue;
        /* A larger step is the router's other business: nothing can be said. */
        if (!probes[1].answered && step(probes[0].ip_id, probes[2].ip_id) > 2)
            continue;
        hop->loss_samples++;
        lost += !probes[1].answered && step(probes[0].ip_id, probes[2].ip_id) == 1;
    }
    hop->loss_ratio = hop->loss_samples ? (double)lost / hop->loss_samples : 0;
}

static void judge_order(const struct tulip_group *groups, size_t count, struct tulip_hop *hop) {
    unsigned reordered = 0;

    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k + 1 < TULIP_GROUP; k++) {
            const struct tulip_probe *a = &groups[i].probes[k], *b = &groups[i].probes[k + 1];

            if (!a->answered || !b->answered)
                continue;
            hop->order_samples++;
            reordered += hop->numbered ? step(a->ip_id, b->ip_id) < 0 : b->answered_us < a->answered_us;
        }
    hop->reordering_ratio = hop->order_samples ? (double)reordered / hop->order_samples : 0;
}

static void judge_times(const struct tulip_group *groups, size_t count, struct tulip_hop *hop) {
    double rtts_us[TULIP_ROUNDS_MAX] = {0};
    size_t rtts = 0;

    /* The first of a group: the others wait behind it. */
    for (size_t i = 0; i < count && rtts < TULIP_ROUNDS_MAX; i++)
        if (groups[i].probes[0].answered)
            rtts_us[rtts++] = groups[i].probes[0].answered_us - groups[i].probes[0].sent_us;
    hop->rtt_us = statistics_minimum(rtts_us, rtts);
    hop->queuing_us = rtts ? statistics_percentile(rtts_us, rtts, 0.5) - hop->rtt_us : 0;
}

void tulip_judge_hop(const struct tulip_group *groups, size_t count, struct tulip_hop *ret_hop) {
    struct tulip_hop hop = {.numbered = is_numbered(groups, count)};

    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < TULIP_GROUP; k++) {
            hop.probes += groups[i].probes[k].sent;
            hop.answers += groups[i].probes[k].answered;
        }
    hop.round_trip_loss_ratio = hop.probes ? 1 - (double)hop.answers / hop.probes : 0;
    hop.loss_ratio = hop.round_trip_loss_ratio;
    hop.loss_samples = hop.probes;
    if (hop.numbered)
        judge_numbered_loss(groups, count, &hop);
    judge_order(groups, count, &hop);
    judge_times(groups, count, &hop);
    *ret_hop = hop;
}

/* Hop at the end of the segment that adds most; `values` at the hops, negative where nothing is known, with the number
 * of samples of each for ratios (NULL: no ratios). 0 when nothing stands out. */
static unsigned largest_step(double *values, const unsigned *samples, size_t count, double least) {
    double later = INFINITY, before = 0, best = 0;
    unsigned blamed = 0;

    /* What does not go on behind a hop did not happen on the way. */
    for (size_t i = count; i-- > 0;) {
        if (values[i] < 0)
            continue;
        later = fmin(later, values[i]);
        values[i] = later;
    }
    for (size_t i = 0; i < count; i++) {
        double added = values[i] - before;
        double chance = 0;

        if (values[i] < 0)
            continue;
        if (samples)
            chance = STANDARD_ERRORS * sqrt(fmax(values[i] * (1 - values[i]), 0) / fmax(1, samples[i]));
        if (added > fmax(least, chance) && added > best) {
            best = added;
            blamed = (unsigned)i + 1;
        }
        before = values[i];
    }
    return blamed;
}

struct tulip_blame tulip_judge_path(const struct tulip_hop *hops, size_t count) {
    double loss[TULIP_HOPS_MAX], order[TULIP_HOPS_MAX], queuing[TULIP_HOPS_MAX];
    unsigned loss_samples[TULIP_HOPS_MAX], order_samples[TULIP_HOPS_MAX];
    struct tulip_blame blame;
    bool numbered = true;

    if (count > TULIP_HOPS_MAX)
        count = TULIP_HOPS_MAX;
    /* Losses of one way and of both do not compare: the way there only where all hops that answer tell it. */
    for (size_t i = 0; i < count; i++)
        numbered = numbered && (hops[i].numbered || hops[i].answers == 0);
    for (size_t i = 0; i < count; i++) {
        bool known = hops[i].answers > 0;

        loss[i] = !known ? -1 : numbered ? hops[i].loss_ratio : hops[i].round_trip_loss_ratio;
        loss_samples[i] = numbered ? hops[i].loss_samples : hops[i].probes;
        order[i] = hops[i].order_samples ? hops[i].reordering_ratio : -1;
        order_samples[i] = hops[i].order_samples;
        queuing[i] = known ? hops[i].queuing_us : -1;
    }
    blame.loss_hop = largest_step(loss, loss_samples, count, LOSS_MIN);
    blame.reordering_hop = largest_step(order, order_samples, count, REORDERING_MIN);
    blame.queuing_hop = largest_step(queuing, NULL, count, QUEUING_MIN_US);
    return blame;
}
