/* Finding a signal in a packet: the IPv4 option, the IPv6 hop-by-hop option and the UDP shim (docs/signalling.md).
 *
 * Each parser reads `length` octets at `packet`, at most CHART_PARSE_MAX of them; the IP parsers start at the IP
 * header. In BPF the packet is copied first (bpf_skb_load_bytes), into memory of CHART_PARSE_MAX octets. Checksums are
 * not looked at: the tag says more. A data packet need not come here: IHL 5 or an IPv6 next header other than 0 carries
 * no signal.
 */
#ifndef CHART_QOS_PARSE_H
#define CHART_QOS_PARSE_H

#include "qos_structure.h"

/* Whether `size` octets from `offset` are inside; the first test is for the BPF verifier, which knows the buffer's
 * size. */
CHART_INLINE int chart_within(__u32 offset, __u32 size, __u32 length) {
    return offset <= CHART_PARSE_MAX - size && offset + size <= length;
}

/* Where a walk stands is kept in ret_parsed->signal_offset or transport_offset and read back at each step. In BPF that
 * is map memory, of which the verifier remembers nothing: it then sees one state per step instead of one per way to get
 * there. */
CHART_INLINE __u32 chart_reread(const __u32 *cursor) {
    return *(const volatile __u32 *)cursor;
}

/* Protocols whose first four octets are source and destination port: TCP, UDP, DCCP, SCTP, UDP-Lite. */
CHART_INLINE int chart_has_ports(__u8 protocol) {
    return protocol == 6 || protocol == 17 || protocol == 33 || protocol == 132 || protocol == 136;
}

/* Offset of the signal among the IPv4 options, which end at `header` octets. */
CHART_INLINE int chart_ipv4_find(__u32 *ret_offset, const __u8 *packet, __u32 header) {
    __u32 offset, i, size;
    __u8 type;

    *ret_offset = CHART_IPV4_HEADER;
    for (i = 0; i < CHART_IPV4_HEADER_MAX - CHART_IPV4_HEADER; i++) {
        offset = chart_reread(ret_offset);
        CHART_OPAQUE(offset);
        if (offset >= header || offset > CHART_IPV4_HEADER_MAX - 1)
            return CHART_QOS_NO_SIGNAL;
        type = packet[offset];
        if (type == 0)
            return CHART_QOS_NO_SIGNAL;
        if (type == 1) {
            *ret_offset = offset + 1;
            continue;
        }
        if (offset + 1 >= header)
            return CHART_QOS_BAD_OPTION;
        size = packet[offset + 1];
        if (size < 2 || offset + size > header)
            return CHART_QOS_BAD_OPTION;
        if (type == CHART_IPV4_OPTION_TYPE) {
            if (size != CHART_IPV4_OPTION_OCTETS)
                return CHART_QOS_BAD_SIGNAL_LENGTH;
            *ret_offset = offset + 2;
            return CHART_QOS_OK;
        }
        *ret_offset = offset + size;
    }
    return CHART_QOS_NO_SIGNAL;
}

CHART_INLINE int chart_ipv4_parse(struct chart_parsed *ret_parsed, const __u8 *packet, __u32 length) {
    struct chart_flow *flow = &ret_parsed->flow;
    __u32 header, total, offset;
    int error;

    if (length < CHART_IPV4_HEADER)
        return CHART_QOS_TRUNCATED;
    if (packet[0] >> 4 != 4)
        return CHART_QOS_NOT_IP;
    header = (packet[0] & 15) * 4;
    total = chart_get16(packet + 2);
    if (header < CHART_IPV4_HEADER || total < header)
        return CHART_QOS_BAD_HEADER;
    if (length > total)
        length = total;
    if (header > length)
        return CHART_QOS_TRUNCATED;
    error = chart_ipv4_find(&ret_parsed->signal_offset, packet, header);
    if (error)
        return error;
    if (chart_get16(packet + 6) & 0x3fff)
        return CHART_QOS_FRAGMENT;

    __builtin_memset(flow, 0, sizeof(*flow));
    flow->family = 4;
    flow->protocol = packet[9];
    __builtin_memcpy(flow->source, packet + 12, 4);
    __builtin_memcpy(flow->destination, packet + 16, 4);
    CHART_OPAQUE(header);
    if (chart_has_ports(flow->protocol)) {
        if (!chart_within(header, 4, length))
            return CHART_QOS_TRUNCATED;
        __builtin_memcpy(flow->selector, packet + header, 4);
    }
    ret_parsed->transport_offset = header;
    offset = chart_reread(&ret_parsed->signal_offset);
    CHART_OPAQUE(offset);
    if (!chart_within(offset, CHART_SIGNAL_OCTETS, length))
        return CHART_QOS_TRUNCATED;
    return chart_signal_unpack(&ret_parsed->signal, packet + offset);
}

