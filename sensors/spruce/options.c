/* Parameters of spruce; see spruce.h. */
#include "estimate.h"
#include "sensor.h"
#include "spruce.h"
#include "wire.h"

#define FIELD(name) offsetof(struct spruce_parameters, name)
static const struct option_spec SPECS[] = {
    {"capacity-bps", OPTION_NUMBER, OPTION_ANYWHERE, FIELD(capacity_bps), 1e4, 1e10, "BPS",
     "capacity of the bottleneck, as pathrate finds it"},
    {"pairs", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(pairs), 10, SPRUCE_PAIRS_MAX, "N", "pairs in the run (150)"},
    {"gaps", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(gaps), 0, 32, "N",
     "packets of a pair after the first (one per 25 Mb/s)"},
    {"singles", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(singles), 0, SPRUCE_SINGLES_MAX, "N",
     "small packets per pair that look whether a slow link is idle (4)"},
    {"packet-bytes", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(packet_bytes), 128, 1500, "N",
     "size of the IP packets of pairs (1500)"},
    {"share", OPTION_NUMBER, OPTION_ANYWHERE, FIELD(share), 0.001, 0.2, "RATIO",
     "of the capacity that probes may take while they run (0.05)"},
    {"interval-ms", OPTION_NUMBER, OPTION_ANYWHERE, FIELD(interval_ms), 1, 10000, "MS",
     "mean time from pair to pair, at least (30)"},
    {"timeout-ms", OPTION_NUMBER, OPTION_ANYWHERE, FIELD(timeout_ms), 10, 60000, "MS",
     "for the first answer of the responder (1200)"},
    {"limit-ms", OPTION_NUMBER, OPTION_ANYWHERE, FIELD(limit_ms), 100, 600000, "MS",
     "no pair starts that would end later (15000)"},
    {"limit-bytes", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(limit_bytes), 20000, 1e9, "N",
     "no pair starts that would send more (3000000)"},
};
const struct option_table SPRUCE_OPTIONS = {
    .program = "spruce",
    .synopsis = "HOST --capacity-bps BPS [--key-file FILE] [options] | --serve --key-file FILE [options]",
    .description = "Measure the available bandwidth of the path to a host, given its capacity.",
    .specs = SPECS,
    .count = sizeof(SPECS) / sizeof(SPECS[0]),
    .common = OPTIONS_TWO_ENDED,
};

void spruce_defaults(struct spruce_parameters *parameters) {
    *parameters = (struct spruce_parameters){
        .pairs = 150,
        .singles = 4,
        .packet_bytes = 1500,
        .share = 0.05,
        .interval_ms = 30,
        .timeout_ms = 1200,
        .limit_ms = 15000,
        .limit_bytes = 3000000,
    };
    options_common_defaults(&parameters->common);
}

int spruce_check(const struct spruce_parameters *parameters, struct failure *failure) {
    if (parameters->capacity_bps <= 0)
        return failure_set(failure, FAILURE_USAGE,
                           "--capacity-bps is missing: the capacity of the path, which pathrate measures");
    return sensor_check_peer(&parameters->common, failure);
}
