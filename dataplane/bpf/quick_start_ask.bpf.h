/* What the sending host writes into its packets: requests into a SYN or SYN-ACK, and into a packet without data ahead
 * of the first data after an idle time; the report of the approved rate into the next packet that has room for it, or
 * one ahead of it (RFC 4782, sections 3.1 and 4.1). */
#pragma once

#include "packet.bpf.h"

#include "marks.h"
#include "quick_start_respond.bpf.h"

#define QS_DROPPERS_MAX 4096
/* IPv6's hop-by-hop header: next header, length, the option, PadN. */
#define IPV6_OPTIONS_BYTES 16
#define IPV6_PADN 1
#define CHECKSUM_PARTIAL 3

/* Where a request stayed without an answer (LRU hash: address). Writer: the classifier. */
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

struct qs_option {
    __u8 octets[CHART_QS_OCTETS];
};

static __always_inline int insert_ipv6(struct __sk_buff *skb, __u32 ip, const struct qs_option *option) {
    struct {
        struct ipv6hdr fixed;
        __u8 options[IPV6_OPTIONS_BYTES];
    } header = {};
    if (bpf_skb_load_bytes(skb, ip, &header.fixed, sizeof(header.fixed)))
        return 0;
    header.options[0] = header.fixed.nexthdr;
    header.options[1] = IPV6_OPTIONS_BYTES / 8 - 1;
    __builtin_memcpy(header.options + 2, option->octets, CHART_QS_OCTETS);
    header.options[2 + CHART_QS_OCTETS] = IPV6_PADN;
    header.options[3 + CHART_QS_OCTETS] = IPV6_OPTIONS_BYTES - 4 - CHART_QS_OCTETS;
    header.fixed.nexthdr = IPV6_HOP_BY_HOP;
    header.fixed.payload_len = bpf_htons((__u16)(bpf_ntohs(header.fixed.payload_len) + IPV6_OPTIONS_BYTES));
    if (bpf_skb_adjust_room(skb, IPV6_OPTIONS_BYTES, BPF_ADJ_ROOM_NET, 0))
        return 0;
    return bpf_skb_store_bytes(skb, ip, &header, sizeof(header), 0) ? 0 : IPV6_OPTIONS_BYTES;
}

/* Put the option behind the fixed part of a header that has no options. `ip`: octets to the header. Returns by how many
 * octets it grew; 0: the packet is as it was. */
QS_FUNCTION int quick_start_insert(struct __sk_buff *skb, __u32 ip, const struct qs_option *option) {
    struct {
        struct iphdr fixed;
        __u8 option[CHART_QS_OCTETS];
    } header;
    if (!option)
        return 0;
    if (skb->protocol != bpf_htons(ETH_P_IP))
        return insert_ipv6(skb, ip, option);
    if (bpf_skb_load_bytes(skb, ip, &header.fixed, sizeof(header.fixed)))
        return 0;
    header.fixed.ihl = (IPV4_BYTES + CHART_QS_OCTETS) / 4;
    header.fixed.tot_len = bpf_htons((__u16)(bpf_ntohs(header.fixed.tot_len) + CHART_QS_OCTETS));
    header.fixed.check = 0;
    __builtin_memcpy(header.option, option->octets, CHART_QS_OCTETS);
    header.fixed.check = header_checksum((const __u16 *)&header);
    if (bpf_skb_adjust_room(skb, CHART_QS_OCTETS, BPF_ADJ_ROOM_NET, 0))
        return 0;
    return bpf_skb_store_bytes(skb, ip, &header, sizeof(header), 0) ? 0 : CHART_QS_OCTETS;
}

static __always_inline void begin_option(const struct __sk_buff *skb, struct qs_option *option) {
    bool ipv6 = skb->protocol != bpf_htons(ETH_P_IP);
    option->octets[0] = ipv6 ? CHART_QS_IPV6 : CHART_QS_IPV4;
    option->octets[1] = ipv6 ? CHART_QS_IPV6_LENGTH : CHART_QS_IPV4_LENGTH;
}

/* Octets put in. */
static __always_inline int ask(struct __sk_buff *skb, const struct qs_packet *packet, __u32 rate) {
    struct qs_option option = {{0, 0, (__u8)rate}};
    struct qs_flow flow = {.state = QS_ASKED, .asked_ns = packet->now_ns, .sent_ns = packet->now_ns};
    __u8 ttl;
    if (bpf_skb_load_bytes(skb, packet->ip + qs_ttl_at(skb), &ttl, sizeof(ttl)))
        return 0;
    begin_option(skb, &option);
    option.octets[3] = (__u8)bpf_get_prandom_u32();
    flow.asked.nonce = bpf_get_prandom_u32() >> 2;
    flow.asked.rate = (__u8)rate;
    flow.asked.ttl_difference = (__u8)(ttl - option.octets[3]);
    chart_qs_put_nonce(option.octets, flow.asked.nonce);
    if (bpf_map_update_elem(&qs_flows, &packet->key, &flow, BPF_ANY))
        return 0;
    int inserted = quick_start_insert(skb, packet->ip, &option);
    if (inserted)
        qs_count(CHART_QS_COUNT_ASKED);
    else
        bpf_map_delete_elem(&qs_flows, &packet->key);
    return inserted;
}

