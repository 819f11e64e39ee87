/* See options.h. */
#include "options.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

#define HELP_COLUMN 26
#define US_PER_S 1000000u

enum value { VALUE_NONE, VALUE_INTERFACE, VALUE_HOST, VALUE_TEXT, VALUE_STATE_DIR, VALUE_NUMBER };

enum number {
    NUMBER_PORT,
    NUMBER_QUEUE,
    NUMBER_TABLE,
    NUMBER_MARK,
    NUMBER_CONNECTIONS,
    NUMBER_BUFFER,
    NUMBER_CONNECT,
    NUMBER_IDLE,
    NUMBER_KEEPALIVE,
    NUMBER_DRAIN
};

struct option_row {
    const char *name, *argument;
    enum value value;
    enum options_action action;
    enum number number;
    uint64_t minimum, maximum;
    const char *help;
};

#define NUMBER(which, least, most) VALUE_NUMBER, OPTIONS_RUN, which, least, most
#define OTHER(value, action) value, action, 0, 0, 0

static const struct option_row table[] = {
    {"--interface", "NAME", OTHER(VALUE_INTERFACE, OPTIONS_RUN),
     "handle TCP connections arriving on this interface; may be repeated"},
    {"--host", "PREFIX", OTHER(VALUE_HOST, OPTIONS_RUN),
     "only connections from or to these hosts; may be repeated; default: all"},
    {"--state-dir", "DIR", OTHER(VALUE_STATE_DIR, OPTIONS_RUN),
     "follow ends.json of chart-agent there instead of --interface, --host and --new-ports"},
    {"--port", "PORT", NUMBER(NUMBER_PORT, 1, 65535), "TCP port of the proxy on loopback; default: 18450"},
    {"--queue", "NUMBER", NUMBER(NUMBER_QUEUE, 0, 65535), "NFQUEUE number for first packets; default: 18450"},
    {"--table", "NUMBER", NUMBER(NUMBER_TABLE, 256, UINT32_MAX),
     "routing table of the proxy, also the priority of its rule; default: 18450"},
    {"--mark", "NUMBER", NUMBER(NUMBER_MARK, 1, UINT32_MAX), "packet mark of the proxy; default: 0x43485052"},
    {"--no-ipv6", NULL, OTHER(VALUE_NONE, OPTIONS_RUN), "IPv4 only"},
    {"--new-ports", NULL, OTHER(VALUE_NONE, OPTIONS_RUN),
     "connect onward from other source ports, needed with connection tracking (NAT, stateful rules)"},
    {"--connections", "N", NUMBER(NUMBER_CONNECTIONS, 1, 65536),
     "most connections at a time, others bypass the proxy; default: 4096"},
    {"--buffer-kib", "KIB", NUMBER(NUMBER_BUFFER, 16, 65536),
     "send buffer per direction, in addition to data in flight; default: 512"},
    {"--connect-s", "S", NUMBER(NUMBER_CONNECT, 1, 120), "timeout for connecting to the server; default: 10"},
    {"--idle-s", "S", NUMBER(NUMBER_IDLE, 1, 604800), "reset connections idle for this long; default: 7440 (RFC 5382)"},
    {"--keepalive-s", "S", NUMBER(NUMBER_KEEPALIVE, 1, 32767), "interval of TCP keepalives; default: 60"},
    {"--drain-s", "S", NUMBER(NUMBER_DRAIN, 0, 3600), "grace period for connections on SIGTERM; default: 5"},
    {"--metrics", "ADDR:PORT", OTHER(VALUE_TEXT, OPTIONS_RUN), "serve Prometheus metrics over HTTP"},
    {"--cleanup", NULL, OTHER(VALUE_NONE, OPTIONS_CLEANUP), "remove rules and routes that a killed proxy left behind"},
    {"--rules", NULL, OTHER(VALUE_NONE, OPTIONS_RULES), "print the rules and routes, change nothing"},
    {"--help", NULL, OTHER(VALUE_NONE, OPTIONS_HELP), "this text"},
};
#define N_ROWS (sizeof(table) / sizeof(table[0]))

