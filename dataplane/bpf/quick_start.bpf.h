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

/* The whole option lies in the header: in IPv4 between the fixed part and what follows at `transport`, in IPv6 in the
 * hop-by-hop header that comes first. `base`: octets to the header from the outermost IP header, as the answer. */
static __always_inline __u32 find_quick_start(struct __sk_buff *skb, __u32 base, __u32 transport, bool ipv6) {
    __u32 at = base + IPV6_BYTES;
    if (!ipv6)
        return (__u32)find_option(skb, base + IPV4_BYTES, base + transport, CHART_QS_IPV4, false);
    __u8 head[2];
    if (bpf_skb_load_bytes_relative(skb, at, head, sizeof(head), BPF_HDR_START_NET))
        return 0;
    return (__u32)find_option(skb, at + sizeof(head), at + 8 + 8 * (__u32)head[1], CHART_QS_IPV6, true);
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
 * outermost IP header; `outermost`, `ip`: octets from the start of the packet to that and to the option's own. */
static __always_inline bool write_option(struct __sk_buff *skb, __u32 outermost, __u32 ip, __u32 at, const __u8 *before,
                                         const __u8 *after, bool ipv6) {
    if (bpf_skb_store_bytes(skb, outermost + at, after, CHART_QS_OCTETS, 0))
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

/* A packet that may ask, too much for the stacks of functions that call each other. */
struct qs_request {
    struct chart_packet_key key; /* of the flow, whose addresses count */
    __u64 allowed_bps;           /* of its grant; 0: none in force */
    __u32 base;                  /* octets from the outermost IP header to the one with the options */
    __u32 transport;             /* octets of that one; of IPv4 */
    __u32 ipv6;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct qs_request);
} qs_requests SEC(".maps");

/* The packet that qs_requests describes, on its way out. */
QS_FUNCTION int quick_start(struct __sk_buff *skb) {
    __u32 zero = 0, ifindex = skb->ifindex;
    struct qs_request *request = bpf_map_lookup_elem(&qs_requests, &zero);
    struct chart_link *link = bpf_map_lookup_elem(&links, &ifindex);
    __u8 before[CHART_QS_OCTETS], after[CHART_QS_OCTETS];
    if (!request || !link)
        return 0;
    __u32 outermost = (__u32)link->link_header_bytes;
    __u32 at = find_quick_start(skb, request->base, request->transport, request->ipv6);
    if (!at || bpf_skb_load_bytes_relative(skb, at, before, sizeof(before), BPF_HDR_START_NET) ||
        chart_qs_kind(before, request->ipv6 != 0) != CHART_QS_REQUEST)
        return 0;
    const struct chart_link_advice *advice = bpf_map_lookup_elem(&link_advice, &ifindex);
    if (!advice || !advice->quick_start || !is_served(advice, &request->key))
        return 0;
    __sync_fetch_and_add(&link->quick_start_requests, 1);
    __u32 asked = chart_qs_rate(before);
    __u32 rate = approve_rate(advice, ifindex, asked, request->allowed_bps, bpf_ktime_get_ns());
    __builtin_memcpy(after, before, sizeof(after));
    /* The packet's own host does not count as a hop. */
    if (rate)
        chart_qs_approve(after, rate, skb->ingress_ifindex || skb->mark == CHART_MARK_FORWARDED ? 1 : 0,
                         bpf_get_prandom_u32());
    else
        chart_qs_refuse(after);
    if (!write_option(skb, outermost, outermost + request->base, at, before, after, request->ipv6))
        return 0;
    if (!rate)
        __sync_fetch_and_add(&link->quick_start_refused, 1);
    else if (rate < asked)
        __sync_fetch_and_add(&link->quick_start_lowered, 1);
    return 0;
}

/* UDP, VXLAN and Ethernet between an outer IP header and the inner one. */
#define OUTER_TO_INNER (8 + 8 + 14)

/* An outer packet of the overlay on its way out, over IPv4, where it has no checksum: whether the inner one has
 * options, which qs_requests then describes. `transport`: octets from its IP header to UDP's. */
QS_FUNCTION int quick_start_inside(struct __sk_buff *skb, __u32 transport) {
    __u32 zero = 0;
    struct qs_request *request = bpf_map_lookup_elem(&qs_requests, &zero);
    __u8 head[IPV6_BYTES];
    if (!request || skb->protocol != bpf_htons(ETH_P_IP) ||
        bpf_skb_load_bytes_relative(skb, transport + OUTER_TO_INNER, head, sizeof(head), BPF_HDR_START_NET))
        return false;
    request->ipv6 = head[0] >> 4 == 6;
    request->transport = (head[0] & 0xfu) * 4;
    if (request->ipv6 ? head[6] != IPV6_HOP_BY_HOP : head[0] >> 4 != 4 || request->transport <= IPV4_BYTES)
        return false;
    request->base = transport + OUTER_TO_INNER;
    request->allowed_bps = 0;
    request->key.ifindex = skb->ifindex;
    if (request->ipv6) {
        __builtin_memcpy(request->key.source, head + 8, sizeof(request->key.source));
        __builtin_memcpy(request->key.destination, head + 24, sizeof(request->key.destination));
    } else {
        __be32 addresses[2];
        __builtin_memcpy(addresses, head + 12, sizeof(addresses));
        map_ipv4(request->key.source, addresses[0]);
        map_ipv4(request->key.destination, addresses[1]);
    }
    return true;
}

/* A packet with options on its way out. `transport`: octets of its IP header; of IPv4. */
static __always_inline void quick_start_plain(struct __sk_buff *skb, const struct chart_packet_key *key,
                                              __u32 transport, __u64 allowed_bps) {
    __u32 zero = 0;
    struct qs_request *request = bpf_map_lookup_elem(&qs_requests, &zero);
    if (!request)
        return;
    request->key = *key;
    request->allowed_bps = allowed_bps;
    request->base = 0;
    request->transport = transport;
    request->ipv6 = skb->protocol != bpf_htons(ETH_P_IP);
    quick_start(skb);
}
