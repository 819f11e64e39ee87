/* Flow records for accounting (chart.flow-record.v1): one when a flow ends and one every minute while it lasts.
 *
 * Fed with the datapath's walk of the node's sending flows (datapath_flows, once a second). A flow that a walk no
 * longer finds has ended; its last figures are those of the walk before, at most a second old. */
#pragma once

#include "core/strmap.h"
#include "grants/datapath.h"

#define RECORDS_INTERVAL_US 60000000ll
/* Flows without a grant that are recorded at a time; who comes when there are so many is left out. */
#define RECORDS_PLAIN_MAX 256

/* As chart.v1.FlowRecord; the strings are borrowed for the call of the sink. */
struct flow_record {
    const char *node;
    const char *request_id;
    const char *source_address;
    const char *destination_address;
    uint32_t source_port;
    uint32_t destination_port;
    int64_t started_at_us;
    int64_t ended_at_us;
    uint64_t sent_bytes;
    uint64_t delivered_bytes;
    uint64_t retransmitted_bytes;
    uint32_t min_rtt_us;
    uint8_t dscp;
    /* Approved by Quick-Start last; 0: nothing. */
    uint64_t quick_start_bps;
    bool final;
    /* Since the record before: packets, and octets with the headers of IP and TCP. */
    int64_t since_us;
    uint64_t new_packets;
    uint64_t new_bytes;
};

struct records {
    const char *node;
    struct strmap flows;
    uint64_t round;
    size_t n_plain;
    /* Takes a finished record; an error keeps nothing back, accounting is best effort. */
    int (*sink)(const struct flow_record *record, void *context);
    void *context;
};

/* One walk. 0 or -ENOMEM. */
int records_walk(struct records *records, const struct datapath_flow *flows, size_t n_flows, int64_t now_us);
/* The agent stops: a record that is not final for every flow that goes on. */
void records_close(struct records *records, int64_t now_us);
/* Split "10.0.0.1:5001" or "[fe80::1]:5001". 0 or -EINVAL. */
int records_split(const char *endpoint, char *ret_address, size_t size, uint32_t *ret_port);
