/* The agent's own maps and which grant a flow belongs to: the first selector that matches. */
#pragma once

#include "common.bpf.h"

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct chart_node_config);
} node_config SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, struct chart_selector_table);
} selectors SEC(".maps");

/* A flow as its sender sees it. */
struct flow_address {
    __u32 source[4];
    __u32 destination[4];
    __u16 source_port;
    __u16 destination_port;
    __u8 protocol;
    __u8 dscp;
    /* The socket's cgroup, NULL: not known (a packet that passes through). */
    struct cgroup *cgroup;
};

struct match {
    struct chart_selector_table *table;
    const struct flow_address *address;
    struct chart_selector *found;
};

static __always_inline void map_ipv4(__u32 *ret_address, __be32 address) {
    ret_address[0] = 0;
    ret_address[1] = 0;
    ret_address[2] = bpf_htonl(0xffff);
    ret_address[3] = address;
}

static __always_inline bool within(const __u32 *address, const __u32 *prefix, const __u32 *mask) {
    return (address[0] & mask[0]) == prefix[0] && (address[1] & mask[1]) == prefix[1] &&
           (address[2] & mask[2]) == prefix[2] && (address[3] & mask[3]) == prefix[3];
}

/* Whether a cgroup is `id` or stands below it. */
static __always_inline bool cgroup_within(struct cgroup *cgroup, __u64 id) {
    int depth = cgroup ? BPF_CORE_READ(cgroup, level) : -1;
    for (int i = 0; i < 16; i++) {
        struct cgroup *ancestor = NULL;
        if (i > depth)
            return false;
        if (bpf_core_read(&ancestor, sizeof(ancestor), &cgroup->ancestors[i]) || !ancestor)
            return false;
        if (BPF_CORE_READ(ancestor, kn, id) == id)
            return true;
    }
    return false;
}

static long match_one(__u32 index, struct match *match) {
    const struct flow_address *flow = match->address;
    if (index >= CHART_SELECTORS_MAX)
        return 1;
    struct chart_selector *selector = &match->table->selectors[index];
    if ((selector->protocol && selector->protocol != flow->protocol) ||
        (selector->source_port && selector->source_port != flow->source_port) ||
        (selector->destination_port && selector->destination_port != flow->destination_port) ||
        (selector->dscp_plus_one && selector->dscp_plus_one != flow->dscp + 1) ||
        !within(flow->source, selector->source, selector->source_mask) ||
        !within(flow->destination, selector->destination, selector->destination_mask))
        return 0;
    if (selector->cgroup_id && !cgroup_within(flow->cgroup, selector->cgroup_id))
        return 0;
    match->found = selector;
    return 1;
}

static __always_inline struct chart_selector *find_selector(const struct flow_address *address,
                                                            const struct chart_node_config *config) {
    __u32 which = config->table & 1;
    struct chart_selector_table *table = bpf_map_lookup_elem(&selectors, &which);
    struct match match = {.table = table, .address = address};
    if (!table)
        return NULL;
    bpf_loop(min(table->count, (__u32)CHART_SELECTORS_MAX), match_one, &match, 0);
    return match.found;
}
