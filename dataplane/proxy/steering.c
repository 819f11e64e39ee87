/* See steering.h. */
#define _GNU_SOURCE
#include "steering.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "rules.h"

#define SAID_BYTES 400
/* More copies of a rule than a crash can leave. */
#define COPIES 8

struct family {
    bool ipv6;
    char *tables, *restore, *ip;
};

static const struct family families[] = {
    {false, "iptables", "iptables-restore", "-4"},
    {true, "ip6tables", "ip6tables-restore", "-6"},
};

static int complain(const char *what, const char *program, int status, const char *said) {
    const char *reason = said[0] ? said : status < 0 ? strerror(-status) : "no reason given";
    if (status == -ENOENT)
        reason = "not installed";
    fprintf(stderr, "chart-proxy: %s: %s: %s\n", what, program, reason);
    return status < 0 ? status : -EPROTO;
}

/* Tries a change that fails when there is nothing to change; true: it was done. */
static bool try(char *const arguments[], const char *input) {
    char said[SAID_BYTES];
    return command_run(arguments, input, said, sizeof(said)) == 0;
}

static int restore(const struct family *family, const char *text) {
    char said[SAID_BYTES];
    char *const arguments[] = {family->restore, "-w", "5", "--noflush", NULL};
    int status = command_run(arguments, text, said, sizeof(said));
    return status ? complain("rules cannot be set (does this kernel have TPROXY, NFQUEUE and the socket match?)",
                             family->restore, status, said)
                  : 0;
}

static int batch(const struct family *family, const char *text) {
    char said[SAID_BYTES];
    char *const arguments[] = {"ip", family->ip, "-batch", "-", NULL};
    int status = command_run(arguments, text, said, sizeof(said));
    return status ? complain(family->ipv6 ? "routes of IPv6 cannot be set (--no-ipv6 goes without)"
                                          : "routes cannot be set",
                             "ip", status, said)
                  : 0;
}

/* The text that a function writes; the caller frees it. NULL: no memory. */
#define TEXT_OF(call)                                                                                                  \
    ({                                                                                                                 \
        char *text = NULL;                                                                                             \
        size_t bytes = 0;                                                                                              \
        FILE *out = open_memstream(&text, &bytes);                                                                     \
        if (out) {                                                                                                     \
            call;                                                                                                      \
            fclose(out);                                                                                               \
        }                                                                                                              \
        text;                                                                                                          \
    })

static void remove_copies(const struct options *options, const struct family *family) {
    char *const jump[] = {family->tables, "-w", "5", "-t", "mangle", "-D", "PREROUTING", "-j", RULES_CHAIN, NULL};
    char *const rule[] = {"ip", family->ip, "-batch", "-", NULL};
    char *text = TEXT_OF(rules_write_policy(out, options, false));
    for (int i = 0; i < COPIES && try(jump, ""); i++)
        ;
    for (int i = 0; text && i < COPIES && try(rule, text); i++)
        ;
    free(text);
}

static int install(const struct options *options, const struct family *family) {
    char *chain = TEXT_OF(rules_write_chain(out, options, family->ipv6));
    char *routes = TEXT_OF(rules_write_routes(out, options, family->ipv6); rules_write_policy(out, options, true));
    char *jump = TEXT_OF(rules_write_jump(out));
    int error = chain && routes && jump ? 0 : -ENOMEM;
    if (!error) {
        remove_copies(options, family);
        error = restore(family, chain);
    }
    error = error ? error : batch(family, routes);
    /* Last: until now nothing goes through the chain. */
    error = error ? error : restore(family, jump);
    free(chain), free(routes), free(jump);
    return error;
}

int steering_install(const struct options *options) {
    int error = 0;
    for (size_t i = 0; i < 2 && !error; i++)
        if (!families[i].ipv6 || options->ipv6)
            error = install(options, &families[i]);
    if (error)
        (void)steering_remove(options);
    return error;
}

int steering_change(const struct options *options) {
    int error = 0;
    for (size_t i = 0; i < 2 && !error; i++) {
        if (families[i].ipv6 && !options->ipv6)
            continue;
        char *chain = TEXT_OF(rules_write_chain(out, options, families[i].ipv6));
        error = chain ? restore(&families[i], chain) : -ENOMEM;
        free(chain);
    }
    return error;
}

int steering_remove(const struct options *options) {
    int error = 0;
    for (size_t i = 0; i < 2; i++) {
        const struct family *family = &families[i];
        char said[SAID_BYTES], number[16];
        char *const flush[] = {family->tables, "-w", "5", "-t", "mangle", "-F", RULES_CHAIN, NULL};
        char *const erase[] = {family->tables, "-w", "5", "-t", "mangle", "-X", RULES_CHAIN, NULL};
        char *const look[] = {family->tables, "-w", "5", "-t", "mangle", "-n", "-L", RULES_CHAIN, NULL};
        snprintf(number, sizeof(number), "%u", options->table);
        char *const routes[] = {"ip", family->ip, "route", "flush", "table", number, NULL};
        if (family->ipv6 && !options->ipv6)
            continue;
        remove_copies(options, family);
        (void)try(routes, "");
        (void)try(flush, "");
        if (!try(erase, "") && try(look, "")) {
            int status = command_run(erase, "", said, sizeof(said));
            error = status ? complain("rules cannot be removed", family->tables, status, said) : error;
        }
    }
    return error;
}

void steering_print(const struct options *options, FILE *out) {
    for (size_t i = 0; i < 2; i++) {
        if (families[i].ipv6 && !options->ipv6)
            continue;
        fprintf(out, "# %s --noflush\n", families[i].restore);
        rules_write_chain(out, options, families[i].ipv6);
        rules_write_jump(out);
        fprintf(out, "# ip %s -batch -\n", families[i].ip);
        rules_write_routes(out, options, families[i].ipv6);
        rules_write_policy(out, options, true);
    }
}
