/* One run of traceroute; see trace.h. */
#include <arpa/inet.h>
#include <string.h>

#include "pacing.h"
#include "paths.h"
#include "statistics.h"
#include "trace.h"

static struct hop_trace_settings settings_of(const struct trace_parameters *parameters) {
    return (struct hop_trace_settings){
        .max_hops = (unsigned)parameters->max_hops,
        .queries = (unsigned)parameters->queries,
        .interval_ms = parameters->interval_ms,
        .timeout_ms = parameters->timeout_ms,
        .packet_bytes = parameters->packet_bytes,
    };
}

void trace_declare(const struct trace_parameters *parameters, uint64_t *ret_bytes, uint64_t *ret_duration_ms) {
    struct hop_trace_settings settings = settings_of(parameters);

    hop_trace_declare(&settings, ret_bytes, ret_duration_ms);
}

static cJSON *hop_to_json(const struct hop *hop, unsigned distance) {
    cJSON *object = cJSON_CreateObject();
    char address[INET_ADDRSTRLEN];

    cJSON_AddNumberToObject(object, "distance", distance);
    if (hop->address.s_addr)
        cJSON_AddStringToObject(object, "address", inet_ntop(AF_INET, &hop->address, address, sizeof(address)));
    else
        cJSON_AddNullToObject(object, "address");
    if (hop->several)
        cJSON_AddTrueToObject(object, "several_answer");
    cJSON_AddNumberToObject(object, "sent", hop->sent);
    cJSON_AddNumberToObject(object, "answered", hop->answered);
    if (hop->answered)
        cJSON_AddNumberToObject(object, "rtt_us", statistics_mean(hop->rtts_us, hop->answered));
    return object;
}

static void add_metrics(const struct hop_trace *trace, struct record *record) {
    record_add(record, "hop_count", trace->count, "hops");
    if (trace->reached) {
        const struct hop *last = &trace->hops[trace->count - 1];

        record_add(record, "rtt_us", statistics_mean(last->rtts_us, last->answered), "us");
    }
}

int trace_report(const struct trace_parameters *parameters, const struct hop_trace *trace, struct record *record,
                 cJSON **ret_details, struct failure *failure) {
    cJSON *details = cJSON_CreateObject();
    cJSON *hops = cJSON_AddArrayToObject(details, "hops");
    enum path_change change = PATH_UNKNOWN;

    for (unsigned i = 0; i < trace->count; i++)
        cJSON_AddItemToArray(hops, hop_to_json(&trace->hops[i], i + 1));
    cJSON_AddBoolToObject(details, "reached", trace->reached);
    *ret_details = details;
    for (unsigned i = 0; i < HOP_TTL_MAX; i++) {
        record->probes_sent += trace->hops[i].sent;
        record->probes_lost += trace->hops[i].sent - trace->hops[i].answered;
    }
    if (!trace->reached && (!parameters->partial || trace->count == 0)) {
        if (trace->unreachable >= 0)
            return failure_set(failure, FAILURE_UNREACHABLE, "%.200s: hop %u says that it goes no further (code %d)",
                               parameters->common.destination, trace->count, trace->unreachable);
        return failure_set(failure, FAILURE_UNREACHABLE, "%.200s does not answer; the last hop that did is %u",
                           parameters->common.destination, trace->count);
    }
    add_metrics(trace, record);
    change = paths_note(parameters->common.destination, trace);
    if (change != PATH_UNKNOWN)
        record_add(record, "path_changed", change == PATH_CHANGED, "count");
    return 0;
}

int trace_run(const struct trace_parameters *parameters, struct record *record, cJSON **ret_details,
              struct failure *failure) {
    enum hop_protocol protocol = strcmp(parameters->protocol, "icmp") == 0 ? HOP_ICMP : HOP_UDP;
    struct hop_trace_settings settings = settings_of(parameters);
    struct hop_trace trace;
    struct hop_socket hop;
    int error;

    record->started_at_us = pacing_wall_ns() / 1000;
    if (hop_socket_open(&hop, parameters->common.destination, protocol, (uint16_t)parameters->destination_port,
                        failure) < 0)
        return -1;
    error = hop_trace_run(&hop, &settings, &trace);
    record->probe_bytes = hop.bytes;
    record->ended_at_us = pacing_wall_ns() / 1000;
    hop_socket_close(&hop);
    if (error < 0)
        return failure_from_errno(failure, -error, parameters->common.destination);
    return trace_report(parameters, &trace, record, ret_details, failure);
}
