/* Which paths to an owner flows of a class take, and which they leave: pure, no clock and no I/O (Bavier et al.,
 * Increasing TCP Throughput with an Enhanced Internet Control Plane, section III).
 *
 * Each path has a cost for each class, from what its probes of the last second met. Voice: the impairment of ITU-T
 * G.107 that delay and loss make, as Cole and Rosenbluth, Voice over IP Performance Monitoring, section 3, simplify it.
 * Video: delay, and loss much more. Data: the time that a megabyte takes by the model of Mathis et al., The Macroscopic
 * Behavior of the TCP Congestion Avoidance Algorithm.
 *
 * Quick down, slow up. Flows leave a path that is worse than the best by the class's factor twice in a row; they may
 * take it again after three good windows. Losses whose difference may be chance are taken for the same: a path that
 * begins to lose more is found by Page's cumulative sum (Continuous Inspection Schemes), which needs the fewest probes
 * for a given rate of false alarms; that it is good again, by what it lost in the last seconds (Wilson's interval).
 * Voice and video take one path, data all that are nearly as good, by their capacities: a loaded path says nothing
 * against itself, and one that is worse helps when the best are loaded. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "overlay_maps.h"

/* How far looks at a path lie apart, microseconds; the last second is this many of them. */
#define PATH_LOOK_US 125000u
#define PATH_LOOKS 8
#define PATH_GOOD_WINDOWS 3

/* What the kernel's program counted. */
struct path_seen {
    uint64_t answered;
    uint64_t answers;
    uint64_t forwarded_bytes;
    uint64_t rtt_ns;
    uint64_t rtt_variation_ns;
    bool alive;
};

struct path_quality {
    double rtt_ms;
    double variation_ms;
    /* Share of exchanges lost in the last seconds, and its bounds. */
    double loss;
    double loss_least;
    double loss_most;
    /* Of the last second. */
    double loss_now;
    /* Share of its capacity that flows of this node take; 0 where the capacity is unknown. */
    double load;
    bool alive;
    /* For a whole second. */
    bool known;
};

/* A path and what is known of it. */
struct path_memory {
    uint64_t capacity_bps;
    struct path_seen looks[PATH_LOOKS + 1];
    size_t n_looks;
    /* Of the last seconds, the older counting less. */
    double probes;
    double lost;
    /* How much more likely it is that the path loses more than the others than that it does not: the logarithm, of
     * Page's cumulative sum. */
    double suspicion;
    struct path_quality quality;
};

/* Of one class and path. */
struct path_verdict {
    bool left;
    bool offered;
    unsigned worse;
    unsigned good;
};

/* The paths to one owner. */
struct path_group {
    size_t n;
    uint8_t colours[CHART_OVERLAY_COLOURS];
    uint32_t numbers[CHART_OVERLAY_COLOURS];
    struct path_memory paths[CHART_OVERLAY_COLOURS];
    struct path_verdict verdicts[CHART_OVERLAY_CLASSES][CHART_OVERLAY_COLOURS];
    /* By class: the path that one-path classes take, a place in the arrays. */
    size_t preferred[CHART_OVERLAY_CLASSES];
};

/* A look at a path, PATH_LOOK_US after the one before. */
void path_memory_look(struct path_memory *memory, const struct path_seen *seen);

/* What a path costs a class; above 0. `loss`: share of exchanges. */
double path_cost(enum chart_overlay_class class, const struct path_quality *quality, double loss);

/* Judge all paths of a group after a look at each. */
void path_group_judge(struct path_group *group);
/* What the program needs for one class. */
struct chart_overlay_choice path_group_choice(const struct path_group *group, enum chart_overlay_class class);
/* The colours that new flows take by a choice, as the program chooses, while these are alive: bits. */
uint32_t path_choice_taken(const struct chart_overlay_choice *choice, uint32_t alive);
