/* What the later program `signal` does with one signal, as a test that the codec passes the verifier and what it costs.
 *
 * Mode 0 is an element that verifies and takes the sequence; mode 1 is a whole transit: parse, verify, lower, sign
 * anew, write back. In mode 1 the window is not moved, so that bpf_prog_test_run can repeat one packet.
 */
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>

#include "qos.h"

#define ETHERNET 14

struct scratch {
    struct chart_hmac_scratch hmac;
    struct chart_parsed parsed;
    __u8 packet[CHART_PARSE_MAX];
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct scratch);
} scratches SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct chart_pair);
} pairs SEC(".maps");

/* Set by the test, one structure so that it is one map value. */
struct {
    __u32 mode;
    __u32 available_rate; /* what this element lowers to */
} volatile globals SEC(".data") = {0, CHART_RATE_MAX};

static int transit(struct __sk_buff *skb, struct scratch *scratch, struct chart_pair *pair) {
    struct chart_signal *signal = &scratch->parsed.signal;
    struct chart_pair_epoch *slot = chart_pair_find(pair, signal->epoch);
    __u8 tag[CHART_TAG_OCTETS];
    __u32 offset = scratch->parsed.signal_offset;
    __u16 rate;
    int error;

    if (!slot)
        return CHART_QOS_UNKNOWN_EPOCH;
    error = chart_replay_check(&slot->replay, signal->sequence);
    if (error)
        return error;
    chart_signal_tag(tag, signal, &scratch->parsed.flow, &slot->key, &scratch->hmac);
    if (!chart_tag_equal(tag, signal->tag))
        return CHART_QOS_BAD_TAG;
    rate = (__u16)globals.available_rate;
    chart_qos_lower(&signal->qos, rate, rate);
    chart_signal_tag(signal->tag, signal, &scratch->parsed.flow, &slot->key, &scratch->hmac);
    if (scratch->parsed.flow.family == 4) {
        error = chart_ipv4_rewrite(scratch->packet, offset, signal);
        if (error)
            return error;
        return bpf_skb_store_bytes(skb, ETHERNET, scratch->packet, CHART_IPV4_HEADER_MAX - 4, 0);
    }
    error = chart_ipv6_rewrite(scratch->packet, offset, signal);
    if (error)
        return error;
    return bpf_skb_store_bytes(skb, ETHERNET, scratch->packet, CHART_IPV6_HEADER + CHART_IPV6_HOP_OCTETS, 0);
}

/* Returns enum chart_qos_error. */
SEC("tc")
int signal_probe(struct __sk_buff *skb) {
    __u32 zero = 0, length = skb->len;
    struct scratch *scratch = bpf_map_lookup_elem(&scratches, &zero);
    struct chart_pair *pair = bpf_map_lookup_elem(&pairs, &zero);
    int error;

    if (!scratch || !pair || length < ETHERNET + CHART_IPV4_HEADER)
        return CHART_QOS_TRUNCATED;
    length -= ETHERNET;
    if (length > CHART_PARSE_MAX)
        length = CHART_PARSE_MAX;
    if (bpf_skb_load_bytes(skb, ETHERNET, scratch->packet, length))
        return CHART_QOS_TRUNCATED;
    if (globals.mode == 2)
        error = chart_shim_parse(&scratch->parsed, scratch->packet, length);
    else if (scratch->packet[0] >> 4 == 4)
        error = chart_ipv4_parse(&scratch->parsed, scratch->packet, length);
    else
        error = chart_ipv6_parse(&scratch->parsed, scratch->packet, length);
    if (error)
        return error;
    if (globals.mode == 1)
        return transit(skb, scratch, pair);
    return chart_pair_verify(pair, &scratch->parsed.signal, &scratch->parsed.flow, &scratch->hmac);
}

char LICENSE[] SEC("license") = "GPL";
