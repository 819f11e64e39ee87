/* "Packet too big": what a router says to who sent a packet that does not fit the overlay (RFC 792 with RFC 1191, RFC
 * 4443 section 3.2). The packet itself becomes the message. Its source is the address that could not be reached with
 * such packets: a node may have none of its own in the sender's sight. */
#pragma once

#include "overlay_packet.bpf.h"

#define ICMP_UNREACHABLE 3
#define ICMP_TOO_BIG_CODE 4
#define ICMP6_TOO_BIG 2
#define ICMP_PROTOCOL 1
#define ICMP6_PROTOCOL 58
#define ICMP_BYTES 8
#define QUOTED_TRANSPORT_BYTES 8
#define MESSAGE_HOPS 64

/* Ones' complement sum of `sum` folded to a checksum. */
static __always_inline __sum16 overlay_fold(__s64 sum) {
    sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32 & 0xffff);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (__sum16)~sum;
}

struct overlay_ipv4_message {
    struct iphdr ip;
    __u8 type;
    __u8 code;
    __sum16 check;
    __be16 unused;
    __be16 mtu;
};

static __always_inline bool overlay_too_big_ipv4(struct __sk_buff *skb, const struct overlay_packet *packet,
                                                 __u32 mtu) {
    struct overlay_ipv4_message message = {};
    __u8 quoted[IPV4_BYTES + QUOTED_TRANSPORT_BYTES];
    __u32 at = packet->link_header_bytes;
    /* A header with options is left to be fragmented. */
    if (packet->transport != IPV4_BYTES || bpf_skb_load_bytes(skb, at, quoted, sizeof(quoted)) ||
        bpf_skb_change_tail(skb, at + sizeof(quoted), 0) ||
        bpf_skb_adjust_room(skb, sizeof(message), BPF_ADJ_ROOM_MAC, 0))
        return false;
    message.ip.version = 4;
    message.ip.ihl = 5;
    message.ip.ttl = MESSAGE_HOPS;
    message.ip.protocol = ICMP_PROTOCOL;
    message.ip.tot_len = bpf_htons(sizeof(message) + sizeof(quoted));
    message.ip.saddr = packet->destination[3];
    message.ip.daddr = packet->source[3];
    message.ip.check = overlay_fold(bpf_csum_diff(NULL, 0, (__be32 *)&message.ip, sizeof(message.ip), 0));
    message.type = ICMP_UNREACHABLE;
    message.code = ICMP_TOO_BIG_CODE;
    message.mtu = bpf_htons(mtu);
    message.check = overlay_fold(bpf_csum_diff(NULL, 0, (__be32 *)quoted, sizeof(quoted),
                                               bpf_csum_diff(NULL, 0, (__be32 *)&message.type, ICMP_BYTES, 0)));
    return !bpf_skb_store_bytes(skb, at, &message, sizeof(message), BPF_F_INVALIDATE_HASH) &&
           !bpf_skb_store_bytes(skb, at + sizeof(message), quoted, sizeof(quoted), 0);
}

struct overlay_ipv6_message {
    struct ipv6hdr ip;
    __u8 type;
    __u8 code;
    __sum16 check;
    __be32 mtu;
};

static __always_inline bool overlay_too_big_ipv6(struct __sk_buff *skb, const struct overlay_packet *packet,
                                                 __u32 mtu) {
    struct overlay_ipv6_message message = {};
    __u8 quoted[IPV6_BYTES + QUOTED_TRANSPORT_BYTES];
    __be32 pseudo[2] = {bpf_htonl(ICMP_BYTES + sizeof(quoted)), bpf_htonl(ICMP6_PROTOCOL)};
    __u32 at = packet->link_header_bytes;
    __s64 sum;
    if (bpf_skb_load_bytes(skb, at, quoted, sizeof(quoted)) || bpf_skb_change_tail(skb, at + sizeof(quoted), 0) ||
        bpf_skb_adjust_room(skb, sizeof(message), BPF_ADJ_ROOM_MAC, 0))
        return false;
    message.ip.version = 6;
    message.ip.hop_limit = MESSAGE_HOPS;
    message.ip.nexthdr = ICMP6_PROTOCOL;
    message.ip.payload_len = bpf_htons(ICMP_BYTES + sizeof(quoted));
    __builtin_memcpy(&message.ip.saddr, packet->destination, sizeof(message.ip.saddr));
    __builtin_memcpy(&message.ip.daddr, packet->source, sizeof(message.ip.daddr));
    message.type = ICMP6_TOO_BIG;
    message.mtu = bpf_htonl(mtu);
    sum = bpf_csum_diff(NULL, 0, (__be32 *)&message.ip.saddr, 2 * sizeof(message.ip.saddr), 0);
    sum = bpf_csum_diff(NULL, 0, pseudo, sizeof(pseudo), sum);
    sum = bpf_csum_diff(NULL, 0, (__be32 *)&message.type, ICMP_BYTES, sum);
    message.check = overlay_fold(bpf_csum_diff(NULL, 0, (__be32 *)quoted, sizeof(quoted), sum));
    return !bpf_skb_store_bytes(skb, at, &message, sizeof(message), BPF_F_INVALIDATE_HASH) &&
           !bpf_skb_store_bytes(skb, at + sizeof(message), quoted, sizeof(quoted), 0);
}

/* Whether the packet is now the message, for who sent it. */
static __always_inline bool overlay_too_big(struct __sk_buff *skb, const struct overlay_packet *packet, __u32 mtu) {
    bool made = packet->ipv6 ? overlay_too_big_ipv6(skb, packet, mtu) : overlay_too_big_ipv4(skb, packet, mtu);
    if (made && packet->link_header_bytes) {
        __u8 addresses[12], swapped[12];
        bpf_skb_load_bytes(skb, 0, addresses, sizeof(addresses));
        __builtin_memcpy(swapped, addresses + 6, 6);
        __builtin_memcpy(swapped + 6, addresses, 6);
        bpf_skb_store_bytes(skb, 0, swapped, sizeof(swapped), 0);
    }
    return made;
}
