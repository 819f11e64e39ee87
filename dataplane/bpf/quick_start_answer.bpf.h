/* What sockets do: a listener returns what arrived of a request, a connection that began here takes what was approved
 * (RFC 4782, sections 4.2 to 4.4). */
#pragma once

#include "quick_start_host.bpf.h"

/* The rate is over after a round trip, or this. */
#define QS_RATE_MAX_NS 3000000000ull
#define QS_SYN_ACK 0x12u /* TCP's flags */

struct qs_header {
    __u8 octets[IPV4_HEADER_MAX + 4];
};

/* Of an IPv4 header: octets to the request, or 0. */
QS_FUNCTION int request_in(const struct qs_header *ip) {
    __u32 at = IPV4_BYTES;
    if (!ip || ip->octets[0] >> 4 != 4)
        return 0;
    const __u8 *header = ip->octets;
    __u32 end = (header[0] & 0xfu) * 4;
    for (int i = 0; i < OPTIONS_MAX; i++) {
        if (at + CHART_QS_OCTETS > end || at > IPV4_HEADER_MAX - CHART_QS_OCTETS)
            return 0;
        const __u8 *option = header + at;
        if (option[0] == IPV4_NOP) {
            at++;
            continue;
        }
        if (chart_qs_kind(option, 0) == CHART_QS_REQUEST)
            return (int)at;
        if (option[0] == IPV4_END || option[0] == CHART_QS_IPV4 || option[1] < 2)
            return 0;
        at += option[1];
    }
    return 0;
}

/* The response to the SYN that this SYN-ACK answers; false: there is none. */
static __always_inline bool quick_start_response(struct bpf_sock_ops *skops, __u8 *response) {
    struct qs_header ip = {};
    /* The kernel copies what fits and says that there is more: TCP's header. */
    bpf_getsockopt(skops, SOL_TCP, TCP_BPF_SYN_IP, ip.octets, IPV4_HEADER_MAX);
    __u32 at = (__u32)request_in(&ip);
    if (!at || at > IPV4_HEADER_MAX - CHART_QS_OCTETS)
        return false;
    const __u8 *option = ip.octets + at;
    response[0] = QS_TCP_KIND;
    response[1] = QS_TCP_OCTETS;
    response[2] = (__u8)chart_qs_rate(option);
    response[3] = (__u8)(ip.octets[offsetof(struct iphdr, ttl)] - option[3]);
    __builtin_memcpy(response + 4, option + 4, 4);
    return true;
}

/* Whatever the policy says now: a listener outlives it. It is asked once for each connection. */
static __always_inline void quick_start_listen(struct bpf_sock_ops *skops) {
    bpf_sock_ops_cb_flags_set(skops, skops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
}

/* A connection that a listener made has its flags, which cost a call with every packet. */
static __always_inline void quick_start_accepted(struct bpf_sock_ops *skops) {
    if (skops->bpf_sock_ops_cb_flags & BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG)
        bpf_sock_ops_cb_flags_set(skops, skops->bpf_sock_ops_cb_flags & ~BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
}

static __always_inline bool answers_syn(const struct bpf_sock_ops *skops, const struct chart_node_config *config) {
    return config->quick_start_rate && config->enforce && (skops->skb_tcp_flags & QS_SYN_ACK) == QS_SYN_ACK &&
           skops->args[0] != BPF_WRITE_HDR_TCP_SYNACK_COOKIE;
}

static __always_inline void quick_start_reserve(struct bpf_sock_ops *skops, const struct chart_node_config *config) {
    __u8 response[QS_TCP_OCTETS];
    if (answers_syn(skops, config) && quick_start_response(skops, response))
        bpf_reserve_hdr_opt(skops, QS_TCP_OCTETS, 0);
}

static __always_inline void quick_start_write(struct bpf_sock_ops *skops, const struct chart_node_config *config) {
    __u8 response[QS_TCP_OCTETS];
    if (answers_syn(skops, config) && quick_start_response(skops, response))
        bpf_store_hdr_opt(skops, response, sizeof(response), 0);
}

/* What was approved of a connection's request, bits per second; 0: it asked for none, or nothing that can be believed
 * came back: not all routers took part, or the nonce says that somebody reports more than arrived. */
static __always_inline __u64 quick_start_approved(struct bpf_sock_ops *skops, const struct flow_address *address) {
    struct qs_flow_key key = {.source_port = address->source_port, .destination_port = address->destination_port};
    __u8 response[QS_TCP_OCTETS] = {QS_TCP_KIND};
    __builtin_memcpy(key.source, address->source, sizeof(key.source));
    __builtin_memcpy(key.destination, address->destination, sizeof(key.destination));
    struct qs_flow *flow = bpf_map_lookup_elem(&qs_flows, &key);
    if (!flow || flow->state != QS_ASKED)
        return 0;
    flow->state = QS_ANSWERED;
    if (bpf_load_hdr_opt(skops, response, sizeof(response), 0) != QS_TCP_OCTETS)
        return 0;
    __u32 rate = response[2] & 0xf, covered = (1u << 2 * rate) - 1;
    if (response[3] != flow->ttl_difference || rate > flow->asked ||
        ((chart_qs_nonce(response) ^ flow->nonce) & covered))
        return 0;
    flow->approved = (__u8)rate;
    return chart_qs_bps(rate);
}
