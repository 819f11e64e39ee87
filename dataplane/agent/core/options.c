/* See options.h. */
#include "core/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HELP_COLUMN 30
#define SENSOR_PORT 18300
enum value { VALUE_NONE, VALUE_STRING, VALUE_LINK, VALUE_EDGE, VALUE_PORT, VALUE_MS, VALUE_BPS };

struct option_row {
    const char *name;
    const char *argument;
    enum value value;
    enum options_action action;
    size_t offset;
    const char *help;
};

#define STRING(field) VALUE_STRING, OPTIONS_RUN, offsetof(struct agent_options, field)

static const struct option_row table[] = {
    {"--node", "NAME", STRING(node), "name of this node"},
    {"--state-dir", "DIR", STRING(state_dir), "directory of the control socket (agent.sock)"},
    {"--cgroup", "PATH", STRING(cgroup_path),
     "cgroup v2 of the processes whose flows CHART handles; created if missing"},
    {"--rate-file", "FILE", STRING(rate_file), "grants from a JSON file, read again when it changes; needs no broker"},
    {"--authority", "URL", STRING(authority_url),
     "https://HOST:PORT[,...] of the authority's replicas: keys, next hops, authorisations"},
    {"--authority-ca", "FILE", STRING(authority_ca), "CA certificate of the authority"},
    {"--enrolment-token-file", "FILE", STRING(enrolment_token_file),
     "one-time token for the enrolment of this node, or the pod's service account token"},
    {"--signal-file", "FILE", STRING(signal_file),
     "in-band signalling with keys and next hops from a JSON file, read again when it changes"},
    {"--overlay-file", "FILE", STRING(overlay_file),
     "overlay links, owners and next hops from a JSON file, read again when it changes"},
    {"--bootstrap", "HOST:PORT", STRING(bootstrap), "Kafka broker of the streams; excludes --rate-file"},
    {"--link", "ID=IFACE[:CAPACITY_BPS]", VALUE_LINK, OPTIONS_RUN, 0,
     "a link this node transmits on; may be repeated;\n"
     "                                      without a capacity the registry's holds, else the interface's speed"},
    {"--metrics", "ADDR:PORT", STRING(metrics_listen), "serve Prometheus metrics over HTTP"},
    {"--ipfix", "ADDR:PORT", STRING(ipfix),
     "send flow records to this collector as IPFIX over UDP; [ADDR]:PORT for IPv6"},
    {"--default-congestion", "NAME", STRING(default_control),
     "congestion control of flows without a rate; default: unchanged"},
    {"--quick-start", "BPS", VALUE_BPS, OPTIONS_RUN, offsetof(struct agent_options, quick_start_bps),
     "rate that new TCP connections ask the routers for (RFC 4782) where no policy says it; default: none"},
    {"--sensor-port", "PORT", VALUE_PORT, OPTIONS_RUN, offsetof(struct agent_options, sensor_port),
     "UDP port of the sensors, not counted as load; 0: none; default: 18300"},
    {"--edge", "IFACE[:AGGREGATE_BPS]", VALUE_EDGE, OPTIONS_RUN, 0,
     "police incoming traffic: grants to their rate, EF packets without a grant to the aggregate;\n"
     "                                      what the registry says of the interface goes before this"},
    {"--edge-exceed", "drop|remark", VALUE_STRING, OPTIONS_RUN, 0,
     "packets above the rate: drop, or remark as best effort; default: remark"},
    {"--edge-depth-ms", "MS", VALUE_MS, OPTIONS_RUN, offsetof(struct agent_options, edge_depth_ms),
     "bucket depth as time at the rate; default: 100"},
    {"--off", NULL, VALUE_NONE, OPTIONS_OFF, 0, "return every flow to its default congestion control and stay off"},
    {"--on", NULL, VALUE_NONE, OPTIONS_ON, 0, "undo --off"},
    {"--status", NULL, VALUE_NONE, OPTIONS_STATUS, 0, "print the state of the running agent; with --json as JSON"},
    {"--explain", "FLOW", VALUE_STRING, OPTIONS_EXPLAIN, 0,
     "explain the rate of a flow (LOCAL-REMOTE or a part of it)"},
    {"--cleanup", NULL, VALUE_NONE, OPTIONS_CLEANUP, 0, "remove programs, maps and queues of a killed agent"},
    {"--json", NULL, VALUE_NONE, OPTIONS_RUN, 0, "print JSON"},
    {"--help", NULL, VALUE_NONE, OPTIONS_HELP, 0, "this text"},
};
#define N_ROWS (sizeof(table) / sizeof(table[0]))

