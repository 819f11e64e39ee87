/* Parameters of ping; see ping.h. */
#include <string.h>

#include "icmp.h"
#include "ping.h"
#include "wire.h"

#define FIELD(name) offsetof(struct ping_parameters, name)
static const struct option_spec SPECS[] = {
    {"count", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(count), 1, PING_COUNT_MAX, "N", "probes in the run (10)"},
    {"interval-ms", OPTION_NUMBER, OPTION_ANYWHERE, FIELD(interval_ms), 0.1, 60000, "MS", "between probes (100)"},
    {"timeout-ms", OPTION_NUMBER, OPTION_ANYWHERE, FIELD(timeout_ms), 1, 60000, "MS",
     "a reply later than this is lost (1000)"},
    {"packet-bytes", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(packet_bytes), 64, 1500, "N",
     "size of the IP packet (100)"},
    {"protocol", OPTION_TEXT, OPTION_ANYWHERE, FIELD(protocol), 0, 0, "icmp|udp",
     "ICMP echo, or UDP echo to a sensor-responder (icmp)"},
};
const struct option_table PING_OPTIONS = {
    .program = "ping",
    .synopsis = "HOST [options] | --serve [options]",
    .description = "Measure round-trip time, jitter and loss with kernel timestamps.",
    .specs = SPECS,
    .count = sizeof(SPECS) / sizeof(SPECS[0]),
    .common = OPTIONS_TWO_ENDED,
};

void ping_defaults(struct ping_parameters *parameters) {
    *parameters = (struct ping_parameters){
        .protocol = "icmp",
        .count = 10,
        .interval_ms = 100,
        .timeout_ms = 1000,
        .packet_bytes = 100,
    };
    options_common_defaults(&parameters->common);
}

int ping_check(const struct ping_parameters *parameters, struct failure *failure) {
    bool udp = strcmp(parameters->protocol, "udp") == 0;

    if (!parameters->common.destination[0])
        return failure_set(failure, FAILURE_USAGE, "destination is missing");
    if (!udp && strcmp(parameters->protocol, "icmp") != 0)
        return failure_set(failure, FAILURE_USAGE, "protocol must be icmp or udp");
    if (udp && parameters->packet_bytes < WIRE_HEADER_BYTES + WIRE_IPV4_UDP_BYTES)
        return failure_set(failure, FAILURE_USAGE, "packet-bytes must be at least %u with udp",
                           WIRE_HEADER_BYTES + WIRE_IPV4_UDP_BYTES);
    if (udp && !parameters->common.key_file[0] && !parameters->common.declare)
        return options_no_key(OPTIONS_COPY_KEY, failure);
    return 0;
}