static __always_inline int report_approved(struct __sk_buff *skb, const struct qs_packet *packet,
                                           struct qs_flow *flow) {
    struct qs_option option = {{0, 0, CHART_QS_REPORT << 4 | (flow->approved & 0xf)}};
    begin_option(skb, &option);
    flow->state = QS_REPORTED;
    chart_qs_put_nonce(option.octets, flow->asked.nonce);
    return quick_start_insert(skb, packet->ip, &option);
}

static __always_inline bool is_dropper(const struct qs_packet *packet) {
    struct qs_address address;
    __builtin_memcpy(address.address, packet->key.destination, sizeof(address.address));
    const struct chart_qs_dropper *dropper = bpf_map_lookup_elem(&qs_droppers, &address);
    return dropper && packet->now_ns < dropper->until_ns;
}

static __always_inline void note_unanswered(const struct qs_packet *packet) {
    struct qs_address address;
    __builtin_memcpy(address.address, packet->key.destination, sizeof(address.address));
    const struct chart_qs_dropper *known = bpf_map_lookup_elem(&qs_droppers, &address);
    struct chart_qs_dropper dropper = known ? *known : (struct chart_qs_dropper){0};
    chart_qs_unanswered(&dropper, packet->now_ns);
    bpf_map_update_elem(&qs_droppers, &address, &dropper, BPF_ANY);
    qs_count(CHART_QS_COUNT_UNANSWERED);
}

/* A SYN, or a SYN-ACK (`may`: whether it asks when it is new). One that is repeated goes without: something on the way
 * may drop what has options. */
static __always_inline int ask_at_first(struct __sk_buff *skb, const struct qs_packet *packet, __u32 rate, bool may) {
    const struct qs_flow *flow = bpf_map_lookup_elem(&qs_flows, &packet->key);
    if (flow && flow->state == QS_ASKED) {
        note_unanswered(packet);
        bpf_map_delete_elem(&qs_flows, &packet->key);
        return 0;
    }
    return !may || is_dropper(packet) ? 0 : ask(skb, packet, rate);
}

/* Whether an established connection has something to say ahead of this data: the report, or after an idle time of a
 * retransmission timeout (RFC 6298) a request, unless the path lost or marked anything of it before (section 4.6). */
QS_FUNCTION int quick_start_due(struct __sk_buff *skb) {
    const struct qs_packet *packet = qs_packet();
    struct qs_flow *flow = packet ? bpf_map_lookup_elem(&qs_flows, &packet->key) : NULL;
    if (!flow)
        return false;
    __u64 now_ns = packet->now_ns, sent_ns = flow->sent_ns;
    flow->sent_ns = now_ns;
    if (flow->state == QS_ANSWERED)
        return true;
    struct bpf_sock *sk = skb->sk;
    sk = sk ? bpf_sk_fullsock(sk) : NULL;
    const struct tcp_sock *tp = sk ? bpf_skc_to_tcp_sock(sk) : NULL;
    if (!tp)
        return false;
    __u64 timeout_ns = ((__u64)(tp->srtt_us >> 3) + tp->rttvar_us) * 1000;
    if (flow->state == QS_ASKED) {
        if (now_ns - flow->asked_ns < timeout_ns)
            return false;
        note_unanswered(packet);
        qs_take_answer(flow, NULL);
        return true;
    }
    if (flow->lied_to || now_ns - sent_ns < timeout_ns || tp->total_retrans || tp->delivered_ce || is_dropper(packet))
        return false;
    flow->state = QS_DUE;
    return true;
}

/* A packet without data goes ahead of this one: a clone of it, which passes the classifier once more before this
 * returns. What it could not say is left out: the next one could not either. */
static __always_inline void qs_send_ahead(struct __sk_buff *skb, const struct qs_flow_key *flow) {
    __u32 mark = skb->mark;
    struct qs_flow_key key = *flow;
    skb->mark = CHART_MARK_AHEAD;
    bpf_clone_redirect(skb, skb->ifindex, 0);
    skb->mark = mark;
    struct qs_flow *after = bpf_map_lookup_elem(&qs_flows, &key);
    if (after && (after->state == QS_ANSWERED || after->state == QS_DUE))
        after->state = QS_REPORTED;
}

