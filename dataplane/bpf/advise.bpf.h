/* Advice to flows that nobody controls here: the signal of their SCONE packets is lowered to the rate of their grant or
 * to the link's fair rate, never raised, a few times in a period for each flow (lib/advice). */
#pragma once

#include "packet.bpf.h"

#include "bucket.bpf.h"
#include "lib/advice/scone.h"

#define ADVISED_FLOWS_MAX 16384
#define ADVICE_PREFIXES_MAX 4096
#define UDP_HEADER_BYTES 8

/* The node's links (hash: interface index). Made by the agent, counted by the classifier. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, CHART_LINKS_MAX);
    __type(key, __u32);
    __type(value, struct chart_link);
} links SEC(".maps");

/* Written by the agent: how many links give advice, and how many police by it. With none of them a packet costs one
 * comparison. */
__u32 advising_links = 0;
__u32 policing_links = 0;

/* Of links that give advice (hash: interface index). Writer: the agent. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, CHART_LINKS_MAX);
    __type(key, __u32);
    __type(value, struct chart_link_advice);
} link_advice SEC(".maps");

/* Of links that serve only some flows (LPM trie). Writer: the agent. */
struct {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(max_entries, ADVICE_PREFIXES_MAX);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct chart_advice_prefix);
    __type(value, __u8);
} advice_prefixes SEC(".maps");

/* What flows were told. Writer: the classifier. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, ADVISED_FLOWS_MAX);
    __type(key, struct chart_packet_key);
    __type(value, struct chart_scone_flow);
} scone_flows SEC(".maps");

static __always_inline bool has_prefix(__u32 ifindex, const __u32 *address) {
    struct chart_advice_prefix key = {.bits = CHART_ADVICE_BITS_MAX, .ifindex = ifindex};
    __builtin_memcpy(key.address, address, sizeof(key.address));
    return bpf_map_lookup_elem(&advice_prefixes, &key);
}

/* Whether the link's advice is for this flow: it comes from one of the prefixes or goes to one. */
static __always_inline bool is_served(const struct chart_link_advice *advice, const struct chart_packet_key *key) {
    return !advice->prefixes || has_prefix(key->ifindex, key->source) || has_prefix(key->ifindex, key->destination);
}

/* The flow of a SCONE packet, whose advice is this now. NULL: no memory. */
static __always_inline struct chart_scone_flow *advised_flow(const struct chart_packet_key *key, __u32 signal,
                                                             __u64 now_ns) {
    struct chart_scone_flow none = {}, *flow = bpf_map_lookup_elem(&scone_flows, key);
    if (!flow) {
        bpf_map_update_elem(&scone_flows, key, &none, BPF_NOEXIST);
        flow = bpf_map_lookup_elem(&scone_flows, key);
    }
    if (flow)
        chart_scone_note(flow, signal, now_ns);
    return flow;
}

/* Whether a packet is more than its flow may send: the highest advice of two monitoring periods, over one such period,
 * so that who follows it loses nothing, however it bursts. */
static __always_inline bool exceeds_advice(const struct chart_packet_key *key, __u64 bytes, __u64 now_ns) {
    __u32 ifindex = key->ifindex;
    const struct chart_link_advice *advice = bpf_map_lookup_elem(&link_advice, &ifindex);
    if (!advice || !advice->scone || !advice->scone_police)
        return false;
    struct chart_scone_flow *flow = bpf_map_lookup_elem(&scone_flows, key);
    __u64 limit_bps = flow ? chart_scone_limit_bps(flow, now_ns) : 0;
    return limit_bps && !bucket_conforms(&flow->debt_ns, bytes, limit_bps, CHART_SCONE_PERIOD_NS, now_ns);
}

/* Write the first two octets of UDP's data, which hold the signal, and correct the checksum: one that the device is
 * still to compute is left to it, and none (0, IPv4) stays none. `udp`: octets from the start of the packet. */
static __always_inline bool replace(struct __sk_buff *skb, __u32 udp, const __u8 *before, const __u8 *after) {
    __be16 from, to;
    __builtin_memcpy(&from, before, sizeof(from));
    __builtin_memcpy(&to, after, sizeof(to));
    if (bpf_skb_store_bytes(skb, udp + UDP_HEADER_BYTES, &to, sizeof(to), 0))
        return false;
    bpf_l4_csum_replace(skb, udp + offsetof(struct udphdr, check), from, to, BPF_F_MARK_MANGLED_0 | sizeof(to));
    return true;
}

/* Whether UDP's data may begin with a long header: read in place, for most packets of QUIC have a short one. True also
 * where it does not lie in place. `udp`: octets from the start of the packet, at most 255. */
static __always_inline bool may_be_long(const struct __sk_buff *skb, __u32 udp) {
    const __u8 *data = (const void *)(long)skb->data, *end = (const void *)(long)skb->data_end;
    data += udp & 0xff;
    return data + UDP_HEADER_BYTES + 1 > end || data[UDP_HEADER_BYTES] & 0x80;
}

/* A UDP packet on its way out; `transport`: octets from its IP header to UDP's. */
static __always_inline void advise(struct __sk_buff *skb, struct chart_link *link, const struct chart_packet_key *key,
                                   __u32 transport, __u64 allowed_bps, __u64 now_ns) {
    __u8 before[CHART_SCONE_OCTETS], after[CHART_SCONE_OCTETS];
    __u32 ifindex = key->ifindex, udp = (__u32)link->link_header_bytes + transport;
    if (!may_be_long(skb, udp) || bpf_skb_load_bytes(skb, udp + UDP_HEADER_BYTES, before, sizeof(before)) ||
        !chart_scone_is(before))
        return;
    const struct chart_link_advice *advice = bpf_map_lookup_elem(&link_advice, &ifindex);
    if (!advice || !advice->scone || !is_served(advice, key))
        return;
    __sync_fetch_and_add(&link->scone_packets, 1);
    __u64 advised_bps = chart_advice_bps(advice, allowed_bps, now_ns);
    __u32 signal = chart_scone_encode(advised_bps);
    struct chart_scone_flow *flow = advised_bps ? advised_flow(key, signal, now_ns) : NULL;
    if (!flow || signal >= chart_scone_signal(before) || !chart_scone_may_write(flow, signal, now_ns))
        return;
    __builtin_memcpy(after, before, sizeof(after));
    chart_scone_write(after, signal);
    if (replace(skb, udp, before, after))
        __sync_fetch_and_add(&link->scone_lowered, 1);
}
