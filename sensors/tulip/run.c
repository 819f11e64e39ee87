/* One run of tulip; see tulip.h. */
#include <arpa/inet.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hop_trace.h"
#include "pacing.h"
#include "segments.h"
#include "tulip.h"

#define NS_PER_MS 1000000.0
#define SMALL_BYTES 60u
#define TRACE_QUERIES 2u
/* Tags behind those of the trace. */
#define FIRST_TAG (HOP_TTL_MAX * TRACE_QUERIES + 1u)

struct run {
    const struct tulip_parameters *parameters;
    struct record *record;
    struct hop_socket hop;
    struct hop_trace trace;
    size_t hops;
    int64_t origin_ns;
    struct tulip_group *groups; /* of hop 1 in all rounds, then hop 2 ... */
};

static struct hop_trace_settings trace_settings(const struct tulip_parameters *parameters) {
    return (struct hop_trace_settings){
        .max_hops = (unsigned)parameters->max_hops,
        .queries = TRACE_QUERIES,
        .interval_ms = parameters->interval_ms,
        .timeout_ms = parameters->timeout_ms,
        .packet_bytes = SMALL_BYTES,
    };
}

void tulip_declare(const struct tulip_parameters *parameters, uint64_t *ret_bytes, uint64_t *ret_duration_ms) {
    struct hop_trace_settings settings = trace_settings(parameters);
    double round_ms = (double)parameters->max_hops * parameters->interval_ms + parameters->lag_ms;
    uint64_t trace_ms;

    hop_trace_declare(&settings, ret_bytes, &trace_ms);
    *ret_bytes += parameters->rounds * parameters->max_hops * (2 * SMALL_BYTES + parameters->packet_bytes);
    *ret_duration_ms = trace_ms + (uint64_t)ceil((double)parameters->rounds * round_ms + parameters->timeout_ms);
}

static struct tulip_probe *probe_of(const struct run *run, unsigned number) {
    unsigned group = number / TULIP_GROUP;

    return &run->groups[group].probes[number % TULIP_GROUP];
}

static void listen_until(struct run *run, int64_t until_ns) {
    unsigned count = (unsigned)(run->hops * run->parameters->rounds) * TULIP_GROUP;
    struct hop_reply reply;
    int64_t at_ns;

    while (hop_socket_receive(&run->hop, until_ns, &reply, &at_ns)) {
        struct tulip_probe *probe;

        if (reply.tag < FIRST_TAG || reply.tag - FIRST_TAG >= count)
            continue;
        probe = probe_of(run, reply.tag - FIRST_TAG);
        if (!probe->sent || probe->answered)
            continue;
        probe->answered_us = (double)(at_ns - run->origin_ns) / 1e3;
        probe->answered = probe->answered_us - probe->sent_us <= run->parameters->timeout_ms * 1e3;
        probe->ip_id = reply.ip_id;
    }
}

static int send_group(struct run *run, size_t hop, size_t round, struct failure *failure) {
    unsigned first = (unsigned)(hop * run->parameters->rounds + round) * TULIP_GROUP;

    for (unsigned k = 0; k < TULIP_GROUP; k++) {
        size_t bytes = k == 1 ? run->parameters->packet_bytes : SMALL_BYTES;
        struct tulip_probe *probe = probe_of(run, first + k);
        int64_t sent_ns = hop_socket_send(&run->hop, (uint8_t)(hop + 1), (uint16_t)(FIRST_TAG + first + k), bytes);

        if (sent_ns < 0)
            return failure_from_errno(failure, (int)-sent_ns, run->parameters->common.destination);
        probe->sent = true;
        probe->sent_us = (double)(sent_ns - run->origin_ns) / 1e3;
    }
    return 0;
}

static int measure(struct run *run, struct failure *failure) {
    const struct tulip_parameters *parameters = run->parameters;

    for (size_t round = 0; round < parameters->rounds; round++) {
        for (size_t hop = 0; hop < run->hops; hop++) {
            if (send_group(run, hop, round, failure) < 0)
                return -1;
            listen_until(run, pacing_now_ns() + (int64_t)(parameters->interval_ms * NS_PER_MS));
        }
        listen_until(run, pacing_now_ns() +
                              (int64_t)((round + 1 < parameters->rounds ? parameters->lag_ms : parameters->timeout_ms) *
                                        NS_PER_MS));
    }
    return 0;
}