void options_help(FILE *out) {
    fputs("chart-proxy: gives TCP connections of hosts without an agent the explicit rates of this node\n\n"
          "usage: chart-proxy --state-dir DIR [options]\n"
          "       chart-proxy --interface NAME... [--host PREFIX]... [options]\n"
          "       chart-proxy --cleanup [--table NUMBER] [--mark NUMBER]\n\n"
          "Terminates the hosts' TCP connections on this node and connects onward from the hosts' own addresses.\n"
          "Onward connections are flows of this node: run it in the cgroup of chart-agent. Connections that\n"
          "the proxy cannot handle, and all of them when it is not running, bypass it. With --state-dir it takes what\n"
          "the registry states for this node, and follows changes.\n\n",
          out);
    for (size_t i = 0; i < N_ROWS; i++) {
        int width = fprintf(out, "  %s%s%s", table[i].name, table[i].argument ? " " : "",
                            table[i].argument ? table[i].argument : "");
        fprintf(out, "%*s%s\n", width < HELP_COLUMN ? HELP_COLUMN - width : 1, "", table[i].help);
    }
    fputs("\nSignals: TERM and INT stop it: rules are removed, remaining connections are reset after --drain-s.\n"
          "Exit status: 0 done, 1 failed, 2 usage.\n"
          "Privileges: starts as root, keeps only CAP_NET_ADMIN, CAP_NET_RAW and CAP_NET_BIND_SERVICE. Runs iptables\n"
          "and ip.\n",
          out);
}

bool options_interface_good(const char *name) {
    return name[0] && strlen(name) < IF_NAMESIZE && !strpbrk(name, " \t\n/!+\"'");
}

int options_host(const char *text, struct host_option *ret) {
    struct host_option host;
    unsigned char address[16];
    char bare[INET6_ADDRSTRLEN], written[INET6_ADDRSTRLEN], *end;
    const char *slash = strchr(text, '/');
    size_t length = slash ? (size_t)(slash - text) : strlen(text);
    if (length >= sizeof(bare))
        return -EINVAL;
    memcpy(bare, text, length);
    bare[length] = '\0';
    host.ipv6 = inet_pton(AF_INET6, bare, address) == 1;
    if (!host.ipv6 && inet_pton(AF_INET, bare, address) != 1)
        return -EINVAL;
    unsigned long most = host.ipv6 ? 128 : 32, bits = most;
    if (slash) {
        bits = strtoul(slash + 1, &end, 10);
        if (slash[1] < '0' || slash[1] > '9' || *end || bits > most)
            return -EINVAL;
    }
    inet_ntop(host.ipv6 ? AF_INET6 : AF_INET, address, written, sizeof(written));
    snprintf(host.prefix, sizeof(host.prefix), "%s/%lu", written, bits);
    *ret = host;
    return 0;
}

static int parse_number(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *ret) {
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 0);
    if (errno || *end || end == text || text[0] == '-' || number < minimum || number > maximum)
        return -EINVAL;
    *ret = number;
    return 0;
}

static void set_number(struct options *options, enum number which, uint64_t number) {
    switch (which) {
    case NUMBER_PORT:
        options->port = (uint16_t)number;
        break;
    case NUMBER_QUEUE:
        options->queue = (uint16_t)number;
        break;
    case NUMBER_TABLE:
        options->table = (uint32_t)number;
        break;
    case NUMBER_MARK:
        options->mark = (uint32_t)number;
        break;
    case NUMBER_CONNECTIONS:
        options->connections = (uint32_t)number;
        break;
    case NUMBER_BUFFER:
        options->buffer_bytes = (uint32_t)number * 1024;
        break;
    case NUMBER_CONNECT:
        options->connect_us = number * US_PER_S;
        break;
    case NUMBER_IDLE:
        options->idle_us = number * US_PER_S;
        break;
    case NUMBER_KEEPALIVE:
        options->keepalive_us = number * US_PER_S;
        break;
    case NUMBER_DRAIN:
        options->drain_us = number * US_PER_S;
        break;
    }
}

