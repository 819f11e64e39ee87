/* What the receiving host does with requests: it keeps what arrived and returns it in the next packet without data that
 * goes back, the SYN-ACK among them (RFC 4782, section 4.3). Behind a SYN-ACK that answers goes an acknowledgement with
 * the window that the SYN-ACK itself cannot tell, since that of a SYN is not scaled (RFC 7323, section 2.2). */
#pragma once

#include "packet.bpf.h"

#include "header_options.bpf.h"
#include "marks.h"
#include "quick_start_host.bpf.h"

#define QS_TCP_HEAD 14 /* up to the flags */
#define TCP_WORDS_AT 12
#define TCP_WINDOW_AT 14
#define TCP_CHECKSUM_AT 16
#define TCP_HEADER_MAX 60
#define TCP_OPTION_TIMESTAMPS 8
#define TIMESTAMPS_BYTES 10
#define WINDOW_MAX 65535u
/* What could not be returned within this is over. */
#define QS_RESPOND_NS 1000000000ull

/* A TCP packet of a process of this node, too much for the stacks of functions that call each other. A clone that is
 * sent ahead takes its place. */
struct qs_packet {
    struct qs_flow_key key;
    __u32 ip;        /* octets to its IP header */
    __u32 transport; /* from there to TCP's */
    __u32 header;    /* octets of TCP's */
    __u64 now_ns;    /* CLOCK_MONOTONIC */
    __u8 tcp[QS_TCP_HEAD];
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct qs_packet);
} qs_packets SEC(".maps");

/* Each function asks for it anew: memory that is handed to a function is no key of a map before Linux 6.2. */
static __always_inline struct qs_packet *qs_packet(void) {
    __u32 zero = 0;
    return bpf_map_lookup_elem(&qs_packets, &zero);
}

/* By the flow as this end sends it (LRU hash). Writer: the classifier. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, QS_FLOWS_MAX);
    __type(key, struct qs_flow_key);
    __type(value, struct qs_arrived);
} qs_arrived SEC(".maps");

/* Until then some response may wait. */
__u64 qs_arrived_until_ns = 0;

/* Octets from an IP header to its TTL or hop limit. */
static __always_inline __u32 qs_ttl_at(const struct __sk_buff *skb) {
    return skb->protocol == bpf_htons(ETH_P_IP) ? offsetof(struct iphdr, ttl) : offsetof(struct ipv6hdr, hop_limit);
}

/* Make the packet as long as this many octets of IP, and correct what headers say of it. */
static __always_inline bool qs_resize(struct __sk_buff *skb, __u32 ip, __u32 transport, __u32 ip_octets) {
    __u32 before = skb->len - ip - transport, after = ip_octets - transport;
    __be16 was, is;
    if (bpf_skb_change_tail(skb, ip + ip_octets, 0))
        return false;
    if (skb->protocol == bpf_htons(ETH_P_IP)) {
        is = bpf_htons((__u16)ip_octets);
        if (bpf_skb_load_bytes(skb, ip + offsetof(struct iphdr, tot_len), &was, sizeof(was)))
            return false;
        bpf_l3_csum_replace(skb, ip + offsetof(struct iphdr, check), was, is, sizeof(is));
        bpf_skb_store_bytes(skb, ip + offsetof(struct iphdr, tot_len), &is, sizeof(is), 0);
    } else {
        is = bpf_htons((__u16)after);
        bpf_skb_store_bytes(skb, ip + offsetof(struct ipv6hdr, payload_len), &is, sizeof(is), 0);
    }
    return !bpf_l4_csum_replace(skb, ip + transport + TCP_CHECKSUM_AT, bpf_htonl(before), bpf_htonl(after),
                                BPF_F_PSEUDO_HDR | sizeof(after));
}

/* The two octets of a TCP header that hold its length and its flags. `tcp`: its beginning as it is. */
static __always_inline bool qs_set_words(struct __sk_buff *skb, __u32 at, const __u8 *tcp, __u8 words, __u8 flags) {
    __u8 after[2] = {words, flags};
    __be16 was, is;
    __builtin_memcpy(&was, tcp + TCP_WORDS_AT, sizeof(was));
    __builtin_memcpy(&is, after, sizeof(is));
    bpf_l4_csum_replace(skb, at + TCP_CHECKSUM_AT, was, is, sizeof(is));
    return !bpf_skb_store_bytes(skb, at + TCP_WORDS_AT, after, sizeof(after), 0);
}

/* Put the response that waits for this flow into a packet without data. True: there is one in it now. */
QS_FUNCTION int quick_start_respond(struct __sk_buff *skb) {
    struct qs_packet *packet = qs_packet();
    if (!packet || packet->now_ns >= qs_arrived_until_ns)
        return false;
    const struct qs_arrived *waits = bpf_map_lookup_elem(&qs_arrived, &packet->key);
    if (!waits)
        return false;
    struct qs_arrived arrived = *waits;
    __u32 ip = packet->ip, transport = packet->transport, header = packet->header;
    bpf_map_delete_elem(&qs_arrived, &packet->key);
    if (packet->now_ns - arrived.at_ns >= QS_RESPOND_NS || header + CHART_QS_TCP_OCTETS > TCP_HEADER_MAX ||
        skb->len != ip + transport + header || !qs_resize(skb, ip, transport, transport + header + CHART_QS_TCP_OCTETS))
        return false;
    __s64 sum = bpf_csum_diff(NULL, 0, (void *)arrived.response, CHART_QS_TCP_OCTETS, 0);
    bpf_l4_csum_replace(skb, ip + transport + TCP_CHECKSUM_AT, 0, (__u64)sum, 0);
    if (bpf_skb_store_bytes(skb, ip + transport + header, arrived.response, CHART_QS_TCP_OCTETS, 0))
        return false;
    qs_count(CHART_QS_COUNT_RESPONDED);
    packet->header = header + CHART_QS_TCP_OCTETS;
    return qs_set_words(skb, ip + transport, packet->tcp,
                        (__u8)(packet->tcp[TCP_WORDS_AT] + (CHART_QS_TCP_OCTETS / 4 << 4)),
                        packet->tcp[TCP_WORDS_AT + 1]);
}