static cJSON *hop_to_json(const struct hop *hop, const struct tulip_hop *judged, unsigned distance) {
    cJSON *object = cJSON_CreateObject();
    char address[INET_ADDRSTRLEN];

    cJSON_AddNumberToObject(object, "distance", distance);
    if (hop->address.s_addr)
        cJSON_AddStringToObject(object, "address", inet_ntop(AF_INET, &hop->address, address, sizeof(address)));
    else
        cJSON_AddNullToObject(object, "address");
    cJSON_AddNumberToObject(object, "sent", judged->probes);
    cJSON_AddNumberToObject(object, "answered", judged->answers);
    if (judged->answers == 0)
        return object;
    cJSON_AddStringToObject(object, "method", judged->numbered ? "ip-id" : "ttl");
    cJSON_AddNumberToObject(object, "rtt_us", judged->rtt_us);
    cJSON_AddNumberToObject(object, "loss_ratio", judged->loss_ratio);
    cJSON_AddNumberToObject(object, "round_trip_loss_ratio", judged->round_trip_loss_ratio);
    cJSON_AddNumberToObject(object, "reordering_ratio", judged->reordering_ratio);
    cJSON_AddNumberToObject(object, "queuing_us", judged->queuing_us);
    return object;
}

static int conclude(const struct run *run, cJSON **ret_details, struct failure *failure) {
    struct tulip_hop judged[TULIP_HOPS_MAX];
    const struct tulip_hop *last = NULL;
    struct record *record = run->record;
    cJSON *details = cJSON_CreateObject();
    cJSON *hops = cJSON_AddArrayToObject(details, "hops");
    struct tulip_blame blame;

    *ret_details = details;
    for (size_t i = 0; i < run->hops; i++) {
        tulip_judge_hop(run->groups + i * run->parameters->rounds, run->parameters->rounds, &judged[i]);
        cJSON_AddItemToArray(hops, hop_to_json(&run->trace.hops[i], &judged[i], (unsigned)i + 1));
        record->probes_sent += judged[i].probes;
        record->probes_lost += judged[i].probes - judged[i].answers;
        if (judged[i].answers)
            last = &judged[i];
    }
    if (!last)
        return failure_set(failure, FAILURE_UNREACHABLE, "%.200s: no hop answers any more",
                           run->parameters->common.destination);
    blame = tulip_judge_path(judged, run->hops);
    cJSON_AddBoolToObject(details, "reached", run->trace.reached);
    cJSON_AddStringToObject(details, "method", last->numbered ? "ip-id" : "ttl");
    record_add(record, "loss_ratio", last->loss_ratio, "ratio");
    record_add(record, "round_trip_loss_ratio", last->round_trip_loss_ratio, "ratio");
    record_add(record, "reordering_ratio", last->reordering_ratio, "ratio");
    record_add(record, "queuing_us", last->queuing_us, "us");
    /* 0: no segment stands out. */
    record_add(record, "loss_hop", blame.loss_hop, "hops");
    record_add(record, "reordering_hop", blame.reordering_hop, "hops");
    record_add(record, "queuing_hop", blame.queuing_hop, "hops");
    return 0;
}

static int diagnose(struct run *run, cJSON **ret_details, struct failure *failure) {
    struct hop_trace_settings settings = trace_settings(run->parameters);
    int error = hop_trace_run(&run->hop, &settings, &run->trace);

    if (error < 0)
        return failure_from_errno(failure, -error, run->parameters->common.destination);
    run->hops = run->trace.count < TULIP_HOPS_MAX ? run->trace.count : TULIP_HOPS_MAX;
    if (run->hops == 0)
        return failure_set(failure, FAILURE_UNREACHABLE, "%.200s: no hop answers", run->parameters->common.destination);
    run->groups = calloc(run->hops * run->parameters->rounds, sizeof(*run->groups));
    if (!run->groups)
        return failure_set(failure, FAILURE_OTHER, "out of memory");
    run->origin_ns = pacing_wall_ns();
    if (measure(run, failure) < 0)
        return -1;
    return conclude(run, ret_details, failure);
}

int tulip_run(const struct tulip_parameters *parameters, struct record *record, cJSON **ret_details,
              struct failure *failure) {
    enum hop_protocol protocol = strcmp(parameters->protocol, "icmp") == 0 ? HOP_ICMP : HOP_UDP;
    struct run *run = calloc(1, sizeof(*run));
    int result;

    if (!run)
        return failure_set(failure, FAILURE_OTHER, "out of memory");
    run->parameters = parameters;
    run->record = record;
    record->started_at_us = pacing_wall_ns() / 1000;
    result = hop_socket_open(&run->hop, parameters->common.destination, protocol,
                             (uint16_t)parameters->destination_port, failure);
    if (result == 0) {
        result = diagnose(run, ret_details, failure);
        hop_socket_close(&run->hop);
    }
    record->probe_bytes = run->hop.bytes;
    record->ended_at_us = pacing_wall_ns() / 1000;
    free(run->groups);
    free(run);
    return result;
}
