/* Parameters of traceroute; see trace.h. */
#include <string.h>

#include "trace.h"

#define FIELD(name) offsetof(struct trace_parameters, name)
static const struct option_spec SPECS[] = {
    {"protocol", OPTION_TEXT, OPTION_ANYWHERE, FIELD(protocol), 0, 0, "udp|icmp",
     "UDP to a port where nothing listens, or ICMP echo (udp)"},
    {"destination-port", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(destination_port), 1, 65535, "PORT",
     "of UDP probes, the same for all (33434)"},
    {"max-hops", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(max_hops), 1, HOP_TTL_MAX, "N", "highest TTL (30)"},
    {"queries", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(queries), 1, HOP_QUERIES_MAX, "N", "probes per hop (3)"},
    {"interval-ms", OPTION_NUMBER, OPTION_ANYWHERE, FIELD(interval_ms), 0.1, 10000, "MS", "between probes (10)"},
    {"timeout-ms", OPTION_NUMBER, OPTION_ANYWHERE, FIELD(timeout_ms), 1, 60000, "MS",
     "an answer later than this does not count (1000)"},
    {"packet-bytes", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(packet_bytes), HOP_PACKET_MIN_BYTES, HOP_PACKET_MAX_BYTES,
     "N", "size of the IP packet (60)"},
    {"partial", OPTION_FLAG, OPTION_ANYWHERE, FIELD(partial), 0, 0, NULL,
     "a path whose end does not answer is a result too"},
};
const struct option_table TRACE_OPTIONS = {
    .program = "traceroute",
    .synopsis = "HOST [options] | --serve [options]",
    .description = "Find the hops of a path, their round-trip times, and whether the path changed.",
    .specs = SPECS,
    .count = sizeof(SPECS) / sizeof(SPECS[0]),
    .common = OPTIONS_ONE_ENDED,
};

void trace_defaults(struct trace_parameters *parameters) {
    *parameters = (struct trace_parameters){
        .protocol = "udp",
        .destination_port = HOP_DEFAULT_PORT,
        .max_hops = 30,
        .queries = 3,
        .interval_ms = 10,
        .timeout_ms = 1000,
        .packet_bytes = 60,
    };
    options_common_defaults(&parameters->common);
}

int trace_check(const struct trace_parameters *parameters, struct failure *failure) {
    if (!parameters->common.destination[0])
        return failure_set(failure, FAILURE_USAGE, "destination is missing");
    if (strcmp(parameters->protocol, "udp") != 0 && strcmp(parameters->protocol, "icmp") != 0)
        return failure_set(failure, FAILURE_USAGE, "protocol must be udp or icmp");
    return 0;
}
