/* Verifying what comes in, signing what goes out: one key for each ordered pair of neighbours (Brassil et al., The
 * CHART System, section 3). Global functions, so that the verifier looks at each once. */
#pragma once

#include "signal_tables.bpf.h"

/* Sign scratch->parsed.signal for neighbour `element`. Returns enum chart_qos_error. */
SIGNAL_FUNCTION int signal_sign(struct signal_scratch *scratch, __u32 element) {
    const struct chart_signal_config *config = signal_configuration();
    struct chart_signal_out *out = bpf_map_lookup_elem(&signal_out, &element);
    struct chart_signal *signal;
    __u32 sequence;

    if (!scratch || !config)
        return CHART_QOS_UNKNOWN_SENDER;
    if (!out)
        return CHART_QOS_UNKNOWN_SENDER;
    signal = &scratch->parsed.signal;
    sequence = __sync_fetch_and_add(&out->sequence, 1) + 1;
    if (sequence > CHART_SEQUENCE_MAX) {
        /* Keep the counter from running over while the next epoch is on its way. */
        out->sequence = CHART_SEQUENCE_MAX;
        return CHART_QOS_EXHAUSTED;
    }
    signal->sequence = sequence;
    signal->epoch = (__u8)out->epoch;
    signal->sender = (__u16)config->element;
    chart_signal_tag(signal->tag, signal, &scratch->parsed.flow, &out->key, &scratch->hmac);
    return CHART_QOS_OK;
}

/* A request or renewal goes to a neighbour, of whichever flow. When it answers nothing it may know other keys: the
 * agent watches `ignored`. What was asked longer ago than a flow waits between its rounds is no sign of that. */
static __always_inline void signal_note_asked(struct chart_signal_out *out, const struct chart_signal_config *config,
                                              __u64 now_ns) {
    __u64 asked_ns = out->asked_ns;

    if (!asked_ns || now_ns > asked_ns + config->legacy_ns)
        out->asked_ns = now_ns;
    else if (now_ns >= asked_ns + config->retry_ns)
        __sync_fetch_and_add(&out->ignored, 1);
}

static __always_inline void signal_report(const struct signal_scratch *scratch, int error) {
    struct chart_signal_report *report = bpf_ringbuf_reserve(&signal_reports, sizeof(*report), 0);

    if (!report)
        return;
    __builtin_memset(report, 0, sizeof(*report));
    report->at_ns = bpf_ktime_get_ns();
    report->error = (__u32)error;
    report->flow = scratch->parsed.flow;
    chart_signal_pack(report->signal, &scratch->parsed.signal);
    /* The agent looks by itself once a second: a flood must not wake it for every packet. */
    bpf_ringbuf_submit(report, BPF_RB_NO_WAKEUP);
}

/* Who sent the packet in scratch->packet. Most senders of IPv6 can take any address of 64 bits. */
static __always_inline void signal_sender_of(struct chart_signal_sender *ret, const __u8 *packet, __u32 ifindex) {
    __builtin_memset(ret, 0, sizeof(*ret));
    if (packet[0] >> 4 == 4)
        signal_map_ipv4(ret->address, packet + 12);
    else
        __builtin_memcpy(ret->address, packet + 8, 8);
    ret->ifindex = ifindex;
}

static __always_inline bool signal_over_budget(const struct chart_signal_sender *sender) {
    const struct chart_signal_failing *failing = bpf_map_lookup_elem(&signal_failing, sender);

    return failing && failing->until_ns > bpf_ktime_get_ns() + (CHART_FAILURES_AT_ONCE - 1) * CHART_FAILURE_NS;
}

/* The flow that a signal speaks of, when signals of it verified before, as a number that is not 0; else 0. */
static __always_inline __u32 signal_known_flow(struct signal_scratch *scratch) {
    struct chart_signal_key *key = &scratch->seen.key;
    const struct chart_signal_flow *flow;
    __u64 mixed;

    signal_key_of(key, &scratch->parsed.flow);
    flow = bpf_map_lookup_elem(&signal_flows, key);
    if (!flow || (!flow->halves[0].role && !flow->halves[1].role))
        return 0;
    mixed = key->low[0] ^ key->low[1] * 3 ^ key->high[0] * 5 ^ key->high[1] * 7 ^
            ((__u64)key->low_port << 32 | (__u64)key->high_port << 16 | key->protocol);
    mixed *= 0x9e3779b97f4a7c15ull;
    return (__u32)(mixed >> 32) | 1;
}

/* A failure is paid off after CHART_FAILURE_NS. Processors that count at the same time may lose one. */
static __always_inline void signal_charge(const struct chart_signal_sender *sender) {
    struct chart_signal_failing *failing = bpf_map_lookup_elem(&signal_failing, sender);
    struct chart_signal_failing first = {.until_ns = bpf_ktime_get_ns() + CHART_FAILURE_NS};

    if (failing)
        failing->until_ns = max(failing->until_ns + CHART_FAILURE_NS, first.until_ns);
    else
        bpf_map_update_elem(&signal_failing, sender, &first, BPF_ANY);
}

/* Verify scratch->parsed, which came in through this interface, and take its sequence. Order: sender and epoch, window,
 * budget, tag; the window moves only when all hold. Returns enum chart_qos_error, or CHART_COUNT_OVER_BUDGET.
 *
 * Looks for the scratch itself: Linux before 6.2 takes no pointer that is an argument as the key of a map. */
SIGNAL_FUNCTION int signal_verify(__u32 ifindex) {
    __u32 zero = 0;
    struct signal_scratch *scratch = bpf_map_lookup_elem(&signal_scratches, &zero);
    struct chart_signal_in_key key = {};
    struct chart_signal_in *in;
    struct chart_signal *signal;
    __u8 tag[CHART_TAG_OCTETS];
    int error;

    if (!scratch)
        return CHART_QOS_UNKNOWN_SENDER;
    signal = &scratch->parsed.signal;
    key.sender = signal->sender;
    key.epoch = signal->epoch;
    in = bpf_map_lookup_elem(&signal_in, &key);
    if (!in) {
        /* Perhaps meant for another element: its epochs with this sender have numbers of their own. */
        signal_report(scratch, CHART_QOS_UNKNOWN_EPOCH);
        return CHART_QOS_UNKNOWN_EPOCH;
    }
    error = chart_replay_check(&in->replay, signal->sequence);
    if (!error) {
        signal_sender_of(&scratch->sender, scratch->packet, ifindex);
        if (signal_over_budget(&scratch->sender)) {
            scratch->sender.flow = signal_known_flow(scratch);
            if (!scratch->sender.flow || signal_over_budget(&scratch->sender))
                return CHART_COUNT_OVER_BUDGET;
        }
        chart_signal_tag(tag, signal, &scratch->parsed.flow, &in->key, &scratch->hmac);
        if (!chart_tag_equal(tag, signal->tag))
            error = CHART_QOS_BAD_TAG;
    }
    if (!error) {
        bpf_spin_lock(&in->lock);
        error = chart_replay_accept(&in->replay, signal->sequence);
        bpf_spin_unlock(&in->lock);
    }
    if (error == CHART_QOS_BAD_TAG) {
        signal_charge(&scratch->sender);
        signal_report(scratch, error);
    }
    return error;
}
