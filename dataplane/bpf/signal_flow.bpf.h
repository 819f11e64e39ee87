/* The flow table of `signal` and how a packet or a socket finds its flow in it. Needs vmlinux.h and signal_maps.h. */
#pragma once

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "signal_maps.h"
#include "signal_socket.h"

#define IPV4_HEADER 20u
#define IPV6_HEADER 40u
#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17

/* The agent gives it its size: one entry while rates are not asked for in band. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1);
    __type(key, struct chart_signal_key);
    __type(value, struct chart_signal_flow);
} signal_flows SEC(".maps");

/* Fill the key from the ends of a packet (addresses of 16 octets, ports as they lie in it). Returns the direction: 0
 * when the source is the key's low end. */
static __always_inline __u32 signal_key_set(struct chart_signal_key *ret_key, const void *source,
                                            const void *destination, __u16 source_port, __u16 destination_port,
                                            __u8 protocol) {
    __u64 from[2], to[2];
    bool swap;

    __builtin_memcpy(from, source, sizeof(from));
    __builtin_memcpy(to, destination, sizeof(to));
    if (from[0] != to[0])
        swap = from[0] > to[0];
    else if (from[1] != to[1])
        swap = from[1] > to[1];
    else
        swap = source_port > destination_port;
    ret_key->low[0] = swap ? to[0] : from[0];
    ret_key->low[1] = swap ? to[1] : from[1];
    ret_key->high[0] = swap ? from[0] : to[0];
    ret_key->high[1] = swap ? from[1] : to[1];
    ret_key->low_port = swap ? destination_port : source_port;
    ret_key->high_port = swap ? source_port : destination_port;
    ret_key->protocol = protocol;
    return swap;
}

static __always_inline void signal_map_ipv4(__u8 *ret_address, const void *address) {
    __u64 zero = 0;
    __u32 prefix = bpf_htonl(0xffff);

    __builtin_memcpy(ret_address, &zero, 8);
    __builtin_memcpy(ret_address + 8, &prefix, 4);
    __builtin_memcpy(ret_address + 12, address, 4);
}

struct signal_ends {
    __u8 source[16];
    __u8 destination[16];
};

static __always_inline void signal_ends_of(struct signal_ends *ret, const struct chart_flow *flow) {
    if (flow->family == 6) {
        __builtin_memcpy(ret->source, flow->source, 16);
        __builtin_memcpy(ret->destination, flow->destination, 16);
    } else {
        signal_map_ipv4(ret->source, flow->source);
        signal_map_ipv4(ret->destination, flow->destination);
    }
}

/* The key of the flow that a signal speaks of; protocols without ports have one entry for each pair of hosts. */
static __always_inline __u32 signal_key_of(struct chart_signal_key *ret_key, const struct chart_flow *flow) {
    struct signal_ends ends;
    __u16 ports[2] = {0, 0};

    signal_ends_of(&ends, flow);
    if (flow->protocol == PROTOCOL_TCP || flow->protocol == PROTOCOL_UDP)
        __builtin_memcpy(ports, flow->selector, 4);
    return signal_key_set(ret_key, ends.source, ends.destination, ports[0], ports[1], flow->protocol);
}

/* A packet as far as the egress needs it; on the stack. */
struct signal_packet {
    struct chart_signal_key key;
    struct signal_ends ends;
    __u32 direction;
    __u16 source_port;
    __u16 destination_port;
    __u8 family;
    __u8 protocol;
    __u8 tcp_flags;
    __u8 dscp;
};

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_PSH 0x08
#define TCP_ACK 0x10
#define TCP_URG 0x20

/* TCP and UDP, IPv4 (also with options, not fragments) and IPv6 without extension headers. */
static __always_inline bool signal_read_packet(struct __sk_buff *skb, struct signal_packet *ret) {
    __u8 transport[14];
    __u32 offset;

    if (skb->protocol == bpf_htons(0x0800)) {
        struct iphdr ip;

        if (bpf_skb_load_bytes_relative(skb, 0, &ip, sizeof(ip), BPF_HDR_START_NET) ||
            (ip.frag_off & bpf_htons(0x3fff)))
            return false;
        ret->family = 4;
        ret->protocol = ip.protocol;
        ret->dscp = ip.tos >> 2;
        offset = ip.ihl * 4;
        signal_map_ipv4(ret->ends.source, &ip.saddr);
        signal_map_ipv4(ret->ends.destination, &ip.daddr);
    } else if (skb->protocol == bpf_htons(0x86dd)) {
        struct ipv6hdr ip;

        if (bpf_skb_load_bytes_relative(skb, 0, &ip, sizeof(ip), BPF_HDR_START_NET))
            return false;
        ret->family = 6;
        ret->protocol = ip.nexthdr;
        ret->dscp = (__u8)(ip.priority << 2 | ip.flow_lbl[0] >> 6);
        offset = sizeof(ip);
        __builtin_memcpy(ret->ends.source, &ip.saddr, 16);
        __builtin_memcpy(ret->ends.destination, &ip.daddr, 16);
    } else {
        return false;
    }
    if (ret->protocol == PROTOCOL_TCP) {
        if (bpf_skb_load_bytes_relative(skb, offset, transport, 14, BPF_HDR_START_NET))
            return false;
        ret->tcp_flags = transport[13];
    } else if (ret->protocol == PROTOCOL_UDP) {
        if (bpf_skb_load_bytes_relative(skb, offset, transport, 4, BPF_HDR_START_NET))
            return false;
        ret->tcp_flags = 0;
    } else {
        return false;
    }
    __builtin_memcpy(&ret->source_port, transport, 2);
    __builtin_memcpy(&ret->destination_port, transport + 2, 2);
    ret->direction = signal_key_set(&ret->key, ret->ends.source, ret->ends.destination, ret->source_port,
                                    ret->destination_port, ret->protocol);
    return true;
}

/* Half n of a flow; an index that the verifier can follow. */
static __always_inline struct chart_signal_half *signal_half(struct chart_signal_flow *flow, __u32 direction) {
    return direction & 1 ? &flow->halves[1] : &flow->halves[0];
}
