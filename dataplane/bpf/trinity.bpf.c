/* trinity: a TCP congestion control that sends at the rate the network granted and nothing else (Brassil et al., The
 * CHART System, section 5: the sender "immediately jumps to the explicit rate, and continues to transmit at that rate
 * even in the presence of packet loss and latency variation").
 *
 * It departs from the paper's driver in three ways: the rate is a lease that this program itself watches, so a killed
 * agent leaves no flow without congestion control; the flows of a grant share it equally by a count of those that made
 * progress lately; and loss recovery (SACK, RACK, TLP) is the kernel's own, only the window is ours.
 *
 * Where it finds its rate: what the path agreed to in band stands in the socket's storage (signal writes it); without
 * that, attach left the grant's key there and the map of rates is read. Both on every acknowledgement, so a changed
 * rate is in force one acknowledgement later. */
#include "settle.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* How the running kernel calls cong_control: 4 arguments (socket, acknowledgement, flag, sample) or 2 (socket, sample).
 * Set by the agent before loading. */
const volatile __u32 cong_control_arguments = 4;

/* Least window and what is assumed of a path without an RTT sample. */
#define MIN_CWND_PACKETS 16u
#define MIN_HANDED_PACKETS 4u
#define QUICK_START_LEAST_PACKETS 2u /* RFC 5681, equation 4 */
#define DEFAULT_MSS_BYTES 536u
#define UNKNOWN_RTT_US 100000u
/* Added to the RTT: acknowledgements that hosts delay or gather, and a sender that is not scheduled at once. */
#define HOST_DELAY_US 10000u
/* The most that the window lets a queue grow when a rate is more than the path carries. */
#define MAX_QUEUE_US 20000u
#define MAX_CWND_PACKETS (1u << 20)
#define IPV4_HEADER_BYTES 20u
#define IPV6_HEADER_BYTES 40u
/* A flow counts as active when it delivered this much in an epoch. */
#define ACTIVE_PACKETS 4u
#define USEC_PER_SEC 1000000ull
/* Above this queueing delay a flow paces lower, until what it sent too early (a timer that caught up, the first burst,
 * a rate of the whole link) has drained from the bottleneck; never below what it is guaranteed, for the queue may be
 * that of others. */
#define QUEUE_TO_DRAIN_US 3000u
#define DRAIN_PER_MILLE 970u
/* Send buffer in windows. Data behind a hole stays in it, and at 10 % loss one packet of a window is lost four times in
 * a row: 5 x 1.25 RTT. */
#define SNDBUF_WINDOWS 2u
#define SNDBUF_WINDOWS_LOSSY 8u

static __always_inline __u32 path_rtt_us(const struct tcp_sock *tp) {
    __u32 least = tp->rtt_min.s[0].v;
    __u32 smoothed = tp->srtt_us >> 3;
    if (least == 0 || least == ~0u)
        least = smoothed ? smoothed : UNKNOWN_RTT_US;
    return least;
}

/* 2 x rate x RTT in packets: enough that the window never holds back what pacing lets go, also while lost packets are
 * still taken for packets in flight. */
static __always_inline __u32 window_packets(const struct tcp_sock *tp, __u64 bytes_per_s, __u32 mss) {
    __u64 least = path_rtt_us(tp);
    __u64 smoothed = tp->srtt_us >> 3;
    __u64 span_us = max(2 * least, smoothed + smoothed / 4);
    span_us = min(span_us, 2 * least + MAX_QUEUE_US) + HOST_DELAY_US;
    __u64 packets = bytes_per_s * span_us / USEC_PER_SEC / mss + 1;
    return (__u32)min(max(packets, (__u64)MIN_CWND_PACKETS), (__u64)MAX_CWND_PACKETS);
}

/* Payload octets per second of a rate that counts IP headers. */
static __always_inline __u64 payload_bytes_per_s(const struct sock *sk, const struct tcp_sock *tp, __u64 rate_bps,
                                                 __u32 mss) {
    __u32 header =
        tp->tcp_header_len + (sk->__sk_common.skc_family == AF_INET6 ? IPV6_HEADER_BYTES : IPV4_HEADER_BYTES);
    return rate_bps / 8 * mss / (mss + header);
}

/* What waits in the bottleneck: the RTT beyond the path's least, by the lesser of the newest sample and the mean, so
 * that one late acknowledgement is not taken for a queue. */
static __always_inline __u32 queueing_us(const struct tcp_sock *tp, const struct rate_sample *rs) {
    __u32 least = path_rtt_us(tp), smoothed = tp->srtt_us >> 3;
    __u32 newest = rs->rtt_us > 0 ? (__u32)rs->rtt_us : smoothed;
    __u32 rtt = min(newest, smoothed);
    return rtt > least ? rtt - least : 0;
}