/* A clone that goes ahead loses its data, and what its flags say about it. `ip`: octets to its header. False: it cannot
 * be done, and nobody shall get the data twice. */
QS_FUNCTION int quick_start_cut(struct __sk_buff *skb, __u32 ip) {
    const struct sk_buff *kernel = (const void *)skb;
    __u32 transport = skb->protocol == bpf_htons(ETH_P_IP) ? IPV4_BYTES : IPV6_BYTES;
    __u8 tcp[QS_TCP_HEAD];
    /* The sum over data that goes is not known, only one that is still to be computed. */
    if (BPF_CORE_READ_BITFIELD_PROBED(kernel, ip_summed) != CHECKSUM_PARTIAL ||
        bpf_skb_load_bytes(skb, ip + transport, tcp, sizeof(tcp)))
        return false;
    return qs_resize(skb, ip, transport, transport + (tcp[TCP_WORDS_AT] >> 4) * 4) &&
           qs_set_words(skb, ip + transport, tcp, tcp[TCP_WORDS_AT], TCP_FLAG_ACK);
}

/* What of a packet of this node's processes is looked at. NULL: it is none, or not of the node's cgroup. */
static __always_inline struct qs_packet *qs_read(struct __sk_buff *skb, const struct chart_packet_key *key, __u32 ip,
                                                 __u32 transport, const struct chart_node_config *config) {
    struct qs_packet *packet = qs_packet();
    if (!packet || skb->ingress_ifindex || key->protocol != IPPROTO_TCP ||
        transport != (skb->protocol == bpf_htons(ETH_P_IP) ? IPV4_BYTES : IPV6_BYTES) ||
        bpf_skb_load_bytes(skb, ip + transport, packet->tcp, sizeof(packet->tcp)))
        return NULL;
    /* A clone has no socket, and is of one that was looked at. */
    bool cloned = skb->mark == CHART_MARK_AHEAD || skb->mark == CHART_MARK_SYN_ACK;
    if (config->cgroup_id && !cloned &&
        (__u64)bpf_skb_ancestor_cgroup_id(skb, (int)config->cgroup_level) != config->cgroup_id)
        return NULL;
    __builtin_memcpy(packet->key.source, key->source, sizeof(key->source));
    __builtin_memcpy(packet->key.destination, key->destination, sizeof(key->destination));
    packet->key.source_port = key->source_port;
    packet->key.destination_port = key->destination_port;
    packet->ip = ip;
    packet->transport = transport;
    packet->header = (packet->tcp[TCP_WORDS_AT] >> 4) * 4;
    packet->now_ns = bpf_ktime_get_ns();
    return packet;
}

/* A packet of a process of this node. Returns by how many octets its IP header grew. `transport`: octets from there to
 * TCP's. */
QS_FUNCTION int quick_start_host(struct __sk_buff *skb, const struct chart_packet_key *key, __u32 ip, __u32 transport) {
    __u32 zero = 0;
    const struct chart_node_config *config = bpf_map_lookup_elem(&node_config, &zero);
    struct qs_packet *packet = key && config ? qs_read(skb, key, ip, transport, config) : NULL;
    if (!packet)
        return 0;
    __u8 flags = packet->tcp[TCP_WORDS_AT + 1];
    if ((flags & (TCP_FLAG_SYN | TCP_FLAG_ACK)) == (TCP_FLAG_SYN | TCP_FLAG_ACK)) {
        bool cloned = skb->mark == CHART_MARK_SYN_ACK, answers = cloned || quick_start_respond(skb);
        if (answers && !cloned && quick_start_open_window(skb))
            return 0;
        /* Where the other end asks, options come through and are understood: to try costs others a timeout. */
        return ask_at_first(skb, packet, config->quick_start_rate, answers);
    }
    if (flags & TCP_FLAG_SYN)
        return ask_at_first(skb, packet, config->quick_start_rate, true);
    if (skb->len > ip + transport + packet->header) {
        if (quick_start_due(skb))
            qs_send_ahead(skb, &packet->key);
        return 0;
    }
    if ((flags & TCP_FLAG_ACK) && !(flags & TCP_FLAG_RST))
        quick_start_respond(skb);
    struct qs_flow *flow = bpf_map_lookup_elem(&qs_flows, &packet->key);
    if (flow && flow->state == QS_ANSWERED)
        return report_approved(skb, packet, flow);
    return flow && flow->state == QS_DUE ? ask(skb, packet, config->quick_start_rate) : 0;
}
