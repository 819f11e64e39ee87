/* A clone of a flow's packet becomes a signal: only its headers stay, the option (or the shim's datagram) goes in
 * (docs/signalling.md, "Carriers"). The clone is made by the egress, passes it once more with CHART_MARK_ORDER, is
 * written here and leaves through the same interface again, so that its queue sees it with its true length. */
#pragma once

#include "signal_sign.bpf.h"

#define ETHERNET_HEADER 14
#define SHIM_UDP_OCTETS 8
#define HOP_LIMIT 64
#define TCP_HEADER_MAX 60u
/* Rolled out, these sums would need a stack that the kernel does not give. */
#define KEPT_LOOP _Pragma("clang loop unroll(disable)")

/* What the egress tells its clone, on the same processor and without anything between. */
struct signal_order {
    struct chart_qos qos;
    __u32 element;
    __u32 carrier;
    __u8 shim_address[16];
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct signal_order);
} signal_orders SEC(".maps");

static __always_inline __u16 signal_fold(__u64 sum) {
    sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (__u16)sum;
}

/* Sum of the pseudo-header as it lies in memory; packet begins with the IP header. */
static __always_inline __u64 signal_pseudo_sum(const __u8 *packet, __u8 family, __u8 protocol, __u32 octets) {
    __u64 sum = 0;

    if (family == 4) {
        KEPT_LOOP
        for (__u32 i = 12; i < 20; i += 2)
            sum += *(const __u16 *)(packet + i);
    } else {
        KEPT_LOOP
        for (__u32 i = 8; i < 40; i += 2)
            sum += *(const __u16 *)(packet + i);
    }
    return sum + bpf_htons(protocol) + bpf_htons((__u16)octets);
}

/* The addresses and ports under the tag. */
static __always_inline void signal_flow_set(struct chart_flow *flow, const __u8 *packet, __u8 family, __u8 protocol,
                                            const __u8 *transport) {
    __builtin_memset(flow, 0, sizeof(*flow));
    flow->family = family;
    flow->protocol = protocol;
    if (family == 4) {
        __builtin_memcpy(flow->source, packet + 12, 4);
        __builtin_memcpy(flow->destination, packet + 16, 4);
    } else {
        __builtin_memcpy(flow->source, packet + 8, 16);
        __builtin_memcpy(flow->destination, packet + 24, 16);
    }
    __builtin_memcpy(flow->selector, transport, 4);
}

/* The UDP header and datagram of the shim behind `ip` octets of IP header in scratch->packet. The checksum is that of
 * RFC 768 for both families. */
SIGNAL_FUNCTION int signal_shim_write(struct signal_scratch *scratch) {
    __u8 family = scratch ? scratch->parsed.flow.family : 0;
    __u8 *packet;
    __u32 ip = family == 4 ? IPV4_HEADER : IPV6_HEADER;
    __u32 payload = family == 4 ? CHART_SHIM_IPV4_OCTETS : CHART_SHIM_IPV6_OCTETS;
    __u8 *udp;
    __u64 sum;
    __u16 folded;

    if (!scratch)
        return 0;
    packet = scratch->packet;
    udp = packet + ip;
    chart_put16(udp, CHART_SHIM_PORT);
    chart_put16(udp + 2, CHART_SHIM_PORT);
    chart_put16(udp + 4, SHIM_UDP_OCTETS + payload);
    chart_put16(udp + 6, 0);
    chart_shim_build(udp + SHIM_UDP_OCTETS, &scratch->parsed.signal, &scratch->parsed.flow);
    sum = signal_pseudo_sum(packet, family, PROTOCOL_UDP, SHIM_UDP_OCTETS + payload);
    if (family == 4) {
        KEPT_LOOP
        for (__u32 i = 0; i < SHIM_UDP_OCTETS + CHART_SHIM_IPV4_OCTETS; i += 2)
            sum += *(const __u16 *)(packet + IPV4_HEADER + i);
    } else {
        KEPT_LOOP
        for (__u32 i = 0; i < SHIM_UDP_OCTETS + CHART_SHIM_IPV6_OCTETS; i += 2)
            sum += *(const __u16 *)(packet + IPV6_HEADER + i);
    }
    folded = (__u16)~signal_fold(sum);
    if (!folded)
        folded = 0xffff;
    __builtin_memcpy(udp + 6, &folded, 2);
    return 0;
}

