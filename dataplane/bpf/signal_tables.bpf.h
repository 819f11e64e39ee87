/* The maps that the agent fills, counters, and what is decided from them: next hops, authorisations, asks. */
#pragma once

#include "signal_flow.bpf.h"

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct chart_signal_config);
} signal_config SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, CHART_SIGNAL_PEERS_MAX);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct chart_signal_in_key);
    __type(value, struct chart_signal_in);
} signal_in SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, CHART_SIGNAL_PEERS_MAX);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, __u32);
    __type(value, struct chart_signal_out);
} signal_out SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(max_entries, CHART_SIGNAL_PREFIXES_MAX);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct chart_signal_prefix);
    __type(value, struct chart_signal_hop);
} signal_next_hops SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(max_entries, CHART_SIGNAL_CLIENTS_MAX);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct chart_signal_client);
    __type(value, struct chart_signal_authorisation);
} signal_auths SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, CHART_SIGNAL_ASKS_MAX);
    __type(key, __u32);
    __type(value, struct chart_signal_ask);
} signal_asks SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, CHART_SIGNAL_LINKS_MAX);
    __type(key, __u32);
    __type(value, struct chart_signal_link);
} signal_links SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, CHART_SIGNAL_LINKS_MAX);
    __type(key, __u32);
    __type(value, struct chart_signal_load);
} signal_loads SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, CHART_SIGNAL_JUDGED_MAX);
    __type(key, struct chart_signal_key);
    __type(value, struct chart_signal_judged);
} signal_judged SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, CHART_SIGNAL_USERS_MAX);
    __type(key, struct chart_signal_user_key);
    __type(value, struct chart_signal_user);
} signal_users SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, CHART_SIGNAL_FAILING_MAX);
    __type(key, struct chart_signal_sender);
    __type(value, struct chart_signal_failing);
} signal_failing SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, CHART_COUNTERS);
    __type(key, __u32);
    __type(value, __u64);
} signal_counters SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 65536);
} signal_reports SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_SK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct chart_socket_request);
} signal_requests SEC(".maps");

struct signal_scratch {
    struct chart_hmac_scratch hmac;
    struct chart_parsed parsed;
    __u8 packet[CHART_PARSE_MAX];
    /* What the egress reads of a packet; the pass of its clone leaves it alone. */
    struct signal_packet seen;
    struct chart_signal_sender sender; /* of the signal that is verified */
    struct chart_signal_flow fresh;    /* of a flow that is looked at or kept for the first time; zeros between */
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct signal_scratch);
} signal_scratches SEC(".maps");

/* A function of its own, so that the verifier looks at it once and not on every path to it. */
#define SIGNAL_FUNCTION __attribute__((noinline, weak))

SIGNAL_FUNCTION int signal_rate_word(__u64 bps) {
    return chart_rate_encode(bps);
}

static __always_inline void signal_count(__u32 counter) {
    __u64 *count = bpf_map_lookup_elem(&signal_counters, &counter);
    if (count)
        ++*count;
}

static __always_inline const struct chart_signal_config *signal_configuration(void) {
    __u32 zero = 0;
    return bpf_map_lookup_elem(&signal_config, &zero);
}

static __always_inline const struct chart_signal_hop *signal_next_hop(const __u8 *destination) {
    struct chart_signal_prefix key = {.bits = 128};

    __builtin_memcpy(key.address, destination, 16);
    return bpf_map_lookup_elem(&signal_next_hops, &key);
}

/* How many prefixes that hold an address are looked at, the longest first: one whose time has ended or not begun hides
 * a shorter one only until the agent takes it out. */
#define SIGNAL_PREFIXES_TRIED 3

/* What the receiver of a flow, or else its sender, may ask of a service now. False: nothing. */
SIGNAL_FUNCTION int signal_limit_of(const struct signal_ends *ends, __u32 receiver, __u32 service, __u64 now_ns,
                                    struct chart_signal_limit *ret) {
    struct chart_signal_client key = {.bits = CHART_SERVICE_BITS + 128, .service = service};

    if (!ends || !ret)
        return false;
    __builtin_memcpy(key.address, receiver ? ends->destination : ends->source, sizeof(key.address));
    for (int i = 0; i < SIGNAL_PREFIXES_TRIED; i++) {
        const struct chart_signal_authorisation *found = bpf_map_lookup_elem(&signal_auths, &key);

        if (!found)
            return false;
        for (int k = 0; k < CHART_LIMITS_MAX; k++) {
            if (now_ns >= found->limits[k].from_ns && now_ns < found->limits[k].until_ns) {
                *ret = found->limits[k];
                return true;
            }
        }
        if (found->bits <= CHART_SERVICE_BITS)
            return false;
        key.bits = found->bits - 1;
    }
    return false;
}

