/* Quick-Start at the ends of TCP connections (RFC 4782, section 4): a connection that begins here, or sends again after
 * an idle time, asks for the node's rate; the other end returns in a TCP option what arrived of it; what all routers
 * approved paces a round trip. The classifier writes requests, reports and responses into packets of the node's
 * processes and sees those that arrive on its links; attach and trinity give sockets the rate and take it away. */
#pragma once

#include "select.bpf.h"

#include "quick_start_maps.h"

/* A function of its own, which the verifier looks at once and not on every path to it. */
#define QS_FUNCTION __attribute__((noinline, weak))
#define QS_FLOWS_MAX 16384
#define IPV4_BYTES 20
#define IPV6_BYTES 40
#define IPV6_HOP_BY_HOP 0
#define TCP_BYTES 20
#define TCP_FLAG_SYN 0x02
#define TCP_FLAG_RST 0x04
#define TCP_FLAG_ACK 0x10

/* Connections that asked, as their sender sees them (LRU hash). Made by the classifier, answered by it and attach. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, QS_FLOWS_MAX);
    __type(key, struct qs_flow_key);
    __type(value, struct qs_flow);
} qs_flows SEC(".maps");

/* What became of requests of this node's processes (array). Writers: the classifier and attach. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, CHART_QS_COUNTS);
    __type(key, __u32);
    __type(value, __u64);
} qs_counts SEC(".maps");

static __always_inline void qs_count(__u32 which) {
    __u64 *count = bpf_map_lookup_elem(&qs_counts, &which);
    if (count)
        __sync_fetch_and_add(count, 1);
}

/* What the response to a connection's request approves, bits per second; 0: nothing that can be believed. NULL: none
 * came. The report is due in any case. */
static __always_inline __u64 qs_take_answer(struct qs_flow *flow, const __u8 *response) {
    flow->state = QS_ANSWERED;
    flow->approved = 0;
    if (!response)
        return 0;
    enum chart_qs_answer answer = chart_qs_check(response, &flow->asked);
    if (answer == CHART_QS_LIE) {
        flow->lied_to = 1;
        qs_count(CHART_QS_COUNT_LIES);
    }
    if (answer != CHART_QS_VALID)
        return 0;
    flow->approved = (__u8)chart_qs_rate(response);
    if (flow->approved)
        qs_count(CHART_QS_COUNT_APPROVED);
    return chart_qs_bps(flow->approved);
}