/* The IP header in front of the shim, made from the clone's own. */
static __always_inline bool signal_shim_ip(__u8 *packet, __u8 family, const struct signal_order *order,
                                           const struct chart_signal_config *config) {
    if (family == 4) {
        if (!config->has_shim4)
            return false;
        packet[0] = 0x45;
        chart_put16(packet + 2, IPV4_HEADER + SHIM_UDP_OCTETS + CHART_SHIM_IPV4_OCTETS);
        chart_put16(packet + 6, 0x4000);
        packet[8] = HOP_LIMIT;
        packet[9] = PROTOCOL_UDP;
        __builtin_memcpy(packet + 12, config->shim_address + 12, 4);
        __builtin_memcpy(packet + 16, order->shim_address + 12, 4);
        chart_put16(packet + 10, chart_ipv4_checksum(packet, IPV4_HEADER));
        return true;
    }
    if (!config->has_shim6)
        return false;
    chart_put16(packet + 4, SHIM_UDP_OCTETS + CHART_SHIM_IPV6_OCTETS);
    packet[6] = PROTOCOL_UDP;
    packet[7] = HOP_LIMIT;
    __builtin_memcpy(packet + 8, config->shim_address6, 16);
    __builtin_memcpy(packet + 24, order->shim_address, 16);
    return true;
}

/* The shim: what stays of the flow's own header behind the datagram lies outside of its IP length. It has to stay when
 * its checksum is still to be filled in by the device. */
static __always_inline int signal_write_shim(struct __sk_buff *skb, struct signal_scratch *scratch,
                                             const struct signal_order *order, __u32 head, __u8 family, __u32 options) {
    const struct chart_signal_config *config = signal_configuration();
    __u32 shim = SHIM_UDP_OCTETS + (family == 4 ? CHART_SHIM_IPV4_OCTETS : CHART_SHIM_IPV6_OCTETS);
    int error;

    if (!config || !signal_shim_ip(scratch->packet, family, order, config))
        return CHART_QOS_NO_ROOM;
    error = signal_sign(scratch, order->element);
    if (error)
        return error;
    if (bpf_skb_adjust_room(skb, (int)(shim - options), BPF_ADJ_ROOM_NET, 0))
        return CHART_QOS_NO_ROOM;
    signal_shim_write(scratch);
    if (family == 4)
        error =
            bpf_skb_store_bytes(skb, head, scratch->packet, IPV4_HEADER + SHIM_UDP_OCTETS + CHART_SHIM_IPV4_OCTETS, 0);
    else
        error =
            bpf_skb_store_bytes(skb, head, scratch->packet, IPV6_HEADER + SHIM_UDP_OCTETS + CHART_SHIM_IPV6_OCTETS, 0);
    if (error)
        return CHART_QOS_NO_ROOM;
    bpf_skb_change_tail(skb, head + shim + (family == 4 ? IPV4_HEADER : IPV6_HEADER), 0);
    signal_count(CHART_COUNT_SHIM_SENT);
    return CHART_QOS_OK;
}

/* The clone's transport header: FIN, RST, PSH and URG off, no data, its checksum right. `partial`: the device still
 * adds the sum of the header to that of the pseudo-header. Stands in scratch->packet behind the IP header. */
SIGNAL_FUNCTION int signal_fix_transport(struct signal_scratch *scratch, __u32 octets, __u32 partial) {
    __u8 family = scratch ? scratch->parsed.flow.family : 0, protocol = scratch ? scratch->parsed.flow.protocol : 0;
    __u8 *packet, *transport;
    __u32 field = protocol == PROTOCOL_TCP ? 16 : 6;
    __u64 sum;
    __u16 folded;

    if (!scratch)
        return 0;
    packet = scratch->packet;
    transport = packet + (family == 4 ? IPV4_HEADER : IPV6_HEADER);
    if (protocol == PROTOCOL_TCP) {
        transport[13] &= ~(TCP_FIN | TCP_RST | TCP_PSH | TCP_URG);
        transport[18] = 0;
        transport[19] = 0;
    } else {
        chart_put16(transport + 4, SHIM_UDP_OCTETS);
    }
    transport[field] = 0;
    transport[field + 1] = 0;
    sum = signal_pseudo_sum(packet, family, protocol, octets);
    if (!partial) {
        KEPT_LOOP
        for (__u32 i = 0; i < TCP_HEADER_MAX; i += 2) {
            if (i >= octets)
                break;
            sum += *(const __u16 *)(transport + i);
        }
    }
    folded = signal_fold(sum);
    if (!partial) {
        folded = (__u16)~folded;
        if (protocol == PROTOCOL_UDP && !folded)
            folded = 0xffff;
    }
    __builtin_memcpy(transport + field, &folded, 2);
    return 0;
}

