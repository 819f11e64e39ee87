/* The state of a tunnel's end as JSON (the answer to `get`), and the metrics that are drawn from it. */
#ifndef ITM_STATE_H
#define ITM_STATE_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "event.h"

void state_add(cJSON *object, const char *name, uint64_t value);
/* What became of the packets that an application was asked about, and how many events without one it had. */
void state_add_verdicts(cJSON *object, const struct itm_counters *counters);
/* Prometheus' text format: `counters`, `gauges`, and what `classes` have, each with its class as a label. */
void state_write_metrics(const cJSON *state, FILE *out);
/* Asks a running tunnel over its control socket and prints its state as JSON or metrics. Exit status. */
int state_print(const char *control, bool json);

#endif
