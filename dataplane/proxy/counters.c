/* See counters.h. */
#include "counters.h"

static const char *const passed_names[PASSED_REASONS] = {
    [PASSED_REFUSED] = "refused", [PASSED_UNANSWERED] = "unanswered", [PASSED_LIMIT] = "limit",
    [PASSED_FAILED] = "failed",   [PASSED_ENDING] = "ending",
};
static const char *const reset_names[RESET_REASONS] = {
    [RESET_PEER] = "peer",
    [RESET_IDLE] = "idle",
    [RESET_UNACCEPTED] = "unaccepted",
    [RESET_ENDING] = "ending",
};

static void head(FILE *out, const char *name, const char *type, const char *help) {
    fprintf(out, "# HELP chart_proxy_%s %s\n# TYPE chart_proxy_%s %s\n", name, help, name, type);
}

static void write_each(FILE *out, const char *name, const char *label, const char *const *names, const uint64_t *values,
                       size_t count) {
    for (size_t i = 0; i < count; i++)
        fprintf(out, "chart_proxy_%s{%s=\"%s\"} %llu\n", name, label, names[i], (unsigned long long)values[i]);
}

void counters_write(const struct counters *counters, uint32_t limit, FILE *out) {
    static const char *const directions[] = {"onward", "back"};
    static const char *const states[] = {"held", "open", "closing"};
    const uint64_t bytes[] = {counters->onward_bytes, counters->back_bytes};
    const uint64_t now[] = {counters->held, counters->open, counters->closing};
    head(out, "connections_taken_total", "counter", "connections of hosts that were ended here and went on");
    fprintf(out, "chart_proxy_connections_taken_total %llu\n", (unsigned long long)counters->taken);
    head(out, "connections", "gauge", "connections now: held until the server answers, open, closing");
    write_each(out, "connections", "state", states, now, 3);
    head(out, "connections_limit", "gauge", "most connections at a time");
    fprintf(out, "chart_proxy_connections_limit %u\n", limit);
    head(out, "bytes_total", "counter", "octets passed on, to where the host connected and back");
    write_each(out, "bytes_total", "direction", directions, bytes, 2);
    head(out, "passed_total", "counter", "connections that went on without the proxy");
    write_each(out, "passed_total", "reason", passed_names, counters->passed, PASSED_REASONS);
    head(out, "resets_total", "counter", "connections that ended with a reset");
    write_each(out, "resets_total", "reason", reset_names, counters->resets, RESET_REASONS);
    head(out, "strangers_total", "counter", "connections at the proxy's own port that no rule had led there");
    fprintf(out, "chart_proxy_strangers_total %llu\n", (unsigned long long)counters->strangers);
}
