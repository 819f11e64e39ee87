/* State and metrics, see state.h. */
#include "state.h"

#include <stdlib.h>

#include "control.h"

void state_add(cJSON *object, const char *name, uint64_t value) {
    cJSON_AddNumberToObject(object, name, (double)value);
}

void state_add_verdicts(cJSON *object, const struct itm_counters *counters) {
    static const char *const NAMES[ITM_VERDICTS] = {
        [ITM_PASS] = "passed",     [ITM_TAKE] = "taken",  [ITM_DROP] = "dropped",
        [ITM_DIVERT] = "diverted", [ITM_MARK] = "marked", [ITM_PACE] = "paced",
    };
    state_add(object, "packets", counters->packets);
    for (size_t i = 0; i < ITM_VERDICTS; i++)
        state_add(object, NAMES[i], counters->verdicts[i]);
    state_add(object, "events", counters->events);
}

static void write_kind(const cJSON *metrics, const char *suffix, const char *type, FILE *out) {
    const cJSON *metric;
    cJSON_ArrayForEach(metric, metrics) {
        fprintf(out, "# TYPE chart_tunnel_%s%s %s\n", metric->string, suffix, type);
        fprintf(out, "chart_tunnel_%s%s %.17g\n", metric->string, suffix, metric->valuedouble);
    }
}

static void write_label(const char *text, FILE *out) {
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        fputc(*text, out);
    }
}

static void write_classes(const cJSON *classes, FILE *out) {
    static const struct {
        const char *member, *type;
    } METRICS[] = {
        {"weight", "gauge"},       {"rate_bps", "gauge"},          {"queue_packets", "gauge"},
        {"queue_bytes", "gauge"},  {"offered_packets", "counter"}, {"sent_packets", "counter"},
        {"sent_bytes", "counter"}, {"dropped_packets", "counter"},
    };
    for (size_t i = 0; cJSON_GetArraySize(classes) && i < sizeof(METRICS) / sizeof(METRICS[0]); i++) {
        const char *suffix = METRICS[i].type[0] == 'c' ? "_total" : "";
        const cJSON *class;
        fprintf(out, "# TYPE chart_tunnel_class_%s%s %s\n", METRICS[i].member, suffix, METRICS[i].type);
        cJSON_ArrayForEach(class, classes) {
            const cJSON *name = cJSON_GetObjectItemCaseSensitive(class, "name");
            const cJSON *value = cJSON_GetObjectItemCaseSensitive(class, METRICS[i].member);
            if (!cJSON_IsString(name) || !cJSON_IsNumber(value))
                continue;
            fprintf(out, "chart_tunnel_class_%s%s{class=\"", METRICS[i].member, suffix);
            write_label(name->valuestring, out);
            fprintf(out, "\"} %.17g\n", value->valuedouble);
        }
    }
}

void state_write_metrics(const cJSON *state, FILE *out) {
    write_kind(cJSON_GetObjectItemCaseSensitive(state, "counters"), "_total", "counter", out);
    write_kind(cJSON_GetObjectItemCaseSensitive(state, "gauges"), "", "gauge", out);
    write_classes(cJSON_GetObjectItemCaseSensitive(state, "classes"), out);
}

int state_print(const char *control, bool json) {
    char *line = control_ask(control, CONTROL_GET);
    if (!line)
        return 1;
    cJSON *state = cJSON_Parse(line);
    if (!state)
        fprintf(stderr, "chart-tunnel: what answers at %s is no tunnel\n", control);
    else if (json)
        fputs(line, stdout);
    else
        state_write_metrics(state, stdout);
    free(line);
    cJSON_Delete(state);
    return state ? 0 : 1;
}
