/* police: on the ingress of a domain's edge, holds every granted flow to its rate with a token bucket, writes the DSCP
 * of premium packets (EF, 46) and holds the premium aggregate of a neighbour domain to what was agreed (Sander et al.,
 * A Differentiated Services Implementation for High-Performance TCP Flows, sections 3 and 5: the edge polices and
 * marks, the core queues by class). What exceeds is dropped or goes on unmarked. */
#include "packet.bpf.h"

#include "bucket.bpf.h"
#include "police.h"

char LICENSE[] SEC("license") = "GPL";

#define BUCKETS_MAX 65536
#define ECN_MASK 3

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, CHART_LINKS_MAX);
    __type(key, __u32);
    __type(value, struct chart_police_edge);
} police_edges SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, BUCKETS_MAX);
    __type(key, __u64);
    __type(value, struct chart_police_bucket);
} police_buckets SEC(".maps");

static __always_inline void write_ipv4_dscp(struct __sk_buff *skb, __u32 offset, __u8 dscp) {
    __be16 before, after;
    if (bpf_skb_load_bytes(skb, offset, &before, sizeof(before)))
        return;
    __u16 word = bpf_ntohs(before);
    after = bpf_htons((word & 0xff00) | (dscp << 2) | (word & ECN_MASK));
    if (after == before)
        return;
    bpf_l3_csum_replace(skb, offset + offsetof(struct iphdr, check), before, after, sizeof(after));
    bpf_skb_store_bytes(skb, offset, &after, sizeof(after), 0);
}

static __always_inline void write_ipv6_dscp(struct __sk_buff *skb, __u32 offset, __u8 dscp) {
    __be16 head;
    if (bpf_skb_load_bytes(skb, offset, &head, sizeof(head)))
        return;
    /* Version 4 bits, traffic class 8 (DSCP and ECN), then the flow label. */
    __u16 word = (bpf_ntohs(head) & 0xf03f) | (dscp << 6);
    head = bpf_htons(word);
    bpf_skb_store_bytes(skb, offset, &head, sizeof(head), 0);
}

static __always_inline void write_dscp(struct __sk_buff *skb, const struct chart_police_edge *edge, __u8 dscp) {
    if (skb->protocol == bpf_htons(ETH_P_IP))
        write_ipv4_dscp(skb, edge->link_header_bytes, dscp);
    else
        write_ipv6_dscp(skb, edge->link_header_bytes, dscp);
}

static __always_inline struct chart_police_bucket *find_bucket(__u64 grant) {
    struct chart_police_bucket empty = {0}, *bucket = bpf_map_lookup_elem(&police_buckets, &grant);
    if (bucket)
        return bucket;
    bpf_map_update_elem(&police_buckets, &grant, &empty, BPF_NOEXIST);
    return bpf_map_lookup_elem(&police_buckets, &grant);
}

static __always_inline int exceed(struct __sk_buff *skb, struct chart_police_edge *edge, __u64 bytes, bool marked) {
    __sync_fetch_and_add(&edge->exceeding_packets, 1);
    __sync_fetch_and_add(&edge->exceeding_bytes, bytes);
    if (edge->exceed == CHART_POLICE_DROP)
        return TCX_DROP;
    if (marked)
        write_dscp(skb, edge, 0);
    return TCX_NEXT;
}

static __always_inline void conform(struct chart_police_edge *edge, __u64 bytes) {
    __sync_fetch_and_add(&edge->conforming_packets, 1);
    __sync_fetch_and_add(&edge->conforming_bytes, bytes);
}

/* A packet of a grant that holds: premium ones within their guaranteed rate, others within all that they may send. */
static __always_inline int police_grant(struct __sk_buff *skb, struct chart_police_edge *edge, __u64 grant,
                                        bool expedited, bool marked, __u64 rate_bps, __u64 bytes, __u64 now_ns) {
    struct chart_police_bucket *bucket = find_bucket(grant);
    if (!bucket)
        return TCX_NEXT;
    if (!bucket_conforms(&bucket->at_ns, bytes, rate_bps, edge->depth_ns, now_ns)) {
        __sync_fetch_and_add(&bucket->exceeding_packets, 1);
        return exceed(skb, edge, bytes, marked);
    }
    conform(edge, bytes);
    if (expedited || marked)
        write_dscp(skb, edge, expedited ? CHART_DSCP_EXPEDITED : 0);
    return TCX_NEXT;
}

/* A premium packet that no grant explains. */
static __always_inline int police_aggregate(struct __sk_buff *skb, struct chart_police_edge *edge, __u64 bytes,
                                            __u64 now_ns) {
    if (!edge->aggregate_bps) {
        __sync_fetch_and_add(&edge->unmarked_packets, 1);
        write_dscp(skb, edge, 0);
        return TCX_NEXT;
    }
    if (!bucket_conforms(&edge->aggregate_at_ns, bytes, edge->aggregate_bps, edge->depth_ns, now_ns))
        return exceed(skb, edge, bytes, true);
    conform(edge, bytes);
    return TCX_NEXT;
}

SEC("tc")
int police(struct __sk_buff *skb) {
    __u32 zero = 0, transport, ifindex = skb->ifindex;
    struct chart_packet_key key = {.ifindex = ifindex};
    const struct chart_node_config *config = bpf_map_lookup_elem(&node_config, &zero);
    struct chart_police_edge *edge = bpf_map_lookup_elem(&police_edges, &ifindex);
    if (!config || !edge || !config->enforce || !read_packet(skb, &key, &transport))
        return TCX_NEXT;
    __u64 now_ns = bpf_ktime_get_ns(), bytes = ip_bytes(skb, edge->link_header_bytes);
    bool marked = key.dscp == CHART_DSCP_EXPEDITED;
    struct chart_packet_flow *flow = find_flow(&key, config);
    if (flow && flow->grant) {
        struct chart_grant_key grant = {.node = config->node, .grant = flow->grant};
        const struct chart_rate *rate = bpf_map_lookup_elem(&rates, &grant);
        __u64 rate_bps = rate ? rate_in_force(rate, now_ns) : 0;
        bool expedited = flow->expedited;
        if (rate && expedited)
            rate_bps = rate->enforce && now_ns < rate->gr_expires_ns ? rate->gr_bps : 0;
        if (rate_bps)
            return police_grant(skb, edge, flow->grant, expedited, marked, rate_bps, bytes, now_ns);
    }
    return marked ? police_aggregate(skb, edge, bytes, now_ns) : TCX_NEXT;
}
