/* Parameters of tulip; see tulip.h. */
#include <string.h>

#include "hop_trace.h"
#include "segments.h"
#include "tulip.h"

#define FIELD(name) offsetof(struct tulip_parameters, name)
static const struct option_spec SPECS[] = {
    {"protocol", OPTION_TEXT, OPTION_ANYWHERE, FIELD(protocol), 0, 0, "udp|icmp",
     "UDP to a port where nothing listens, or ICMP echo (udp)"},
    {"destination-port", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(destination_port), 1, 65535, "PORT",
     "of UDP probes, the same for all (33434)"},
    {"rounds", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(rounds), 3, TULIP_ROUNDS_MAX, "N",
     "groups of three probes to each hop (20)"},
    {"max-hops", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(max_hops), 1, HOP_TTL_MAX, "N", "highest TTL (30)"},
    {"interval-ms", OPTION_NUMBER, OPTION_ANYWHERE, FIELD(interval_ms), 0.1, 10000, "MS",
     "between groups to successive hops (5)"},
    {"lag-ms", OPTION_NUMBER, OPTION_ANYWHERE, FIELD(lag_ms), 1, 60000, "MS", "between rounds (500)"},
    {"timeout-ms", OPTION_NUMBER, OPTION_ANYWHERE, FIELD(timeout_ms), 1, 60000, "MS",
     "an answer later than this does not count (1000)"},
    {"packet-bytes", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(packet_bytes), HOP_PACKET_MIN_BYTES, HOP_PACKET_MAX_BYTES,
     "N", "size of the large IP packet of a group (500)"},
};
const struct option_table TULIP_OPTIONS = {
    .program = "tulip",
    .synopsis = "HOST [options] | --serve [options]",
    .description = "Find where on the path to a host packets are lost, reordered and queued.",
    .specs = SPECS,
    .count = sizeof(SPECS) / sizeof(SPECS[0]),
    .common = OPTIONS_ONE_ENDED,
};

void tulip_defaults(struct tulip_parameters *parameters) {
    *parameters = (struct tulip_parameters){
        .protocol = "udp",
        .destination_port = HOP_DEFAULT_PORT,
        .rounds = 20,
        .max_hops = 30,
        .interval_ms = 5,
        .lag_ms = 500,
        .timeout_ms = 1000,
        .packet_bytes = 500,
    };
    options_common_defaults(&parameters->common);
}

int tulip_check(const struct tulip_parameters *parameters, struct failure *failure) {
    if (!parameters->common.destination[0])
        return failure_set(failure, FAILURE_USAGE, "destination is missing");
    if (strcmp(parameters->protocol, "udp") != 0 && strcmp(parameters->protocol, "icmp") != 0)
        return failure_set(failure, FAILURE_USAGE, "protocol must be udp or icmp");
    return 0;
}
