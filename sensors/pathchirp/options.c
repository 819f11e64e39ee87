/* Parameters of pathchirp; see chirp.h. */
#include <math.h>

#include "chirp.h"
#include "sensor.h"
#include "wire.h"

#define FIELD(name) offsetof(struct chirp_parameters, name)
static const struct option_spec SPECS[] = {
    {"low-bps", OPTION_NUMBER, OPTION_ANYWHERE, FIELD(low_bps), 1e4, 1e10, "BPS",
     "lowest rate of the search (1e6); below it the range adapts"},
    {"high-bps", OPTION_NUMBER, OPTION_ANYWHERE, FIELD(high_bps), 1e4, 1e10, "BPS", "highest rate ever sent (1e9)"},
    {"spread", OPTION_NUMBER, OPTION_ANYWHERE, FIELD(spread), 1.05, 2, "FACTOR",
     "between successive rates of a chirp (1.2)"},
    {"decrease-factor", OPTION_NUMBER, OPTION_ANYWHERE, FIELD(decrease_factor), 1.05, 10, "F",
     "an excursion ends when the queue fell by it (1.5)"},
    {"busy-period", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(busy_period), 3, 50, "L",
     "shorter excursions, in packets, do not count (5)"},
    {"smoothing", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(smoothing), 1, CHIRP_SMOOTHING_MAX, "N",
     "estimates averaged (11)"},
    {"packet-bytes", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(packet_bytes), 128, 1500, "N",
     "size of the IP packet (by rate, 576 to 1400)"},
    {"interval-ms", OPTION_NUMBER, OPTION_ANYWHERE, FIELD(interval_ms), 1, 10000, "MS",
     "from chirp to chirp, at least (50)"},
    {"timeout-ms", OPTION_NUMBER, OPTION_ANYWHERE, FIELD(timeout_ms), 10, 60000, "MS",
     "for the first answer of the responder (1200)"},
    {"limit-ms", OPTION_NUMBER, OPTION_ANYWHERE, FIELD(limit_ms), 100, 600000, "MS",
     "no chirp starts that would end later (4500)"},
    {"limit-bytes", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(limit_bytes), 20000, 1e9, "N",
     "no chirp starts that would send more (1000000)"},
};
const struct option_table CHIRP_OPTIONS = {
    .program = "pathchirp",
    .synopsis = "HOST [--key-file FILE] [options] | --serve --key-file FILE [options]",
    .description = "Measure the available bandwidth of the path to a host.",
    .specs = SPECS,
    .count = sizeof(SPECS) / sizeof(SPECS[0]),
    .common = OPTIONS_TWO_ENDED,
};

void chirp_defaults(struct chirp_parameters *parameters) {
    *parameters = (struct chirp_parameters){
        .low_bps = 1e6,
        .high_bps = 1e9,
        .spread = 1.2,
        .decrease_factor = 1.5,
        .busy_period = 5,
        .smoothing = 11,
        .interval_ms = 50,
        .timeout_ms = 1200,
        .limit_ms = 4500,
        .limit_bytes = 1000000,
    };
    options_common_defaults(&parameters->common);
}

int chirp_check(const struct chirp_parameters *parameters, struct failure *failure) {
    if (parameters->high_bps < 5 * parameters->low_bps)
        return failure_set(failure, FAILURE_USAGE, "high-bps must be at least 5 times low-bps");
    if (parameters->packet_bytes && parameters->packet_bytes < WIRE_HEADER_BYTES + WIRE_IPV6_UDP_BYTES)
        return failure_set(failure, FAILURE_USAGE, "packet-bytes is too small");
    return sensor_check_peer(&parameters->common, failure);
}
