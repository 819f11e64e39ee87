/* spruce: available bandwidth of a path whose capacity is known, by pairs of packets at Poisson moments (Strauss,
 * Katabi, Kaashoek, "A Measurement Study of Available Bandwidth Estimation Tools", IMC 2003, section 3). */
#ifndef CHART_SENSORS_SPRUCE_H
#define CHART_SENSORS_SPRUCE_H

#include <cjson/cJSON.h>

#include "keyring.h"
#include "options.h"
#include "record.h"

struct spruce_parameters {
    struct common_parameters common;
    double capacity_bps;
    uint64_t pairs;
    uint64_t gaps; /* between the packets of a pair: 0: by capacity */
    uint64_t singles;
    uint64_t packet_bytes;
    double share;
    double interval_ms;
    double timeout_ms;
    double limit_ms;
    uint64_t limit_bytes;
};

extern const struct option_table SPRUCE_OPTIONS;
void spruce_defaults(struct spruce_parameters *parameters);
int spruce_check(const struct spruce_parameters *parameters, struct failure *failure);
void spruce_declare(const struct spruce_parameters *parameters, uint64_t *ret_bytes, uint64_t *ret_duration_ms);
int spruce_run(const struct spruce_parameters *parameters, const struct keyring *keyring, struct record *record,
               cJSON **ret_details, struct failure *failure);

#endif