/* What is wrong with the value; NULL: nothing. */
static const char *take(struct options *options, const struct option_row *row, const char *value) {
    uint64_t number;
    switch (row->value) {
    case VALUE_INTERFACE:
        if (!options_interface_good(value))
            return "expected the name of an interface, of at most 15 characters";
        if (options->interface_count == OPTION_INTERFACES)
            return "that is more interfaces than 16";
        options->interfaces[options->interface_count++] = value;
        return NULL;
    case VALUE_HOST:
        if (options->host_count == OPTION_HOSTS)
            return "that is more prefixes than 32";
        if (options_host(value, &options->hosts[options->host_count]))
            return "expected ADDRESS or ADDRESS/LENGTH of IPv4 or IPv6";
        options->host_count++;
        return NULL;
    case VALUE_TEXT:
        options->metrics = value;
        return NULL;
    case VALUE_STATE_DIR:
        options->state_dir = value;
        return value[0] ? NULL : "expected a directory";
    case VALUE_NUMBER:
        if (parse_number(value, row->minimum, row->maximum, &number))
            return "expected a number";
        set_number(options, row->number, number);
        return NULL;
    case VALUE_NONE:
        if (row->action != OPTIONS_RUN)
            options->action = row->action;
        else if (strcmp(row->name, "--new-ports") == 0)
            options->new_ports = true;
        else
            options->ipv6 = false;
        return NULL;
    }
    return NULL;
}

static int check(const struct options *options, FILE *errors) {
    bool runs = options->action == OPTIONS_RUN || options->action == OPTIONS_RULES;
    bool stated = options->interface_count || options->host_count || options->new_ports;
    if (runs && !options->interface_count && !options->state_dir) {
        fprintf(errors, "chart-proxy: --state-dir or --interface is missing (see --help)\n");
        return -EINVAL;
    }
    if (options->state_dir && stated) {
        fprintf(errors,
                "chart-proxy: --state-dir excludes --interface, --host and --new-ports: what is proxied has one "
                "source\n");
        return -EINVAL;
    }
    for (size_t i = 0; i < options->host_count; i++)
        if (options->hosts[i].ipv6 && !options->ipv6) {
            fprintf(errors, "chart-proxy: --host %s and --no-ipv6 exclude each other\n", options->hosts[i].prefix);
            return -EINVAL;
        }
    return 0;
}

int options_parse(int count, char **arguments, FILE *errors, struct options *ret) {
    struct options options = {
        .port = 18450,
        .queue = 18450,
        .table = 18450,
        .mark = 0x43485052,
        .ipv6 = true,
        .connections = 4096,
        .buffer_bytes = 512 * 1024,
        .connect_us = 10 * US_PER_S,
        .idle_us = 7440ull * US_PER_S,
        .keepalive_us = 60 * US_PER_S,
        .drain_us = 5 * US_PER_S,
    };
    for (int i = 1; i < count; i++) {
        const struct option_row *row = NULL;
        for (size_t k = 0; k < N_ROWS; k++)
            if (strcmp(arguments[i], table[k].name) == 0)
                row = &table[k];
        if (!row) {
            fprintf(errors, "chart-proxy: unknown option %s (see --help)\n", arguments[i]);
            return -EINVAL;
        }
        if (row->argument && i + 1 == count) {
            fprintf(errors, "chart-proxy: %s needs %s\n", row->name, row->argument);
            return -EINVAL;
        }
        const char *value = row->argument ? arguments[++i] : "", *fault = take(&options, row, value);
        if (fault) {
            fprintf(errors, "chart-proxy: %s %s: %s", row->name, value, fault);
            if (row->value == VALUE_NUMBER)
                fprintf(errors, " from %llu to %llu", (unsigned long long)row->minimum,
                        (unsigned long long)row->maximum);
            fputc('\n', errors);
            return -EINVAL;
        }
    }
    int error = options.action == OPTIONS_HELP ? 0 : check(&options, errors);
    if (!error)
        *ret = options;
    return error;
}
