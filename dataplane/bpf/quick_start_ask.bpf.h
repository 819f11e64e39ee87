/* What the sending host writes into its packets: the request into the SYN, the report of the approved rate into the
 * first acknowledgement (RFC 4782, sections 3.1 and 4.1). */
#pragma once

#include "packet.bpf.h"

#include "quick_start_host.bpf.h"

#define TCP_FLAGS_AT 13
#define TCP_FLAG_SYN 0x02
#define TCP_FLAG_ACK 0x10

/* Where a SYN with the option stayed without an answer (LRU hash: address). Writer: the classifier. */
struct qs_address {
    __u32 address[4];
};

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, QS_DROPPERS_MAX);
    __type(key, struct qs_address);
    __type(value, struct chart_qs_dropper);
} qs_droppers SEC(".maps");

/* RFC 1071 over a header with the option in it, its own field being 0. */
static __always_inline __be16 header_checksum(const __u16 *header) {
    __u32 sum = 0;
    for (__u32 i = 0; i < (IPV4_BYTES + CHART_QS_OCTETS) / 2; i++)
        sum += header[i];
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (__be16)~sum;
}

/* Put the option behind the fixed part of an IPv4 header that has no options. `ip`: octets to the header. */
static __always_inline bool insert_option(struct __sk_buff *skb, __u32 ip, const __u8 *option) {
    struct {
        struct iphdr fixed;
        __u8 option[CHART_QS_OCTETS];
    } header;
    if (bpf_skb_load_bytes(skb, ip, &header.fixed, sizeof(header.fixed)))
        return false;
    header.fixed.ihl = (IPV4_BYTES + CHART_QS_OCTETS) / 4;
    header.fixed.tot_len = bpf_htons((__u16)(bpf_ntohs(header.fixed.tot_len) + CHART_QS_OCTETS));
    header.fixed.check = 0;
    __builtin_memcpy(header.option, option, CHART_QS_OCTETS);
    header.fixed.check = header_checksum((const __u16 *)&header);
    if (bpf_skb_adjust_room(skb, CHART_QS_OCTETS, BPF_ADJ_ROOM_NET, 0))
        return false;
    return !bpf_skb_store_bytes(skb, ip, &header, sizeof(header), 0);
}

static __always_inline bool ask(struct __sk_buff *skb, __u32 ip, const struct qs_flow_key *key, __u32 rate) {
    __u8 option[CHART_QS_OCTETS] = {CHART_QS_IPV4, CHART_QS_IPV4_LENGTH, (__u8)rate}, ttl;
    __u32 random = bpf_get_prandom_u32();
    struct qs_flow flow = {.nonce = random >> 2, .state = QS_ASKED, .asked = (__u8)rate};
    if (bpf_skb_load_bytes(skb, ip + offsetof(struct iphdr, ttl), &ttl, sizeof(ttl)))
        return false;
    option[3] = (__u8)bpf_get_prandom_u32();
    chart_qs_put_nonce(option, flow.nonce);
    flow.ttl_difference = (__u8)(ttl - option[3]);
    if (bpf_map_update_elem(&qs_flows, key, &flow, BPF_ANY))
        return false;
    if (insert_option(skb, ip, option))
        return true;
    bpf_map_delete_elem(&qs_flows, key);
    return false;
}

static __always_inline bool report_approved(struct __sk_buff *skb, __u32 ip, struct qs_flow *flow) {
    __u8 option[CHART_QS_OCTETS] = {CHART_QS_IPV4, CHART_QS_IPV4_LENGTH, CHART_QS_REPORT << 4 | (flow->approved & 0xf)};
    flow->state = QS_REPORTED;
    chart_qs_put_nonce(option, flow->nonce);
    return insert_option(skb, ip, option);
}

/* A packet of a process of this node: 1: an option was put in, else 0. `transport`: octets from the IP header to
 * TCP's. */
QS_FUNCTION int quick_start_host(struct __sk_buff *skb, const struct chart_packet_key *packet, __u32 ip,
                                 __u32 transport) {
    __u32 zero = 0;
    __u64 now_ns = bpf_ktime_get_ns();
    const struct chart_node_config *config = bpf_map_lookup_elem(&node_config, &zero);
    if (!packet || !config)
        return 0;
    struct qs_flow_key key = {.source_port = packet->source_port, .destination_port = packet->destination_port};
    struct qs_address address;
    __u8 tcp[TCP_FLAGS_AT + 1];
    if (skb->ingress_ifindex || skb->protocol != bpf_htons(ETH_P_IP) || packet->protocol != IPPROTO_TCP ||
        transport != IPV4_BYTES || bpf_skb_load_bytes(skb, ip + transport, tcp, sizeof(tcp)))
        return false;
    bool syn = (tcp[TCP_FLAGS_AT] & (TCP_FLAG_SYN | TCP_FLAG_ACK)) == TCP_FLAG_SYN;
    /* Nothing but a header: the acknowledgement that ends the handshake, which has room for the report. */
    if (!syn && skb->len != ip + transport + (tcp[12] >> 4) * 4)
        return false;
    if (config->cgroup_id && (__u64)bpf_skb_ancestor_cgroup_id(skb, (int)config->cgroup_level) != config->cgroup_id)
        return false;
    __builtin_memcpy(key.source, packet->source, sizeof(key.source));
    __builtin_memcpy(key.destination, packet->destination, sizeof(key.destination));
    __builtin_memcpy(address.address, packet->destination, sizeof(address.address));
    struct qs_flow *flow = bpf_map_lookup_elem(&qs_flows, &key);
    if (!syn)
        return flow && flow->state == QS_ANSWERED && report_approved(skb, ip, flow);
    const struct chart_qs_dropper *known = bpf_map_lookup_elem(&qs_droppers, &address);
    struct chart_qs_dropper dropper = known ? *known : (struct chart_qs_dropper){0};
    if (flow && flow->state == QS_ASKED) {
        /* The SYN is repeated: something on the way may drop what has options. */
        chart_qs_unanswered(&dropper, now_ns);
        bpf_map_update_elem(&qs_droppers, &address, &dropper, BPF_ANY);
        bpf_map_delete_elem(&qs_flows, &key);
        return false;
    }
    if (now_ns < dropper.until_ns)
        return false;
    return ask(skb, ip, &key, config->quick_start_rate);
}