/* What a socket was before Quick-Start's rate, and what became of it: trinity's own, as the rate is known by
 * CHART_QUICK_START_BIT. */
struct quick_start {
    __u32 cwnd_packets;
    __u32 delivered_packets;
    __u32 lost_packets;
    __u32 marked_packets;
    __u32 end_sequence; /* of the last packet that it paced */
    __u8 ended;         /* 1: the rate is over, end_sequence is known */
    __u8 fell;          /* 1: a packet of it was lost or marked */
    __u16 unused;
};

struct {
    __uint(type, BPF_MAP_TYPE_SK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct quick_start);
} quick_starts SEC(".maps");

/* Bits per second; of what was agreed to in band the sender does not know which part is guaranteed. */
struct share {
    __u64 rate_bps; /* 0: no fresh rate */
    __u64 guaranteed_bps;
};

/* What the path agreed to in band, else the flow's share of its grant. */
static __always_inline struct share share_of(const struct chart_socket_flow *flow,
                                             const struct chart_usage *usage_entry, __u64 now_ns) {
    struct share share = {0};
    if (signal_fresh(flow, now_ns)) {
        share.rate_bps = flow->signal_bps;
        return share;
    }
    const struct chart_rate *rate = usage_entry ? bpf_map_lookup_elem(&rates, &flow->key) : NULL;
    if (rate) {
        __u32 flows_now = active_flows(usage_entry, now_ns);
        share.rate_bps = rate_in_force(rate, now_ns) / flows_now;
        share.guaranteed_bps = guarantee_in_force(rate, now_ns) / flows_now;
    }
    return share;
}

static __always_inline void pace(struct sock *sk, struct tcp_sock *tp, struct chart_socket_flow *flow,
                                 struct share share, __u32 queue_us) {
    __u32 mss = tp->mss_cache ? tp->mss_cache : DEFAULT_MSS_BYTES;
    __u64 bytes_per_s = payload_bytes_per_s(sk, tp, share.rate_bps, mss);
    /* sk_max_pacing_rate is the application's own limit (SO_MAX_PACING_RATE). */
    bytes_per_s = min(bytes_per_s, sk->sk_max_pacing_rate);
    __u32 window = window_packets(tp, bytes_per_s, mss);
    if (queue_us > QUEUE_TO_DRAIN_US) {
        __u64 least = min(bytes_per_s, payload_bytes_per_s(sk, tp, share.guaranteed_bps, mss));
        bytes_per_s = max(bytes_per_s * DRAIN_PER_MILLE / 1000, least);
    }
    sk->sk_pacing_rate = max(bytes_per_s, 1ull);
    tp->snd_cwnd = min(window, tp->snd_cwnd_clamp);
    tp->snd_ssthresh = tp->snd_cwnd;
    flow->rate_bps = share.rate_bps;
}

/* The rate ended: give the socket to the control it had. The window that one starts from is set in trinity_release. */
static __always_inline void hand_over(struct sock *sk, const struct chart_socket_flow *flow) {
    char control[CHART_CONTROL_NAME_LEN] = "cubic";
    const struct tcp_sock *tp = (const struct tcp_sock *)sk;
    __u32 mss = tp->mss_cache ? tp->mss_cache : DEFAULT_MSS_BYTES;
    __u64 rate_bps = flow ? flow->rate_bps : 0;
    if (flow && flow->fallback[0])
        __builtin_memcpy(control, flow->fallback, sizeof(control));
    if (bpf_setsockopt(sk, SOL_TCP, TCP_CONGESTION, control, sizeof(control)) || !rate_bps)
        return;
    /* A rate to begin with is none to stay at. */
    if (flow->signal_expires_ns & CHART_QUICK_START_BIT)
        return;
    if (__builtin_memcmp(control, "bbr", sizeof("bbr")) == 0)
        settle_bbr(sk, payload_bytes_per_s(sk, tp, rate_bps, mss) / mss);
    else if (__builtin_memcmp(control, "cubic", sizeof("cubic")) == 0)
        settle_cubic(sk, tp->snd_cwnd);
}

/* Quick-Start's rate begins, or comes back because a packet that it paced was lost after it had ended. */
static __always_inline void quick_start_init(struct sock *sk, const struct tcp_sock *tp,
                                             const struct chart_socket_flow *flow, __u64 now_ns) {
    bool fresh = signal_fresh(flow, now_ns);
    struct quick_start *start = bpf_sk_storage_get(&quick_starts, sk, 0, fresh ? BPF_SK_STORAGE_GET_F_CREATE : 0);
    if (!start)
        return;
    if (!fresh) {
        start->fell = start->ended && (__s32)(start->end_sequence - tp->snd_una) > 0;
        return;
    }
    *start = (struct quick_start){
        .cwnd_packets = tp->snd_cwnd,
        .delivered_packets = tp->delivered,
        .lost_packets = tp->lost,
        .marked_packets = tp->delivered_ce,
    };
}

