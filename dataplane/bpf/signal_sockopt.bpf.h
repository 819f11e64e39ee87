/* A program's own request for one of its sockets, and what it is told of the rate (signal_socket.h). */
#pragma once

#include "signal_tables.bpf.h"

/* The flow of a socket; false: it is not connected or of another protocol. */
static __always_inline bool socket_key(struct bpf_sock *sk, struct chart_signal_key *ret_key, __u32 *ret_direction) {
    __u8 source[16] = {}, destination[16] = {};
    __u16 port = sk->dst_port;

    if (sk->protocol != PROTOCOL_TCP && sk->protocol != PROTOCOL_UDP)
        return false;
    if (!port)
        return false;
    if (sk->family == AF_INET) {
        __u32 address = sk->src_ip4;
        signal_map_ipv4(source, &address);
        address = sk->dst_ip4;
        signal_map_ipv4(destination, &address);
    } else if (sk->family == AF_INET6) {
        __u32 address[4] = {sk->src_ip6[0], sk->src_ip6[1], sk->src_ip6[2], sk->src_ip6[3]};
        __builtin_memcpy(source, address, 16);
        address[0] = sk->dst_ip6[0], address[1] = sk->dst_ip6[1];
        address[2] = sk->dst_ip6[2], address[3] = sk->dst_ip6[3];
        __builtin_memcpy(destination, address, 16);
    } else {
        return false;
    }
    *ret_direction = signal_key_set(ret_key, source, destination, bpf_htons((__u16)sk->src_port), port, sk->protocol);
    return true;
}

SEC("cgroup/setsockopt")
int signal_setsockopt(struct bpf_sockopt *context) {
    struct chart_socket_request *request = context->optval, *storage;
    struct chart_signal_key key = {};
    struct chart_signal_flow *flow;
    struct bpf_sock *sk = context->sk;
    __u32 direction = 0;

    if (context->level != CHART_SOL_SIGNAL)
        return 1;
    if (!sk || context->optname != CHART_SO_REQUEST || (void *)(request + 1) > context->optval_end ||
        context->optlen != sizeof(*request) || request->service > CHART_VARIABLE || request->burst_tolerance > 15 ||
        request->unused) {
        bpf_set_retval(-22); /* EINVAL */
        return 0;
    }
    storage = bpf_sk_storage_get(&signal_requests, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
    if (!storage) {
        bpf_set_retval(-12); /* ENOMEM */
        return 0;
    }
    *storage = *request;
    /* A flow that runs already is judged anew with its next packet. */
    if (socket_key(sk, &key, &direction)) {
        flow = bpf_map_lookup_elem(&signal_flows, &key);
        if (flow)
            signal_half(flow, direction)->generation = 0;
        bpf_map_delete_elem(&signal_judged, &key);
    }
    context->optlen = -1; /* the kernel does not know this option */
    return 1;
}

SEC("cgroup/getsockopt")
int signal_getsockopt(struct bpf_sockopt *context) {
    void *value = context->optval;
    struct chart_socket_request *request;
    struct chart_signal_key key = {};
    struct chart_signal_flow *flow = NULL;
    struct bpf_sock *sk = context->sk;
    __u32 direction = 0;

    if (context->level != CHART_SOL_SIGNAL || !sk)
        return 1;
    request = bpf_sk_storage_get(&signal_requests, sk, 0, 0);
    if (context->optname == CHART_SO_REQUEST) {
        struct chart_socket_request *answer = value;
        if ((void *)(answer + 1) > context->optval_end)
            return 1;
        __builtin_memset(answer, 0, sizeof(*answer));
        if (request)
            *answer = *request;
        context->optlen = sizeof(*answer);
    } else if (context->optname == CHART_SO_RATE) {
        struct chart_socket_rate *answer = value;
        if ((void *)(answer + 1) > context->optval_end)
            return 1;
        __builtin_memset(answer, 0, sizeof(*answer));
        if (socket_key(sk, &key, &direction))
            flow = bpf_map_lookup_elem(&signal_flows, &key);
        if (flow) {
            const struct chart_signal_half *half = signal_half(flow, direction);
            answer->guaranteed_bps = chart_rate_decode(half->agreed.guaranteed_rate);
            answer->available_bps = chart_rate_decode(half->agreed.available_rate);
            answer->expires_ns = half->expires_ns;
            answer->state = half->state;
            answer->changes = half->changes;
        } else if (request && (request->guaranteed_bps || request->available_bps)) {
            answer->state = CHART_SOCKET_ASKED;
        }
        context->optlen = sizeof(*answer);
    } else {
        return 1;
    }
    context->retval = 0;
    return 1;
}
