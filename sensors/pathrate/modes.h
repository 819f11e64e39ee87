/* From dispersions of trains to the capacity. Pure.
 *
 * A train leaves back to back; behind the bottleneck its packets are one transmission time apart, unless other traffic
 * came between them. The rates that trains show therefore gather in modes: one at the capacity, others below (traffic
 * in between), some above (the first packet was held up behind the bottleneck). The average rate of long trains, ADR,
 * is below the capacity, so the capacity is the strongest mode above it.
 *
 * Departures from the original, all to need a hundredth of its packets:
 * - Pairs serve only up to 50 Mb/s; above, trains whose dispersion is at least 100 us, so that timestamps are exact
 *   enough.
 * - Among the modes above ADR the one is preferred that holds the trains which waited least: who met no other traffic
 * has the dispersion of the capacity (Kapoor, Chen, Lao, Gerla, Sanadidi, "CapProbe", SIGCOMM 2004). Where those trains
 * are in no mode, the mode of largest merit is taken, as in the original.
 * - The answer is the median of the samples of the mode, and its range, not a bin. */
#ifndef CHART_SENSORS_PATHRATE_MODES_H
#define CHART_SENSORS_PATHRATE_MODES_H

#include <stdbool.h>
#include <stddef.h>

#define PATHRATE_TRAINS_MAX 400
#define PATHRATE_MODES_MAX 12

struct pathrate_sample {
    double rate_bps;
    double waited_us; /* delays of first and last packet together, above the least of all trains */
};

struct pathrate_mode {
    double low_bps;
    double high_bps;
    double middle_bps; /* median of its samples */
    size_t count;
    double merit;
};

struct pathrate_modes {
    size_t count;
    struct pathrate_mode modes[PATHRATE_MODES_MAX];
};

enum pathrate_grounds {
    PATHRATE_NARROW,      /* all samples agree */
    PATHRATE_LEAST_WAIT,  /* the mode of the trains that waited least */
    PATHRATE_MERIT,       /* the mode of largest merit above ADR */
    PATHRATE_LOWER_BOUND, /* no mode above ADR: the capacity is at least ADR */
};

struct pathrate_estimate {
    enum pathrate_grounds grounds;
    double capacity_bps;
    double low_bps;
    double high_bps;
};

const char *pathrate_grounds_name(enum pathrate_grounds grounds);
/* Rate of a train: its bits behind the first packet over its dispersion. */
double pathrate_rate_bps(size_t packets, unsigned packet_bytes, double dispersion_us);
/* Packets of a short train on a path of about this rate. */
unsigned pathrate_length(double rate_bps, unsigned packet_bytes);
/* Mean without the tenth on either side, which trains that were torn apart would spoil. Sorts. */
double pathrate_trimmed_mean(double *values, size_t count);
void pathrate_find_modes(const struct pathrate_sample *samples, size_t count, struct pathrate_modes *ret_modes);
/* False when there are fewer than three samples. `adr_bps` 0: not known. */
bool pathrate_estimate(const struct pathrate_sample *samples, size_t count, double adr_bps,
                       const struct pathrate_modes *modes, struct pathrate_estimate *ret_estimate);

#endif
