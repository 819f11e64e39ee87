/* GET /metrics (Prometheus text), /healthz and /readyz over HTTP, inside the agent's epoll loop. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

struct metrics;

struct metrics_source {
    /* Write the exposition text. */
    void (*render)(FILE *out, void *context);
    /* NULL when ready, else why not. */
    const char *(*not_ready)(void *context);
    void *context;
};

/* listen: "ADDR:PORT" (IPv4 or [IPv6]); port 0 takes a free one. 0, -EINVAL (listen), or why it cannot listen there,
 * such as -EADDRINUSE. */
int metrics_open(const char *listen, const struct metrics_source *source, struct metrics **ret);
void metrics_close(struct metrics *metrics);
/* Readable when metrics_run has something to do. */
int metrics_fd(const struct metrics *metrics);
void metrics_run(struct metrics *metrics);
int metrics_port(const struct metrics *metrics);
