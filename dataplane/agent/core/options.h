/* The command line of chart-agent, declared as one table from which --help is written. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define AGENT_LINKS_MAX 64
/* Room for what a flow sends at once after a pause: an RTT and the queues of its path (signalling's burst tolerance).
 */
#define EDGE_DEPTH_MS 100

/* --link ID=IFACE[:CAPACITY_BPS]; capacity 0: of the registry, else the interface's speed. */
struct agent_link_option {
    char id[272];
    char interface[16];
    uint64_t capacity_bps;
};

/* --edge IFACE[:AGGREGATE_BPS]; 0: no premium traffic without a grant of its own. */
struct agent_edge_option {
    char interface[16];
    uint64_t aggregate_bps;
};

struct agent_options {
    const char *node;
    const char *state_dir;
    const char *cgroup_path;
    const char *rate_file;
    const char *signal_file;
    const char *overlay_file;
    const char *authority_url;
    const char *authority_ca;
    const char *enrolment_token_file;
    const char *bootstrap;
    const char *metrics_listen;
    const char *ipfix;
    const char *default_control;
    /* What new connections ask for where no policy says it, bits per second; 0: nothing. */
    uint64_t quick_start_bps;
    uint16_t sensor_port;
    struct agent_link_option links[AGENT_LINKS_MAX];
    size_t n_links;
    struct agent_edge_option edges[AGENT_LINKS_MAX];
    size_t n_edges;
    bool edge_drop;
    uint16_t edge_depth_ms;
};

enum options_action {
    OPTIONS_RUN,
    OPTIONS_HELP,
    OPTIONS_OFF,
    OPTIONS_ON,
    OPTIONS_STATUS,
    OPTIONS_EXPLAIN,
    OPTIONS_CLEANUP
};

struct options {
    struct agent_options agent;
    enum options_action action;
    bool json;
    /* --explain FLOW */
    const char *flow;
};

/* 0, or -EINVAL after a sentence on `errors`. Strings are borrowed from argv. */
int options_parse(int argc, char **argv, FILE *errors, struct options *ret);
void options_help(FILE *out);
/* "ID=IFACE[:CAPACITY_BPS]"; the id itself may hold colons. 0 or -EINVAL. */
int options_parse_link(const char *text, struct agent_link_option *ret);
/* "IFACE[:AGGREGATE_BPS]". 0 or -EINVAL. */
int options_parse_edge(const char *text, struct agent_edge_option *ret);
