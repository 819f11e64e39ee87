/* attach: puts the flows of a node's processes under their grants, without any change to the application (Brassil et
 * al., The CHART System, section 5: the client's stack is switched per connection).
 *
 * attach_sockops: when a connection is set up, finds its grant or its rate in band, remembers it in the socket's
 * storage and sets trinity while the rate is fresh; sets it again when a rate comes back; gives sockets a receive
 * window that holds a lossy long path from the start; repeats a lost SYN of a granted flow soon.
 *
 * walk_flows: over all TCP sockets of the node, on the agent's call: the same for flows that ran before their grant
 * came or whose rate came back; gives flows back; reports flows to the agent.
 */
#include "quick_start_answer.bpf.h"
#include "select.bpf.h"
#include "signal_flow.bpf.h"

char LICENSE[] SEC("license") = "GPL";

static __always_inline bool socket_address(struct tcp_sock *tp, struct flow_address *ret) {
    struct sock *sk = (struct sock *)tp;
    __u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);
    if (family == AF_INET) {
        map_ipv4(ret->source, BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr));
        map_ipv4(ret->destination, BPF_CORE_READ(sk, __sk_common.skc_daddr));
    } else if (family == AF_INET6) {
        BPF_CORE_READ_INTO(&ret->source, sk, __sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32);
        BPF_CORE_READ_INTO(&ret->destination, sk, __sk_common.skc_v6_daddr.in6_u.u6_addr32);
    } else {
        return false;
    }
    ret->source_port = BPF_CORE_READ(sk, __sk_common.skc_num);
    ret->destination_port = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
    ret->protocol = IPPROTO_TCP;
    ret->dscp = BPF_CORE_READ(tp, inet_conn.icsk_inet.tos) >> 2;
    ret->cgroup = BPF_CORE_READ(sk, sk_cgrp_data.cgroup);
    return true;
}

static __always_inline const struct chart_node_config *configuration(void) {
    __u32 zero = 0;
    return bpf_map_lookup_elem(&node_config, &zero);
}

/* Whether the name is "trinity"; compared as words, the names are padded with zeros. */
static __always_inline bool is_trinity(const char *name) {
    return __builtin_memcmp(name, CHART_TRINITY, sizeof(CHART_TRINITY)) == 0;
}

/* Remember the grant of a socket. NULL: no memory. */
static __always_inline struct chart_socket_flow *remember(struct tcp_sock *tp, const struct chart_node_config *config,
                                                          __u64 grant) {
    struct chart_socket_flow *flow = bpf_sk_storage_get(&flows, tp, 0, BPF_SK_STORAGE_GET_F_CREATE);
    if (!flow)
        return NULL;
    if (flow->key.grant != grant || flow->key.node != config->node) {
        flow->key.node = config->node;
        flow->key.grant = grant;
        /* What the flow did before belongs to nobody or to another grant. */
        flow->counted_sent_bytes = BPF_CORE_READ(tp, bytes_sent);
        flow->counted_delivered_bytes = BPF_CORE_READ(tp, bytes_acked);
        flow->counted_retransmits = BPF_CORE_READ(tp, total_retrans);
        flow->epoch = 0;
    }
    return flow;
}

static __always_inline bool has_rate(const struct chart_socket_flow *flow) {
    __u64 now_ns = bpf_ktime_get_ns();
    if (signal_fresh(flow, now_ns))
        return true;
    const struct chart_rate *rate = bpf_map_lookup_elem(&rates, &flow->key);
    return rate && rate_in_force(rate, now_ns);
}

/* What the path agreed to in band for this flow, when it came before there was a socket to tell. */
static __always_inline const struct chart_signal_half *signalled(const struct flow_address *address,
                                                                 const struct chart_node_config *config) {
    struct chart_signal_key key = {};
    struct chart_signal_flow *flow;
    struct chart_signal_half *half;
    __u32 direction;
    if (!config->signalling || !config->enforce)
        return NULL;
    direction = signal_key_set(&key, address->source, address->destination, bpf_htons(address->source_port),
                               bpf_htons(address->destination_port), IPPROTO_TCP);
    flow = bpf_map_lookup_elem(&signal_flows, &key);
    if (!flow)
        return NULL;
    half = signal_half(flow, direction);
    return half->role == CHART_ROLE_ORIGIN ? half : NULL;
}