/* A packet that Quick-Start's rate paced was lost or marked: as if nothing had been approved (RFC 4782, section 4.6).
 * The socket stays here with the window of before until its losses are repaired, and goes on in slow start up to half
 * of what arrived. False: there is nothing to take back, or not any more. */
static __always_inline bool quick_start_falls(struct sock *sk, struct tcp_sock *tp, struct chart_socket_flow *flow,
                                              __u64 now_ns) {
    const struct inet_connection_sock *icsk = (const struct inet_connection_sock *)sk;
    if (!(flow->signal_expires_ns & CHART_QUICK_START_BIT) || flow->key.grant)
        return false;
    struct quick_start *start = bpf_sk_storage_get(&quick_starts, sk, 0, 0);
    if (!start)
        return false;
    if (!start->fell && signal_fresh(flow, now_ns) &&
        (tp->lost != start->lost_packets || tp->delivered_ce != start->marked_packets)) {
        start->fell = 1;
        flow->signal_bps = 0;
    }
    if (!start->fell || BPF_CORE_READ_BITFIELD_PROBED(icsk, icsk_ca_state) < TCP_CA_CWR)
        return false;
    __u64 rtt_us = path_rtt_us(tp);
    tp->snd_cwnd = min(start->cwnd_packets, tp->snd_cwnd_clamp);
    tp->snd_ssthresh = tp->snd_cwnd;
    sk->sk_pacing_rate = max(2ull * tp->snd_cwnd * tp->mss_cache * USEC_PER_SEC / max(rtt_us, 1ull), 1ull);
    return true;
}

SEC("struct_ops/trinity_init")
void BPF_PROG(trinity_init, struct sock *sk) {
    struct tcp_sock *tp = (struct tcp_sock *)sk;
    struct chart_socket_flow *flow = bpf_sk_storage_get(&flows, sk, 0, 0);
    __u64 now_ns = bpf_ktime_get_ns();
    sk->sk_pacing_status = SK_PACING_NEEDED; /* TCP's own timer, no qdisc has to help */
    if (!flow)
        return;
    struct chart_usage *usage_entry = bpf_map_lookup_elem(&usage, &flow->key);
    struct share share = share_of(flow, usage_entry, now_ns);
    if (flow->signal_expires_ns & CHART_QUICK_START_BIT)
        quick_start_init(sk, tp, flow, now_ns);
    if (share.rate_bps)
        pace(sk, tp, flow, share, 0);
}

static __always_inline void control(struct sock *sk, const struct rate_sample *rs) {
    struct tcp_sock *tp = (struct tcp_sock *)sk;
    struct chart_socket_flow *flow = bpf_sk_storage_get(&flows, sk, 0, 0);
    struct chart_usage *usage_entry = flow ? bpf_map_lookup_elem(&usage, &flow->key) : NULL;
    if (!flow) {
        hand_over(sk, flow);
        return;
    }
    __u64 now_ns = bpf_ktime_get_ns();
    __u64 epoch = now_ns / CHART_EPOCH_NS;
    if (usage_entry)
        account(tp, flow, usage_entry);
    if (flow->epoch != epoch) {
        flow->epoch = epoch;
        flow->epoch_delivered_packets = 0;
    }
    if (rs->acked_sacked > 0) {
        __u32 before = flow->epoch_delivered_packets;
        flow->epoch_delivered_packets = before + rs->acked_sacked;
        if (usage_entry && before < ACTIVE_PACKETS && flow->epoch_delivered_packets >= ACTIVE_PACKETS)
            count_active(usage_entry->active, epoch);
    }
    if (quick_start_falls(sk, tp, flow, now_ns))
        return;
    struct share share = share_of(flow, usage_entry, now_ns);
    if (!share.rate_bps) {
        hand_over(sk, flow);
        return;
    }
    pace(sk, tp, flow, share, queueing_us(tp, rs));
}

/* The kernel knows the argument by its place in the context; the other branch it does not look at. */
SEC("struct_ops/trinity_control")
int trinity_control(unsigned long long *context) {
    struct sock *sk = (void *)context[0];
    if (cong_control_arguments == 4)
        control(sk, (const struct rate_sample *)context[3]);
    else
        control(sk, (const struct rate_sample *)context[1]);
    return 0;
}

/* Some kernels register no operations without it (Linux 6.1); beside cong_control it is not called. */
SEC("struct_ops/trinity_avoid")
void BPF_PROG(trinity_avoid, struct sock *sk, __u32 ack, __u32 acked) {}

/* Note where Quick-Start's rate ended. True: it was taken back, and the window is the one of before, or half of what
 * was sent if that is less (section 4.8); slow start goes up to half of what arrived. */
