/* signal: explicit rates in band (Brassil et al., The CHART System, sections 2, 3 and 5; docs/signalling.md).
 *
 * signal_egress sees every packet that leaves through a CHART link: it asks, confirms, renews and closes for flows of
 * this node and sends answers that wait, by clones of the flow's own packets that go ahead of them. Packets of flows
 * with a rate get their class, which classify, the next program, leaves to them: that of explicit rates, or where a
 * guaranteed rate comes with delay priority the expedited one for as much as is guaranteed.
 *
 * signal_ingress verifies signals that arrive, lowers them to what the link ahead can give and signs them for the next
 * element; the last element answers, the first one takes the answer.
 *
 * signal_setsockopt and signal_getsockopt take a program's own request for one socket (signal_sockopt.bpf.h).
 *
 * What fails is counted and left alone: it goes on as the ordinary packet it is. So does everything in the modes `off`
 * and `observe` (signal_maps.h, enum chart_signal_mode). */
#include "common.bpf.h"

#include "bucket.bpf.h"
#include "signal_keep.bpf.h"
#include "signal_origin.bpf.h"
#include "signal_return.bpf.h"
#include "signal_sockopt.bpf.h"
#include "signal_write.bpf.h"

#include "lib/htb/htb_classes.h"

char LICENSE[] SEC("license") = "GPL";

#define TCX_NEXT -1
#define FIB_OUTPUT_NONE 0u
/* Depth of the bucket of an expedited flow as time at its rate; two full packets at least. */
#define EXPEDITED_DEPTH_NS 10000000ull

/* Send a signal ahead of this packet: a clone of it, which passes signal_egress once more and is written there. */
static __always_inline void send_ahead(struct __sk_buff *skb, const struct chart_qos *qos, __u32 element, __u32 carrier,
                                       const __u8 *shim_address) {
    __u32 zero = 0, mark = skb->mark;
    struct signal_order *order = bpf_map_lookup_elem(&signal_orders, &zero);

    if (!order)
        return;
    order->qos = *qos;
    order->element = element;
    order->carrier = carrier;
    __builtin_memcpy(order->shim_address, shim_address, sizeof(order->shim_address));
    skb->mark = CHART_MARK_ORDER;
    bpf_clone_redirect(skb, skb->ifindex, 0);
    skb->mark = mark;
}

static __always_inline void send_answer(struct __sk_buff *skb, const struct signal_packet *packet,
                                        struct chart_signal_half *back) {
    const struct chart_signal_hop *hop = signal_next_hop(packet->ends.destination);
    struct chart_qos qos = back->agreed;

    qos.direction = CHART_BACKWARD;
    qos.status = back->pending - 1;
    back->pending = 0;
    if (hop)
        send_ahead(skb, &qos, hop->element, CHART_CARRIER_OPTION, hop->shim_address);
}

static __always_inline void send_own(struct __sk_buff *skb, const struct signal_packet *packet,
                                     struct chart_signal_half *half, const struct chart_signal_config *config,
                                     __u8 status, __u64 now_ns) {
    const struct chart_signal_hop *hop = signal_next_hop(packet->ends.destination);
    struct chart_qos qos = half->asked;
    struct chart_signal_out *out;
    __u32 element, carrier;

    if (!hop)
        return; /* nobody before the receiver to agree with */
    element = hop->element;
    out = bpf_map_lookup_elem(&signal_out, &element);
    if (!out) {
        /* Nothing is sent until there is a key, so nobody could have answered: no try is used up by that. */
        if (status == CHART_REQUEST && half->tries)
            half->tries--;
        return;
    }
    carrier = signal_choose_carrier(half, hop, out, status, config, now_ns);
    qos.status = status;
    if (status == CHART_REQUEST || status == CHART_RENEGOTIATE) {
        signal_note_asked(out, config, half->last_ns);
        signal_link_offer(skb->ifindex, half, &qos, &packet->ends, signal_keep_ns(&qos, config));
    } else {
        if (status == CHART_CONFIRM) {
            qos.guaranteed_rate = half->agreed.guaranteed_rate;
            qos.available_rate = half->agreed.available_rate;
        }
        signal_link_settle(half, &packet->ends, chart_rate_decode(qos.guaranteed_rate), status == CHART_CONFIRM,
                           now_ns);
    }
    send_ahead(skb, &qos, element, carrier, hop->shim_address);
}

