/* Available bandwidth of a path from all chirps of a run: its capacity and how busy others keep it. Pure.
 *
 * The excursions of single chirps (analysis.h) see other traffic as a fluid. A burst enters the queue at once, grows it
 * in a single gap and drains over many, so that most gaps look idle and the estimate is far too high; Poisson traffic
 * of a few packets per gap makes excursions early and the estimate too low. Instead:
 * - Capacity C: packets sent faster than the bottleneck leave it one transmission time apart, unless one of others came
 *   between. The densest narrow interval of the rates seen at the ends of the chirps is C (the local mode of packet
 *   pairs; Dovrolis, Ramanathan, Moore, "Packet-Dispersion Techniques and a Capacity-Estimation Methodology", IEEE/ACM
 *   ToN 2004, section 5); of several modes the fastest that is at least half as strong, the slower ones being those
 *   with packets of others in between.
 * - Busy share by waiting: in any queue that works whenever there is work, the share of time in which it is busy is the
 *   load, however bursty; packets that come rarely see that share (Wolff, "Poisson Arrivals See Time Averages",
 *   Operations Research 1982). The slow part of a chirp is such a sample: who waited longer than a part of a
 *   transmission time, or than noise, found it busy.
 * - Busy share by dispersion: where packets are sent faster than C the queue never runs empty, so all that came between
 *   them was others' (Strauss, Katabi, Kaashoek, "A Measurement Study of Available Bandwidth Estimation Tools", IMC
 *   2003, section 3). Exact, but a short look, hence the smaller weight; noise does it little harm, so it gets the
 *   more, the more noise there is and the more waits are as short as a late wake-up.
 *
 * Available is C times the share in which nobody keeps it busy. As with spruce, the slowest link is taken to be the
 * fullest as well. */
#ifndef CHART_SENSORS_CHIRP_OCCUPANCY_H
#define CHART_SENSORS_CHIRP_OCCUPANCY_H

#include <stdbool.h>
#include <stddef.h>

#include "exchange.h"

#define OCCUPANCY_GAPS_MAX 4096

/* Two successive packets of a chirp. NaN: unknown, because one of them was lost. */
struct occupancy_gap {
    double sent_us, arrived_us; /* between them */
    double queue_us;            /* wait of the later one, above the least of its chirp */
    double bits;                /* IP packet */
    bool last;                  /* of its chirp */
};

/* Zero it to begin. */
struct occupancy {
    size_t count;
    struct occupancy_gap gaps[OCCUPANCY_GAPS_MAX];
};

struct occupancy_result {
    double capacity_bps;
    double available_bps;
};

/* Take a chirp of `count` packets of `packet_bits` each; one that does not fit is left out. */
void occupancy_add(struct occupancy *occupancy, const struct train_packet *packets, size_t count, double packet_bits);
/* False when the chirps do not show the capacity (none was faster), when too few packets were sent slowly, and when
 * hardly anything would be left. */
bool occupancy_estimate(const struct occupancy *occupancy, struct occupancy_result *ret_result);

#endif
