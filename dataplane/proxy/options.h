/* The command line of chart-proxy. */
#ifndef PROXY_OPTIONS_H
#define PROXY_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define OPTION_INTERFACES 16
#define OPTION_HOSTS 32
#define OPTION_PREFIX_BYTES 50 /* the longest address of IPv6 and a length */

enum options_action { OPTIONS_RUN, OPTIONS_CLEANUP, OPTIONS_RULES, OPTIONS_HELP };

struct host_option {
    char prefix[OPTION_PREFIX_BYTES]; /* ADDRESS/LENGTH */
    bool ipv6;
};

struct options {
    enum options_action action;
    const char *interfaces[OPTION_INTERFACES];
    size_t interface_count;
    struct host_option hosts[OPTION_HOSTS]; /* none: all */
    size_t host_count;
    uint16_t port, queue;
    uint32_t table, mark;
    bool ipv6, new_ports;
    uint32_t connections, buffer_bytes;
    uint64_t connect_us, idle_us, keepalive_us, drain_us;
    const char *metrics;   /* ADDRESS:PORT, or NULL */
    const char *state_dir; /* of chart-agent, whose file says what is proxied; NULL: the options do */
};

void options_help(FILE *out);
/* 0, or -EINVAL after a sentence on errors; ret is then untouched. */
int options_parse(int count, char **arguments, FILE *errors, struct options *ret);

bool options_interface_good(const char *name);
/* ADDRESS or ADDRESS/LENGTH; 0 or -EINVAL. */
int options_host(const char *text, struct host_option *ret);

#endif