static __always_inline int become_signal(struct __sk_buff *skb) {
    /* The context of a classifier is the kernel's own packet. */
    const struct sk_buff *kernel = (const void *)skb;
    bool partial = BPF_CORE_READ_BITFIELD_PROBED(kernel, ip_summed) == 3; /* CHECKSUM_PARTIAL */
    int error = signal_write(skb, head_of(skb), partial);

    if (error) {
        signal_count(CHART_COUNT_UNSENT);
        return TC_DROP;
    }
    signal_count(CHART_COUNT_SENT);
    skb->mark = CHART_MARK_SIGNAL;
    return (int)bpf_redirect(skb->ifindex, 0);
}

/* The class of a packet whose flow has a rate (`qos`: what was asked or agreed; rate_bps: what is guaranteed of it).
 * Expedited packets wait for nobody, so no more than the guaranteed rate may be among them (signalling.md, "EF takes k
 * <= 1 only"); what exceeds it keeps its place among explicit rates. */
static __always_inline __u32 class_of(struct __sk_buff *skb, struct chart_signal_half *half,
                                      const struct chart_qos *qos, __u64 rate_bps) {
    if (qos->delay_priority < HTB_EXPEDITED_DELAY_PRIORITY || qos->burst_tolerance > HTB_EXPEDITED_BURST_TOLERANCE ||
        !rate_bps)
        return HTB_CLASS_ID(HTB_MINOR_EXPLICIT_RATE);
    if (!bucket_conforms(&half->bucket_ns, ip_bytes(skb, head_of(skb)), rate_bps, EXPEDITED_DEPTH_NS,
                         bpf_ktime_get_ns()))
        return HTB_CLASS_ID(HTB_MINOR_EXPLICIT_RATE);
    return HTB_CLASS_ID(HTB_MINOR_EXPEDITED);
}

/* An ordinary packet on its way out. A function of its own for the sake of the stack. */
SIGNAL_FUNCTION int look_ahead(struct __sk_buff *skb) {
    const struct chart_signal_config *config = signal_configuration();
    struct signal_packet *packet;
    struct signal_scratch *scratch;
    struct chart_signal_flow *flow;
    struct chart_signal_half *half, *back;
    const struct chart_socket_request *request;
    struct bpf_sock *sk;
    __u64 now_ns, rtt_ns = 0;
    __u32 zero = 0;
    __u8 status;

    if (!config || !config->element || config->mode == CHART_SIGNALLING_OFF)
        return TCX_NEXT;
    scratch = bpf_map_lookup_elem(&signal_scratches, &zero);
    if (!scratch)
        return TCX_NEXT;
    packet = &scratch->seen;
    if (!signal_read_packet(skb, packet))
        return TCX_NEXT;
    flow = bpf_map_lookup_elem(&signal_flows, &packet->key);
    if (!flow) {
        if (!look_first(skb))
            return TCX_NEXT;
        flow = bpf_map_lookup_elem(&signal_flows, &packet->key);
        if (!flow)
            return TCX_NEXT;
    }
    half = signal_half(flow, packet->direction);
    back = signal_half(flow, packet->direction + 1);
    /* A reset ends what was asked for and asks for nothing. */
    if ((packet->tcp_flags & TCP_RST) && (half->role != CHART_ROLE_ORIGIN || half->state == CHART_SOCKET_NONE))
        return TCX_NEXT;
    if (half->generation != config->generation || ((packet->tcp_flags & TCP_SYN) && half->role == CHART_ROLE_NONE)) {
        sk = skb->sk;
        sk = sk ? bpf_sk_fullsock(sk) : NULL;
        request = sk ? bpf_sk_storage_get(&signal_requests, sk, 0, 0) : NULL;
        /* An answer that waited while the mode was another is nobody's any more. */
        if (half->generation && half->generation != config->generation)
            back->pending = 0;
        signal_judge(half, packet, request, bpf_ktime_get_ns());
    }
    if (config->mode != CHART_SIGNALLING_ENFORCE)
        return TCX_NEXT;
    if (back->pending)
        send_answer(skb, packet, back);
    if (half->role != CHART_ROLE_ORIGIN) {
        /* The link keeps something for this flow until the slot begins. */
        if (half->slot && bpf_ktime_get_coarse_ns() / CHART_SLOT_NS < half->slot)
            skb->priority = class_of(skb, half, &half->asked, half->held_bps);
        return TCX_NEXT;
    }
    half->packets += max(*(const volatile __u32 *)&skb->gso_segs, 1u);
    /* Up to a tick late, for a third of what the exact time costs; nothing here is due within less than 200 ms. */
    now_ns = bpf_ktime_get_coarse_ns();
    if (half->state == CHART_SOCKET_AGREED && now_ns < half->expires_ns)
        skb->priority = class_of(skb, half, &half->agreed, chart_rate_decode(half->agreed.guaranteed_rate));
    sk = skb->sk;
    sk = sk ? bpf_sk_fullsock(sk) : NULL;
    if (sk && packet->protocol == PROTOCOL_TCP && half->state == CHART_SOCKET_ASKED) {
        const struct bpf_tcp_sock *tcp = bpf_tcp_sock(sk);
        rtt_ns = tcp ? (__u64)(tcp->srtt_us >> 3) * 1000 : 0;
    }
    status = (__u8)signal_due(half, packet->tcp_flags, rtt_ns, now_ns);
    if (status != NOTHING_DUE)
        send_own(skb, packet, half, config, status, now_ns);
    return TCX_NEXT;
}

