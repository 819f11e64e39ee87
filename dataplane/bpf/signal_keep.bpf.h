/* Which flows have an entry in the table `signal_flows`: those for which something is asked, by this node or by a
 * signal of a neighbour. */
#pragma once

#include "signal_origin.bpf.h"

/* Keep scratch->fresh as the flow of scratch->seen from now on, and leave zeros there. NULL: no room. */
static __always_inline struct chart_signal_flow *keep_flow(struct signal_scratch *scratch, __u32 direction,
                                                           __u64 now_ns) {
    const struct chart_signal_key *key = &scratch->seen.key;
    struct chart_signal_half *half = signal_half(&scratch->fresh, direction);

    /* Not over yet, should the agent come by before there is a request. */
    half->last_ns = now_ns;
    bpf_map_update_elem(&signal_flows, key, &scratch->fresh, BPF_NOEXIST);
    __builtin_memset(half, 0, sizeof(*half));
    return bpf_map_lookup_elem(&signal_flows, key);
}

/* A packet on its way out whose flow is not kept: is there something to ask for it? True: it is kept now. A flow for
 * which there is nothing to ask stands in a table that forgets, so that however many come they take no room from those
 * that hold a rate. A function of its own for the sake of the stack. */
SIGNAL_FUNCTION int look_first(struct __sk_buff *skb) {
    const struct chart_signal_config *config = signal_configuration();
    const struct chart_socket_request *request;
    struct chart_signal_judged *judged;
    struct chart_signal_judgement *before = NULL;
    struct signal_scratch *scratch;
    struct chart_signal_half *half;
    struct bpf_sock *sk = skb->sk;
    struct signal_packet *packet;
    __u32 zero = 0, way;
    bool asks;

    scratch = bpf_map_lookup_elem(&signal_scratches, &zero);
    if (!scratch || !config)
        return false;
    packet = &scratch->seen;
    way = packet->direction & 1;
    judged = config->n_asks ? bpf_map_lookup_elem(&signal_judged, &packet->key) : NULL;
    if (judged)
        before = way ? &judged->ways[1] : &judged->ways[0];
    if (before && !(packet->tcp_flags & TCP_SYN) && before->generation == config->generation &&
        (before->until_ns == ~0ull || bpf_ktime_get_coarse_ns() < before->until_ns))
        return false;
    sk = sk ? bpf_sk_fullsock(sk) : NULL;
    request = sk ? bpf_sk_storage_get(&signal_requests, sk, 0, 0) : NULL;
    if ((!request && !config->n_asks) || (packet->tcp_flags & TCP_RST))
        return false;
    half = signal_half(&scratch->fresh, way);
    signal_judge(half, packet, request, bpf_ktime_get_ns());
    asks = half->role == CHART_ROLE_ORIGIN;
    if (asks && config->mode == CHART_SIGNALLING_ENFORCE) {
        if (keep_flow(scratch, way, bpf_ktime_get_ns()))
            return true;
        signal_count(CHART_COUNT_UNKEPT);
    } else {
        __builtin_memset(half, 0, sizeof(*half));
        asks = false;
    }
    if (!judged) {
        static const struct chart_signal_judged nothing;
        bpf_map_update_elem(&signal_judged, &packet->key, &nothing, BPF_NOEXIST);
        judged = bpf_map_lookup_elem(&signal_judged, &packet->key);
    }
    if (!judged)
        return false;
    before = way ? &judged->ways[1] : &judged->ways[0];
    before->generation = config->generation;
    before->until_ns = asks ? bpf_ktime_get_coarse_ns() + config->legacy_ns : ~0ull;
    return false;
}
