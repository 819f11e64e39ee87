/* The state of a tunnel's end as JSON (the answer to `get`), and the metrics that are drawn from it. */
#ifndef ITM_STATE_H
#define ITM_STATE_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "event.h"

void state_add(cJSON *object, const char *name, uint64_t value);
/* `applications`: who is registered, and what became of the packets that each was asked about. */
void state_add_applications(cJSON *object, const struct itm_dispatcher *dispatcher);
/* Prometheus' text format: `counters`, `gauges`, and what `classes` have, each with its class as a label. */
void state_write_metrics(const cJSON *state, FILE *out);
/* Asks a running tunnel over its control socket and prints its state as JSON or metrics. Exit status. */
int state_print(const char *control, bool json);

#endif
