/* Parameters of ping; see ping.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "icmp.h"
#include "ping.h"
#include "wire.h"

#define FIELD(name) offsetof(struct ping_parameters, name)
static const struct option_spec SPECS[] = {
    {"destination", OPTION_TEXT, OPTION_ANYWHERE, FIELD(destination), 0, 0, "ADDRESS", "whom to probe"},
    {"count", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(count), 1, PING_COUNT_MAX, "N", "probes in the run (10)"},
    {"interval-ms", OPTION_NUMBER, OPTION_ANYWHERE, FIELD(interval_ms), 0.1, 60000, "MS", "between probes (100)"},
    {"timeout-ms", OPTION_NUMBER, OPTION_ANYWHERE, FIELD(timeout_ms), 1, 60000, "MS",
     "a reply later than this is lost (1000)"},
    {"packet-bytes", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(packet_bytes), 64, 1500, "N",
     "size of the IP packet (100)"},
    {"protocol", OPTION_TEXT, OPTION_ANYWHERE, FIELD(protocol), 0, 0, "icmp|udp",
     "ICMP echo, or UDP echo to a sensor-responder (icmp)"},
    {"port", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(port), 1, 65535, "PORT", "of the sensor-responder (18300)"},
    {"key-file", OPTION_TEXT, OPTION_COMMAND_LINE, FIELD(key_file), 0, 0, "FILE",
     "shared keys, for udp ($CHART_SENSOR_KEY_FILE)"},
    {"declare", OPTION_FLAG, OPTION_ANYWHERE, FIELD(declare), 0, 0, NULL,
     "print the most bytes and time the run may take, send nothing"},
    {"json", OPTION_FLAG, OPTION_ANYWHERE, FIELD(json), 0, 0, NULL, "print JSON lines"},
    {"verbose", OPTION_FLAG, OPTION_ANYWHERE, FIELD(verbose), 0, 0, NULL, "also print every probe"},
    {"serve", OPTION_FLAG, OPTION_COMMAND_LINE, FIELD(serve), 0, 0, NULL,
     "answer JSON requests, one per line of standard input"},
};
const struct option_table PING_OPTIONS = {
    .program = "ping",
    .synopsis = "--destination ADDRESS [options] | --serve [options]",
    .description = "Measure round-trip time, jitter and loss with kernel timestamps.",
    .specs = SPECS,
    .count = sizeof(SPECS) / sizeof(SPECS[0]),
};

void ping_defaults(struct ping_parameters *parameters) {
    const char *key_file = getenv("CHART_SENSOR_KEY_FILE");

    *parameters = (struct ping_parameters){
        .protocol = "icmp",
        .port = WIRE_DEFAULT_PORT,
        .count = 10,
        .interval_ms = 100,
        .timeout_ms = 1000,
        .packet_bytes = 100,
    };
    if (key_file)
        snprintf(parameters->key_file, sizeof(parameters->key_file), "%s", key_file);
}

int ping_check(const struct ping_parameters *parameters, struct failure *failure) {
    bool udp = strcmp(parameters->protocol, "udp") == 0;

    if (!parameters->destination[0])
        return failure_set(failure, FAILURE_USAGE, "destination is missing");
    if (!udp && strcmp(parameters->protocol, "icmp") != 0)
        return failure_set(failure, FAILURE_USAGE, "protocol must be icmp or udp");
    if (udp && parameters->packet_bytes < WIRE_HEADER_BYTES + WIRE_IPV4_UDP_BYTES)
        return failure_set(failure, FAILURE_USAGE, "packet-bytes must be at least %u with udp",
                           WIRE_HEADER_BYTES + WIRE_IPV4_UDP_BYTES);
    if (udp && !parameters->key_file[0] && !parameters->declare)
        return failure_set(failure, FAILURE_USAGE, "--key-file is missing (udp probes are authenticated)");
    return 0;
}
