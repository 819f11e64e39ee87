/* A packet as classify and police see it: its flow, the grant that the flow has (remembered), its octets of IP. */
#pragma once

#include "select.bpf.h"

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86DD
#define TCX_NEXT -1
#define TCX_DROP 2
#define FRAGMENT_OFFSET_MASK 0x1fff
#define PACKET_FLOWS_MAX 65536

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, PACKET_FLOWS_MAX);
    __type(key, struct chart_packet_key);
    __type(value, struct chart_packet_flow);
} packet_flows SEC(".maps");

struct ports {
    __be16 source;
    __be16 destination;
};

static __always_inline void read_ports(struct __sk_buff *skb, __u32 offset, struct chart_packet_key *key) {
    struct ports ports;
    if (key->protocol != IPPROTO_TCP && key->protocol != IPPROTO_UDP)
        return;
    if (bpf_skb_load_bytes_relative(skb, offset, &ports, sizeof(ports), BPF_HDR_START_NET))
        return;
    key->source_port = bpf_ntohs(ports.source);
    key->destination_port = bpf_ntohs(ports.destination);
}

/* ret_transport: octets from the IP header to what follows it, or 0 where that is not its beginning. */
static __always_inline bool read_packet(struct __sk_buff *skb, struct chart_packet_key *key, __u32 *ret_transport) {
    if (skb->protocol == bpf_htons(ETH_P_IP)) {
        struct iphdr ip;
        if (bpf_skb_load_bytes_relative(skb, 0, &ip, sizeof(ip), BPF_HDR_START_NET))
            return false;
        map_ipv4(key->source, ip.saddr);
        map_ipv4(key->destination, ip.daddr);
        key->protocol = ip.protocol;
        key->dscp = ip.tos >> 2;
        *ret_transport = bpf_ntohs(ip.frag_off) & FRAGMENT_OFFSET_MASK ? 0 : ip.ihl * 4;
        if (*ret_transport)
            read_ports(skb, *ret_transport, key);
        return true;
    }
    if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
        struct ipv6hdr ip;
        if (bpf_skb_load_bytes_relative(skb, 0, &ip, sizeof(ip), BPF_HDR_START_NET))
            return false;
        __builtin_memcpy(key->source, &ip.saddr, sizeof(key->source));
        __builtin_memcpy(key->destination, &ip.daddr, sizeof(key->destination));
        key->protocol = ip.nexthdr;
        key->dscp = (ip.priority << 2) | (ip.flow_lbl[0] >> 6);
        *ret_transport = sizeof(ip);
        read_ports(skb, sizeof(ip), key);
        return true;
    }
    return false;
}

/* The grant of a packet, remembered or looked up anew when the selectors changed. */
static __always_inline struct chart_packet_flow *find_flow(const struct chart_packet_key *key,
                                                           const struct chart_node_config *config) {
    struct chart_packet_flow *known = bpf_map_lookup_elem(&packet_flows, key);
    if (known && known->generation == config->generation)
        return known;
    struct flow_address address = {
        .source_port = key->source_port,
        .destination_port = key->destination_port,
        .protocol = key->protocol,
        .dscp = key->dscp,
    };
    __builtin_memcpy(address.source, key->source, sizeof(address.source));
    __builtin_memcpy(address.destination, key->destination, sizeof(address.destination));
    const struct chart_selector *selector = find_selector(&address, config);
    struct chart_packet_flow fresh = {
        .grant = selector ? selector->grant : 0,
        .generation = config->generation,
        .expedited = selector ? selector->expedited : 0,
    };
    bpf_map_update_elem(&packet_flows, key, &fresh, BPF_ANY);
    return bpf_map_lookup_elem(&packet_flows, key);
}
