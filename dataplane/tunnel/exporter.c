/* The agent's HTTP part over the tunnel's state, see exporter.h. */
#include "exporter.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "lib/metrics/metrics.h"
#include "loop.h"
#include "state.h"

struct exporter {
    struct metrics *metrics;
    struct exporter_source source;
};

static void render(FILE *out, void *context) {
    const struct exporter *exporter = context;
    cJSON *state = cJSON_CreateObject();
    exporter->source.add_state(exporter->source.context, state);
    state_write_metrics(state, out);
    cJSON_Delete(state);
}

static const char *not_ready(void *context) {
    const struct exporter *exporter = context;
    return exporter->source.not_ready(exporter->source.context);
}

int exporter_open(const struct options *options, const struct exporter_source *source, int epoll,
                  struct exporter **ret) {
    struct exporter *exporter = calloc(1, sizeof(*exporter));
    if (!exporter)
        return -ENOMEM;
    const struct metrics_source rendered = {render, not_ready, exporter};
    exporter->source = *source;
    int error = metrics_open(options->metrics, &rendered, &exporter->metrics);
    if (!error)
        error = loop_watch(epoll, metrics_fd(exporter->metrics), EPOLLIN, TAG_EXPORTER);
    if (error) {
        fprintf(stderr, "chart-tunnel: metrics at %s: %s\n", options->metrics, strerror(-error));
        exporter_close(exporter);
        return error;
    }
    *ret = exporter;
    return 0;
}

void exporter_close(struct exporter *exporter) {
    if (!exporter)
        return;
    if (exporter->metrics)
        metrics_close(exporter->metrics);
    free(exporter);
}

void exporter_run(struct exporter *exporter) {
    metrics_run(exporter->metrics);
}
