/* Parameters and ground truth of a direction as JSON. */
#ifndef LINKEM_JSON_H
#define LINKEM_JSON_H

#include <cjson/cJSON.h>
#include <stddef.h>

#include "direction.h"

/* Applies the members of an object onto parameters; what is not named stays. Returns 0, or -EINVAL with a sentence that
 * names the member in message; *parameters is then untouched. Members:
 *   rate_bps, delay_us, jitter_us, loss, duplicate, reorder, reorder_extra_us, outage, drop_options,
 *   queue:    "default" | {"packets": N} | {"bytes": N} | {"red": {"minimum_packets", "maximum_packets",
 *             "maximum_probability", "weight", "limit_packets"}}
 *   burst:    null | {"enter", "leave", "loss_good", "loss_bad"}
 *   schedule: null | {"lost": [numbers], "period": N} */
int json_to_parameters(const cJSON *object, struct parameters *parameters, char *message, size_t message_bytes);
cJSON *json_from_parameters(const struct parameters *parameters);
cJSON *json_from_counters(const struct direction *direction, uint64_t now_ns);

#endif
