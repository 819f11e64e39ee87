/* Flow records; see records.h. */
#include "export/records.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_LEN 24
#define ADDRESS_LEN 64
#define IPV4_HEADER 20
#define IPV6_HEADER 40
/* The kernel counts retransmitted packets; a full one carries this much. */
#define PAYLOAD_BYTES 1448

struct flow {
    struct datapath_flow last;
    /* As the record before had them. */
    uint64_t told_bytes;
    uint32_t told_packets;
    int64_t started_at_us;
    int64_t seen_at_us;
    int64_t told_at_us;
    uint64_t round;
    bool plain;
};

int records_split(const char *endpoint, char *ret_address, size_t size, uint32_t *ret_port) {
    const char *colon = strrchr(endpoint, ':');
    const char *start = endpoint;
    size_t length;
    unsigned long port;
    char *end;

    if (!colon || colon == endpoint)
        return -EINVAL;
    length = (size_t)(colon - endpoint);
    if (*start == '[' && colon[-1] == ']') {
        start++;
        length -= 2;
    }
    port = strtoul(colon + 1, &end, 10);
    if (end == colon + 1 || *end || port > 65535 || length == 0 || length >= size)
        return -EINVAL;
    memcpy(ret_address, start, length);
    ret_address[length] = '\0';
    *ret_port = (uint32_t)port;
    return 0;
}

static void tell(struct records *records, struct flow *flow, int64_t now_us, bool final) {
    char source[ADDRESS_LEN] = "", destination[ADDRESS_LEN] = "";
    struct flow_record record = {.node = records->node,
                                 .request_id = flow->last.request_id,
                                 .source_address = source,
                                 .destination_address = destination,
                                 .started_at_us = flow->started_at_us,
                                 .ended_at_us = final ? flow->seen_at_us : now_us,
                                 .sent_bytes = flow->last.sent_bytes,
                                 .delivered_bytes = flow->last.delivered_bytes,
                                 .retransmitted_bytes = flow->last.retransmitted_packets * PAYLOAD_BYTES,
                                 .min_rtt_us = flow->last.min_rtt_us,
                                 .dscp = flow->last.dscp,
                                 .quick_start_bps = flow->last.quick_start_bps,
                                 .final = final,
                                 .since_us = flow->told_at_us};
    uint32_t header_bytes = flow->last.header_bytes + (flow->last.local[0] == '[' ? IPV6_HEADER : IPV4_HEADER);

    /* The kernel's count of packets has 32 bits. */
    record.new_packets = flow->last.sent_packets - flow->told_packets;
    record.new_bytes = flow->last.sent_bytes - flow->told_bytes + record.new_packets * header_bytes;
    flow->told_packets = flow->last.sent_packets;
    flow->told_bytes = flow->last.sent_bytes;
    flow->told_at_us = now_us;
    if (records_split(flow->last.local, source, sizeof(source), &record.source_port) == 0 &&
        records_split(flow->last.remote, destination, sizeof(destination), &record.destination_port) == 0)
        records->sink(&record, records->context);
}

struct sweep {
    struct records *records;
    int64_t now_us;
};

static int sweep_flow(const char *key, void *value, void *context) {
    const struct sweep *sweep = context;
    struct flow *flow = value;

    (void)key;
    if (flow->round != sweep->records->round) {
        tell(sweep->records, flow, sweep->now_us, true);
        sweep->records->n_plain -= flow->plain;
        free(flow);
        return 1;
    }
    if (sweep->now_us >= flow->told_at_us + RECORDS_INTERVAL_US)
        tell(sweep->records, flow, sweep->now_us, false);
    return 0;
}

int records_walk(struct records *records, const struct datapath_flow *flows, size_t n_flows, int64_t now_us) {
    struct sweep sweep = {.records = records, .now_us = now_us};
    char key[KEY_LEN];

    records->round++;
    for (size_t i = 0; i < n_flows; i++) {
        bool plain = datapath_flow_is_plain(&flows[i]);
        struct flow *flow;

        if (!flows[i].sending)
            continue;
        snprintf(key, sizeof(key), "%" PRIu64, flows[i].cookie);
        flow = strmap_get(&records->flows, key);
        if (!flow && plain && records->n_plain >= RECORDS_PLAIN_MAX)
            continue;
        if (!flow) {
            flow = calloc(1, sizeof(*flow));
            if (!flow || strmap_put(&records->flows, key, flow, NULL)) {
                free(flow);
                return -ENOMEM;
            }
            flow->started_at_us = flow->told_at_us = now_us;
        }
        records->n_plain += plain;
        records->n_plain -= flow->plain;
        flow->plain = plain;
        flow->last = flows[i];
        flow->seen_at_us = now_us;
        flow->round = records->round;
    }
    strmap_sweep(&records->flows, sweep_flow, &sweep);
    return 0;
}

static int close_flow(const char *key, void *value, void *context) {
    const struct sweep *sweep = context;

    (void)key;
    tell(sweep->records, value, sweep->now_us, false);
    free(value);
    return 1;
}

void records_close(struct records *records, int64_t now_us) {
    struct sweep sweep = {.records = records, .now_us = now_us};

    strmap_sweep(&records->flows, close_flow, &sweep);
    strmap_free(&records->flows, free);
}
