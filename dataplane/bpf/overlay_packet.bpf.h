/* A packet on its way into or through the overlay: what the programs read of it and change. */
#pragma once

#include "vmlinux.h"

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "overlay_maps.h"

#define ETH_HLEN 14
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86DD
#define TCX_NEXT -1
#define TCX_DROP 2
#define IP_OFFSET_MASK 0x1fff
#define IP_DONT_FRAGMENT 0x4000
#define HOP_BY_HOP 0
#define TCP_OPTION_MSS 2
#define TCP_OPTIONS_MAX 20
#define TCP_SYN 0x02
#define IPV4_BYTES 20
#define IPV6_BYTES 40
#define UDP_BYTES 8
#define TCP_BYTES 20

/* The IP header of a packet as far as the overlay looks at it. */
struct overlay_packet {
    /* Octets in front of the IP header. */
    __u32 link_header_bytes;
    bool ipv6;
    __u8 protocol;
    __u8 hops_left;
    /* DSCP and ECN. */
    __u8 traffic_class;
    bool dont_fragment;
    /* Options of IPv4 or a hop-by-hop header of IPv6: for every router on the way. */
    bool options;
    /* Octets from the IP header to what follows it; 0: not the first fragment. */
    __u32 transport;
    __u32 bytes;
    __u32 source[4];
    __u32 destination[4];
};

static __always_inline void overlay_map_ipv4(__u32 ret[4], __be32 address) {
    ret[0] = 0;
    ret[1] = 0;
    ret[2] = bpf_htonl(0xffff);
    ret[3] = address;
}

/* `protocol`: of what begins behind so many octets. */
static __always_inline bool overlay_read_packet(struct __sk_buff *skb, __u32 link_header_bytes, __be16 protocol,
                                                struct overlay_packet *ret) {
    ret->link_header_bytes = link_header_bytes;
    if (protocol == bpf_htons(ETH_P_IP)) {
        struct iphdr ip;
        if (bpf_skb_load_bytes(skb, link_header_bytes, &ip, sizeof(ip)) || ip.ihl < 5)
            return false;
        overlay_map_ipv4(ret->source, ip.saddr);
        overlay_map_ipv4(ret->destination, ip.daddr);
        ret->ipv6 = false;
        ret->protocol = ip.protocol;
        ret->hops_left = ip.ttl;
        ret->traffic_class = ip.tos;
        ret->dont_fragment = ip.frag_off & bpf_htons(IP_DONT_FRAGMENT);
        ret->options = ip.ihl > 5;
        ret->transport = ip.frag_off & bpf_htons(IP_OFFSET_MASK) ? 0 : ip.ihl * 4;
        ret->bytes = bpf_ntohs(ip.tot_len);
        return true;
    }
    if (protocol == bpf_htons(ETH_P_IPV6)) {
        struct ipv6hdr ip;
        if (bpf_skb_load_bytes(skb, link_header_bytes, &ip, sizeof(ip)))
            return false;
        __builtin_memcpy(ret->source, &ip.saddr, sizeof(ret->source));
        __builtin_memcpy(ret->destination, &ip.daddr, sizeof(ret->destination));
        ret->ipv6 = true;
        ret->protocol = ip.nexthdr;
        ret->hops_left = ip.hop_limit;
        ret->traffic_class = (ip.priority << 4) | (ip.flow_lbl[0] >> 4);
        ret->dont_fragment = true;
        ret->options = ip.nexthdr == HOP_BY_HOP;
        ret->transport = sizeof(ip);
        ret->bytes = bpf_ntohs(ip.payload_len) + sizeof(ip);
        return true;
    }
    return false;
}

/* Whether one of a UDP packet's ports is this one; 0 is nobody's. */
static __always_inline bool overlay_has_port(struct __sk_buff *skb, const struct overlay_packet *packet, __u32 port) {
    __be16 ports[2];
    if (!port || packet->protocol != IPPROTO_UDP || !packet->transport ||
        bpf_skb_load_bytes(skb, packet->link_header_bytes + packet->transport, ports, sizeof(ports)))
        return false;
    return ports[0] == bpf_htons(port) || ports[1] == bpf_htons(port);
}

