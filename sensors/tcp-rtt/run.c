/* One run of tcp-rtt; see tcp_rtt.h. */
#include <math.h>

#include "connections.h"
#include "pacing.h"
#include "tcp_rtt.h"

#define FIELD(name) offsetof(struct tcp_rtt_parameters, name)
static const struct option_spec SPECS[] = {
    {"duration-ms", OPTION_NUMBER, OPTION_ANYWHERE, FIELD(duration_ms), 1, 600000, "MS",
     "between the two readings that loss is told from (1000)"},
};
const struct option_table TCP_RTT_OPTIONS = {
    .program = "tcp-rtt",
    .synopsis = "[--destination ADDRESS] [options] | --serve [options]",
    .description = "Tell the round-trip time and loss of live TCP connections of this host. Nothing is sent.",
    .specs = SPECS,
    .count = sizeof(SPECS) / sizeof(SPECS[0]),
    .common = OPTIONS_ONE_ENDED,
};

void tcp_rtt_defaults(struct tcp_rtt_parameters *parameters) {
    *parameters = (struct tcp_rtt_parameters){.duration_ms = 1000};
    options_common_defaults(&parameters->common);
}

int tcp_rtt_check(const struct tcp_rtt_parameters *parameters, struct failure *failure) {
    (void)parameters;
    (void)failure;
    return 0;
}

void tcp_rtt_declare(const struct tcp_rtt_parameters *parameters, uint64_t *ret_bytes, uint64_t *ret_duration_ms) {
    *ret_bytes = 0;
    *ret_duration_ms = (uint64_t)ceil(parameters->duration_ms) + 100;
}

static int conclude(const struct tcp_rtt_parameters *parameters, const struct connections_summary *summary,
                    struct record *record, struct failure *failure) {
    if (summary->measured == 0)
        return failure_set(failure, FAILURE_OTHER, "no established TCP connection%s%.200s has a round-trip time",
                           parameters->common.destination[0] ? " to " : "", parameters->common.destination);
    record_add(record, "rtt_us", summary->rtt_us, "us");
    if (summary->rtt_min_us > 0)
        record_add(record, "rtt_min_us", summary->rtt_min_us, "us");
    if (summary->segments)
        record_add(record, "loss_ratio", fmin(1, (double)summary->repeated / (double)summary->segments), "ratio");
    record_add(record, "connections", (double)summary->measured, "count");
    return 0;
}

int tcp_rtt_run(const struct tcp_rtt_parameters *parameters, struct record *record, struct failure *failure) {
    struct connections before, after;
    union address remote;
    bool chosen = parameters->common.destination[0];
    struct connections_summary summary;
    int result;

    if (chosen && address_resolve(parameters->common.destination, 0, &remote, failure) < 0)
        return -1;
    record->started_at_us = pacing_wall_ns() / 1000;
    if (connections_read(chosen ? &remote : NULL, &before, failure) < 0)
        return -1;
    pacing_wait_until(pacing_now_ns() + (int64_t)(parameters->duration_ms * 1e6));
    if (connections_read(chosen ? &remote : NULL, &after, failure) < 0) {
        connections_free(&before);
        return -1;
    }
    record->ended_at_us = pacing_wall_ns() / 1000;
    summary = connections_summarise(&before, &after);
    result = conclude(parameters, &summary, record, failure);
    connections_free(&before);
    connections_free(&after);
    return result;
}