SEC("tc")
int signal_egress(struct __sk_buff *skb) {
    if (skb->mark == CHART_MARK_ORDER)
        return become_signal(skb);
    if (skb->mark == CHART_MARK_SIGNAL || skb->mark == CHART_MARK_AHEAD)
        return TCX_NEXT;
    look_ahead(skb);
    return TCX_NEXT;
}

/* Tell the socket its rate, when it is known already; attach tells the others when they are established. */
SIGNAL_FUNCTION int tell_socket(struct __sk_buff *skb, const struct chart_flow *flow,
                                const struct chart_signal_half *half) {
    struct bpf_sock_tuple tuple = {};
    struct chart_socket_flow *storage;
    struct bpf_sock *sk;

    if (!flow || !half || flow->protocol != PROTOCOL_TCP)
        return 0;
    if (flow->family == 4) {
        __builtin_memcpy(&tuple.ipv4.saddr, flow->source, 4);
        __builtin_memcpy(&tuple.ipv4.daddr, flow->destination, 4);
        __builtin_memcpy(&tuple.ipv4.sport, flow->selector, 2);
        __builtin_memcpy(&tuple.ipv4.dport, flow->selector + 2, 2);
        sk = bpf_sk_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4), (__u64)BPF_F_CURRENT_NETNS, 0);
    } else {
        __builtin_memcpy(&tuple.ipv6.saddr, flow->source, 16);
        __builtin_memcpy(&tuple.ipv6.daddr, flow->destination, 16);
        __builtin_memcpy(&tuple.ipv6.sport, flow->selector, 2);
        __builtin_memcpy(&tuple.ipv6.dport, flow->selector + 2, 2);
        sk = bpf_sk_lookup_tcp(skb, &tuple, sizeof(tuple.ipv6), (__u64)BPF_F_CURRENT_NETNS, 0);
    }
    if (!sk)
        return 0;
    if (sk->state != BPF_TCP_LISTEN) {
        storage = bpf_sk_storage_get(&flows, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
        if (storage) {
            storage->signal_bps =
                chart_rate_decode(half->agreed.guaranteed_rate) + chart_rate_decode(half->agreed.available_rate);
            storage->signal_expires_ns = half->expires_ns & ~CHART_QUICK_START_BIT;
        }
    }
    bpf_sk_release(sk);
    return 0;
}

