/* What a link has promised and what it can still give (Brassil et al., The CHART System, sections 2 and 4: every
 * element accepts or lowers, holds what it offered and releases what was not taken).
 *
 * Holds and commitments stand in slots of half a second by the time they end, so their sum is kept without a walk over
 * flows: a slot that has passed is subtracted as a whole. An entry of the flow table may vanish (the table forgets the
 * flows longest unused); what its link kept for it ends with its slot all the same. */
#pragma once

#include "signal_tables.bpf.h"

/* Let pass what has ended. Under the lock. */
static __always_inline void signal_load_advance(struct chart_signal_load *load, __u64 slot) {
    for (__u32 i = 0; i < CHART_SLOTS; i++) {
        if (load->slot >= slot)
            break;
        load->slot++;
        load->held_bps -= load->slot_bps[load->slot % CHART_SLOTS];
        load->flows -= load->slot_flows[load->slot % CHART_SLOTS];
        load->slot_bps[load->slot % CHART_SLOTS] = 0;
        load->slot_flows[load->slot % CHART_SLOTS] = 0;
    }
    if (load->slot < slot)
        load->slot = slot;
}

/* Take a flow out of its slot. Under the lock, after signal_load_advance. */
static __always_inline void signal_load_take(struct chart_signal_load *load, struct chart_signal_half *half) {
    if (half->slot > load->slot) {
        load->slot_bps[half->slot % CHART_SLOTS] -= half->held_bps;
        load->held_bps -= half->held_bps;
        if (half->counted) {
            load->slot_flows[half->slot % CHART_SLOTS]--;
            load->flows--;
        }
    }
    half->slot = 0;
    half->held_bps = 0;
    half->counted = 0;
}

/* Put a flow into the slot in which its time ends. Under the lock. */
static __always_inline void signal_load_put(struct chart_signal_load *load, struct chart_signal_half *half, __u64 slot,
                                            __u64 held_bps, bool counted) {
    load->slot_bps[slot % CHART_SLOTS] += held_bps;
    load->held_bps += held_bps;
    if (counted) {
        load->slot_flows[slot % CHART_SLOTS]++;
        load->flows++;
    }
    half->slot = slot;
    half->held_bps = held_bps;
    half->counted = counted;
}

/* The slot in which `ns` from now have passed, within the ring. */
static __always_inline __u64 signal_slot_after(__u64 now_ns, __u64 ns) {
    __u64 slots = (ns + CHART_SLOT_NS - 1) / CHART_SLOT_NS;
    if (slots > CHART_SLOTS - 2)
        slots = CHART_SLOTS - 2;
    return now_ns / CHART_SLOT_NS + slots + 1;
}

/* How long an element keeps what it offers: until the confirm, or until the next renewal. */
static __always_inline __u64 signal_keep_ns(const struct chart_qos *qos, const struct chart_signal_config *config) {
    if (qos->status == CHART_REQUEST)
        return config->hold_ns;
    return qos->guaranteed_rate ? config->idle_ns : config->commitment_ns;
}

/* A request or renewal leaves through this link: lower it to what the link can give, keep that for it. */
SIGNAL_FUNCTION int signal_link_offer(__u32 ifindex, struct chart_signal_half *half, struct chart_qos *qos,
                                      __u64 keep_ns, __u64 now_ns) {
    const struct chart_signal_link *link = bpf_map_lookup_elem(&signal_links, &ifindex);
    struct chart_signal_load *load = bpf_map_lookup_elem(&signal_loads, &ifindex);
    __u64 slot, asked_bps, free_bps = 0, share_bps = 0;
    __u32 flows;
    bool shares;

    if (!link || !load || !half || !qos || !link->explicit_bps)
        return 0;
    asked_bps = chart_rate_decode(qos->guaranteed_rate);
    shares = chart_rate_decode(qos->available_rate) > 0;
    slot = signal_slot_after(now_ns, keep_ns);
    bpf_spin_lock(&load->lock);
    signal_load_advance(load, now_ns / CHART_SLOT_NS);
    if (half->ifindex == ifindex)
        signal_load_take(load, half);
    if (now_ns < link->guaranteed_until_ns && link->guaranteed_bps > load->held_bps)
        free_bps = link->guaranteed_bps - load->held_bps;
    if (asked_bps > free_bps)
        asked_bps = free_bps;
    signal_load_put(load, half, slot, asked_bps, shares);
    flows = load->flows;
    if (link->explicit_bps > load->held_bps)
        share_bps = link->explicit_bps - load->held_bps;
    bpf_spin_unlock(&load->lock);
    half->ifindex = ifindex;
    if (flows > 1)
        share_bps /= flows;
    if (now_ns < link->rate_until_ns && (half->role != CHART_ROLE_NONE || share_bps > link->rate_bps))
        share_bps = link->rate_bps;
    if (chart_qos_lower(qos, (__u16)signal_rate_word(asked_bps), (__u16)signal_rate_word(share_bps)))
        signal_count(CHART_COUNT_LOWERED);
    return 0;
}

/* A confirm: commit what was agreed, give the rest back. A close: give back everything (held_bps 0, not counted). */
SIGNAL_FUNCTION int signal_link_settle(struct chart_signal_half *half, __u64 agreed_bps, __u32 open, __u64 now_ns) {
    const struct chart_signal_config *config = signal_configuration();
    __u32 ifindex = half ? half->ifindex : 0;
    struct chart_signal_load *load = bpf_map_lookup_elem(&signal_loads, &ifindex);
    __u64 slot;
    bool counted;

    if (!half || !config || !load)
        return 0;
    slot = signal_slot_after(now_ns, agreed_bps ? config->idle_ns : config->commitment_ns);
    bpf_spin_lock(&load->lock);
    signal_load_advance(load, now_ns / CHART_SLOT_NS);
    counted = half->counted;
    /* No more than was held: who confirms more than it was offered gets nothing for it. */
    if (half->slot <= load->slot)
        agreed_bps = 0;
    else if (agreed_bps > half->held_bps)
        agreed_bps = half->held_bps;
    signal_load_take(load, half);
    if (open && (agreed_bps || counted))
        signal_load_put(load, half, slot, agreed_bps, counted);
    bpf_spin_unlock(&load->lock);
    return 0;
}