/* Offset of the one signal in the hop-by-hop header that ends at `end`. */
CHART_INLINE int chart_ipv6_find(struct chart_parsed *ret_parsed, const __u8 *packet, __u32 end) {
    __u32 *cursor = &ret_parsed->transport_offset, offset, i, size;
    __u8 type;

    *cursor = CHART_IPV6_HEADER + 2;
    ret_parsed->signal_offset = 0;
    for (i = 0; i < CHART_IPV6_OPTIONS_MAX; i++) {
        offset = chart_reread(cursor);
        CHART_OPAQUE(offset);
        if (offset >= end || offset > CHART_IPV6_HEADER + CHART_IPV6_HOP_MAX - 1)
            break;
        type = packet[offset];
        if (type == 0) { /* Pad1 */
            *cursor = offset + 1;
            continue;
        }
        if (offset + 2 > end)
            return CHART_QOS_BAD_OPTION;
        size = packet[offset + 1];
        if (offset + 2 + size > end)
            return CHART_QOS_BAD_OPTION;
        if (type == CHART_IPV6_OPTION_TYPE) {
            if (size != CHART_SIGNAL_OCTETS)
                return CHART_QOS_BAD_SIGNAL_LENGTH;
            if (chart_reread(&ret_parsed->signal_offset))
                return CHART_QOS_DUPLICATE;
            ret_parsed->signal_offset = offset + 2;
        }
        *cursor = offset + 2 + size;
    }
    if (chart_reread(cursor) < end)
        return CHART_QOS_BAD_OPTION;
    return chart_reread(&ret_parsed->signal_offset) ? CHART_QOS_OK : CHART_QOS_NO_SIGNAL;
}

/* Walk from ret_parsed->transport_offset, where a header of type flow->protocol stands, to the upper layer. */
CHART_INLINE int chart_ipv6_upper(struct chart_parsed *ret_parsed, const __u8 *packet, __u32 length) {
    struct chart_flow *flow = &ret_parsed->flow;
    __u32 offset, i, size;
    __u8 protocol;

    for (i = 0; i <= CHART_IPV6_EXTENSIONS_MAX; i++) {
        protocol = *(volatile __u8 *)&flow->protocol;
        /* Routing 43, AH 51, destination options 60, mobility 135; a fragment header (44) hides the ports. */
        if (protocol != 43 && protocol != 51 && protocol != 60 && protocol != 135)
            break;
        if (i == CHART_IPV6_EXTENSIONS_MAX)
            return CHART_QOS_BAD_HEADER;
        offset = chart_reread(&ret_parsed->transport_offset);
        CHART_OPAQUE(offset);
        if (!chart_within(offset, 8, length))
            return CHART_QOS_TRUNCATED;
        size = packet[offset + 1];
        size = protocol == 51 ? (size + 2) * 4 : (size + 1) * 8;
        flow->protocol = packet[offset];
        ret_parsed->transport_offset = offset + size;
    }
    offset = chart_reread(&ret_parsed->transport_offset);
    CHART_OPAQUE(offset);
    if (chart_has_ports(flow->protocol)) {
        if (!chart_within(offset, 4, length))
            return CHART_QOS_TRUNCATED;
        __builtin_memcpy(flow->selector, packet + offset, 4);
    } else {
        chart_put32(flow->selector, chart_get32(packet) & 0xfffff);
    }
    return CHART_QOS_OK;
}