/* The interface through which the flow goes on; 0: it ends here or the way is not known. A function of its own for the
 * sake of the stack: frames count in steps of 32 octets before Linux 6.7. */
SIGNAL_FUNCTION int way_ahead(struct __sk_buff *skb, const struct chart_flow *flow) {
    struct bpf_fib_lookup fib = {};
    long found;

    if (!flow)
        return FIB_OUTPUT_NONE;
    fib.ifindex = skb->ifindex;
    if (flow->family == 4) {
        fib.family = AF_INET;
        __builtin_memcpy(&fib.ipv4_src, flow->source, 4);
        __builtin_memcpy(&fib.ipv4_dst, flow->destination, 4);
    } else {
        fib.family = AF_INET6;
        __builtin_memcpy(fib.ipv6_src, flow->source, 16);
        __builtin_memcpy(fib.ipv6_dst, flow->destination, 16);
    }
    found = bpf_fib_lookup(skb, &fib, sizeof(fib), 0);
    return found == BPF_FIB_LKUP_RET_SUCCESS || found == BPF_FIB_LKUP_RET_NO_NEIGH ? fib.ifindex : FIB_OUTPUT_NONE;
}

/* A signal that travels with the data, at an element on its way. False: it ends here in silence. */
SIGNAL_FUNCTION int take_forward(struct __sk_buff *skb, struct signal_scratch *scratch, struct chart_signal_half *half,
                                 __u32 last, __u64 now_ns) {
    const struct chart_signal_config *config = signal_configuration();
    struct signal_ends ends;
    struct chart_qos *qos;

    if (!scratch || !half || !config)
        return false;
    qos = &scratch->parsed.signal.qos;
    signal_ends_of(&ends, &scratch->parsed.flow);
    if (qos->status == CHART_REQUEST || qos->status == CHART_RENEGOTIATE) {
        __u32 ifindex = way_ahead(skb, &scratch->parsed.flow);

        if (last && !signal_authorise(qos, &scratch->seen, now_ns))
            return false;
        if (ifindex)
            signal_link_offer(ifindex, half, qos, &ends, signal_keep_ns(qos, config));
        half->role = last ? CHART_ROLE_LAST : CHART_ROLE_TRANSIT;
        half->asked = *qos;
        half->last_ns = now_ns;
        if (last) {
            bool nothing = qos->service == CHART_GUARANTEED && !qos->guaranteed_rate;
            half->agreed = *qos;
            half->pending =
                1 +
                (nothing ? CHART_REJECT : (qos->status == CHART_REQUEST ? CHART_RESPONSE : CHART_RENEGOTIATE_RESPONSE));
        }
        return true;
    }
    signal_link_settle(half, &ends, chart_rate_decode(qos->guaranteed_rate), qos->status == CHART_CONFIRM, now_ns);
    if (qos->status == CHART_CLOSE)
        half->role = CHART_ROLE_NONE;
    return true;
}