void options_help(FILE *out) {
    fputs("chart-agent: enforces granted rates on the TCP flows of a node\n\n"
          "usage: chart-agent --node NAME --state-dir DIR --cgroup PATH [--rate-file FILE | --bootstrap HOST:PORT]\n"
          "                   [--link ID=IFACE[:CAPACITY_BPS]]... [--edge IFACE[:AGGREGATE_BPS]]... [--metrics "
          "ADDR:PORT]\n"
          "       chart-agent --off | --on | --status [--json] | --explain FLOW | --cleanup  --state-dir DIR\n\n"
          "Flows that a grant matches run under the congestion control `trinity` at the granted rate while its lease\n"
          "lasts, and under their default control otherwise, also when this agent is stopped, killed or switched "
          "off.\n\n",
          out);
    for (size_t i = 0; i < N_ROWS; i++) {
        int width = fprintf(out, "  %s%s%s", table[i].name, table[i].argument ? " " : "",
                            table[i].argument ? table[i].argument : "");
        fprintf(out, "%*s%s\n", width < HELP_COLUMN + 8 ? HELP_COLUMN + 8 - width : 1, "", table[i].help);
    }
    fputs("\nSignals: TERM and INT stop the agent once every flow is back on its default control.\n"
          "Exit status: 0 done, 1 failed, 2 usage.\n"
          "Privileges: starts as root, keeps only CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN.\n",
          out);
}

static int parse_bps(const char *text, uint64_t *ret) {
    char *end;
    errno = 0;
    unsigned long long bps = strtoull(text, &end, 10);
    if (errno || *end || end == text || text[0] == '-')
        return -EINVAL;
    *ret = bps;
    return 0;
}

/* "IFACE[:BPS]" */
static int parse_interface(const char *text, char *ret_name, size_t size, uint64_t *ret_bps) {
    const char *colon = strchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : strlen(text);
    uint64_t bps = 0;
    if (!length || length >= size || (colon && parse_bps(colon + 1, &bps)))
        return -EINVAL;
    memcpy(ret_name, text, length);
    ret_name[length] = '\0';
    *ret_bps = bps;
    return 0;
}

int options_parse_link(const char *text, struct agent_link_option *ret) {
    struct agent_link_option link = {0};
    const char *equals = strrchr(text, '=');
    size_t id_length = equals ? (size_t)(equals - text) : 0;
    if (!id_length || id_length >= sizeof(link.id) ||
        parse_interface(equals + 1, link.interface, sizeof(link.interface), &link.capacity_bps))
        return -EINVAL;
    memcpy(link.id, text, id_length);
    *ret = link;
    return 0;
}

int options_parse_edge(const char *text, struct agent_edge_option *ret) {
    return parse_interface(text, ret->interface, sizeof(ret->interface), &ret->aggregate_bps);
}

static int parse_number(const char *text, uint16_t *ret) {
    char *end;
    errno = 0;
    unsigned long number = strtoul(text, &end, 10);
    if (errno || *end || end == text || text[0] == '-' || number > UINT16_MAX)
        return -EINVAL;
    *ret = (uint16_t)number;
    return 0;
}