CHART_INLINE int chart_ipv6_parse(struct chart_parsed *ret_parsed, const __u8 *packet, __u32 length) {
    struct chart_flow *flow = &ret_parsed->flow;
    __u32 hop, total, offset;
    int error;

    if (length < CHART_IPV6_HEADER)
        return CHART_QOS_TRUNCATED;
    if (packet[0] >> 4 != 6)
        return CHART_QOS_NOT_IP;
    if (packet[6] != 0)
        return CHART_QOS_NO_SIGNAL;
    total = CHART_IPV6_HEADER + chart_get16(packet + 4);
    if (length > total)
        length = total;
    if (length > CHART_PARSE_MAX)
        length = CHART_PARSE_MAX;
    if (length < CHART_IPV6_HEADER + 8)
        return CHART_QOS_TRUNCATED;
    hop = ((__u32)packet[CHART_IPV6_HEADER + 1] + 1) * 8;
    if (hop > CHART_IPV6_HOP_MAX)
        return CHART_QOS_NO_SIGNAL;
    if (CHART_IPV6_HEADER + hop > length)
        return CHART_QOS_TRUNCATED;
    error = chart_ipv6_find(ret_parsed, packet, CHART_IPV6_HEADER + hop);
    if (error)
        return error;

    __builtin_memset(flow, 0, sizeof(*flow));
    flow->family = 6;
    __builtin_memcpy(flow->source, packet + 8, 16);
    __builtin_memcpy(flow->destination, packet + 24, 16);
    flow->protocol = packet[CHART_IPV6_HEADER];
    ret_parsed->transport_offset = CHART_IPV6_HEADER + hop;
    error = chart_ipv6_upper(ret_parsed, packet, length);
    if (error)
        return error;
    offset = chart_reread(&ret_parsed->signal_offset);
    CHART_OPAQUE(offset);
    if (!chart_within(offset, CHART_SIGNAL_OCTETS, length))
        return CHART_QOS_TRUNCATED;
    return chart_signal_unpack(&ret_parsed->signal, packet + offset);
}

/* The shim's datagram, from after the UDP header; `length` is exactly its length. */
CHART_INLINE int chart_shim_parse(struct chart_parsed *ret_parsed, const __u8 *payload, __u32 length) {
    struct chart_flow *flow = &ret_parsed->flow;

    if (length < 4)
        return CHART_QOS_TRUNCATED;
    if (chart_get16(payload) != CHART_SHIM_MAGIC)
        return CHART_QOS_NOT_SHIM;
    if (payload[2] != CHART_SHIM_VERSION || (payload[3] != 4 && payload[3] != 6))
        return CHART_QOS_BAD_SHIM;
    if (length < (payload[3] == 6 ? CHART_SHIM_IPV6_OCTETS : CHART_SHIM_IPV4_OCTETS))
        return CHART_QOS_TRUNCATED;
    if (length != (payload[3] == 6 ? CHART_SHIM_IPV6_OCTETS : CHART_SHIM_IPV4_OCTETS))
        return CHART_QOS_BAD_SHIM;
    if (payload[5] | payload[6] | payload[7])
        return CHART_QOS_BAD_RESERVED;
    __builtin_memset(flow, 0, sizeof(*flow));
    flow->family = payload[3];
    flow->protocol = payload[4];
    __builtin_memcpy(flow->selector, payload + 42, 4);
    if (flow->family == 6) {
        __builtin_memcpy(flow->source, payload + 46, 16);
        __builtin_memcpy(flow->destination, payload + 62, 16);
    } else {
        __builtin_memcpy(flow->source, payload + 46, 4);
        __builtin_memcpy(flow->destination, payload + 50, 4);
    }
    ret_parsed->signal_offset = 8;
    ret_parsed->transport_offset = 0;
    return chart_signal_unpack(&ret_parsed->signal, payload + 8);
}

#endif
