/* classify: on the egress of every CHART link, finds the grant of a packet, writes its HTB class into skb->priority
 * where the node enforces, and counts octets per class, the loads that link rate control works from (Brassil et al.,
 * The CHART System, section 5: flows with an explicit rate and legacy flows are queued and accounted apart).
 *
 * The match of a flow is remembered, so that most packets cost one hash look-up instead of a walk over the selectors.
 * A grant without a fresh rate is legacy traffic. Signals, and packets of flows whose rate was agreed in band, come
 * with a mark and a class from the program `signal`, which runs first. On links that give advice, SCONE packets are
 * lowered to their flow's rate (advise.bpf.h) and Quick-Start requests answered (quick_start.bpf.h). The verdict is
 * to go on, but for what exceeds its flow's advice on links that police by it.
 *
 * quick_start_arrive, on the ingress of links while the node's own connections ask (quick_start_arrive.bpf.h). */
#include "packet.bpf.h"

#include "advise.bpf.h"
#include "lib/htb/htb_classes.h"
#include "marks.h"
#include "quick_start.bpf.h"
#include "quick_start_arrive.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* Less than best effort: CS1 and LE (RFC 8622). */
#define DSCP_CS1 8
#define DSCP_LE 1

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, PACKET_FLOWS_MAX);
    __type(key, struct chart_grant_link);
    __type(value, struct chart_grant_use);
} grant_uses SEC(".maps");

/* Probes of the sensors: short trains faster than the link, which are no demand for a share of it. */
static __always_inline bool is_probe(const struct chart_packet_key *key, const struct chart_node_config *config) {
    __u32 port = config->sensor_port;
    return port && key->protocol == IPPROTO_UDP && (key->source_port == port || key->destination_port == port);
}

/* Octets of a grant by the interface that the packet really leaves by: the kernel has routed it. */
static __always_inline struct chart_grant_use *use_grant(__u32 ifindex, __u64 grant, __u64 bytes) {
    struct chart_grant_link key = {.grant = grant, .ifindex = ifindex};
    struct chart_grant_use none = {}, *use = bpf_map_lookup_elem(&grant_uses, &key);
    if (!use) {
        bpf_map_update_elem(&grant_uses, &key, &none, BPF_NOEXIST);
        use = bpf_map_lookup_elem(&grant_uses, &key);
    }
    if (use)
        __sync_fetch_and_add(&use->bytes, bytes);
    return use;
}

/* Once per epoch: this grant has packets on this link. */
static __always_inline void count_grant(struct chart_link *link, struct chart_grant_use *use, __u64 epoch) {
    if (use && __sync_lock_test_and_set(&use->epoch, epoch) != epoch)
        count_active(link->active_grants, epoch);
}

SEC("tc")
int classify(struct __sk_buff *skb) {
    __u32 zero = 0, transport, inserted = 0, ifindex = skb->ifindex;
    struct chart_packet_key key = {.ifindex = ifindex};
    const struct chart_node_config *config = bpf_map_lookup_elem(&node_config, &zero);
    struct chart_link *link = bpf_map_lookup_elem(&links, &ifindex);
    if (!config || !link)
        return TCX_NEXT;
    if (skb->mark == CHART_MARK_AHEAD && !quick_start_cut(skb, (__u32)link->link_header_bytes))
        return TCX_DROP;
    if (!read_packet(skb, &key, &transport))
        return TCX_NEXT;
    __u64 now_ns = bpf_ktime_get_ns(), epoch = now_ns / CHART_EPOCH_NS, bytes = ip_bytes(skb, link->link_header_bytes);
    struct chart_packet_flow *flow = find_flow(&key, config);
    struct chart_grant_key grant = {.node = config->node, .grant = flow ? flow->grant : 0};
    const struct chart_rate *rate = grant.grant ? bpf_map_lookup_elem(&rates, &grant) : NULL;
    struct chart_grant_use *use = grant.grant ? use_grant(ifindex, grant.grant, bytes) : NULL;
    __u64 granted_bps = rate ? rate_in_force(rate, now_ns) : 0;
    if (policing_links && config->enforce && key.protocol == IPPROTO_UDP && exceeds_advice(&key, bytes, now_ns)) {
        __sync_fetch_and_add(&link->scone_policed, 1);
        return TCX_DROP;
    }
    __u32 minor = HTB_MINOR_LEGACY;
    if (granted_bps) {
        bool expedited = flow && flow->expedited;
        minor = expedited ? HTB_MINOR_EXPEDITED : HTB_MINOR_EXPLICIT_RATE;
        __sync_fetch_and_add(expedited ? &link->expedited_bytes : &link->explicit_rate_bytes, bytes);
        count_grant(link, use, epoch);
    } else if (skb->mark == CHART_MARK_SIGNAL || skb->priority == HTB_CLASS_ID(HTB_MINOR_EXPEDITED)) {
        minor = HTB_MINOR_EXPEDITED;
        __sync_fetch_and_add(&link->expedited_bytes, bytes);
    } else if (skb->priority == HTB_CLASS_ID(HTB_MINOR_EXPLICIT_RATE)) {
        minor = HTB_MINOR_EXPLICIT_RATE;
        __sync_fetch_and_add(&link->explicit_rate_bytes, bytes);
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
    /* Other queues may read it too: a node that observes leaves it alone. */
    if (config->enforce)
        skb->priority = HTB_CLASS_ID(minor);
    if (config->quick_start_rate && config->enforce && !granted_bps)
        inserted = (__u32)quick_start_host(skb, &key, (__u32)link->link_header_bytes, transport);
    if (advising_links && config->enforce) {
        if (has_options(skb, &key, transport, inserted))
            quick_start_plain(skb, &key, transport + inserted, granted_bps);
        if (key.protocol == IPPROTO_UDP && transport && config->overlay_port &&
            key.destination_port == config->overlay_port) {
            if (quick_start_inside(skb, transport))
                quick_start(skb);
        } else if (key.protocol == IPPROTO_UDP && transport) {
            advise(skb, link, &key, transport, granted_bps, now_ns);
        }
    }
    return TCX_NEXT;
}