/* Sign for the next element and put the signal back into its packet. Returns the verdict. */
SIGNAL_FUNCTION int pass_on(struct __sk_buff *skb, struct signal_scratch *scratch, const struct chart_signal_hop *hop,
                            __u32 shim) {
    struct chart_signal *signal;
    __u32 offset, octets, head = head_of(skb);
    __u8 *packet, family;
    int error;

    if (!scratch || !hop)
        return TC_DROP;
    signal = &scratch->parsed.signal;
    packet = scratch->packet;
    offset = scratch->parsed.signal_offset;
    family = scratch->parsed.flow.family;
    error = signal_sign(scratch, hop->element);
    if (error || head > ETHERNET_HEADER)
        goto failed;
    if (shim) {
        if (family == 4) {
            __builtin_memcpy(packet + 16, hop->shim_address + 12, 4);
            chart_put16(packet + 10, chart_ipv4_checksum(packet, IPV4_HEADER));
        } else {
            __builtin_memcpy(packet + 24, hop->shim_address, 16);
        }
        signal_shim_write(scratch);
        if (family == 4)
            error = bpf_skb_store_bytes(skb, head, packet, IPV4_HEADER + SHIM_UDP_OCTETS + CHART_SHIM_IPV4_OCTETS, 0);
        else
            error = bpf_skb_store_bytes(skb, head, packet, IPV6_HEADER + SHIM_UDP_OCTETS + CHART_SHIM_IPV6_OCTETS, 0);
    } else if (family == 4) {
        error = chart_ipv4_rewrite(packet, offset, signal);
        if (error)
            goto failed;
        octets = (packet[0] & 15) * 4;
        CHART_OPAQUE(octets);
        if (octets < CHART_IPV4_HEADER || octets > CHART_IPV4_HEADER_MAX)
            goto failed;
        error = bpf_skb_store_bytes(skb, head, packet, octets, 0);
    } else {
        error = chart_ipv6_rewrite(packet, offset, signal);
        if (error)
            goto failed;
        CHART_OPAQUE(offset);
        if (offset > CHART_IPV6_HEADER + CHART_IPV6_HOP_MAX - CHART_SIGNAL_OCTETS)
            goto failed;
        error = bpf_skb_store_bytes(skb, head + offset, packet + offset, CHART_SIGNAL_OCTETS, 0);
    }
    if (error)
        goto failed;
    signal_count(CHART_COUNT_SENT);
    skb->mark = CHART_MARK_SIGNAL;
    return TCX_NEXT;
failed:
    signal_count(CHART_COUNT_UNSENT);
    return TC_DROP;
}

/* What session rules look at, of the flow that a signal speaks of: its packets have the signal's code point. */
SIGNAL_FUNCTION int see_flow(struct signal_scratch *scratch) {
    const struct chart_flow *flow;
    struct signal_packet *seen;
    const __u8 *packet;

    if (!scratch)
        return 0;
    flow = &scratch->parsed.flow;
    seen = &scratch->seen;
    packet = scratch->packet;
    signal_ends_of(&seen->ends, flow);
    seen->protocol = flow->protocol;
    seen->dscp = flow->family == 4 ? packet[1] >> 2 : (__u8)((packet[0] & 15) << 2 | packet[1] >> 6);
    seen->source_port = 0;
    seen->destination_port = 0;
    if (flow->protocol == PROTOCOL_TCP || flow->protocol == PROTOCOL_UDP) {
        __builtin_memcpy(&seen->source_port, flow->selector, 2);
        __builtin_memcpy(&seen->destination_port, flow->selector + 2, 2);
    }
    return 0;
}

/* Which neighbours answer: a verified signal from one, and what is asked of the next one. */
SIGNAL_FUNCTION int note_neighbour(const struct signal_scratch *scratch, const struct chart_signal_hop *hop,
                                   __u64 now_ns) {
    const struct chart_signal_config *config = signal_configuration();
    const struct chart_qos *qos;
    struct chart_signal_out *out;
    __u32 element;

    if (!scratch || !config)
        return 0;
    qos = &scratch->parsed.signal.qos;
    if (qos->direction == CHART_BACKWARD) {
        element = scratch->parsed.signal.sender;
        out = bpf_map_lookup_elem(&signal_out, &element);
        if (out)
            out->asked_ns = 0;
    } else if (hop && (qos->status == CHART_REQUEST || qos->status == CHART_RENEGOTIATE)) {
        element = hop->element;
        out = bpf_map_lookup_elem(&signal_out, &element);
        if (out)
            signal_note_asked(out, config, now_ns);
    }
    return 0;
}

