/* GET /metrics for Prometheus, /healthz and /readyz, inside the end's epoll loop. */
#ifndef ITM_EXPORTER_H
#define ITM_EXPORTER_H

#include <cjson/cJSON.h>

#include "options.h"

struct exporter;

struct exporter_source {
    void (*add_state)(void *context, cJSON *state);
    const char *(*not_ready)(void *context); /* NULL when ready, else why not */
    void *context;
};

/* Where --metrics says. Watched under TAG_EXPORTER. 0, or a negative errno after a sentence on standard error. */
int exporter_open(const struct options *options, const struct exporter_source *source, int epoll,
                  struct exporter **ret);
void exporter_close(struct exporter *exporter);
void exporter_run(struct exporter *exporter);

#endif
