/* See rules.h. */
#include "rules.h"

static void write_take(FILE *out, const struct options *options, const char *interface, const char *which,
                       const char *prefix) {
    fprintf(out, "-A " RULES_CHAIN " -i %s -p tcp --syn", interface);
    if (prefix)
        fprintf(out, " %s %s", which, prefix);
    fprintf(out, " -m addrtype ! --dst-type LOCAL -j NFQUEUE --queue-num %u --queue-bypass\n", options->queue);
}

void rules_write_chain(FILE *out, const struct options *options, bool ipv6) {
    fputs("*mangle\n:" RULES_CHAIN " - [0:0]\n", out);
    /* A first packet with the proxy's verdict, which goes through the chain once more. */
    fprintf(out,
            "-A " RULES_CHAIN " -p tcp -m mark --mark 0x%x -j TPROXY --on-ip %s --on-port %u "
            "--tproxy-mark 0x%x/0xffffffff\n",
            options->mark, ipv6 ? "::1" : "127.0.0.1", options->port, options->mark);
    for (size_t i = 0; i < options->interface_count; i++) {
        if (!options->host_count)
            write_take(out, options, options->interfaces[i], NULL, NULL);
        for (size_t k = 0; k < options->host_count; k++) {
            if (options->hosts[k].ipv6 != ipv6)
                continue;
            write_take(out, options, options->interfaces[i], "-s", options->hosts[k].prefix);
            write_take(out, options, options->interfaces[i], "-d", options->hosts[k].prefix);
        }
    }
    fprintf(out, "-A " RULES_CHAIN " -p tcp -m socket --transparent -j MARK --set-mark 0x%x\n", options->mark);
    fputs("COMMIT\n", out);
}

void rules_write_jump(FILE *out) {
    fputs("*mangle\n-I PREROUTING -j " RULES_CHAIN "\nCOMMIT\n", out);
}

void rules_write_routes(FILE *out, const struct options *options, bool ipv6) {
    fprintf(out, "route replace local %s dev lo table %u\n", ipv6 ? "::/0" : "0.0.0.0/0", options->table);
}

void rules_write_policy(FILE *out, const struct options *options, bool add) {
    fprintf(out, "rule %s fwmark 0x%x lookup %u priority %u\n", add ? "add" : "delete", options->mark, options->table,
            options->table);
}
