/* What the proxy counts, and how Prometheus sees it. Pure. */
#ifndef PROXY_COUNTERS_H
#define PROXY_COUNTERS_H

#include <stdint.h>
#include <stdio.h>

enum passed { PASSED_REFUSED, PASSED_UNANSWERED, PASSED_LIMIT, PASSED_FAILED, PASSED_ENDING, PASSED_REASONS };
enum reset { RESET_PEER, RESET_IDLE, RESET_UNACCEPTED, RESET_ENDING, RESET_REASONS };

struct counters {
    uint64_t taken;                  /* connections that were ended here and went on */
    uint64_t passed[PASSED_REASONS]; /* first packets that went on without the proxy */
    uint64_t resets[RESET_REASONS];
    uint64_t onward_bytes, back_bytes;
    uint64_t strangers; /* accepted connections that nobody had asked for */
    uint32_t held, open, closing;
};

void counters_write(const struct counters *counters, uint32_t limit, FILE *out);

#endif
