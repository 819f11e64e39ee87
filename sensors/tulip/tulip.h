/* tulip: where on a path packets are lost, reordered and queued (Mahajan et al., "User-level Internet Path Diagnosis",
 * SOSP 2003). */
#ifndef CHART_SENSORS_TULIP_H
#define CHART_SENSORS_TULIP_H

#include <cjson/cJSON.h>

#include "options.h"
#include "record.h"

struct tulip_parameters {
    struct common_parameters common;
    char protocol[OPTION_TEXT_BYTES]; /* "udp" or "icmp" */
    uint64_t destination_port;
    uint64_t rounds;
    uint64_t max_hops;
    double interval_ms;
    double lag_ms;
    double timeout_ms;
    uint64_t packet_bytes;
};

extern const struct option_table TULIP_OPTIONS;
void tulip_defaults(struct tulip_parameters *parameters);
int tulip_check(const struct tulip_parameters *parameters, struct failure *failure);
void tulip_declare(const struct tulip_parameters *parameters, uint64_t *ret_bytes, uint64_t *ret_duration_ms);
int tulip_run(const struct tulip_parameters *parameters, struct record *record, cJSON **ret_details,
              struct failure *failure);

#endif
