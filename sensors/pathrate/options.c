/* Parameters of pathrate; see pathrate.h. */
#include "exchange.h"
#include "modes.h"
#include "pathrate.h"
#include "sensor.h"

#define FIELD(name) offsetof(struct pathrate_parameters, name)
static const struct option_spec SPECS[] = {
    {"trains", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(trains), 10, PATHRATE_TRAINS_MAX, "N",
     "short trains, which show the capacity (80)"},
    {"length", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(length), 0, 64, "N",
     "packets of a short train (2 where they are 100 us apart, more on faster paths)"},
    {"long-trains", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(long_trains), 1, 50, "N",
     "long trains, whose rate is below the capacity (8)"},
    {"long-length", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(long_length), 10, TRAIN_PACKETS_MAX - 1, "N",
     "packets of a long train (24)"},
    {"packet-bytes", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(packet_bytes), 128, 1500, "N",
     "size of the IP packets (1500)"},
    {"interval-ms", OPTION_NUMBER, OPTION_ANYWHERE, FIELD(interval_ms), 1, 10000, "MS",
     "mean time from train to train, at least (30)"},
    {"timeout-ms", OPTION_NUMBER, OPTION_ANYWHERE, FIELD(timeout_ms), 10, 60000, "MS",
     "for the first answer of the responder (1200)"},
    {"limit-ms", OPTION_NUMBER, OPTION_ANYWHERE, FIELD(limit_ms), 100, 600000, "MS",
     "no train starts that would end later (10000)"},
    {"limit-bytes", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(limit_bytes), 20000, 1e9, "N",
     "no train starts that would send more (1500000)"},
};
const struct option_table PATHRATE_OPTIONS = {
    .program = "pathrate",
    .synopsis = "HOST [--key-file FILE] [options] | --serve --key-file FILE [options]",
    .description = "Measure the capacity of the path to a host, whatever else uses it.",
    .specs = SPECS,
    .count = sizeof(SPECS) / sizeof(SPECS[0]),
    .common = OPTIONS_TWO_ENDED,
};

void pathrate_defaults(struct pathrate_parameters *parameters) {
    *parameters = (struct pathrate_parameters){
        .trains = 80,
        .long_trains = 8,
        .long_length = 24,
        .packet_bytes = 1500,
        .interval_ms = 30,
        .timeout_ms = 1200,
        .limit_ms = 10000,
        .limit_bytes = 1500000,
    };
    options_common_defaults(&parameters->common);
}

int pathrate_check(const struct pathrate_parameters *parameters, struct failure *failure) {
    if (parameters->length == 1)
        return failure_set(failure, FAILURE_USAGE, "length must be 0 (by rate) or at least 2");
    return sensor_check_peer(&parameters->common, failure);
}
