/* Which of several paths a flow takes (Bavier et al., Increasing TCP Throughput with an Enhanced Internet Control
 * Plane, section III: flow-state-aware routing). */
#pragma once

#include "overlay_packet.bpf.h"
#include "overlay_state.bpf.h"
#include "select.bpf.h"

static __always_inline __u32 class_of(__u8 traffic_class) {
    switch (traffic_class >> 2) {
    case 40: /* CS5 */
    case 44: /* VOICE-ADMIT, RFC 5865 */
    case 46: /* EF */
        return CHART_OVERLAY_VOICE;
    case 24: /* CS3, AF3x, CS4, AF4x */
    case 26:
    case 28:
    case 30:
    case 32:
    case 34:
    case 36:
    case 38:
        return CHART_OVERLAY_VIDEO;
    default:
        return CHART_OVERLAY_DATA;
    }
}

static __always_inline bool is_good(const struct chart_overlay_choice *choice, __u32 colour) {
    __u32 number;
    if (choice->left >> (colour & (CHART_OVERLAY_COLOURS - 1)) & 1)
        return false;
    number = choice->numbers[colour & (CHART_OVERLAY_COLOURS - 1)];
    return number && alive(number);
}

/* A colour for a flow: the next of the slots that is good, else the first that is alive in order of preference. Checked
 * by the kernel by itself, as the next one is, so that what calls them stays small for it. */
__noinline int overlay_choose(__u32 owner, __u32 class) {
    struct chart_overlay_choice_key key = {.owner = owner, .class = class};
    struct chart_overlay_choice *choice = bpf_map_lookup_elem(&overlay_choices, &key);
    __u32 turn;
    if (!choice)
        return 0;
    turn = __sync_fetch_and_add(&choice->turn, 1);
    for (__u32 i = 0; i < CHART_OVERLAY_SLOTS; i++) {
        __u32 colour = choice->slots[(turn + i) & (CHART_OVERLAY_SLOTS - 1)];
        if (is_good(choice, colour))
            return (int)colour;
    }
    for (__u32 i = 0; i < CHART_OVERLAY_COLOURS && i < choice->n_order; i++) {
        __u32 colour = choice->order[i] & (CHART_OVERLAY_COLOURS - 1), number = choice->numbers[colour];
        if (number && alive(number))
            return (int)colour;
    }
    return choice->slots[0];
}

/* The colour that a grant has a flow take; below 0: no grant is for it. */
__noinline int overlay_granted_colour(struct chart_overlay_flow_key *key, __u32 dscp) {
    struct flow_address address = {.dscp = dscp};
    const struct chart_node_config *node;
    const struct chart_selector *selector;
    const __u32 *colour;
    __u32 zero = 0;
    node = bpf_map_lookup_elem(&node_config, &zero);
    if (!key || !node)
        return -1;
    address.source_port = bpf_ntohs(key->ports[0]);
    address.destination_port = bpf_ntohs(key->ports[1]);
    address.protocol = key->protocol;
    __builtin_memcpy(address.source, key->source, sizeof(address.source));
    __builtin_memcpy(address.destination, key->destination, sizeof(address.destination));
    selector = find_selector(&address, node);
    if (!selector)
        return -1;
    colour = bpf_map_lookup_elem(&overlay_grants, &selector->grant);
    return colour ? (int)(*colour & (CHART_OVERLAY_COLOURS - 1)) : 0;
}

/* Whether packets of a bound flow go by its path: a path that failed is left until it is back, one that is only worse
 * is not. */
static __always_inline bool holds(const struct chart_overlay_choice *choice, __u32 colour) {
    __u32 number = choice->numbers[colour & (CHART_OVERLAY_COLOURS - 1)];
    return !colour || (number && alive(number));
}

