/* Finding the hops of a path: rounds of one probe per TTL, all of one flow. */
#ifndef CHART_SENSORS_HOP_TRACE_H
#define CHART_SENSORS_HOP_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hop_socket.h"

#define HOP_TTL_MAX 64
#define HOP_QUERIES_MAX 20

struct hop_trace_settings {
    unsigned max_hops;
    unsigned queries; /* probes per hop */
    double interval_ms;
    double timeout_ms;
    size_t packet_bytes;
};

struct hop {
    struct in_addr address; /* who answered first; 0 while nobody did */
    bool several;           /* others answered too: the path branches or changed meanwhile */
    unsigned sent;
    unsigned answered;
    double rtts_us[HOP_QUERIES_MAX];
};

struct hop_trace {
    unsigned count;  /* hops up to the destination, or to the last one that answered */
    bool reached;    /* the destination answered */
    int unreachable; /* ICMP code of somebody who says that it goes no further, -1 for none */
    struct hop hops[HOP_TTL_MAX];
};

/* Most bytes and time that a trace takes. */
void hop_trace_declare(const struct hop_trace_settings *settings, uint64_t *ret_bytes, uint64_t *ret_duration_ms);
/* Trace the path of the socket's flow; tags from 1 to HOP_TTL_MAX * queries are used up. 0 or a negative errno of a
 * probe that could not be sent. */
int hop_trace_run(struct hop_socket *hop, const struct hop_trace_settings *settings, struct hop_trace *ret_trace);

#endif