/* Where the socket goes back to: the configured control, else the one it has now. */
static __always_inline void set_fallback(struct chart_socket_flow *flow, const struct chart_node_config *config,
                                         const char *present) {
    if (config->default_control[0])
        __builtin_memcpy(flow->fallback, config->default_control, CHART_CONTROL_NAME_LEN);
    else if (!is_trinity(present))
        __builtin_memcpy(flow->fallback, present, CHART_CONTROL_NAME_LEN);
}

/* The receive window that holds what a lossy long path keeps out of order. SO_RCVLOWAT raises the buffer without
 * locking it against the kernel's own tuning, as SO_RCVBUF would; the low-water mark itself is put back. The context is
 * a macro's matter because helpers take it by its type. */
#define raise_receive_window(context, bytes)                                                                           \
    do {                                                                                                               \
        int mark = 1, window = (int)(bytes);                                                                           \
        bpf_getsockopt(context, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof(mark));                                         \
        bpf_setsockopt(context, SOL_SOCKET, SO_RCVLOWAT, &window, sizeof(window));                                     \
        bpf_setsockopt(context, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof(mark));                                         \
    } while (0)

static __always_inline void established(struct bpf_sock_ops *skops, const struct chart_node_config *config) {
    char present[CHART_CONTROL_NAME_LEN] = {};
    char trinity[CHART_CONTROL_NAME_LEN] = CHART_TRINITY;
    struct flow_address address = {};
    struct bpf_sock *sk = skops->sk;
    struct tcp_sock *tp = sk ? bpf_skc_to_tcp_sock(sk) : NULL;
    if (!tp || !socket_address(tp, &address))
        return;
    struct chart_selector *selector = find_selector(&address, config);
    const struct chart_signal_half *half = signalled(&address, config);
    bool granted = selector && selector->sending;
    if (config->signalling || config->quick_start_rate)
        bpf_sock_ops_cb_flags_set(skops, skops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_RTT_CB_FLAG);
    __u64 rtt_ns = (__u64)(BPF_CORE_READ(tp, srtt_us) >> 3) * 1000;
    __u64 begin_bps = config->quick_start_rate && config->enforce && !granted && !half
                          ? quick_start_approved(skops, &address, tp, rtt_ns)
                          : 0;
    if (!granted && !half && !begin_bps)
        return;
    struct chart_socket_flow *flow = remember(tp, config, granted ? selector->grant : 0);
    if (!flow)
        return;
    if (begin_bps) {
        /* For the first round trip; the control that follows starts from what was then in flight. */
        flow->signal_bps = begin_bps;
        flow->signal_expires_ns = (bpf_ktime_get_ns() + min(rtt_ns, CHART_QS_USE_MAX_NS)) | CHART_QUICK_START_BIT;
        quick_start_watch(skops);
    }
    if (half && half->state == CHART_SOCKET_AGREED) {
        flow->signal_bps =
            chart_rate_decode(half->agreed.guaranteed_rate) + chart_rate_decode(half->agreed.available_rate);
        flow->signal_expires_ns = half->expires_ns & ~CHART_QUICK_START_BIT;
    }
    bpf_getsockopt(skops, SOL_TCP, TCP_CONGESTION, present, sizeof(present));
    set_fallback(flow, config, present);
    bpf_sock_ops_cb_flags_set(skops, skops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
    if (config->enforce && has_rate(flow))
        bpf_setsockopt(skops, SOL_TCP, TCP_CONGESTION, trinity, sizeof(trinity));
}

/* A lost SYN costs a flow its first second (RFC 6298, 2.1); one whose rate the network holds ready tries again sooner.
 */
static __always_inline void connecting(struct bpf_sock_ops *skops, const struct chart_node_config *config) {
    struct flow_address address = {};
    struct bpf_sock *sk = skops->sk;
    struct tcp_sock *tp = sk ? bpf_skc_to_tcp_sock(sk) : NULL;
    if (!config->syn_timeout_ticks || !config->enforce || !tp || !socket_address(tp, &address))
        return;
    const struct chart_selector *selector = find_selector(&address, config);
    if (!selector || !selector->sending)
        return;
    struct chart_grant_key key = {.node = config->node, .grant = selector->grant};
    const struct chart_rate *rate = bpf_map_lookup_elem(&rates, &key);
    if (rate && rate_in_force(rate, bpf_ktime_get_ns()))
        skops->reply = config->syn_timeout_ticks;
}

/* A rate came in band after the connection was set up, or came back: on an RTT sample, because there a socket's control
 * may be set. */
static __always_inline void engage(struct bpf_sock_ops *skops, const struct chart_node_config *config) {
    char present[CHART_CONTROL_NAME_LEN] = {};
    char trinity[CHART_CONTROL_NAME_LEN] = CHART_TRINITY;
    struct bpf_sock *sk = skops->sk;
    struct tcp_sock *tp = sk ? bpf_skc_to_tcp_sock(sk) : NULL;
    struct chart_socket_flow *flow = tp ? bpf_sk_storage_get(&flows, tp, 0, 0) : NULL;
    if (!flow || flow->rate_bps || !config->enforce || !signal_fresh(flow, bpf_ktime_get_ns()))
        return;
    bpf_getsockopt(skops, SOL_TCP, TCP_CONGESTION, present, sizeof(present));
    if (is_trinity(present))
        return;
    if (flow->signal_expires_ns & CHART_QUICK_START_BIT)
        quick_start_watch(skops);
    set_fallback(flow, config, present);
    bpf_setsockopt(skops, SOL_TCP, TCP_CONGESTION, trinity, sizeof(trinity));
}

/* A packet of those that a Quick-Start rate paced was lost (`repeats`: it is sent again) or marked after that rate has
 * ended: trinity takes the window back (RFC 4782, section 4.6). */
static __always_inline void fell(struct bpf_sock_ops *skops, const struct chart_node_config *config, bool repeats) {
    char present[CHART_CONTROL_NAME_LEN] = {};
    char trinity[CHART_CONTROL_NAME_LEN] = CHART_TRINITY;
    struct bpf_sock *sk = skops->sk;
    struct tcp_sock *tp = sk ? bpf_skc_to_tcp_sock(sk) : NULL;
    struct chart_socket_flow *flow = tp ? bpf_sk_storage_get(&flows, tp, 0, 0) : NULL;
    if (!flow || !config->enforce || flow->key.grant || !quick_start_fell(flow, tp, repeats, bpf_ktime_get_ns()))
        return;
    bpf_getsockopt(skops, SOL_TCP, TCP_CONGESTION, present, sizeof(present));
    if (is_trinity(present))
        return;
    set_fallback(flow, config, present);
    bpf_setsockopt(skops, SOL_TCP, TCP_CONGESTION, trinity, sizeof(trinity));
}

/* The last octets of a connection, which no walk would see any more. */
static __always_inline void closed(struct bpf_sock_ops *skops) {
    struct bpf_sock *sk = skops->sk;
    struct tcp_sock *tp = sk ? bpf_skc_to_tcp_sock(sk) : NULL;
    struct chart_socket_flow *flow = tp ? bpf_sk_storage_get(&flows, tp, 0, 0) : NULL;
    struct chart_usage *usage_entry = flow ? bpf_map_lookup_elem(&usage, &flow->key) : NULL;
    if (usage_entry)
        account(tp, flow, usage_entry);
}

SEC("sockops")
int attach_sockops(struct bpf_sock_ops *skops) {
    const struct chart_node_config *config = configuration();
    if (!config)
        return 1;
    switch (skops->op) {
    case BPF_SOCK_OPS_TCP_LISTEN_CB:
    case BPF_SOCK_OPS_TCP_CONNECT_CB:
        if (config->receive_window_bytes)
            raise_receive_window(skops, config->receive_window_bytes);
        break;
    case BPF_SOCK_OPS_TIMEOUT_INIT:
        connecting(skops, config);
        break;
    case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
    case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
        established(skops, config);
        break;
    case BPF_SOCK_OPS_RTT_CB:
        engage(skops, config);
        fell(skops, config, false);
        break;
    case BPF_SOCK_OPS_RETRANS_CB:
        fell(skops, config, true);
        break;
    case BPF_SOCK_OPS_STATE_CB:
        if (skops->args[1] == BPF_TCP_CLOSE)
            closed(skops);
        break;
    }
    return 1;
}

static __always_inline void report(struct seq_file *seq, struct tcp_sock *tp, const struct chart_socket_flow *flow,
                                   const struct flow_address *address, const char *control) {
    struct sock *sk = (struct sock *)tp;
    struct chart_flow_record record = {};
    record.cookie = bpf_get_socket_cookie(sk);
    record.grant = flow->key.grant;
    record.in_band = signal_fresh(flow, bpf_ktime_get_ns());
    record.rate_bps = flow->rate_bps;
    record.pacing_bytes_per_s = sk->sk_pacing_rate;
    record.sent_bytes = tp->bytes_sent;
    record.delivered_bytes = tp->bytes_acked;
    record.retransmitted_packets = tp->total_retrans;
    record.sent_packets = tp->segs_out;
    record.header_bytes = tp->tcp_header_len;
    record.cwnd_packets = tp->snd_cwnd;
    record.rtt_us = tp->srtt_us >> 3;
    record.min_rtt_us = tp->rtt_min.s[0].v;
    __builtin_memcpy(record.local, address->source, sizeof(record.local));
    __builtin_memcpy(record.remote, address->destination, sizeof(record.remote));
    record.dscp = address->dscp;
    record.local_port = address->source_port;
    record.remote_port = address->destination_port;
    __builtin_memcpy(record.control, control, sizeof(record.control));
    bpf_seq_write(seq, &record, sizeof(record));
}

/* Give a socket back to its own control, from the window that one RTT at its rate needs. */
static __always_inline void give_back(struct tcp_sock *tp, const struct chart_socket_flow *flow,
                                      const struct chart_node_config *config) {
    char control[CHART_CONTROL_NAME_LEN] = "cubic";
    if (flow && flow->fallback[0])
        __builtin_memcpy(control, flow->fallback, sizeof(control));
    else if (config->default_control[0])
        __builtin_memcpy(control, config->default_control, sizeof(control));
    bpf_setsockopt(tp, SOL_TCP, TCP_CONGESTION, control, sizeof(control));
}

SEC("iter/tcp")
int walk_flows(struct bpf_iter__tcp *context) {
    struct sock_common *common = context->sk_common;
    const struct chart_node_config *config = configuration();
    char control[CHART_CONTROL_NAME_LEN] = {};
    char trinity[CHART_CONTROL_NAME_LEN] = CHART_TRINITY;
    struct flow_address address = {};
    if (!common || !config)
        return 0;
    struct tcp_sock *tp = bpf_skc_to_tcp_sock(common);
    if (!tp || !socket_address(tp, &address) || !cgroup_within(address.cgroup, config->cgroup_id))
        return 0;
    __u8 state = common->skc_state;
    if (state == BPF_TCP_LISTEN) {
        if (config->receive_window_bytes)
            raise_receive_window(tp, config->receive_window_bytes);
        return 0;
    }
    if (state == BPF_TCP_CLOSE || state == BPF_TCP_SYN_SENT)
        return 0;
    if (bpf_getsockopt(tp, SOL_TCP, TCP_CONGESTION, control, sizeof(control)))
        return 0;
    struct chart_selector *selector = find_selector(&address, config);
    if (!selector || !selector->sending) {
        struct chart_socket_flow *old = bpf_sk_storage_get(&flows, tp, 0, 0);
        /* In band only: engaged and released on its acknowledgements, by rates that say themselves when they end. */
        if (old && (config->signalling || config->quick_start_rate) && old->signal_expires_ns) {
            if (!config->enforce && is_trinity(control))
                give_back(tp, old, config);
            if (old->key.grant) {
                old->key.grant = 0;
                old->epoch = 0;
            }
            report(context->meta->seq, tp, old, &address, control);
            return 0;
        }
        struct chart_socket_flow nobody = {};
        bool given_back = is_trinity(control);
        if (given_back)
            give_back(tp, old, config);
        if (given_back || tp->bytes_sent >= CHART_PLAIN_FLOW_BYTES)
            report(context->meta->seq, tp, &nobody, &address, control);
        if (old)
            bpf_sk_storage_delete(&flows, tp);
        return 0;
    }
    struct chart_socket_flow *flow = remember(tp, config, selector->grant);
    struct chart_usage *usage_entry = flow ? bpf_map_lookup_elem(&usage, &flow->key) : NULL;
    if (!flow || !usage_entry)
        return 0;
    account(tp, flow, usage_entry);
    set_fallback(flow, config, control);
    bool wanted = config->enforce && has_rate(flow);
    if (wanted && !is_trinity(control)) {
        bpf_setsockopt(tp, SOL_TCP, TCP_CONGESTION, trinity, sizeof(trinity));
    } else if (!wanted && is_trinity(control)) {
        give_back(tp, flow, config);
        flow->rate_bps = 0;
    }
    bpf_getsockopt(tp, SOL_TCP, TCP_CONGESTION, control, sizeof(control));
    report(context->meta->seq, tp, flow, &address, control);
    return 0;
}