/* The end of a flow that is its user: whom an authorisation names, the sender before the receiver; else the sender. */
static __always_inline const __u8 *signal_user_of(const struct signal_ends *ends, __u64 now_ns) {
    struct chart_signal_limit limit = {};

    if (!signal_limit_of(ends, false, CHART_SERVICE_ANY, now_ns, &limit) &&
        signal_limit_of(ends, true, CHART_SERVICE_ANY, now_ns, &limit))
        return ends->destination;
    return ends->source;
}

static __always_inline bool signal_within(const __u8 *address, const __u8 *prefix, const __u8 *mask) {
    __u64 a[2], p[2], m[2];

    __builtin_memcpy(a, address, 16);
    __builtin_memcpy(p, prefix, 16);
    __builtin_memcpy(m, mask, 16);
    return (a[0] & m[0]) == p[0] && (a[1] & m[1]) == p[1];
}

static __always_inline bool signal_fits(const struct chart_signal_ask *ask, const struct signal_packet *packet) {
    __u16 source_port = bpf_ntohs(packet->source_port), destination_port = bpf_ntohs(packet->destination_port);

    return !((ask->protocol && ask->protocol != packet->protocol) ||
             (ask->dscp_plus_one && ask->dscp_plus_one != packet->dscp + 1) || source_port < ask->source_port_first ||
             source_port > ask->source_port_last || destination_port < ask->destination_port_first ||
             destination_port > ask->destination_port_last ||
             !signal_within(packet->ends.source, ask->source, ask->source_mask) ||
             !signal_within(packet->ends.destination, ask->destination, ask->destination_mask));
}

struct signal_match {
    const struct signal_packet *packet;
    const struct chart_signal_ask *found;
    __u32 count;
};

static long signal_match_one(__u32 index, struct signal_match *match) {
    const struct chart_signal_ask *ask = bpf_map_lookup_elem(&signal_asks, &index);

    if (!ask)
        return 1;
    if ((ask->flags & CHART_ASK_ELSEWHERE) || !signal_fits(ask, match->packet))
        return 0;
    match->found = ask;
    return 1;
}

static __always_inline __u32 signal_asks_in_use(const struct chart_signal_config *config) {
    return config->n_asks < CHART_SIGNAL_ASKS_MAX ? config->n_asks : CHART_SIGNAL_ASKS_MAX;
}

static __always_inline bool signal_rates_within(const struct chart_qos *qos, __u16 guaranteed_rate,
                                                __u16 available_rate) {
    return chart_rate_order(qos->guaranteed_rate) <= chart_rate_order(guaranteed_rate) &&
           chart_rate_order(qos->available_rate) <= chart_rate_order(available_rate);
}

struct signal_permit {
    const struct signal_packet *packet;
    const struct chart_qos *asked;
    const struct chart_signal_ask *found;
};

/* Whoever may ask for a service may ask for the available rate too. */
static long signal_permit_one(__u32 index, struct signal_permit *permit) {
    const struct chart_signal_ask *ask = bpf_map_lookup_elem(&signal_asks, &index);
    __u8 service = permit->asked->service & 3;

    if (!ask)
        return 1;
    if (!(ask->flags & CHART_ASK_PERMITS) || (service != ask->qos.service && service != CHART_AVAILABLE) ||
        !signal_fits(ask, permit->packet))
        return 0;
    if (signal_rates_within(permit->asked, ask->qos.guaranteed_rate, ask->qos.available_rate)) {
        permit->found = ask;
        return 1;
    }
    if (!permit->found)
        permit->found = ask;
    return 0;
}

/* Lower rates and priorities to no more than these. */
static __always_inline void signal_limit(struct chart_qos *qos, __u16 guaranteed_rate, __u16 available_rate,
                                         __u8 preemption_priority, __u8 delay_priority) {
    chart_qos_lower(qos, guaranteed_rate, available_rate);
    if (qos->preemption_priority > preemption_priority)
        qos->preemption_priority = preemption_priority;
    if (qos->delay_priority > delay_priority)
        qos->delay_priority = delay_priority;
}

