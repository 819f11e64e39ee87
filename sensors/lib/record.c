/* What sensors print; see record.h. */
#include "record.h"

#include <inttypes.h>
#include <stdlib.h>

void record_count_train(struct record *record, enum train_state state) {
    record->trains_sent++;
    record->trains_spoilt += state != TRAIN_CLEAN;
    record->spoilt_at_sender += state == TRAIN_OFF_PLAN;
}

void record_add(struct record *record, const char *name, double value, const char *unit) {
    struct record_metric *metric = &record->metrics[record->metric_count];

    if (record->metric_count == RECORD_METRICS_MAX)
        return;
    *metric = (struct record_metric){.value = value, .unit = unit};
    snprintf(metric->name, sizeof(metric->name), "%s", name);
    record->metric_count++;
}

static cJSON *with_id(const cJSON *id) {
    cJSON *object = cJSON_CreateObject();

    if (id)
        cJSON_AddItemToObject(object, "id", cJSON_Duplicate(id, true));
    return object;
}

/* Written as an integer always; cJSON would turn large ones into floats. */
static void add_integer(cJSON *object, const char *name, int64_t value) {
    char text[24];

    snprintf(text, sizeof(text), "%" PRId64, value);
    cJSON_AddRawToObject(object, name, text);
}

static void add_counts(cJSON *object, const struct record *record) {
    add_integer(object, "probes_sent", (int64_t)record->probes_sent);
    add_integer(object, "probes_lost", (int64_t)record->probes_lost);
    add_integer(object, "probe_bytes", (int64_t)record->probe_bytes);
    if (record->trains_sent) {
        add_integer(object, "trains_sent", (int64_t)record->trains_sent);
        add_integer(object, "trains_spoilt", (int64_t)record->trains_spoilt);
        add_integer(object, "spoilt_at_sender", (int64_t)record->spoilt_at_sender);
    }
    add_integer(object, "started_at_us", (int64_t)record->started_at_us);
    add_integer(object, "ended_at_us", (int64_t)record->ended_at_us);
}

cJSON *record_to_json(const struct record *record) {
    cJSON *object = with_id(record->id);
    cJSON *metrics;

    cJSON_AddStringToObject(object, "sensor", record->sensor);
    metrics = cJSON_AddArrayToObject(object, "metrics");
    for (size_t i = 0; i < record->metric_count; i++) {
        cJSON *metric = cJSON_CreateObject();

        cJSON_AddStringToObject(metric, "metric", record->metrics[i].name);
        cJSON_AddNumberToObject(metric, "value", record->metrics[i].value);
        cJSON_AddStringToObject(metric, "unit", record->metrics[i].unit);
        cJSON_AddItemToArray(metrics, metric);
    }
    add_counts(object, record);
    return object;
}

cJSON *record_failure_to_json(const struct record *record, const struct failure *failure) {
    cJSON *object = with_id(record->id);
    cJSON *error;

    cJSON_AddStringToObject(object, "sensor", record->sensor);
    error = cJSON_AddObjectToObject(object, "error");
    cJSON_AddStringToObject(error, "kind", failure_kind_name(failure->kind));
    cJSON_AddStringToObject(error, "message", failure->message);
    if (record->probes_sent)
        add_counts(object, record);
    return object;
}

cJSON *record_declaration_to_json(const cJSON *id, uint64_t probe_bytes, uint64_t duration_ms) {
    cJSON *object = with_id(id);

    add_integer(object, "probe_bytes", (int64_t)probe_bytes);
    add_integer(object, "duration_ms", (int64_t)duration_ms);
    return object;
}

void record_write(FILE *out, cJSON *object) {
    char *line = cJSON_PrintUnformatted(object);

    if (line)
        fprintf(out, "%s\n", line);
    fflush(out);
    free(line);
    cJSON_Delete(object);
}

void record_print_text(FILE *out, const struct record *record) {
    for (size_t i = 0; i < record->metric_count; i++)
        fprintf(out, "%-24s %14.3f %s\n", record->metrics[i].name, record->metrics[i].value, record->metrics[i].unit);
    fprintf(out, "%" PRIu64 " probes, %" PRIu64 " lost, %" PRIu64 " bytes\n", record->probes_sent, record->probes_lost,
            record->probe_bytes);
    if (record->trains_sent)
        fprintf(out, "%" PRIu64 " trains, %" PRIu64 " spoilt\n", record->trains_sent, record->trains_spoilt);
    fflush(out);
}
