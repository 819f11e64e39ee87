/* pathchirp: available bandwidth of a path by self-induced congestion (Ribeiro et al., "pathChirp", PAM 2003).
 *
 * A run: a few wide chirps find the order of magnitude; narrow chirps around it, each on its own grid of rates, give
 * the estimate, which is the mean of the last 11 (`smoothing`). When several in a row turn at the edge of the range,
 * the range moves, as in the original. Bytes and time are bounded by what the run declares. */
#ifndef CHART_SENSORS_CHIRP_H
#define CHART_SENSORS_CHIRP_H

#include <stdbool.h>
#include <stdint.h>

#include "keyring.h"
#include "options.h"
#include "record.h"

#define CHIRP_SMOOTHING_MAX 24

struct chirp_parameters {
    struct common_parameters common;
    double low_bps;
    double high_bps;
    double spread;
    double decrease_factor;
    uint64_t busy_period;
    uint64_t smoothing;
    uint64_t packet_bytes; /* 0: chosen by rate */
    double interval_ms;
    double timeout_ms;
    double limit_ms;
    uint64_t limit_bytes;
};

extern const struct option_table CHIRP_OPTIONS;
void chirp_defaults(struct chirp_parameters *parameters);
int chirp_check(const struct chirp_parameters *parameters, struct failure *failure);
void chirp_declare(const struct chirp_parameters *parameters, uint64_t *ret_bytes, uint64_t *ret_duration_ms);

/* One run. `ret_range` is "within", "below" (the value is an upper bound) or "above" (a lower bound). With `verbose`
 * every chirp is written to stdout as a JSON line. */
int chirp_run(const struct chirp_parameters *parameters, const struct keyring *keyring, struct record *record,
              const char **ret_range, struct failure *failure);

#endif
