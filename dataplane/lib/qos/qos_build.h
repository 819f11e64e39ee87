/* Putting a signal into a packet, in place (docs/signalling.md).
 *
 * The insert functions expect what bpf_skb_adjust_room(BPF_ADJ_ROOM_NET) leaves: the bare IP header, then a hole of the
 * size the carrier needs, then the rest of the packet. They fill the hole and correct lengths, IHL and the header
 * checksum; the transport checksum covers none of these.
 */
#ifndef CHART_QOS_BUILD_H
#define CHART_QOS_BUILD_H

#include "qos_parse.h"

/* Header checksum of `octets` (a multiple of 4, at most 60) octets, taking the checksum field as 0. */
CHART_INLINE __u16 chart_ipv4_checksum(const __u8 *packet, __u32 octets) {
    __u32 sum = 0, i;

    for (i = 0; i < CHART_IPV4_HEADER_MAX; i += 2) {
        if (i >= octets)
            break;
        if (i != 10)
            sum += chart_get16(packet + i);
    }
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (__u16)~sum;
}

/* Fill the hole of 36 octets after a 20-octet header. NOT_IP, or NO_ROOM if there are options or the packet is too
 * long. */
CHART_INLINE int chart_ipv4_insert(__u8 *packet, const struct chart_signal *signal) {
    __u32 total = chart_get16(packet + 2) + CHART_IPV4_OPTION_OCTETS;

    if (packet[0] >> 4 != 4)
        return CHART_QOS_NOT_IP;
    if ((packet[0] & 15) != 5 || total > 0xffff)
        return CHART_QOS_NO_ROOM;
    packet[0] = 0x4e;
    chart_put16(packet + 2, total);
    packet[20] = CHART_IPV4_OPTION_TYPE;
    packet[21] = CHART_IPV4_OPTION_OCTETS;
    chart_signal_pack(packet + 22, signal);
    chart_put16(packet + 10, chart_ipv4_checksum(packet, CHART_IPV4_HEADER + CHART_IPV4_OPTION_OCTETS));
    return CHART_QOS_OK;
}

/* Fill the hole of 40 octets after the 40-octet header. NOT_IP, or NO_ROOM if a hop-by-hop header stands there already
 * (two of them are not allowed: RFC 8200 section 4.1) or the packet is too long. */
CHART_INLINE int chart_ipv6_insert(__u8 *packet, const struct chart_signal *signal) {
    __u32 payload = chart_get16(packet + 4) + CHART_IPV6_HOP_OCTETS;

    if (packet[0] >> 4 != 6)
        return CHART_QOS_NOT_IP;
    if (packet[6] == 0 || payload > 0xffff)
        return CHART_QOS_NO_ROOM;
    packet[40] = packet[6];
    packet[41] = CHART_IPV6_HOP_OCTETS / 8 - 1;
    packet[6] = 0;
    chart_put16(packet + 4, payload);
    packet[42] = CHART_IPV6_OPTION_TYPE;
    packet[43] = CHART_SIGNAL_OCTETS;
    chart_signal_pack(packet + 44, signal);
    packet[78] = 1; /* PadN of 2 octets */
    packet[79] = 0;
    return CHART_QOS_OK;
}

/* Replace the signal at `offset` of an IPv4 packet, as an element on the way does; corrects the header checksum. */
CHART_INLINE int chart_ipv4_rewrite(__u8 *packet, __u32 offset, const struct chart_signal *signal) {
    CHART_OPAQUE(offset);
    if (offset < CHART_IPV4_HEADER + 2 || offset > CHART_IPV4_HEADER_MAX - CHART_SIGNAL_OCTETS)
        return CHART_QOS_BAD_OPTION;
    chart_signal_pack(packet + offset, signal);
    chart_put16(packet + 10, chart_ipv4_checksum(packet, (packet[0] & 15) * 4));
    return CHART_QOS_OK;
}

/* Replace the signal at `offset` of an IPv6 packet; no checksum covers it. */
CHART_INLINE int chart_ipv6_rewrite(__u8 *packet, __u32 offset, const struct chart_signal *signal) {
    CHART_OPAQUE(offset);
    if (offset < CHART_IPV6_HEADER + 4 || offset > CHART_IPV6_HEADER + CHART_IPV6_HOP_MAX - CHART_SIGNAL_OCTETS)
        return CHART_QOS_BAD_OPTION;
    chart_signal_pack(packet + offset, signal);
    return CHART_QOS_OK;
}

/* Octets of the shim's datagram for a flow of this family. */
CHART_INLINE __u32 chart_shim_octets(__u8 family) {
    return family == 6 ? CHART_SHIM_IPV6_OCTETS : CHART_SHIM_IPV4_OCTETS;
}

/* Write the shim's datagram, chart_shim_octets(flow->family) octets of `ret_payload`. */
CHART_INLINE void chart_shim_build(__u8 *ret_payload, const struct chart_signal *signal,
                                   const struct chart_flow *flow) {
    chart_put16(ret_payload, CHART_SHIM_MAGIC);
    ret_payload[2] = CHART_SHIM_VERSION;
    ret_payload[3] = flow->family;
    ret_payload[4] = flow->protocol;
    ret_payload[5] = 0;
    chart_put16(ret_payload + 6, 0);
    chart_signal_pack(ret_payload + 8, signal);
    __builtin_memcpy(ret_payload + 42, flow->selector, 4);
    if (flow->family == 6) {
        __builtin_memcpy(ret_payload + 46, flow->source, 16);
        __builtin_memcpy(ret_payload + 62, flow->destination, 16);
    } else {
        __builtin_memcpy(ret_payload + 46, flow->source, 4);
        __builtin_memcpy(ret_payload + 50, flow->destination, 4);
    }
}

#endif