static __always_inline void read_flow_key(struct __sk_buff *skb, const struct overlay_packet *packet,
                                          struct chart_overlay_flow_key *ret) {
    __builtin_memcpy(ret->source, packet->source, sizeof(ret->source));
    __builtin_memcpy(ret->destination, packet->destination, sizeof(ret->destination));
    if (packet->transport && (packet->protocol == IPPROTO_TCP || packet->protocol == IPPROTO_UDP))
        bpf_skb_load_bytes(skb, packet->link_header_bytes + packet->transport, ret->ports, sizeof(ret->ports));
}

/* A packet with a signal: its flow is bound to colour 0, as long as it signals or packets come. */
static __always_inline void bind_signalled(struct __sk_buff *skb, const struct overlay_packet *packet, __u32 owner,
                                           __u32 class) {
    struct chart_overlay_flow_key key = {.protocol = packet->protocol};
    struct chart_overlay_flow bound = {.owner = owner, .class = class, .bond = CHART_OVERLAY_SIGNALLED};
    const struct chart_overlay_flow *flow;
    read_flow_key(skb, packet, &key);
    flow = bpf_map_lookup_elem(&overlay_flows, &key);
    if (flow && flow->owner == owner && flow->class == class && flow->bond != CHART_OVERLAY_FREE)
        return;
    bpf_map_update_elem(&overlay_flows, &key, &bound, BPF_ANY);
}

/* The path of a packet that enters: the one that its flow is bound to, else the one that its flow has, while it is
 * good; 0 where there is nothing to choose. `ret_number`: the path's place in `overlay_liveness`, 0 without a choice.
 */
static __always_inline __u32 colour_of(struct __sk_buff *skb, const struct chart_overlay_config *config,
                                       const struct overlay_packet *packet, __u32 owner, __u32 class,
                                       __u32 *ret_number) {
    struct chart_overlay_choice_key key = {.owner = owner, .class = class};
    struct chart_overlay_choice *choice = bpf_map_lookup_elem(&overlay_choices, &key);
    struct chart_overlay_flow_key flow_key = {.protocol = packet->protocol};
    struct chart_overlay_flow *flow, fresh = {.owner = owner, .class = class};
    const struct chart_node_config *node;
    __u32 zero = 0, colour, generation;
    bool known;
    *ret_number = 0;
    node = bpf_map_lookup_elem(&node_config, &zero);
    if (!choice || !node)
        return 0;
    read_flow_key(skb, packet, &flow_key);
    flow = bpf_map_lookup_elem(&overlay_flows, &flow_key);
    /* Both only grow. */
    generation = node->generation + config->grants_generation;
    known = flow && flow->owner == owner && flow->class == class;
    if (!known || flow->generation != generation) {
        int granted = overlay_granted_colour(&flow_key, packet->traffic_class >> 2);
        fresh.generation = generation;
        if (granted >= 0)
            fresh.bond = CHART_OVERLAY_GRANTED;
        else if (known && flow->bond == CHART_OVERLAY_SIGNALLED)
            fresh.bond = CHART_OVERLAY_SIGNALLED;
        fresh.colour = granted >= 0 ? granted : known && flow->bond == CHART_OVERLAY_FREE ? flow->colour : 0;
    } else {
        fresh = *flow;
    }
    colour = fresh.colour;
    if (fresh.bond ? !holds(choice, colour) : !is_good(choice, colour))
        colour = (__u32)overlay_choose(owner, class) & (CHART_OVERLAY_COLOURS - 1);
    if (!fresh.bond)
        fresh.colour = colour;
    if (!known)
        COUNT(flows);
    else if (fresh.bond || flow->bond || fresh.colour == flow->colour)
        ;
    else if (choice->left >> (flow->colour & (CHART_OVERLAY_COLOURS - 1)) & 1)
        COUNT(flows_moved);
    else
        COUNT(flows_failed_over);
    if (!known || fresh.colour != flow->colour || fresh.generation != flow->generation)
        bpf_map_update_elem(&overlay_flows, &flow_key, &fresh, BPF_ANY);
    *ret_number = choice->numbers[colour & (CHART_OVERLAY_COLOURS - 1)];
    return colour;
}
