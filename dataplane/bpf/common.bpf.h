/* What the programs share: the shared maps, epochs, the rate in force and the accounting of a flow. */
#pragma once

#include "vmlinux.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "maps.h"

#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define AF_INET 2
#define AF_INET6 10
#define SOL_SOCKET 1
#define SO_RCVLOWAT 18
#define SOL_TCP 6
#define TCP_CONGESTION 13
#define SLOT_TRIES 8

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, CHART_GRANTS_MAX);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct chart_grant_key);
    __type(value, struct chart_rate);
} rates SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, CHART_GRANTS_MAX);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct chart_grant_key);
    __type(value, struct chart_usage);
} usage SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_SK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct chart_socket_flow);
} flows SEC(".maps");

/* Add one to the count of an epoch; a count of an older epoch in that place starts anew. */
static __always_inline void count_active(__u64 *slots, __u64 epoch) {
    __u64 *slot = &slots[epoch & 3];
    for (int i = 0; i < SLOT_TRIES; i++) {
        __u64 seen = *(volatile __u64 *)slot;
        __u64 next = (seen >> 16) == epoch ? seen + 1 : (epoch << 16 | 1);
        if (__sync_val_compare_and_swap(slot, seen, next) == seen)
            return;
    }
}

static __always_inline __u32 active_in(const __u64 *slots, __u64 epoch) {
    __u64 slot = slots[epoch & 3];
    return (slot >> 16) == epoch ? (__u32)(slot & 0xffff) : 0;
}

/* Flows that share a grant now: a newcomer counts at once, one that left for up to two epochs. */
static __always_inline __u32 active_flows(const struct chart_usage *usage_entry, __u64 now_ns) {
    __u64 epoch = now_ns / CHART_EPOCH_NS;
    __u32 now = active_in(usage_entry->active, epoch);
    __u32 before = active_in(usage_entry->active, epoch - 1);
    return max(max(now, before), 1u);
}

/* The guaranteed part of what a grant may send now, bits per second. */
static __always_inline __u64 guarantee_in_force(const struct chart_rate *rate, __u64 now_ns) {
    return rate->enforce && now_ns < rate->gr_expires_ns ? rate->gr_bps : 0;
}

/* What a grant may send now, bits per second; 0 when no lease is left or nothing is to be enforced. */
static __always_inline __u64 rate_in_force(const struct chart_rate *rate, __u64 now_ns) {
    __u64 sum = guarantee_in_force(rate, now_ns);
    if (rate->enforce && now_ns < rate->ar_expires_ns)
        sum += rate->ar_bps;
    return sum;
}

/* Whether the rate that the path agreed to in band still holds. */
static __always_inline bool signal_fresh(const struct chart_socket_flow *flow, __u64 now_ns) {
    return flow->signal_bps && now_ns < flow->signal_expires_ns;
}

/* Add what the socket did since the last call to the grant's counters; the socket is locked. */
static __always_inline void account(const struct tcp_sock *tp, struct chart_socket_flow *flow,
                                    struct chart_usage *usage_entry) {
    __u64 sent = tp->bytes_sent;
    __u64 delivered = tp->bytes_acked;
    __u32 retransmits = tp->total_retrans;
    if (sent != flow->counted_sent_bytes)
        __sync_fetch_and_add(&usage_entry->sent_bytes, sent - flow->counted_sent_bytes);
    if (delivered != flow->counted_delivered_bytes)
        __sync_fetch_and_add(&usage_entry->delivered_bytes, delivered - flow->counted_delivered_bytes);
    if (retransmits != flow->counted_retransmits)
        __sync_fetch_and_add(&usage_entry->retransmitted_packets, retransmits - flow->counted_retransmits);
    flow->counted_sent_bytes = sent;
    flow->counted_delivered_bytes = delivered;
    flow->counted_retransmits = retransmits;
}

/* Octets of IP of a packet, every segment of it with its headers. */
static __always_inline __u64 ip_bytes(const struct __sk_buff *skb, __u64 link_header_bytes) {
    /* Read once each: the verifier refuses a context pointer that the compiler moved. */
    __u32 segments = *(const volatile __u32 *)&skb->gso_segs;
    __u32 wire = *(const volatile __u32 *)&skb->wire_len;
    __u32 length = *(const volatile __u32 *)&skb->len;
    __u64 headers = link_header_bytes * max(segments, 1u);
    wire = max(wire, length);
    return wire > headers ? wire - headers : 0;
}