/* The window that the connection of this SYN-ACK will have, as its header's field says it once it is scaled; 0: no more
 * than the SYN-ACK tells itself. */
static __always_inline __u32 scaled_window(struct __sk_buff *skb) {
    const struct sk_buff *kernel = (const void *)skb;
    struct sock *sk = BPF_CORE_READ(kernel, sk);
    if (!sk || BPF_CORE_READ(sk, __sk_common.skc_state) != BPF_TCP_NEW_SYN_RECV)
        return 0;
    struct inet_request_sock *inet = (void *)sk;
    __u32 window = BPF_CORE_READ(sk, __sk_common.skc_rcv_wnd), scale = BPF_CORE_READ_BITFIELD_PROBED(inet, rcv_wscale);
    if (!BPF_CORE_READ_BITFIELD_PROBED(inet, wscale_ok) || window <= WINDOW_MAX)
        return 0;
    window >>= scale & 15;
    return min(window, WINDOW_MAX);
}

/* A TCP header as it is and as it becomes: too much for the stack. */
struct qs_headers {
    __u8 before[TCP_HEADER_MAX];
    __u8 after[TCP_HEADER_MAX];
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct qs_headers);
} qs_headers SEC(".maps");

/* An acknowledgement with nothing but a window and timestamps, which all packets of a connection have or none. Returns
 * its octets; 0: the header cannot be read. */
static __always_inline __u32 write_window(struct __sk_buff *skb, struct qs_headers *headers,
                                          const struct qs_packet *packet, __u32 window) {
    __u32 transport = packet->transport, at = packet->ip + transport, octets = packet->header, header = TCP_BYTES;
    __be32 sequence;
    barrier_var(octets);
    if (octets < TCP_BYTES || octets > TCP_HEADER_MAX || bpf_skb_load_bytes(skb, at, headers->before, octets))
        return 0;
    __builtin_memcpy(headers->after, headers->before, TCP_BYTES);
    __builtin_memcpy(&sequence, headers->before + 4, sizeof(sequence));
    sequence = bpf_htonl(bpf_ntohl(sequence) + 1);
    __builtin_memcpy(headers->after + 4, &sequence, sizeof(sequence));
    __u32 stamps = (__u32)find_option(skb, transport + TCP_BYTES, transport + octets, TCP_OPTION_TIMESTAMPS, false);
    if (stamps && !bpf_skb_load_bytes_relative(skb, stamps, headers->after + TCP_BYTES + 2, TIMESTAMPS_BYTES,
                                               BPF_HDR_START_NET)) {
        headers->after[TCP_BYTES] = headers->after[TCP_BYTES + 1] = OPTION_NOP;
        header += 2 + TIMESTAMPS_BYTES;
    }
    headers->after[TCP_WORDS_AT] = (__u8)(header / 4 << 4);
    headers->after[TCP_WORDS_AT + 1] = TCP_FLAG_ACK;
    headers->after[TCP_WINDOW_AT] = (__u8)(window >> 8);
    headers->after[TCP_WINDOW_AT + 1] = (__u8)window;
    return header;
}

/* Send the SYN-ACK, and make of this packet an acknowledgement right behind it that tells the window. False: it still
 * is the SYN-ACK. */
QS_FUNCTION int quick_start_open_window(struct __sk_buff *skb) {
    const struct qs_packet *packet = qs_packet();
    __u32 zero = 0, window = scaled_window(skb), mark = skb->mark;
    struct qs_headers *headers = bpf_map_lookup_elem(&qs_headers, &zero);
    if (!window || !headers || !packet)
        return false;
    __builtin_memset(headers, 0, sizeof(*headers));
    __u32 header = write_window(skb, headers, packet, window), ip = packet->ip, transport = packet->transport;
    if (!header)
        return false;
    skb->mark = CHART_MARK_SYN_ACK;
    long sent = bpf_clone_redirect(skb, skb->ifindex, 0);
    skb->mark = mark;
    if (sent)
        return false;
    if (!qs_resize(skb, ip, transport, transport + header))
        return true; /* the SYN-ACK twice */
    /* The sum's own field is the same in both. */
    __s64 sum = bpf_csum_diff((void *)headers->before, TCP_HEADER_MAX, (void *)headers->after, TCP_HEADER_MAX, 0);
    bpf_skb_store_bytes(skb, ip + transport, headers->after, TCP_CHECKSUM_AT, 0);
    if (header > TCP_BYTES)
        bpf_skb_store_bytes(skb, ip + transport + TCP_BYTES, headers->after + TCP_BYTES, 2 + TIMESTAMPS_BYTES, 0);
    bpf_l4_csum_replace(skb, ip + transport + TCP_CHECKSUM_AT, 0, (__u64)sum, 0);
    return true;
}
