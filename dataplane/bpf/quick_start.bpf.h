/* Quick-Start requests through a link's egress: approved, lowered or refused against the link's spare rate and what
 * it approved lately; reports, what cannot be read and what asks for nothing are passed on as they are (lib/advice). */
#pragma once

#include "advise.bpf.h"
#include "header_options.bpf.h"
#include "quick_start_ask.bpf.h"

/* Of links that gave any (hash: interface index). Writer: the classifier. */
struct qs_link {
    struct bpf_spin_lock lock;
    struct chart_qs_approvals approvals;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, CHART_LINKS_MAX);
    __type(key, __u32);
    __type(value, struct qs_link);
} qs_links SEC(".maps");

static __always_inline struct qs_link *qs_link_of(__u32 ifindex) {
    struct qs_link none = {}, *link = bpf_map_lookup_elem(&qs_links, &ifindex);
    if (!link) {
        bpf_map_update_elem(&qs_links, &ifindex, &none, BPF_NOEXIST);
        link = bpf_map_lookup_elem(&qs_links, &ifindex);
    }
    return link;
}

/* The whole option lies in the header: in IPv4 between the fixed part and `transport`, in IPv6 in the hop-by-hop header
 * that comes first. */
static __always_inline __u32 find_quick_start(struct __sk_buff *skb, __u32 transport, bool ipv6) {
    if (!ipv6)
        return (__u32)find_option(skb, IPV4_BYTES, transport, CHART_QS_IPV4, false);
    __u8 head[2];
    if (bpf_skb_load_bytes_relative(skb, IPV6_BYTES, head, sizeof(head), BPF_HDR_START_NET))
        return 0;
    return (__u32)find_option(skb, IPV6_BYTES + sizeof(head), IPV6_BYTES + 8 + 8 * (__u32)head[1], CHART_QS_IPV6, true);
}

/* The rate that a request gets; the flow's grant needs no spare rate, it has its own. */
static __always_inline __u32 approve_rate(const struct chart_link_advice *advice, __u32 ifindex, __u32 asked,
                                          __u64 allowed_bps, __u64 now_ns) {
    __u32 most = chart_qs_encode(chart_advice_bps(advice, allowed_bps, now_ns)), rate = asked < most ? asked : most;
    if (allowed_bps || !rate)
        return rate;
    __u32 share = chart_qs_encode(advice->begin_bps);
    rate = rate < share ? rate : share;
    struct qs_link *state = qs_link_of(ifindex);
    if (!state || now_ns >= advice->spare_expires_ns)
        return 0;
    bpf_spin_lock(&state->lock);
    rate = chart_qs_take(&state->approvals, rate, advice->spare_bps, now_ns);
    bpf_spin_unlock(&state->lock);
    return rate;
}

/* Write the option, and IPv4's checksum, which is over 16-bit words from the header's beginning. `at`: octets from the
 * IP header; `ip`: octets from the start of the packet to it. */
static __always_inline bool write_option(struct __sk_buff *skb, __u32 ip, __u32 at, const __u8 *before,
                                         const __u8 *after, bool ipv6) {
    if (bpf_skb_store_bytes(skb, ip + at, after, CHART_QS_OCTETS, 0))
        return false;
    if (!ipv6) {
        __u64 sum = (__u32)bpf_csum_diff((void *)before, CHART_QS_OCTETS, (void *)after, CHART_QS_OCTETS, 0);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        /* Its octets are the others of each word where it begins in the middle of one. */
        if (at & 1)
            sum = (sum & 0xff) << 8 | sum >> 8;
        bpf_l3_csum_replace(skb, ip + offsetof(struct iphdr, check), 0, sum, 0);
    }
    return true;
}

/* `inserted`: this node put its own in. */
static __always_inline bool has_options(const struct __sk_buff *skb, const struct chart_packet_key *key,
                                        __u32 transport, __u32 inserted) {
    if (skb->protocol == bpf_htons(ETH_P_IP))
        return transport + inserted > IPV4_BYTES;
    return inserted || key->protocol == IPV6_HOP_BY_HOP;
}

/* A packet with options on its way out. */
static __always_inline void quick_start(struct __sk_buff *skb, struct chart_link *link,
                                        const struct chart_packet_key *key, __u32 transport, __u64 allowed_bps,
                                        __u64 now_ns) {
    bool ipv6 = skb->protocol != bpf_htons(ETH_P_IP);
    __u32 ifindex = key->ifindex, at = find_quick_start(skb, transport, ipv6);
    __u8 before[CHART_QS_OCTETS], after[CHART_QS_OCTETS];
    if (!at || bpf_skb_load_bytes_relative(skb, at, before, sizeof(before), BPF_HDR_START_NET) ||
        chart_qs_kind(before, ipv6) != CHART_QS_REQUEST)
        return;
    const struct chart_link_advice *advice = bpf_map_lookup_elem(&link_advice, &ifindex);
    if (!advice || !advice->quick_start || !is_served(advice, key))
        return;
    __sync_fetch_and_add(&link->quick_start_requests, 1);
    __u32 asked = chart_qs_rate(before), rate = approve_rate(advice, ifindex, asked, allowed_bps, now_ns);
    __builtin_memcpy(after, before, sizeof(after));
    if (rate)
        /* The packet's own host does not count as a hop. */
        chart_qs_approve(after, rate, skb->ingress_ifindex ? 1 : 0, bpf_get_prandom_u32());
    else
        chart_qs_refuse(after);
    if (!write_option(skb, (__u32)link->link_header_bytes, at, before, after, ipv6))
        return;
    if (!rate)
        __sync_fetch_and_add(&link->quick_start_refused, 1);
    else if (rate < asked)
        __sync_fetch_and_add(&link->quick_start_lowered, 1);
}
