/* How a neighbour's probes are judged: pure, no clock and no I/O. The kernel's program says what was sent and answered
 * and takes a neighbour out by itself; here is decided how many unanswered probes prove a failure, and when a neighbour
 * that failed is used again.
 *
 * With loss p of an exchange (probe and answer), k losses in a row are chance once in p^-k: k is chosen so that chance
 * alone takes a neighbour out once in a thousand million probes (Andersen et al., Resilient Overlay Networks, section
 * 4, counts to a fixed four). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define LIVENESS_PERIOD_US 10000u
#define LIVENESS_UNANSWERED_MIN 5
#define LIVENESS_UNANSWERED_MAX 30
/* Windows of this many probes; so many good ones in a row bring a neighbour back. */
#define LIVENESS_WINDOW 10
#define LIVENESS_GOOD_WINDOWS 3

/* What the kernel's program knows; nanoseconds. */
struct liveness_seen {
    uint64_t sent;
    uint64_t answered;
    uint64_t answers;
    /* How long ago the last probe that was answered was sent. */
    uint64_t answered_ago_ns;
    uint64_t rtt_ns;
    uint64_t rtt_variation_ns;
    bool usable;
};

enum liveness_change {
    LIVENESS_SAME = 0,
    /* Shall not be used: `usable` has to become false, if the program did not make it so. */
    LIVENESS_FAILED,
    /* `usable` has to become true. */
    LIVENESS_RETURNED,
};

struct liveness {
    uint32_t period_us;
    /* Share of exchanges that are lost, and how many windows it is the mean of. */
    double loss;
    double windows;
    /* An upper bound of round-trip times that sinks slowly, nanoseconds. */
    double rtt_bound_ns;
    bool up;
    unsigned good_windows;
    /* Where the present window begins: the number of a probe, and how many answers there were. */
    uint64_t window_number;
    uint64_t window_answers;
};

/* A neighbour of whom nothing is known is not used until it answers. */
struct liveness liveness_new(uint64_t capacity_bps);
/* How far probes of both ends lie apart that keep to 1 % of a link, microseconds; not below LIVENESS_PERIOD_US. */
uint32_t liveness_period_us(uint64_t capacity_bps);
enum liveness_change liveness_judge(struct liveness *liveness, const struct liveness_seen *seen);
/* Carrier gone: the link is down, whatever probes say. */
void liveness_cut(struct liveness *liveness, const struct liveness_seen *seen);
/* k: unanswered probes in a row that prove a failure. */
uint32_t liveness_unanswered(const struct liveness *liveness);
/* Probes that may be unanswered: fewer than k, and those whose answers are still on their way. */
uint32_t liveness_allowed(const struct liveness *liveness);
/* How long after the last answered probe the k-th after it has had its round-trip time too, nanoseconds. */
uint64_t liveness_patience_ns(const struct liveness *liveness);