static int take(struct options *options, const struct option_row *row, const char *value, FILE *errors) {
    struct agent_options *agent = &options->agent;
    if (strcmp(row->name, "--json") == 0) {
        options->json = true;
    } else if (row->action == OPTIONS_EXPLAIN) {
        options->action = row->action;
        options->flow = value;
    } else if (strcmp(row->name, "--edge-exceed") == 0) {
        agent->edge_drop = strcmp(value, "drop") == 0;
        if (!agent->edge_drop && strcmp(value, "remark") != 0) {
            fprintf(errors, "chart-agent: --edge-exceed %s: expected drop or remark\n", value);
            return -EINVAL;
        }
    } else if (row->value == VALUE_STRING) {
        const char **field = (const char **)((char *)agent + row->offset);
        *field = value;
    } else if (row->value == VALUE_PORT || row->value == VALUE_MS) {
        if (parse_number(value, (uint16_t *)((char *)agent + row->offset))) {
            fprintf(errors, "chart-agent: %s %s: expected %s from 0 to 65535\n", row->name, value,
                    row->value == VALUE_PORT ? "a port" : "milliseconds");
            return -EINVAL;
        }
    } else if (row->value == VALUE_BPS) {
        if (parse_bps(value, (uint64_t *)((char *)agent + row->offset))) {
            fprintf(errors, "chart-agent: %s %s: expected bits per second\n", row->name, value);
            return -EINVAL;
        }
    } else if (row->value == VALUE_LINK) {
        if (agent->n_links == AGENT_LINKS_MAX || options_parse_link(value, &agent->links[agent->n_links])) {
            fprintf(errors, "chart-agent: --link %s: expected ID=IFACE[:CAPACITY_BPS], at most %d times\n", value,
                    AGENT_LINKS_MAX);
            return -EINVAL;
        }
        agent->n_links++;
    } else if (row->value == VALUE_EDGE) {
        if (agent->n_edges == AGENT_LINKS_MAX || options_parse_edge(value, &agent->edges[agent->n_edges])) {
            fprintf(errors, "chart-agent: --edge %s: expected IFACE[:AGGREGATE_BPS], at most %d times\n", value,
                    AGENT_LINKS_MAX);
            return -EINVAL;
        }
        agent->n_edges++;
    } else {
        options->action = row->action;
    }
    return 0;
}

static int check(const struct options *options, FILE *errors) {
    const struct agent_options *agent = &options->agent;
    const char *missing = NULL;
    if (options->action == OPTIONS_HELP)
        return 0;
    if (!agent->state_dir)
        missing = "--state-dir";
    else if (options->action == OPTIONS_RUN && !agent->node)
        missing = "--node";
    else if (options->action == OPTIONS_RUN && !agent->cgroup_path)
        missing = "--cgroup";
    if (missing) {
        fprintf(errors, "chart-agent: %s is missing (see --help)\n", missing);
        return -EINVAL;
    }
    if (agent->authority_url && (strncmp(agent->authority_url, "https://", 8) != 0 || !agent->authority_ca)) {
        fprintf(errors, "chart-agent: --authority needs https://HOST:PORT and --authority-ca FILE\n");
        return -EINVAL;
    }
    if (agent->rate_file && agent->bootstrap) {
        fprintf(errors, "chart-agent: --rate-file and --bootstrap exclude each other: grants have one source\n");
        return -EINVAL;
    }
    return 0;
}

int options_parse(int argc, char **argv, FILE *errors, struct options *ret) {
    struct options options = {
        .action = OPTIONS_RUN, .agent.sensor_port = SENSOR_PORT, .agent.edge_depth_ms = EDGE_DEPTH_MS};
    for (int i = 1; i < argc; i++) {
        const struct option_row *row = NULL;
        /* `--name value` and `--name=value`; a value may have further equals signs. */
        size_t length = strcspn(argv[i], "=");
        const char *value = argv[i][length] ? argv[i] + length + 1 : NULL;
        for (size_t k = 0; k < N_ROWS; k++)
            if (strlen(table[k].name) == length && memcmp(argv[i], table[k].name, length) == 0)
                row = &table[k];
        if (!row) {
            fprintf(errors, "chart-agent: unknown option %s (see --help)\n", argv[i]);
            return -EINVAL;
        }
        if (!row->argument && value) {
            fprintf(errors, "chart-agent: %s takes no value\n", row->name);
            return -EINVAL;
        }
        if (row->argument && !value && ++i == argc) {
            fprintf(errors, "chart-agent: %s needs %s\n", row->name, row->argument);
            return -EINVAL;
        }
        int error = take(&options, row, row->argument && !value ? argv[i] : value, errors);
        if (error)
            return error;
    }
    int error = check(&options, errors);
    if (!error)
        *ret = options;
    return error;
}
