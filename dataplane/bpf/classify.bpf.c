/* classify: on the egress of every CHART link, finds the grant of a packet, writes its HTB class into skb->priority and
 * counts octets per class, the loads that link rate control works from (Brassil et al., The CHART System, section 5:
 * flows with an explicit rate and legacy flows are queued and accounted apart).
 *
 * The match of a flow is remembered, so that most packets cost one hash look-up instead of a walk over the selectors.
 * A grant without a fresh rate is legacy traffic. The verdict is always to go on. */
#include "select.bpf.h"

#include "../agent/htb_classes.h"

char LICENSE[] SEC("license") = "GPL";

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86DD
#define TCX_NEXT -1
#define FRAGMENT_OFFSET_MASK 0x1fff
/* Less than best effort: CS1 and LE (RFC 8622). */
#define DSCP_CS1 8
#define DSCP_LE 1
#define PACKET_FLOWS_MAX 65536

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, CHART_LINKS_MAX);
    __type(key, __u32);
    __type(value, struct chart_link);
} links SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, PACKET_FLOWS_MAX);
    __type(key, struct chart_packet_key);
    __type(value, struct chart_packet_flow);
} packet_flows SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, PACKET_FLOWS_MAX);
    __type(key, struct chart_grant_link);
    __type(value, __u64);
} grant_epochs SEC(".maps");

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

static __always_inline bool read_packet(struct __sk_buff *skb, struct chart_packet_key *key) {
    if (skb->protocol == bpf_htons(ETH_P_IP)) {
        struct iphdr ip;
        if (bpf_skb_load_bytes_relative(skb, 0, &ip, sizeof(ip), BPF_HDR_START_NET))
            return false;
        map_ipv4(key->source, ip.saddr);
        map_ipv4(key->destination, ip.daddr);
        key->protocol = ip.protocol;
        key->dscp = ip.tos >> 2;
        if (!(bpf_ntohs(ip.frag_off) & FRAGMENT_OFFSET_MASK))
            read_ports(skb, ip.ihl * 4, key);
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
        read_ports(skb, sizeof(ip), key);
        return true;
    }
    return false;
}

/* Probes of the sensors: short trains faster than the link, which are no demand for a share of it. */
static __always_inline bool is_probe(const struct chart_packet_key *key, const struct chart_node_config *config) {
    __u32 port = config->sensor_port;
    return port && key->protocol == IPPROTO_UDP && (key->source_port == port || key->destination_port == port);
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

/* Once per epoch: this grant has packets on this link. */
static __always_inline void count_grant(struct chart_link *link, __u32 ifindex, __u64 grant, __u64 epoch) {
    struct chart_grant_link key = {.grant = grant, .ifindex = ifindex};
    __u64 *last = bpf_map_lookup_elem(&grant_epochs, &key);
    if (last && __sync_lock_test_and_set(last, epoch) == epoch)
        return;
    if (!last && bpf_map_update_elem(&grant_epochs, &key, &epoch, BPF_NOEXIST))
        return;
    count_active(link->active_grants, epoch);
}

static __always_inline __u64 ip_bytes(const struct __sk_buff *skb, const struct chart_link *link) {
    /* Read once each: the verifier refuses a context pointer that the compiler moved. */
    __u32 segments = *(const volatile __u32 *)&skb->gso_segs;
    __u32 wire = *(const volatile __u32 *)&skb->wire_len;
    __u32 length = *(const volatile __u32 *)&skb->len;
    __u64 headers = link->link_header_bytes * max(segments, 1u);
    wire = max(wire, length);
    return wire > headers ? wire - headers : 0;
}

SEC("tc")
int classify(struct __sk_buff *skb) {
    __u32 zero = 0, ifindex = skb->ifindex;
    struct chart_packet_key key = {.ifindex = ifindex};
    const struct chart_node_config *config = bpf_map_lookup_elem(&node_config, &zero);
    struct chart_link *link = bpf_map_lookup_elem(&links, &ifindex);
    if (!config || !link || !read_packet(skb, &key))
        return TCX_NEXT;
    __u64 now_ns = bpf_ktime_get_ns(), epoch = now_ns / CHART_EPOCH_NS, bytes = ip_bytes(skb, link);
    struct chart_packet_flow *flow = find_flow(&key, config);
    struct chart_grant_key grant = {.node = config->node, .grant = flow ? flow->grant : 0};
    const struct chart_rate *rate = grant.grant ? bpf_map_lookup_elem(&rates, &grant) : NULL;
    __u32 minor = HTB_MINOR_LEGACY;
    if (rate && rate_in_force(rate, now_ns)) {
        bool expedited = flow && flow->expedited;
        minor = expedited ? HTB_MINOR_EXPEDITED : HTB_MINOR_EXPLICIT_RATE;
        __sync_fetch_and_add(expedited ? &link->expedited_bytes : &link->explicit_rate_bytes, bytes);
        count_grant(link, ifindex, grant.grant, epoch);
    } else if (key.dscp == DSCP_CS1 || key.dscp == DSCP_LE) {
        minor = HTB_MINOR_BACKGROUND;
        __sync_fetch_and_add(&link->background_bytes, bytes);
    } else if (is_probe(&key, config)) {
        /* Queued as the traffic whose path they measure. */
        __sync_fetch_and_add(&link->background_bytes, bytes);
    } else {
        __sync_fetch_and_add(&link->legacy_bytes, bytes);
        if (flow && flow->epoch != epoch) {
            flow->epoch = epoch;
            count_active(link->legacy_flows, epoch);
        }
    }
    skb->priority = HTB_CLASS_ID(minor);
    return TCX_NEXT;
}
