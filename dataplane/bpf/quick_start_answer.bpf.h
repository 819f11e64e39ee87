/* What a connection that was just set up begins with: the response to the request in its SYN or SYN-ACK, which came
 * with the SYN-ACK or the acknowledgement that ends the handshake (RFC 4782, sections 4.2 to 4.4). */
#pragma once

#include "quick_start_host.bpf.h"

/* What was approved, bits per second; 0: it asked for none, nothing that can be believed came back, or no more than the
 * socket's own window carries. */
static __always_inline __u64 quick_start_approved(struct bpf_sock_ops *skops, const struct flow_address *address,
                                                  const struct tcp_sock *tp, __u64 rtt_ns) {
    struct qs_flow_key key = {.source_port = address->source_port, .destination_port = address->destination_port};
    __u8 response[CHART_QS_TCP_OCTETS] = {CHART_QS_TCP_KIND};
    __builtin_memcpy(key.source, address->source, sizeof(key.source));
    __builtin_memcpy(key.destination, address->destination, sizeof(key.destination));
    struct qs_flow *flow = bpf_map_lookup_elem(&qs_flows, &key);
    if (!flow || flow->state != QS_ASKED)
        return 0;
    bool answered = bpf_load_hdr_opt(skops, response, sizeof(response), 0) == CHART_QS_TCP_OCTETS;
    __u64 bps = qs_take_answer(flow, answered ? response : NULL);
    __u32 segment_bytes = BPF_CORE_READ(tp, mss_cache) + BPF_CORE_READ(tp, tcp_header_len) + IPV4_BYTES;
    return chart_qs_window(bps, rtt_ns, segment_bytes) > BPF_CORE_READ(tp, snd_cwnd) ? bps : 0;
}

/* Tell attach of every packet that the socket sends again. */
static __always_inline void quick_start_watch(struct bpf_sock_ops *skops) {
    bpf_sock_ops_cb_flags_set(skops, skops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_RETRANS_CB_FLAG);
}

/* Whether what is lost or marked now was sent at a Quick-Start rate that has ended: its packets are acknowledged a
 * round trip after they were sent, and there is a quarter of one for those that come late. */
static __always_inline bool quick_start_fell(const struct chart_socket_flow *flow, const struct tcp_sock *tp,
                                             bool repeats, __u64 now_ns) {
    __u64 rtt_ns = (__u64)(BPF_CORE_READ(tp, srtt_us) >> 3) * 1000;
    return (flow->signal_expires_ns & CHART_QUICK_START_BIT) && now_ns >= flow->signal_expires_ns &&
           now_ns < flow->signal_expires_ns + rtt_ns + rtt_ns / 4 && (repeats || BPF_CORE_READ(tp, delivered_ce));
}
