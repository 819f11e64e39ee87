/* See liveness.h. */
#include "paths/liveness.h"

#include <math.h>

#define CHANCE 1e-9
/* Before a link is known it is taken for one that loses a tenth of the exchanges. */
#define FIRST_LOSS 0.1
#define FIRST_WINDOWS 10.0
#define MEMORY_WINDOWS 50.0
#define LOSS_MIN 1e-3
#define LOSS_MAX 0.6
/* What the bound of round-trip times keeps from one look to the next: half of it after about two seconds. */
#define BOUND_KEPT 0.9965
#define VARIATIONS 4.0
/* Of IP and what carries it, of one probe or answer. */
#define PROBE_BYTES 110u
#define SHARE_OF_LINK 0.01
/* A link of which nothing is known is taken for a slow one. */
#define UNKNOWN_BPS 10000000ull
#define NS_PER_US 1000.0
#define US_PER_S 1e6

uint32_t liveness_period_us(uint64_t capacity_bps) {
    double bps = (double)(capacity_bps ? capacity_bps : UNKNOWN_BPS) * SHARE_OF_LINK;
    /* Each direction carries this end's probes and the answers to the other's. */
    double period_us = 2.0 * PROBE_BYTES * 8.0 / bps * US_PER_S;

    return period_us > LIVENESS_PERIOD_US ? (uint32_t)ceil(period_us) : LIVENESS_PERIOD_US;
}

struct liveness liveness_new(uint64_t capacity_bps) {
    return (struct liveness){
        .period_us = liveness_period_us(capacity_bps), .loss = FIRST_LOSS, .windows = FIRST_WINDOWS};
}

uint32_t liveness_unanswered(const struct liveness *liveness) {
    double loss = fmin(fmax(liveness->loss, LOSS_MIN), LOSS_MAX);
    double k = ceil(log(CHANCE) / log(loss));

    return (uint32_t)fmin(fmax(k, LIVENESS_UNANSWERED_MIN), LIVENESS_UNANSWERED_MAX);
}

uint32_t liveness_allowed(const struct liveness *liveness) {
    return liveness_unanswered(liveness) - 1 + (uint32_t)(liveness->rtt_bound_ns / NS_PER_US / liveness->period_us);
}

uint64_t liveness_patience_ns(const struct liveness *liveness) {
    return (uint64_t)(liveness_unanswered(liveness) * liveness->period_us * NS_PER_US + liveness->rtt_bound_ns);
}

static bool has_failed(const struct liveness *liveness, const struct liveness_seen *seen) {
    return !seen->usable || (seen->sent - seen->answered > liveness_allowed(liveness) &&
                             seen->answered_ago_ns > liveness_patience_ns(liveness));
}

static void begin_window(struct liveness *liveness, uint64_t number, uint64_t answers) {
    liveness->window_number = number;
    liveness->window_answers = answers;
}

/* The share of a window's probes that no answer came for; below 0 never, answers of the window before may be late. */
static double lost_of(const struct liveness *liveness, const struct liveness_seen *seen, uint64_t number) {
    double answers = (double)(seen->answers - liveness->window_answers);

    return 1.0 - fmin(answers / (double)(number - liveness->window_number), 1.0);
}

/* While it is used: windows end with a probe that was answered, so that a failure that begins is no loss. */
static void learn(struct liveness *liveness, const struct liveness_seen *seen) {
    if (seen->answered < liveness->window_number + LIVENESS_WINDOW)
        return;
    if (liveness->windows < MEMORY_WINDOWS)
        liveness->windows++;
    liveness->loss += (lost_of(liveness, seen, seen->answered) - liveness->loss) / liveness->windows;
    begin_window(liveness, seen->answered, seen->answers);
}

/* While it is not used: whether enough good windows of probes came. */
static bool has_returned(struct liveness *liveness, const struct liveness_seen *seen) {
    double lost;

    if (seen->sent < liveness->window_number + LIVENESS_WINDOW)
        return false;
    lost = lost_of(liveness, seen, seen->sent);
    begin_window(liveness, seen->sent, seen->answers);
    /* Twice what the link usually loses, and half of a window in any case, is still the link of before. */
    liveness->good_windows = lost <= fmax(0.5, 2.0 * liveness->loss) && lost < 1.0 ? liveness->good_windows + 1 : 0;
    return liveness->good_windows >= LIVENESS_GOOD_WINDOWS;
}

enum liveness_change liveness_judge(struct liveness *liveness, const struct liveness_seen *seen) {
    double bound_ns = (double)seen->rtt_ns + VARIATIONS * (double)seen->rtt_variation_ns;

    if (liveness->up && has_failed(liveness, seen)) {
        liveness_cut(liveness, seen);
        return LIVENESS_FAILED;
    }
    liveness->rtt_bound_ns = fmax(liveness->rtt_bound_ns * BOUND_KEPT, bound_ns);
    if (liveness->up) {
        learn(liveness, seen);
        return LIVENESS_SAME;
    }
    if (!has_returned(liveness, seen))
        return LIVENESS_SAME;
    liveness->up = true;
    begin_window(liveness, seen->answered, seen->answers);
    return LIVENESS_RETURNED;
}

void liveness_cut(struct liveness *liveness, const struct liveness_seen *seen) {
    liveness->up = false;
    liveness->good_windows = 0;
    begin_window(liveness, seen->sent, seen->answers);
}
