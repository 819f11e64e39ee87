/* The maps of the overlay's programs, and who answers probes. */
#pragma once

#include "vmlinux.h"

#include <bpf/bpf_helpers.h>

#include "overlay_maps.h"

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct chart_overlay_config);
} overlay_config SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(max_entries, CHART_OVERLAY_PREFIXES_MAX);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct chart_overlay_prefix);
    __type(value, __u32);
} overlay_owners SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, CHART_OVERLAY_PATHS_MAX);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct chart_overlay_path_key);
    __type(value, struct chart_overlay_path);
} overlay_paths SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, CHART_OVERLAY_NEIGHBOURS_MAX);
    __type(key, __u32);
    __type(value, struct chart_overlay_neighbour);
} overlay_neighbours SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, CHART_OVERLAY_NEIGHBOURS_MAX);
    __type(key, struct chart_overlay_remote);
    __type(value, __u32);
} overlay_remotes SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, CHART_OVERLAY_PROBED_MAX);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, struct chart_overlay_liveness);
} overlay_liveness SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, CHART_OVERLAY_PROBED_MAX *CHART_OVERLAY_CLASSES);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct chart_overlay_choice_key);
    __type(value, struct chart_overlay_choice);
} overlay_choices SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, CHART_OVERLAY_GRANTS_MAX);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, __u64);
    __type(value, __u32);
} overlay_grants SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, CHART_OVERLAY_FLOWS_MAX);
    __type(key, struct chart_overlay_flow_key);
    __type(value, struct chart_overlay_flow);
} overlay_flows SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, CHART_OVERLAY_INTERFACES_MAX);
    __type(key, __u32);
    /* Octets in front of the IP header. */
    __type(value, __u32);
} overlay_interfaces SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct chart_overlay_counters);
} overlay_counters SEC(".maps");

#define COUNT(field)                                                                                                   \
    do {                                                                                                               \
        __u32 first = 0;                                                                                               \
        struct chart_overlay_counters *counters = bpf_map_lookup_elem(&overlay_counters, &first);                      \
        if (counters)                                                                                                  \
            __sync_fetch_and_add(&counters->field, 1);                                                                 \
    } while (0)

static __always_inline const struct chart_overlay_config *configuration(void) {
    __u32 zero = 0;
    const struct chart_overlay_config *config = bpf_map_lookup_elem(&overlay_config, &zero);
    return config && config->ifindex ? config : NULL;
}

/* 0: nobody's. */
static __always_inline __u32 find_owner(const __u32 destination[4]) {
    struct chart_overlay_prefix prefix = {.bits = 128};
    __builtin_memcpy(prefix.address, destination, sizeof(prefix.address));
    const __u32 *owner = bpf_map_lookup_elem(&overlay_owners, &prefix);
    return owner ? *owner : 0;
}

/* The first time that somebody sees a neighbour or a path stale ends its being usable: answers that come again do not
 * bring it back before the agent has seen enough of them. */
static __always_inline bool alive(__u32 number) {
    struct chart_overlay_liveness *liveness = bpf_map_lookup_elem(&overlay_liveness, &number);
    if (!liveness || !*(volatile __u32 *)&liveness->usable)
        return false;
    if (liveness->sent - liveness->answered <= liveness->allowed ||
        bpf_ktime_get_ns() - liveness->answered_sent_ns <= liveness->patience_ns)
        return true;
    *(volatile __u32 *)&liveness->usable = 0;
    return false;
}

static __always_inline void count_forwarded(__u32 number, __u64 bytes) {
    struct chart_overlay_liveness *liveness = bpf_map_lookup_elem(&overlay_liveness, &number);
    if (!liveness)
        return;
    __sync_fetch_and_add(&liveness->forwarded_packets, 1);
    __sync_fetch_and_add(&liveness->forwarded_bytes, bytes);
}