/* One hop fewer; the caller knows that more than one is left. */
static __always_inline void overlay_spend_hop(struct __sk_buff *skb, const struct overlay_packet *packet) {
    __u8 left = packet->hops_left - 1;
    if (packet->ipv6) {
        bpf_skb_store_bytes(skb, packet->link_header_bytes + offsetof(struct ipv6hdr, hop_limit), &left, sizeof(left),
                            BPF_F_RECOMPUTE_CSUM);
        return;
    }
    /* The octet shares its checksum word with the protocol. */
    __be16 before = bpf_htons((packet->hops_left << 8) | packet->protocol);
    __be16 after = bpf_htons((left << 8) | packet->protocol);
    bpf_l3_csum_replace(skb, packet->link_header_bytes + offsetof(struct iphdr, check), before, after, sizeof(after));
    bpf_skb_store_bytes(skb, packet->link_header_bytes + offsetof(struct iphdr, ttl), &left, sizeof(left), 0);
}

/* Octets of IP of the packet as it will be sent: of one of its segments where the kernel joined several. */
static __always_inline __u32 overlay_sent_bytes(struct __sk_buff *skb, const struct overlay_packet *packet) {
    __u32 segment = *(const volatile __u32 *)&skb->gso_size;
    __u8 words = 0;
    if (!segment)
        return packet->bytes;
    if (packet->protocol == IPPROTO_UDP)
        return packet->transport + UDP_BYTES + segment;
    bpf_skb_load_bytes(skb, packet->link_header_bytes + packet->transport + offsetof(struct tcphdr, ack_seq) + 4,
                       &words, sizeof(words));
    return packet->transport + (words >> 4) * 4 + segment;
}

/* Lower the largest segment that the opening packet of a TCP connection offers to what fits. Whether it was lowered. */
static __always_inline bool overlay_clamp_segment(struct __sk_buff *skb, const struct overlay_packet *packet,
                                                  __u32 mtu) {
    __u32 tcp = packet->link_header_bytes + packet->transport, at = tcp + TCP_BYTES, end;
    __u32 fits = mtu - (packet->ipv6 ? IPV6_BYTES : IPV4_BYTES) - TCP_BYTES;
    __u8 head[2];
    if (packet->protocol != IPPROTO_TCP || !packet->transport ||
        bpf_skb_load_bytes(skb, tcp + offsetof(struct tcphdr, ack_seq) + 4, head, sizeof(head)) || !(head[1] & TCP_SYN))
        return false;
    end = tcp + (head[0] >> 4) * 4;
    for (int i = 0; i < TCP_OPTIONS_MAX && at + 4 <= end; i++) {
        __u8 option[2];
        if (bpf_skb_load_bytes(skb, at, option, sizeof(option)) || !option[0])
            return false;
        if (option[0] == 1) {
            at++;
            continue;
        }
        if (option[0] == TCP_OPTION_MSS) {
            __be16 offered, lowered = bpf_htons(fits);
            if (bpf_skb_load_bytes(skb, at + 2, &offered, sizeof(offered)) || bpf_ntohs(offered) <= fits)
                return false;
            /* The words of the checksum begin at even octets of the header: an option may lie across two. */
            if ((at - tcp) & 1) {
                __be16 from = bpf_htons((bpf_ntohs(offered) << 8) | (bpf_ntohs(offered) >> 8));
                __be16 to = bpf_htons((fits << 8 & 0xff00) | (fits >> 8 & 0xff));
                bpf_l4_csum_replace(skb, tcp + offsetof(struct tcphdr, check), from, to, sizeof(to));
            } else {
                bpf_l4_csum_replace(skb, tcp + offsetof(struct tcphdr, check), offered, lowered, sizeof(lowered));
            }
            bpf_skb_store_bytes(skb, at + 2, &lowered, sizeof(lowered), 0);
            return true;
        }
        if (option[1] < 2)
            return false;
        at += option[1];
    }
    return false;
}
