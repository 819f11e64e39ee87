/* The policer on the ingress of interfaces at the edge of a domain, a part of the agent: those of --edge, and those
 * that the registry names for this node, which go before and are kept on disk. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/options.h"

struct agent;
struct agent_module;
extern const struct agent_module edges_module;

#define EDGES_MAX AGENT_LINKS_MAX

struct edge_wanted {
    char interface[16];
    /* What EF packets without a grant may send together, bits per second with IP headers; 0: they lose their mark. */
    uint64_t aggregate_bps;
    /* Depth of the buckets as time at their rate. */
    uint16_t depth_ms;
    /* What is above the rate is dropped, not remarked. */
    bool drop;
};

struct edges_wanted {
    struct edge_wanted edges[EDGES_MAX];
    size_t n;
    /* Those that could not be read. */
    size_t left_out;
};

/* What holds of the two: all of `stated`, and those of `options` whose interface it does not name. */
void edges_merge(const struct agent_options *options, const struct edges_wanted *stated, struct edges_wanted *ret);

/* Police these from now on, besides --edge; interfaces that come later get their policer within a second. */
void edges_follow(const struct agent *agent, const struct edges_wanted *stated);

/* Why an edge is not policed, one sentence each, which live until the next call of edges_follow or of the loop; at most
 * `room`, returns how many. */
size_t edges_faults(const struct agent *agent, const char **ret, size_t room);

/* The edges that the registry named last, one a line; see edges_file.c. 0 or a negative errno; none when no file is
 * there. */
int edges_read(const char *directory, struct edges_wanted *ret);
int edges_write(const char *directory, const struct edges_wanted *edges);