/* Lower what is asked to what a session rule permits for this flow. False: none does, or the rates are above it while
 * only those within it are wanted. */
SIGNAL_FUNCTION int signal_permit_by_rule(struct chart_qos *qos, const struct signal_packet *packet, __u32 within) {
    const struct chart_signal_config *config = signal_configuration();
    struct signal_permit permit = {.packet = packet, .asked = qos};
    struct chart_qos allowed;

    if (!qos || !packet || !config || !config->n_asks)
        return false;
    bpf_loop(signal_asks_in_use(config), signal_permit_one, &permit, 0);
    if (!permit.found)
        return false;
    allowed = permit.found->qos;
    if (within && !signal_rates_within(qos, allowed.guaranteed_rate, allowed.available_rate))
        return false;
    signal_limit(qos, allowed.guaranteed_rate, allowed.available_rate, allowed.preemption_priority,
                 allowed.delay_priority);
    return true;
}

/* Lower what is asked to what may be asked: by the authorisation of the flow's sender or receiver (Brassil et al.,
 * section 3: both ends enforce), or by that of a session rule where the first does not give everything and the rule
 * covers the rates. False: nothing may be asked. */
SIGNAL_FUNCTION int signal_authorise(struct chart_qos *qos, const struct signal_packet *packet, __u64 now_ns) {
    const struct chart_signal_config *config = signal_configuration();
    struct chart_signal_limit limit = {};

    if (!qos || !packet || !config)
        return false;
    if (signal_limit_of(&packet->ends, false, qos->service & 3, now_ns, &limit) ||
        signal_limit_of(&packet->ends, true, qos->service & 3, now_ns, &limit)) {
        __u16 guaranteed_rate = (__u16)signal_rate_word(limit.guaranteed_bps);
        __u16 available_rate = (__u16)signal_rate_word(limit.available_bps);
        bool whole = signal_rates_within(qos, guaranteed_rate, available_rate) &&
                     qos->preemption_priority <= limit.preemption_priority &&
                     qos->delay_priority <= limit.delay_priority;

        if (!whole && !signal_permit_by_rule(qos, packet, true))
            signal_limit(qos, guaranteed_rate, available_rate, limit.preemption_priority, limit.delay_priority);
        return true;
    }
    if (signal_permit_by_rule(qos, packet, false))
        return true;
    signal_count(CHART_COUNT_UNAUTHORISED);
    if (config->drop_unauthorised)
        return false;
    signal_limit(qos, 0, (__u16)signal_rate_word(config->free_bps), 0, 0);
    return true;
}

/* What a program asked for its socket, as the structure that travels. */
static __always_inline void signal_from_request(struct chart_qos *ret, const struct chart_socket_request *request) {
    ret->guaranteed_rate = (__u16)signal_rate_word(request->guaranteed_bps);
    ret->available_rate = (__u16)signal_rate_word(request->available_bps);
    ret->preemption_priority = request->preemption_priority;
    ret->delay_priority = request->delay_priority;
    ret->burst_tolerance = request->burst_tolerance & 15;
    ret->service = request->service & 3;
}

/* What shall be asked for the flow of this packet: its program's own request, else the first ask that matches; and the
 * number of the session rule that says so. False: nothing. */
static __always_inline bool signal_find_ask(const struct signal_packet *packet,
                                            const struct chart_signal_config *config,
                                            const struct chart_socket_request *request, struct chart_qos *ret,
                                            __u16 *ret_rule) {
    struct signal_match match = {.packet = packet};

    __builtin_memset(ret, 0, sizeof(*ret));
    *ret_rule = 0;
    if (request && (request->guaranteed_bps || request->available_bps)) {
        signal_from_request(ret, request);
    } else if (!request && config->n_asks) {
        bpf_loop(signal_asks_in_use(config), signal_match_one, &match, 0);
        if (!match.found)
            return false;
        *ret = match.found->qos;
        *ret_rule = match.found->rule;
    } else {
        return false;
    }
    ret->version = CHART_QOS_VERSION;
    ret->flow_type = packet->protocol == PROTOCOL_TCP ? CHART_TCP : CHART_UDP;
    ret->source_port = bpf_ntohs(packet->source_port);
    ret->direction = CHART_FORWARD;
    ret->lowered = 0;
    return true;
}
