/* Packets that arrive on a link: requests to this node are kept for the response, and the response to a request in the
 * middle of a connection gives its socket the rate; at the beginning of a connection attach reads it. */
#pragma once

#include "quick_start_respond.bpf.h"

#define TCP_ESTABLISHED_STATE 1
#define TIMESTAMPS_ALONE bpf_htonl(0x0101080a) /* two NOPs, timestamps: what most packets have, and nothing else */

/* Where TCP's header begins, octets from the IP header; 0: no TCP in reach. */
static __always_inline __u32 read_tcp_packet(struct __sk_buff *skb, struct chart_packet_key *ret) {
    __u32 transport = 0;
    if (!read_packet(skb, ret, &transport))
        return 0;
    if (skb->protocol == bpf_htons(ETH_P_IPV6) && ret->protocol == IPV6_HOP_BY_HOP) {
        __u8 head[2];
        if (bpf_skb_load_bytes_relative(skb, IPV6_BYTES, head, sizeof(head), BPF_HDR_START_NET))
            return 0;
        ret->protocol = head[0];
        transport += 8 + 8 * (__u32)head[1];
        read_ports(skb, transport, ret);
    }
    return ret->protocol == IPPROTO_TCP ? transport : 0;
}

static __always_inline bool ends_here(struct __sk_buff *skb, const struct chart_packet_key *packet) {
    struct bpf_fib_lookup fib = {.ifindex = skb->ifindex};
    if (skb->protocol == bpf_htons(ETH_P_IP)) {
        fib.family = AF_INET;
        fib.ipv4_src = packet->source[3];
        fib.ipv4_dst = packet->destination[3];
    } else {
        fib.family = AF_INET6;
        __builtin_memcpy(fib.ipv6_src, packet->source, sizeof(fib.ipv6_src));
        __builtin_memcpy(fib.ipv6_dst, packet->destination, sizeof(fib.ipv6_dst));
    }
    long found = bpf_fib_lookup(skb, &fib, sizeof(fib), 0);
    return found == BPF_FIB_LKUP_RET_NOT_FWDED || found == BPF_FIB_LKUP_RET_FWD_DISABLED;
}

/* The flow of what is sent back. */
static __always_inline void flow_back(const struct chart_packet_key *packet, struct qs_flow_key *ret) {
    __builtin_memcpy(ret->source, packet->destination, sizeof(ret->source));
    __builtin_memcpy(ret->destination, packet->source, sizeof(ret->destination));
    ret->source_port = packet->destination_port;
    ret->destination_port = packet->source_port;
}

static __always_inline void keep_request(struct __sk_buff *skb, const struct chart_packet_key *packet,
                                         __u32 transport) {
    bool ipv6 = skb->protocol != bpf_htons(ETH_P_IP);
    __u32 begin = ipv6 ? IPV6_BYTES + 2 : IPV4_BYTES;
    __u32 at = (__u32)find_option(skb, begin, transport, ipv6 ? CHART_QS_IPV6 : CHART_QS_IPV4, ipv6);
    struct qs_arrived arrived = {.at_ns = bpf_ktime_get_ns()};
    struct qs_flow_key key = {};
    __u8 option[CHART_QS_OCTETS], ttl;
    if (!at || bpf_skb_load_bytes_relative(skb, at, option, sizeof(option), BPF_HDR_START_NET) ||
        bpf_skb_load_bytes_relative(skb, qs_ttl_at(skb), &ttl, sizeof(ttl), BPF_HDR_START_NET) ||
        chart_qs_kind(option, ipv6) != CHART_QS_REQUEST || !ends_here(skb, packet))
        return;
    flow_back(packet, &key);
    chart_qs_respond(arrived.response, option, ttl);
    if (!bpf_map_update_elem(&qs_arrived, &key, &arrived, BPF_ANY))
        qs_arrived_until_ns = arrived.at_ns + QS_RESPOND_NS;
}

/* A rate for the next round trip, when it lets through more than the socket's own window; what a grant or the path in
 * band gives stands above it. */
