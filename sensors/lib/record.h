/* What sensors print: one JSON object per line, or plain text for people; errors also as one line on stderr. */
#ifndef CHART_SENSORS_RECORD_H
#define CHART_SENSORS_RECORD_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "failure.h"
#include "train_check.h"

#define RECORD_METRICS_MAX 32
#define RECORD_NAME_BYTES 40

struct record_metric {
    char name[RECORD_NAME_BYTES]; /* "rtt_us" */
    double value;
    const char *unit; /* "us", "ratio", "bps" */
};

struct record {
    const cJSON *id; /* as in the request, NULL for a one-shot run */
    const char *sensor;
    struct record_metric metrics[RECORD_METRICS_MAX];
    size_t metric_count;
    uint64_t probes_sent;
    uint64_t probes_lost;
    /* Trains that came back, and those of them that were not believed (train_check.h); written when any came back. */
    uint64_t trains_sent;
    uint64_t trains_spoilt;
    uint64_t spoilt_at_sender; /* of those spoilt, the ones that did not leave as planned */
    uint64_t probe_bytes;      /* sent by this sensor, IP headers included */
    int64_t started_at_us;
    int64_t ended_at_us;
};

/* Count a train that came back. */
void record_count_train(struct record *record, enum train_state state);
void record_add(struct record *record, const char *name, double value, const char *unit);
/* The result as an object; the caller may add members and hands it to record_write(). */
cJSON *record_to_json(const struct record *record);
/* Error record; counts of probes stand in it when some were sent. */
cJSON *record_failure_to_json(const struct record *record, const struct failure *failure);
/* {"probe_bytes", "duration_ms"}: what a run may cost at most. */
cJSON *record_declaration_to_json(const cJSON *id, uint64_t probe_bytes, uint64_t duration_ms);
/* Print as one line, flush and free. */
void record_write(FILE *out, cJSON *object);
/* For people: one line per metric. */
void record_print_text(FILE *out, const struct record *record);

#endif
