/* The command line of chart-agent, declared as one table from which --help is written. */
#pragma once

#include <stdio.h>

#include "core/agent.h"

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