/* A verified signal. */
static __always_inline int take(struct __sk_buff *skb, struct signal_scratch *scratch,
                                const struct chart_signal_config *config, bool shim) {
    struct chart_qos *qos = &scratch->parsed.signal.qos;
    const struct chart_flow *flow = &scratch->parsed.flow;
    const struct chart_signal_hop *hop;
    struct chart_signal_flow *entry;
    struct chart_signal_half *half;
    struct signal_packet *seen = &scratch->seen;
    __u64 now_ns = bpf_ktime_get_ns();
    __u32 direction = signal_key_of(&seen->key, flow);
    bool backward =
        qos->status == CHART_RESPONSE || qos->status == CHART_RENEGOTIATE_RESPONSE || qos->status == CHART_REJECT;

    signal_count(CHART_COUNT_ACCEPTED);
    if (backward != (qos->direction == CHART_BACKWARD)) {
        signal_count(CHART_QOS_BAD_STATUS);
        return TC_DROP;
    }
    see_flow(scratch);
    hop = signal_next_hop(seen->ends.destination);
    note_neighbour(scratch, hop, now_ns);
    entry = bpf_map_lookup_elem(&signal_flows, &seen->key);
    if (!entry && !backward && qos->status != CHART_CLOSE)
        entry = keep_flow(scratch, direction, now_ns);
    if (backward) {
        if (hop)
            return pass_on(skb, scratch, hop, shim);
        half = entry ? signal_half(entry, direction + 1) : NULL;
        if (half && signal_answered(half, qos, config, now_ns)) {
            __u32 sender = scratch->parsed.signal.sender;
            struct chart_signal_out *out = bpf_map_lookup_elem(&signal_out, &sender);
            /* The hop lets options through, or it does not: flows that begin within a minute need not find out. */
            if (out && !shim)
                out->unanswered = 0;
            else if (out && out->unanswered >= config->tries / 2)
                out->shim_until_ns = now_ns + 60000000000ull;
            tell_socket(skb, flow, half);
        }
        signal_count(CHART_COUNT_CONSUMED);
        return TC_DROP;
    }
    half = entry ? signal_half(entry, direction) : NULL;
    /* What this element cannot lower to what its links have does not go on: the next would take it for agreed. */
    if (!half && qos->status != CHART_CLOSE) {
        signal_count(CHART_COUNT_NO_ROOM);
        return TC_DROP;
    }
    if (half && !take_forward(skb, scratch, half, !hop, now_ns))
        return TC_DROP;
    if (hop)
        return pass_on(skb, scratch, hop, shim);
    signal_count(CHART_COUNT_CONSUMED);
    if (half && half->pending && (shim || flow->protocol == PROTOCOL_UDP)) {
        const struct chart_signal_hop *back = signal_next_hop(seen->ends.source);
        if (back && (!shim || back->has_shim))
            return turn_round(skb, scratch, half, back, shim);
    }
    return TC_DROP;
}

/* Whether a datagram is delivered here: neighbours may know this element by any of its addresses. */
SIGNAL_FUNCTION int is_delivered_here(struct __sk_buff *skb, const struct signal_scratch *scratch, __u32 ipv4) {
    struct bpf_fib_lookup fib = {};

    if (!scratch)
        return false;
    fib.ifindex = skb->ifindex;
    if (ipv4) {
        fib.family = AF_INET;
        __builtin_memcpy(&fib.ipv4_src, scratch->packet + 12, 4);
        __builtin_memcpy(&fib.ipv4_dst, scratch->packet + 16, 4);
    } else {
        fib.family = AF_INET6;
        __builtin_memcpy(fib.ipv6_src, scratch->packet + 8, 16);
        __builtin_memcpy(fib.ipv6_dst, scratch->packet + 24, 16);
    }
    return bpf_fib_lookup(skb, &fib, sizeof(fib), 0) == BPF_FIB_LKUP_RET_NOT_FWDED;
}

