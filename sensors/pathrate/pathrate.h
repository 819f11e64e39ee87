/* pathrate: capacity of a path by dispersion of packet pairs and trains (Dovrolis, Ramanathan, Moore,
 * "Packet-Dispersion Techniques and a Capacity-Estimation Methodology", IEEE/ACM Transactions on Networking 12(6),
 * 2004). */
#ifndef CHART_SENSORS_PATHRATE_H
#define CHART_SENSORS_PATHRATE_H

#include <cjson/cJSON.h>

#include "keyring.h"
#include "options.h"
#include "record.h"

struct pathrate_parameters {
    struct common_parameters common;
    uint64_t trains;      /* short ones, which show the modes */
    uint64_t length;      /* packets of a short train; 0: by rate */
    uint64_t long_trains; /* which show the average dispersion rate */
    uint64_t long_length;
    uint64_t packet_bytes;
    double interval_ms;
    double timeout_ms;
    double limit_ms;
    uint64_t limit_bytes;
};

extern const struct option_table PATHRATE_OPTIONS;
void pathrate_defaults(struct pathrate_parameters *parameters);
int pathrate_check(const struct pathrate_parameters *parameters, struct failure *failure);
void pathrate_declare(const struct pathrate_parameters *parameters, uint64_t *ret_bytes, uint64_t *ret_duration_ms);
int pathrate_run(const struct pathrate_parameters *parameters, const struct keyring *keyring, struct record *record,
                 cJSON **ret_details, struct failure *failure);

#endif