/* Make the signal of this clone. Returns enum chart_qos_error. */
SIGNAL_FUNCTION int signal_write(struct __sk_buff *skb, __u32 head, __u32 partial) {
    __u32 zero = 0, ip, options = 0, octets, field;
    struct signal_scratch *scratch = bpf_map_lookup_elem(&signal_scratches, &zero);
    const struct signal_order *order = bpf_map_lookup_elem(&signal_orders, &zero);
    __u8 family, protocol, *packet;
    int error;

    if (!scratch || !order || head > ETHERNET_HEADER)
        return CHART_QOS_NO_ROOM;
    packet = scratch->packet;
    if (skb->protocol == bpf_htons(0x0800)) {
        if (bpf_skb_load_bytes(skb, head, packet, IPV4_HEADER))
            return CHART_QOS_TRUNCATED;
        family = 4;
        protocol = packet[9];
        ip = IPV4_HEADER;
        options = (packet[0] & 15) * 4 - IPV4_HEADER;
        if (options > CHART_IPV4_HEADER_MAX - CHART_IPV4_HEADER)
            return CHART_QOS_BAD_HEADER;
    } else {
        if (bpf_skb_load_bytes(skb, head, packet, IPV6_HEADER))
            return CHART_QOS_TRUNCATED;
        family = 6;
        protocol = packet[6];
        ip = IPV6_HEADER;
    }
    if (protocol == PROTOCOL_TCP) {
        __u8 offset;
        if (bpf_skb_load_bytes(skb, head + ip + options + 12, &offset, 1))
            return CHART_QOS_TRUNCATED;
        octets = (offset >> 4) * 4;
        field = 18;
    } else if (protocol == PROTOCOL_UDP) {
        octets = SHIM_UDP_OCTETS;
        field = 8;
    } else {
        return CHART_QOS_BAD_HEADER;
    }
    if (octets < field || octets > TCP_HEADER_MAX)
        return CHART_QOS_BAD_HEADER;
    CHART_OPAQUE(octets);
    if (octets < 8 || octets > TCP_HEADER_MAX || bpf_skb_load_bytes(skb, head + ip + options, packet + ip, octets))
        return CHART_QOS_TRUNCATED;
    if (skb->len > head + ip + options + octets && bpf_skb_change_tail(skb, head + ip + options + octets, 0))
        return CHART_QOS_NO_ROOM;

    scratch->parsed.signal.qos = order->qos;
    signal_flow_set(&scratch->parsed.flow, packet, family, protocol, packet + ip);
    if (order->carrier == CHART_CARRIER_SHIM)
        return signal_write_shim(skb, scratch, order, head, family, options);

    signal_fix_transport(scratch, octets, partial);
    if (bpf_skb_store_bytes(skb, head + ip + options, packet + ip, octets, 0))
        return CHART_QOS_NO_ROOM;
    error = signal_sign(scratch, order->element);
    if (error)
        return error;
    if (family == 4) {
        if (options != CHART_IPV4_OPTION_OCTETS &&
            bpf_skb_adjust_room(skb, (int)(CHART_IPV4_OPTION_OCTETS - options), BPF_ADJ_ROOM_NET, 0))
            return CHART_QOS_NO_ROOM;
        packet[0] = 0x45;
        chart_put16(packet + 2, IPV4_HEADER + octets);
        error = chart_ipv4_insert(packet, &scratch->parsed.signal);
        if (error)
            return error;
        return bpf_skb_store_bytes(skb, head, packet, IPV4_HEADER + CHART_IPV4_OPTION_OCTETS, 0) ? CHART_QOS_NO_ROOM
                                                                                                 : CHART_QOS_OK;
    }
    if (bpf_skb_adjust_room(skb, CHART_IPV6_HOP_OCTETS, BPF_ADJ_ROOM_NET, 0))
        return CHART_QOS_NO_ROOM;
    chart_put16(packet + 4, octets);
    error = chart_ipv6_insert(packet, &scratch->parsed.signal);
    if (error)
        return error;
    return bpf_skb_store_bytes(skb, head, packet, IPV6_HEADER + CHART_IPV6_HOP_OCTETS, 0) ? CHART_QOS_NO_ROOM
                                                                                          : CHART_QOS_OK;
}