/* Load and parse; the shim only when it is addressed to this element. Returns enum chart_qos_error. */
SIGNAL_FUNCTION int read_signal(struct __sk_buff *skb, struct signal_scratch *scratch, __u32 shim) {
    const struct chart_signal_config *config = signal_configuration();
    __u8 *packet;
    __u32 head = head_of(skb), length = skb->len, ip = skb->protocol == bpf_htons(0x0800) ? IPV4_HEADER : IPV6_HEADER;
    __u32 least = ip + SHIM_UDP_OCTETS + CHART_SHIM_IPV4_OCTETS;

    if (!scratch || !config || head > ETHERNET_HEADER)
        return CHART_QOS_NO_SIGNAL;
    if (length < head + (shim ? least : ip))
        return CHART_QOS_TRUNCATED;
    packet = scratch->packet;
    length -= head;
    if (length > CHART_PARSE_MAX)
        length = CHART_PARSE_MAX;
    CHART_OPAQUE(length);
    if (length < IPV4_HEADER || length > CHART_PARSE_MAX || bpf_skb_load_bytes(skb, head, packet, length))
        return CHART_QOS_TRUNCATED;
    if (!shim)
        return ip == IPV4_HEADER ? chart_ipv4_parse(&scratch->parsed, packet, length)
                                 : chart_ipv6_parse(&scratch->parsed, packet, length);
    if (ip == IPV4_HEADER) {
        if (!config->has_shim4 ||
            (__builtin_memcmp(packet + 16, config->shim_address + 12, 4) && !is_delivered_here(skb, scratch, true)))
            return CHART_QOS_NO_SIGNAL;
        length = chart_get16(packet + 24) - SHIM_UDP_OCTETS;
        if (length != CHART_SHIM_IPV4_OCTETS)
            return CHART_QOS_BAD_SHIM;
        return chart_shim_parse(&scratch->parsed, packet + IPV4_HEADER + SHIM_UDP_OCTETS, CHART_SHIM_IPV4_OCTETS);
    }
    if (!config->has_shim6 ||
        (__builtin_memcmp(packet + 24, config->shim_address6, 16) && !is_delivered_here(skb, scratch, false)))
        return CHART_QOS_NO_SIGNAL;
    length = chart_get16(packet + 44) - SHIM_UDP_OCTETS;
    if (length != CHART_SHIM_IPV6_OCTETS)
        return CHART_QOS_BAD_SHIM;
    return chart_shim_parse(&scratch->parsed, packet + IPV6_HEADER + SHIM_UDP_OCTETS, CHART_SHIM_IPV6_OCTETS);
}

/* What cannot be a signal is told from what may be one by the first octets. 0: no signal; 1: option; 2: shim. */
static __always_inline int looks_like(struct __sk_buff *skb) {
    __u8 first[8];
    __be16 port = 0;

    if (skb->protocol == bpf_htons(0x0800)) {
        if (bpf_skb_load_bytes_relative(skb, 8, first, 2, BPF_HDR_START_NET) ||
            bpf_skb_load_bytes_relative(skb, 0, first + 2, 1, BPF_HDR_START_NET))
            return 0;
        if ((first[2] & 15) > 5)
            return 1;
        if (first[1] != PROTOCOL_UDP || bpf_skb_load_bytes_relative(skb, IPV4_HEADER + 2, &port, 2, BPF_HDR_START_NET))
            return 0;
        return port == bpf_htons(CHART_SHIM_PORT) ? 2 : 0;
    }
    if (skb->protocol == bpf_htons(0x86dd)) {
        if (bpf_skb_load_bytes_relative(skb, 6, first, 1, BPF_HDR_START_NET))
            return 0;
        if (first[0] == 0)
            return 1;
        if (first[0] != PROTOCOL_UDP || bpf_skb_load_bytes_relative(skb, IPV6_HEADER + 2, &port, 2, BPF_HDR_START_NET))
            return 0;
        return port == bpf_htons(CHART_SHIM_PORT) ? 2 : 0;
    }
    return 0;
}

SEC("tc")
int signal_ingress(struct __sk_buff *skb) {
    int kind = looks_like(skb), error;
    __u32 zero = 0;
    const struct chart_signal_config *config;
    struct signal_scratch *scratch;

    if (!kind)
        return TCX_NEXT;
    config = signal_configuration();
    scratch = bpf_map_lookup_elem(&signal_scratches, &zero);
    if (!config || !config->element || !scratch || config->mode == CHART_SIGNALLING_OFF)
        return TCX_NEXT;
    error = read_signal(skb, scratch, kind == 2);
    if (config->mode == CHART_SIGNALLING_OBSERVE) {
        if (!error)
            signal_count(CHART_COUNT_WOULD_TAKE);
        return TCX_NEXT;
    }
    if (!error)
        error = signal_verify(skb->ifindex);
    if (error) {
        if (error != CHART_QOS_NO_SIGNAL)
            signal_count((__u32)error);
        return TCX_NEXT;
    }
    return take(skb, scratch, config, kind == 2);
}
