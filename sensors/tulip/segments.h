/* From answers of routers to what happens between one hop and the next. Pure.
 *
 * At each hop a group of three probes expires: a small one, a large one, a small one. Routers that number the packets
 * they send (IP-ID) tell the ways apart (Mahajan, Spring, Wetherall, Anderson, "User-level Internet Path Diagnosis",
 * SOSP 2003, section 3): both small ones answered with successive numbers and the large one not at all means that the
 * large one never came there; a number left out in between means that its answer was lost on the way back. Numbers in
 * another order than that of sending are reordering on the way there, arrivals in another order than the numbers on the
 * way back. At other routers both ways count as one.
 *
 * Routers answer only so often, so silence is not loss yet: what is lost on the way to a hop is lost on the way to all
 * hops behind it too, and only that counts. The segment that adds most, more than chance would, is to blame. */
#ifndef CHART_SENSORS_TULIP_SEGMENTS_H
#define CHART_SENSORS_TULIP_SEGMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TULIP_GROUP 3
#define TULIP_ROUNDS_MAX 100
#define TULIP_HOPS_MAX 64

struct tulip_probe {
    bool sent;
    bool answered;
    uint16_t ip_id;
    double sent_us; /* one clock, that of this host */
    double answered_us;
};

struct tulip_group {
    struct tulip_probe probes[TULIP_GROUP];
};

struct tulip_hop {
    bool numbered;         /* the router keeps an IP-ID counter */
    unsigned probes;       /* sent */
    unsigned answers;      /* come back */
    unsigned loss_samples; /* that loss_ratio rests on */
    double loss_ratio;     /* numbered: way there, else both ways */
    double round_trip_loss_ratio;
    unsigned order_samples;
    double reordering_ratio; /* numbered: way there, else both ways */
    double rtt_us;           /* least */
    double queuing_us;       /* median round-trip time above the least */
};

/* A segment is named by the hop at its end; 0 for none. */
struct tulip_blame {
    unsigned loss_hop;
    unsigned reordering_hop;
    unsigned queuing_hop;
};

/* What the groups of one hop say. */
void tulip_judge_hop(const struct tulip_group *groups, size_t count, struct tulip_hop *ret_hop);
/* Hops in order from the first; the last is the end of the path. */
struct tulip_blame tulip_judge_path(const struct tulip_hop *hops, size_t count);

#endif
