/* What a link has promised and what it can still give (Brassil et al., The CHART System, sections 2 and 4: every
 * element accepts or lowers, holds what it offered and releases what was not taken).
 *
 * Holds and commitments stand in slots of half a second by the time they end, so their sum is kept without a walk over
 * flows: a slot that has passed is subtracted as a whole. The agent takes entries out of the flow table when their
 * slots have passed (signal_expiry.h). */
#pragma once

#include "signal_tables.bpf.h"

/* Of all who end with a slot: let them go, take one out, put one in. Under the lock. */
static __always_inline void signal_number_pass(struct chart_signal_number *number, __u64 slot) {
    number->now -= number->ending[slot % CHART_SLOTS];
    number->ending[slot % CHART_SLOTS] = 0;
}

static __always_inline void signal_number_take(struct chart_signal_number *number, __u64 slot) {
    if (!number->ending[slot % CHART_SLOTS])
        return; /* of a user whom the table forgot meanwhile */
    number->ending[slot % CHART_SLOTS]--;
    number->now--;
}

static __always_inline void signal_number_put(struct chart_signal_number *number, __u64 slot) {
    number->ending[slot % CHART_SLOTS]++;
    number->now++;
}

/* Let pass what has ended. Under the lock. */
static __always_inline void signal_load_advance(struct chart_signal_load *load, __u64 slot) {
    for (__u32 i = 0; i < CHART_SLOTS; i++) {
        if (load->slot >= slot)
            break;
        load->slot++;
        load->held_bps -= load->slot_bps[load->slot % CHART_SLOTS];
        load->slot_bps[load->slot % CHART_SLOTS] = 0;
        signal_number_pass(&load->flows, load->slot);
        signal_number_pass(&load->users, load->slot);
        for (__u32 class = 0; class < CHART_CLASSES; class ++) {
            load->wanted_bps[class] -= load->slot_wanted_bps[load->slot % CHART_SLOTS][class];
            load->slot_wanted_bps[load->slot % CHART_SLOTS][class] = 0;
        }
    }
    if (load->slot < slot)
        load->slot = slot;
}

static __always_inline void signal_user_advance(struct chart_signal_user *user, __u64 slot) {
    for (__u32 i = 0; i < CHART_SLOTS; i++) {
        if (user->slot >= slot)
            break;
        user->slot++;
        signal_number_pass(&user->flows, user->slot);
    }
    if (user->slot < slot)
        user->slot = slot;
}

/* Take a flow out of its slot. Under the lock, after both have advanced. */
static __always_inline void signal_load_take(struct chart_signal_load *load, struct chart_signal_user *user,
                                             struct chart_signal_half *half) {
    if (half->slot > load->slot) {
        load->slot_bps[half->slot % CHART_SLOTS] -= half->held_bps;
        load->held_bps -= half->held_bps;
        load->slot_wanted_bps[half->slot % CHART_SLOTS][half->preemption % CHART_CLASSES] -= half->wanted_bps;
        load->wanted_bps[half->preemption % CHART_CLASSES] -= half->wanted_bps;
        if (half->counted) {
            signal_number_take(&load->flows, half->slot);
            if (user)
                signal_number_take(&user->flows, half->slot);
        }
    }
    half->slot = 0;
    half->held_bps = 0;
    half->wanted_bps = 0;
    half->counted = 0;
}

/* Put a flow into the slot in which its time ends. Under the lock. */
static __always_inline void signal_load_put(struct chart_signal_load *load, struct chart_signal_user *user,
                                            struct chart_signal_half *half, __u64 slot, __u64 held_bps, bool counted) {
    load->slot_bps[slot % CHART_SLOTS] += held_bps;
    load->held_bps += held_bps;
    if (counted) {
        signal_number_put(&load->flows, slot);
        if (user)
            signal_number_put(&user->flows, slot);
    }
    half->slot = slot;
    half->held_bps = held_bps;
    half->counted = counted;
}

/* Say what a flow wants beyond what it holds, after it was put into its slot. Under the lock. */
static __always_inline void signal_load_want(struct chart_signal_load *load, struct chart_signal_half *half,
                                             __u64 wanted_bps, __u32 class) {
    load->slot_wanted_bps[half->slot % CHART_SLOTS][class % CHART_CLASSES] += wanted_bps;
    load->wanted_bps[class % CHART_CLASSES] += wanted_bps;
    half->wanted_bps = wanted_bps;
    half->preemption = class;
}

/* A user counts on the link until the last of its flows ends, by themselves at the end of `slot`. Under the lock. */
static __always_inline void signal_load_count_user(struct chart_signal_load *load, struct chart_signal_user *user,
                                                   __u64 slot) {
    if (user->counted > load->slot) {
        signal_number_take(&load->users, user->counted);
        if (slot < user->counted)
            slot = user->counted;
    }
    user->counted = user->flows.now ? slot : 0;
    if (user->counted)
        signal_number_put(&load->users, slot);
}

