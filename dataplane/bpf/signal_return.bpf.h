/* The answer that goes back at once in the place of the signal that came. */
#pragma once

#include "signal_write.bpf.h"

#define TC_DROP 2

/* Octets in front of the IP header; more than an Ethernet header: not a link of ours. */
static __always_inline __u32 head_of(struct __sk_buff *skb) {
    __u32 ifindex = skb->ifindex;
    const struct chart_signal_link *link = bpf_map_lookup_elem(&signal_links, &ifindex);
    return link ? link->header_bytes : ~0u;
}

/* The addresses of an Ethernet frame that goes back. */
SIGNAL_FUNCTION int swap_hardware(struct __sk_buff *skb) {
    __u8 hardware[12], turned[12];

    if (bpf_skb_load_bytes(skb, 0, hardware, sizeof(hardware)))
        return CHART_QOS_TRUNCATED;
    __builtin_memcpy(turned, hardware + 6, 6);
    __builtin_memcpy(turned + 6, hardware, 6);
    return bpf_skb_store_bytes(skb, 0, turned, sizeof(turned), 0) ? CHART_QOS_NO_ROOM : CHART_QOS_OK;
}

/* Send the answer back at once in the place of what came: a flow of datagrams may have no packets that way. */
SIGNAL_FUNCTION int turn_round(struct __sk_buff *skb, struct signal_scratch *scratch, struct chart_signal_half *half,
                               const struct chart_signal_hop *hop, __u32 shim) {
    struct chart_signal *signal;
    struct chart_flow *flow;
    __u8 *packet, swap[16], ports[4], family;
    __u32 transport, head = head_of(skb);
    int error;

    if (!scratch || !half || !hop || head > ETHERNET_HEADER)
        return TC_DROP;
    signal = &scratch->parsed.signal;
    flow = &scratch->parsed.flow;
    packet = scratch->packet;
    family = flow->family;
    transport = family == 4 ? IPV4_HEADER + CHART_IPV4_OPTION_OCTETS : IPV6_HEADER + CHART_IPV6_HOP_OCTETS;
    if (!shim && scratch->parsed.transport_offset != transport)
        return TC_DROP; /* other options beside ours: not what an element sends */
    signal->qos = half->agreed;
    signal->qos.direction = CHART_BACKWARD;
    signal->qos.status = half->pending - 1;
    half->pending = 0;
    __builtin_memcpy(swap, flow->source, 16);
    __builtin_memcpy(flow->source, flow->destination, 16);
    __builtin_memcpy(flow->destination, swap, 16);
    __builtin_memcpy(ports, flow->selector + 2, 2);
    __builtin_memcpy(ports + 2, flow->selector, 2);
    __builtin_memcpy(flow->selector, ports, 4);
    error = signal_sign(scratch, hop->element);
    if (error)
        return TC_DROP;
    if (family == 4) {
        __builtin_memcpy(swap, packet + 12, 4);
        __builtin_memcpy(packet + 12, packet + 16, 4);
        if (shim)
            __builtin_memcpy(packet + 16, hop->shim_address + 12, 4);
        else
            __builtin_memcpy(packet + 16, swap, 4);
        packet[8] = HOP_LIMIT;
        if (shim)
            chart_put16(packet + 10, chart_ipv4_checksum(packet, IPV4_HEADER));
        else
            error = chart_ipv4_rewrite(packet, IPV4_HEADER + 2, signal);
    } else {
        __builtin_memcpy(swap, packet + 8, 16);
        __builtin_memcpy(packet + 8, packet + 24, 16);
        if (shim)
            __builtin_memcpy(packet + 24, hop->shim_address, 16);
        else
            __builtin_memcpy(packet + 24, swap, 16);
        packet[7] = HOP_LIMIT;
        if (!shim)
            error = chart_ipv6_rewrite(packet, IPV6_HEADER + 4, signal);
    }
    if (error)
        return TC_DROP;
    if (shim)
        signal_shim_write(scratch);
    else
        /* Addresses and ports change places: the checksum stays right. */
        __builtin_memcpy(packet + transport, ports, 4);
    if (family == 4)
        error = bpf_skb_store_bytes(skb, head, packet,
                                    shim ? IPV4_HEADER + SHIM_UDP_OCTETS + CHART_SHIM_IPV4_OCTETS
                                         : IPV4_HEADER + CHART_IPV4_OPTION_OCTETS + 4,
                                    0);
    else
        error = bpf_skb_store_bytes(
            skb, head, packet,
            shim ? IPV6_HEADER + SHIM_UDP_OCTETS + CHART_SHIM_IPV6_OCTETS : IPV6_HEADER + CHART_IPV6_HOP_OCTETS + 4, 0);
    if (!error && head)
        error = swap_hardware(skb);
    if (error)
        return TC_DROP;
    signal_count(CHART_COUNT_SENT);
    skb->mark = CHART_MARK_SIGNAL;
    return (int)bpf_redirect(skb->ifindex, 0);
}
