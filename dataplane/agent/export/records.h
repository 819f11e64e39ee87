/* Flow records for accounting (chart.flow-record.v1): one when a flow ends and one every minute while it lasts.
 *
 * Fed with the datapath's walk of the node's sending flows (datapath_flows, once a second). A flow that a walk no
 * longer finds has ended; its last figures are those of the walk before, at most a second old. */
#pragma once

#include "core/strmap.h"
#include "grants/datapath.h"
#include "streams/messages.h"

#define RECORDS_INTERVAL_US 60000000ll
/* Flows without a grant that are recorded at a time; who comes when there are so many is left out. */
#define RECORDS_PLAIN_MAX 256

struct records {
    const char *node;
    struct strmap flows;
    uint64_t round;
    size_t n_plain;
    /* Takes a finished record; an error keeps nothing back, accounting is best effort. */
    int (*sink)(const struct messages_flow_record *record, void *context);
    void *context;
};

/* One walk. 0 or -ENOMEM. */
int records_walk(struct records *records, const struct datapath_flow *flows, size_t n_flows, int64_t now_us);
/* The agent stops: a record that is not final for every flow that goes on. */
void records_close(struct records *records, int64_t now_us);
/* Split "10.0.0.1:5001" or "[fe80::1]:5001". 0 or -EINVAL. */
int records_split(const char *endpoint, char *ret_address, size_t size, uint32_t *ret_port);