static __always_inline void begin_at(struct bpf_sock *sk, __u64 bps) {
    const struct bpf_tcp_sock *tcp = bpf_tcp_sock(sk);
    __u64 now_ns = bpf_ktime_get_ns();
    if (!tcp)
        return;
    __u64 rtt_ns = (__u64)(tcp->srtt_us >> 3) * 1000;
    if (chart_qs_window(bps, rtt_ns, tcp->mss_cache + TCP_BYTES + IPV4_BYTES) <= tcp->snd_cwnd)
        return;
    struct chart_socket_flow *storage = bpf_sk_storage_get(&flows, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
    if (!storage || storage->key.grant || signal_fresh(storage, now_ns))
        return;
    storage->signal_bps = bps;
    storage->signal_expires_ns = (now_ns + min(rtt_ns, CHART_QS_USE_MAX_NS)) | CHART_QUICK_START_BIT;
}

static __always_inline struct bpf_sock *socket_of(struct __sk_buff *skb, const struct chart_packet_key *packet) {
    struct bpf_sock_tuple tuple = {};
    if (skb->protocol == bpf_htons(ETH_P_IP)) {
        tuple.ipv4.saddr = packet->source[3];
        tuple.ipv4.daddr = packet->destination[3];
        tuple.ipv4.sport = bpf_htons(packet->source_port);
        tuple.ipv4.dport = bpf_htons(packet->destination_port);
        return bpf_sk_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4), (__u64)BPF_F_CURRENT_NETNS, 0);
    }
    __builtin_memcpy(tuple.ipv6.saddr, packet->source, sizeof(tuple.ipv6.saddr));
    __builtin_memcpy(tuple.ipv6.daddr, packet->destination, sizeof(tuple.ipv6.daddr));
    tuple.ipv6.sport = bpf_htons(packet->source_port);
    tuple.ipv6.dport = bpf_htons(packet->destination_port);
    return bpf_sk_lookup_tcp(skb, &tuple, sizeof(tuple.ipv6), (__u64)BPF_F_CURRENT_NETNS, 0);
}

/* `options`: octets of TCP's, behind its header at `transport`. */
static __always_inline void take_response(struct __sk_buff *skb, const struct chart_packet_key *packet, __u32 transport,
                                          __u32 options) {
    struct qs_flow_key key = {};
    flow_back(packet, &key);
    struct qs_flow *flow = bpf_map_lookup_elem(&qs_flows, &key);
    if (!flow || flow->state != QS_ASKED)
        return;
    __u32 at =
        (__u32)find_option(skb, transport + TCP_BYTES, transport + TCP_BYTES + options, CHART_QS_TCP_KIND, false);
    __u8 response[CHART_QS_TCP_OCTETS];
    if (!at || bpf_skb_load_bytes_relative(skb, at, response, sizeof(response), BPF_HDR_START_NET) ||
        response[1] != CHART_QS_TCP_OCTETS)
        return;
    struct bpf_sock *sk = socket_of(skb, packet);
    if (!sk)
        return;
    /* One that is not set up yet reads it itself. */
    if (sk->state == TCP_ESTABLISHED_STATE) {
        __u64 bps = qs_take_answer(flow, response);
        if (bps)
            begin_at(sk, bps);
    }
    bpf_sk_release(sk);
}

/* Attached to links while the node's connections ask. */
SEC("tc")
int quick_start_arrive(struct __sk_buff *skb) {
    struct chart_packet_key packet = {};
    __u32 transport = read_tcp_packet(skb, &packet);
    __u8 tcp[QS_TCP_HEAD];
    __be32 first;
    if (!transport || bpf_skb_load_bytes_relative(skb, transport, tcp, sizeof(tcp), BPF_HDR_START_NET))
        return TCX_NEXT;
    if (transport > (skb->protocol == bpf_htons(ETH_P_IP) ? IPV4_BYTES : IPV6_BYTES))
        keep_request(skb, &packet, transport);
    __u32 options = (tcp[12] >> 4) * 4;
    if (options < TCP_BYTES + CHART_QS_TCP_OCTETS || !(tcp[13] & TCP_FLAG_ACK) || (tcp[13] & TCP_FLAG_SYN))
        return TCX_NEXT;
    options -= TCP_BYTES;
    if (options == 2 + TIMESTAMPS_BYTES &&
        !bpf_skb_load_bytes_relative(skb, transport + TCP_BYTES, &first, sizeof(first), BPF_HDR_START_NET) &&
        first == TIMESTAMPS_ALONE)
        return TCX_NEXT;
    take_response(skb, &packet, transport, options);
    return TCX_NEXT;
}