static __always_inline bool quick_start_release(struct sock *sk, struct tcp_sock *tp) {
    struct quick_start *start = bpf_sk_storage_get(&quick_starts, sk, 0, 0);
    if (!start)
        return false;
    if (!start->fell) {
        start->ended = 1;
        start->end_sequence = tp->snd_nxt;
        return false;
    }
    __u32 arrived = tp->delivered - start->delivered_packets;
    __u32 lost = tp->lost - start->lost_packets;
    tp->snd_cwnd = min(start->cwnd_packets, max((arrived + lost) / 2, QUICK_START_LEAST_PACKETS));
    tp->snd_ssthresh = max(arrived / 2, QUICK_START_LEAST_PACKETS);
    *start = (struct quick_start){0};
    return true;
}

/* The socket leaves trinity, by us, by the agent or by its application: one RTT's worth at the last rate is what the
 * next control starts from, without a burst; pacing is its own to set. */
SEC("struct_ops/trinity_release")
void BPF_PROG(trinity_release, struct sock *sk) {
    struct tcp_sock *tp = (struct tcp_sock *)sk;
    struct chart_socket_flow *flow = bpf_sk_storage_get(&flows, sk, 0, 0);
    __u32 mss = tp->mss_cache ? tp->mss_cache : DEFAULT_MSS_BYTES;
    sk->sk_pacing_rate = ~0ul;
    sk->sk_pacing_status = SK_PACING_NONE;
    if (flow && (flow->signal_expires_ns & CHART_QUICK_START_BIT) && quick_start_release(sk, tp)) {
        flow->rate_bps = 0;
        return;
    }
    if (!flow || !flow->rate_bps)
        return;
    __u64 bytes_per_s = payload_bytes_per_s(sk, tp, flow->rate_bps, mss);
    __u64 packets = bytes_per_s * path_rtt_us(tp) / USEC_PER_SEC / mss;
    tp->snd_cwnd = (__u32)min(max(packets, (__u64)MIN_HANDED_PACKETS), (__u64)MAX_CWND_PACKETS);
    tp->snd_ssthresh = tp->snd_cwnd;
    /* Of a window that was approved for one round trip what was used of it stays, and slow start goes on up to it (RFC
     * 4782, section 4.4). */
    if (flow->signal_expires_ns & CHART_QUICK_START_BIT)
        tp->snd_cwnd = min(tp->snd_cwnd, max(tp->packets_out, MIN_HANDED_PACKETS));
    flow->rate_bps = 0;
}

/* A timeout takes the window to one packet before this is called: loss says nothing about the rate, so put it back. */
SEC("struct_ops/trinity_state")
void BPF_PROG(trinity_state, struct sock *sk, __u8 new_state) {
    struct tcp_sock *tp = (struct tcp_sock *)sk;
    struct chart_socket_flow *flow = bpf_sk_storage_get(&flows, sk, 0, 0);
    if (new_state != TCP_CA_Loss || !flow || !flow->rate_bps)
        return;
    /* Of a rate to begin with a loss says enough. */
    if (flow->signal_expires_ns & CHART_QUICK_START_BIT)
        return;
    struct chart_usage *usage_entry = bpf_map_lookup_elem(&usage, &flow->key);
    struct share share = share_of(flow, usage_entry, bpf_ktime_get_ns());
    if (share.rate_bps)
        pace(sk, tp, flow, share, 0);
}

SEC("struct_ops/trinity_ssthresh")
__u32 BPF_PROG(trinity_ssthresh, struct sock *sk) {
    const struct tcp_sock *tp = (const struct tcp_sock *)sk;
    return tp->snd_cwnd;
}

SEC("struct_ops/trinity_undo")
__u32 BPF_PROG(trinity_undo, struct sock *sk) {
    const struct tcp_sock *tp = (const struct tcp_sock *)sk;
    return tp->snd_cwnd;
}

SEC("struct_ops/trinity_sndbuf")
__u32 BPF_PROG(trinity_sndbuf, struct sock *sk) {
    const struct tcp_sock *tp = (const struct tcp_sock *)sk;
    return tp->total_retrans ? SNDBUF_WINDOWS_LOSSY : SNDBUF_WINDOWS;
}

SEC(".struct_ops")
struct tcp_congestion_ops trinity = {
    .init = (void *)trinity_init,
    .release = (void *)trinity_release,
    .cong_control = (void *)trinity_control,
    .cong_avoid = (void *)trinity_avoid,
    .set_state = (void *)trinity_state,
    .ssthresh = (void *)trinity_ssthresh,
    .undo_cwnd = (void *)trinity_undo,
    .sndbuf_expand = (void *)trinity_sndbuf,
    .name = CHART_TRINITY,
};