/* The entry of a flow's user on a link; NULL when none can be had. */
static __always_inline struct chart_signal_user *signal_find_user(__u32 ifindex, const struct signal_ends *ends,
                                                                  __u64 now_ns) {
    struct chart_signal_user_key key = {.ifindex = ifindex};
    struct chart_signal_user *user;

    __builtin_memcpy(key.address, signal_user_of(ends, now_ns), sizeof(key.address));
    user = bpf_map_lookup_elem(&signal_users, &key);
    if (!user) {
        static const struct chart_signal_user fresh;
        bpf_map_update_elem(&signal_users, &key, &fresh, BPF_NOEXIST);
        user = bpf_map_lookup_elem(&signal_users, &key);
        if (!user)
            signal_count(CHART_COUNT_UNKNOWN_USER);
    }
    return user;
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

/* Let pass what has ended of a link and of one of its users, if there is one. The two walks stand in a function of
 * their own, so that the verifier does not follow each of their ways through what comes after. */
SIGNAL_FUNCTION int signal_link_pass(__u32 ifindex, struct chart_signal_user *user, __u64 now_ns) {
    struct chart_signal_load *load = bpf_map_lookup_elem(&signal_loads, &ifindex);

    if (!load)
        return 0;
    bpf_spin_lock(&load->lock);
    signal_load_advance(load, now_ns / CHART_SLOT_NS);
    if (user)
        signal_user_advance(user, now_ns / CHART_SLOT_NS);
    bpf_spin_unlock(&load->lock);
    return 0;
}

/* A request or renewal of the flow between `ends` leaves through this link: lower it to what the link can give, keep
 * that for it. What is available is shared by users, each user's part by its flows.
 *
 * Pre-emption: what a flow asks to be guaranteed and does not get is remembered by its class, and flows of lower
 * classes are not given it any more: their next renewals are lowered until so much is free, and the flow takes it with
 * a renewal of its own. Nothing is promised twice meanwhile. */
SIGNAL_FUNCTION int signal_link_offer(__u32 ifindex, struct chart_signal_half *half, struct chart_qos *qos,
                                      const struct signal_ends *ends, __u64 keep_ns) {
    const struct chart_signal_link *link = bpf_map_lookup_elem(&signal_links, &ifindex);
    struct chart_signal_load *load = bpf_map_lookup_elem(&signal_loads, &ifindex);
    __u64 slot, asked_bps, free_bps = 0, due_bps = 0, share_bps = 0, rate_bps, now_ns = bpf_ktime_get_ns();
    struct chart_signal_user *user;
    __u32 users, flows, class;
    __u64 had_bps, got_bps;
    bool shares;

    if (!link || !load || !half || !qos || !ends || !link->explicit_bps)
        return 0;
    asked_bps = chart_rate_decode(qos->guaranteed_rate);
    shares = chart_rate_decode(qos->available_rate) > 0;
    class = CHART_CLASS_OF(qos->preemption_priority);
    slot = signal_slot_after(now_ns, keep_ns);
    user = signal_find_user(ifindex, ends, now_ns);
    signal_link_pass(ifindex, user, now_ns);
    bpf_spin_lock(&load->lock);
    had_bps = half->ifindex == ifindex && half->slot > load->slot ? half->held_bps : 0;
    if (half->ifindex == ifindex)
        signal_load_take(load, user, half);
    for (__u32 higher = 1; higher < CHART_CLASSES; higher++)
        if (higher > class)
            due_bps += load->wanted_bps[higher];
    if (now_ns < link->guaranteed_until_ns && link->guaranteed_bps > load->held_bps)
        free_bps = link->guaranteed_bps - load->held_bps;
    got_bps = free_bps > due_bps ? free_bps - due_bps : 0;
    if (got_bps > asked_bps)
        got_bps = asked_bps;
    signal_load_put(load, user, half, slot, got_bps, shares);
    signal_load_want(load, half, asked_bps - got_bps, class);
    if (user)
        signal_load_count_user(load, user, slot);
    users = user ? load->users.now : load->flows.now;
    flows = user ? user->flows.now : 1;
    if (link->explicit_bps > load->held_bps)
        share_bps = link->explicit_bps - load->held_bps;
    bpf_spin_unlock(&load->lock);
    half->ifindex = ifindex;
    rate_bps = link->rate_bps;
    if (users > 1)
        share_bps /= users;
    if (flows > 1) {
        share_bps /= flows;
        rate_bps /= flows;
    }
    /* A newcomer takes no more than its part at once, whatever the common rate. */
    if (now_ns < link->rate_until_ns && (qos->status != CHART_REQUEST || share_bps > rate_bps))
        share_bps = rate_bps;
    if (chart_qos_lower(qos, (__u16)signal_rate_word(got_bps), (__u16)signal_rate_word(share_bps)))
        signal_count(CHART_COUNT_LOWERED);
    if (got_bps < had_bps && due_bps)
        signal_count(CHART_COUNT_PREEMPTED);
    return 0;
}

/* A confirm: commit what was agreed, give the rest back. A close: give back everything (held_bps 0, not counted). */
SIGNAL_FUNCTION int signal_link_settle(struct chart_signal_half *half, const struct signal_ends *ends, __u64 agreed_bps,
                                       __u32 open, __u64 now_ns) {
    const struct chart_signal_config *config = signal_configuration();
    __u32 ifindex = half ? half->ifindex : 0;
    struct chart_signal_load *load = bpf_map_lookup_elem(&signal_loads, &ifindex);
    struct chart_signal_user *user;
    __u64 slot, wanted_bps;
    bool counted;

    if (!half || !ends || !config || !load)
        return 0;
    slot = signal_slot_after(now_ns, agreed_bps ? config->idle_ns : config->commitment_ns);
    user = signal_find_user(ifindex, ends, now_ns);
    signal_link_pass(ifindex, user, now_ns);
    bpf_spin_lock(&load->lock);
    counted = half->counted;
    wanted_bps = half->slot > load->slot ? half->wanted_bps : 0;
    /* No more than was held: who confirms more than it was offered gets nothing for it. */
    if (half->slot <= load->slot)
        agreed_bps = 0;
    else if (agreed_bps > half->held_bps)
        agreed_bps = half->held_bps;
    signal_load_take(load, user, half);
    if (open && (agreed_bps || counted || wanted_bps)) {
        signal_load_put(load, user, half, slot, agreed_bps, counted);
        signal_load_want(load, half, wanted_bps, half->preemption);
    }
    if (user)
        signal_load_count_user(load, user, slot);
    bpf_spin_unlock(&load->lock);
    return 0;
}
