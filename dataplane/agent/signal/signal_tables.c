/* See signal_tables.h. This file: policy, next hops, asks, links; keys are in
 * signal_keys.c, authorisations in signal_authorisations.c. */
#include "signal/signal_tables.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "grants/selectors.h"
#include "signal/signal_keys.h"

#define NS_PER_US 1000ull
#define DEFAULT_FREE_BPS 1000000ull
#define DEFAULT_HOLD_US 3000000ull
#define DEFAULT_COMMITMENT_US 3000000ull
#define DEFAULT_IDLE_US 30000000ull
#define DEFAULT_RENEW_US 1000000ull
#define DEFAULT_RETRY_US 200000ull
#define DEFAULT_LEGACY_US 10000000ull
#define DEFAULT_RENEW_PACKETS 128
#define DEFAULT_TRIES 6
/* A sender lets its rate end before the elements do, so that nobody's share is used twice. */
#define RATE_EARLIER_US 500000ull

uint64_t signal_monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

struct signal_tables *signal_tables_new(const struct signal_map_fds *fds, const char *directory) {
    struct signal_tables *tables = calloc(1, sizeof(*tables));
    if (!tables)
        return NULL;
    tables->fds = *fds;
    signal_keys_load(tables, directory);
    return tables;
}

void signal_tables_free(struct signal_tables *tables) {
    if (!tables)
        return;
    signal_keys_free(tables);
    free(tables->hops);
    free(tables->clients);
    free(tables);
}

int signal_prefix_key(const struct decide_prefix *prefix, struct chart_signal_prefix *ret) {
    struct chart_signal_prefix key = {.bits = prefix->bits};
    if (prefix->family == AF_INET) {
        key.bits += 96;
        key.address[10] = key.address[11] = 0xff;
        memcpy(key.address + 12, prefix->address, 4);
    } else if (prefix->family == AF_INET6) {
        memcpy(key.address, prefix->address, sizeof(key.address));
    } else {
        key.bits = 0;
    }
    if (key.bits > 128)
        return -EINVAL;
    *ret = key;
    return 0;
}

static bool whole_address(const struct decide_prefix *prefix) {
    return (prefix->family == AF_INET && prefix->bits == 32) || (prefix->family == AF_INET6 && prefix->bits == 128);
}

/* Take out of the trie what stood there before and is not among the keys that shall stand there. */
static int forget_prefixes(int fd, const struct chart_signal_prefix *old, size_t n_old,
                           const struct chart_signal_prefix *kept, size_t n_kept) {
    int status = 0;
    for (size_t i = 0; i < n_old; i++) {
        bool found = false;
        for (size_t k = 0; k < n_kept && !found; k++)
            found = memcmp(&old[i], &kept[k], sizeof(old[i])) == 0;
        if (!found && bpf_map_delete_elem(fd, &old[i]) && errno != ENOENT && !status)
            status = -errno;
    }
    return status;
}

int signal_tables_next_hops(struct signal_tables *tables, const struct signal_hop *hops, size_t n) {
    struct chart_signal_prefix *keys = calloc(n ? n : 1, sizeof(*keys));
    size_t kept = 0;
    int status = keys ? 0 : -ENOMEM;
    for (size_t i = 0; keys && i < n; i++) {
        struct chart_signal_hop value = {.element = hops[i].element};
        struct chart_signal_prefix key, shim = {0};
        int error = signal_prefix_key(&hops[i].prefix, &key);
        value.has_shim = whole_address(&hops[i].shim) && !signal_prefix_key(&hops[i].shim, &shim);
        memcpy(value.shim_address, shim.address, sizeof(value.shim_address));
        if (!error && bpf_map_update_elem(tables->fds.next_hops, &key, &value, BPF_ANY))
            error = -errno;
        if (!error)
            keys[kept++] = key;
        status = status ? status : error;
    }
    if (!keys)
        return status;
    int error = forget_prefixes(tables->fds.next_hops, tables->hops, tables->n_hops, keys, kept);
    free(tables->hops);
    tables->hops = keys;
    tables->n_hops = kept;
    return status ? status : error;
}

static int write_config(struct signal_tables *tables) {
    uint32_t zero = 0;
    return bpf_map_update_elem(tables->fds.config, &zero, &tables->config, BPF_ANY) ? -errno : 0;
}

/* Of a range that begins with `first`; 0: any port. */
static uint16_t last_port(uint16_t first, uint16_t stated) {
    if (!first)
        return UINT16_MAX;
    return stated > first ? stated : first;
}

static int ask_to_kernel(const struct signal_ask *from, struct chart_signal_ask *ret) {
    struct chart_selector selector;
    int error = selector_to_kernel(&from->selector, &selector);
    if (error)
        return error;
    *ret = (struct chart_signal_ask){
        .source_port_first = selector.source_port,
        .source_port_last = last_port(selector.source_port, from->source_port_last),
        .destination_port_first = selector.destination_port,
        .destination_port_last = last_port(selector.destination_port, from->destination_port_last),
        .rule = from->rule,
        .flags = (uint8_t)((from->permits ? CHART_ASK_PERMITS : 0) | (from->elsewhere ? CHART_ASK_ELSEWHERE : 0)),
        .protocol = selector.protocol,
        .dscp_plus_one = selector.dscp_plus_one,
        .qos =
            {
                .guaranteed_rate = chart_rate_encode(from->guaranteed_bps),
                .available_rate = chart_rate_encode(from->available_bps),
                .preemption_priority = from->preemption_priority,
                .delay_priority = from->delay_priority,
                .burst_tolerance = from->burst_tolerance,
                .service = from->service,
            },
    };
    memcpy(ret->source, selector.source, sizeof(ret->source));
    memcpy(ret->source_mask, selector.source_mask, sizeof(ret->source_mask));
    memcpy(ret->destination, selector.destination, sizeof(ret->destination));
    memcpy(ret->destination_mask, selector.destination_mask, sizeof(ret->destination_mask));
    return 0;
}

int signal_tables_asks(struct signal_tables *tables, const struct signal_ask *asks, size_t n) {
    uint32_t count = 0;
    bool changed = false;
    int status = n > CHART_SIGNAL_ASKS_MAX ? -ENOSPC : 0;
    for (size_t i = 0; i < n && count < CHART_SIGNAL_ASKS_MAX; i++) {
        struct chart_signal_ask value = {0};
        int error = ask_to_kernel(&asks[i], &value);
        status = status ? status : error;
        if (error)
            continue;
        if (memcmp(&value, &tables->asks[count], sizeof(value)) != 0) {
            if (bpf_map_update_elem(tables->fds.asks, &count, &value, BPF_ANY))
                return -errno;
            tables->asks[count] = value;
            changed = true;
        }
        count++;
    }
    if (!changed && count == tables->config.n_asks)
        return status;
    tables->config.n_asks = count;
    tables->config.generation++;
    int error = write_config(tables);
    return status ? status : error;
}

static uint64_t or_default(uint64_t value, uint64_t otherwise) {
    return value ? value : otherwise;
}

static uint8_t mode_to_kernel(enum decide_mode mode) {
    if (mode == DECIDE_MODE_ENFORCE)
        return CHART_SIGNALLING_ENFORCE;
    return mode == DECIDE_MODE_OBSERVE ? CHART_SIGNALLING_OBSERVE : CHART_SIGNALLING_OFF;
}

int signal_tables_policy(struct signal_tables *tables, const struct signal_policy *policy) {
    struct chart_signal_config *config = &tables->config;
    struct chart_signal_config before = *config;
    struct chart_signal_prefix shim = {0};
    uint64_t commitment_us = or_default(policy->commitment_us, DEFAULT_COMMITMENT_US);
    config->element = policy->element;
    config->mode = mode_to_kernel(policy->mode);
    config->drop_unauthorised = policy->drop_unauthorised;
    config->free_bps = or_default(policy->free_bps, DEFAULT_FREE_BPS);
    config->hold_ns = or_default(policy->hold_us, DEFAULT_HOLD_US) * NS_PER_US;
    config->commitment_ns = commitment_us * NS_PER_US;
    config->idle_ns = or_default(policy->idle_us, DEFAULT_IDLE_US) * NS_PER_US;
    config->rate_ns =
        (commitment_us > 2 * RATE_EARLIER_US ? commitment_us - RATE_EARLIER_US : commitment_us / 2) * NS_PER_US;
    config->renew_ns = or_default(policy->renew_us, DEFAULT_RENEW_US) * NS_PER_US;
    config->retry_ns = or_default(policy->retry_us, DEFAULT_RETRY_US) * NS_PER_US;
    config->legacy_ns = or_default(policy->legacy_us, DEFAULT_LEGACY_US) * NS_PER_US;
    config->renew_packets = policy->renew_packets ? policy->renew_packets : DEFAULT_RENEW_PACKETS;
    config->tries = policy->tries ? policy->tries : DEFAULT_TRIES;
    config->has_shim4 = policy->shim4.family == AF_INET && !signal_prefix_key(&policy->shim4, &shim);
    memcpy(config->shim_address, shim.address, sizeof(config->shim_address));
    shim = (struct chart_signal_prefix){0};
    config->has_shim6 = policy->shim6.family == AF_INET6 && !signal_prefix_key(&policy->shim6, &shim);
    memcpy(config->shim_address6, shim.address, sizeof(config->shim_address6));
    if (!config->generation || before.mode != config->mode || before.element != config->element)
        config->generation++;
    if (before.element != config->element)
        signal_keys_forget(tables);
    return memcmp(&before, config, sizeof(before)) == 0 ? 0 : write_config(tables);
}

/* When a link stops guaranteeing (allocation: agents stop granting one commitment lifetime before a lease's end). */
static uint64_t guaranteed_until_ns(const struct signal_tables *tables, const struct signal_link *link) {
    uint64_t lease_ns = link->lease_us * NS_PER_US;

    if (!link->leased)
        return UINT64_MAX;
    return lease_ns > tables->config.commitment_ns ? signal_monotonic_ns() + lease_ns - tables->config.commitment_ns
                                                   : 0;
}

int signal_tables_link(struct signal_tables *tables, const struct signal_link *link) {
    struct chart_signal_load load = {0};
    struct chart_signal_link value = {
        .header_bytes = link->header_bytes,
        .explicit_bps = link->explicit_bps,
        .guaranteed_bps = link->guaranteed_bps,
        .guaranteed_until_ns = guaranteed_until_ns(tables, link),
        .rate_bps = link->rate_bps,
        .rate_until_ns = link->rate_lease_us ? signal_monotonic_ns() + link->rate_lease_us * NS_PER_US : 0,
    };
    if (bpf_map_update_elem(tables->fds.loads, &link->ifindex, &load, BPF_NOEXIST) && errno != EEXIST)
        return -errno;
    return bpf_map_update_elem(tables->fds.links, &link->ifindex, &value, BPF_ANY) ? -errno : 0;
}

int signal_tables_remove_link(struct signal_tables *tables, uint32_t ifindex) {
    int status = bpf_map_delete_elem(tables->fds.links, &ifindex) ? -errno : 0;
    bpf_map_delete_elem(tables->fds.loads, &ifindex);
    return status;
}

uint64_t signal_tables_count(const struct signal_tables *tables, uint32_t counter) {
    int processors = libbpf_num_possible_cpus();
    uint64_t sum = 0, *counts;
    if (processors <= 0)
        return 0;
    counts = calloc((size_t)processors, sizeof(*counts));
    if (counts && bpf_map_lookup_elem(tables->fds.counters, &counter, counts) == 0)
        for (int i = 0; i < processors; i++)
            sum += counts[i];
    free(counts);
    return sum;
}

int signal_tables_load(const struct signal_tables *tables, uint32_t ifindex, struct signal_load *ret) {
    struct chart_signal_load load;
    uint64_t slot = signal_monotonic_ns() / CHART_SLOT_NS;
    if (bpf_map_lookup_elem(tables->fds.loads, &ifindex, &load))
        return -errno;
    /* Slots that passed since the last signal are not subtracted yet. */
    for (uint64_t past = load.slot + 1; past <= slot && past <= load.slot + CHART_SLOTS; past++) {
        load.held_bps -= load.slot_bps[past % CHART_SLOTS];
        load.flows.now -= load.flows.ending[past % CHART_SLOTS];
        load.users.now -= load.users.ending[past % CHART_SLOTS];
    }
    *ret = (struct signal_load){.held_bps = load.held_bps, .flows = load.flows.now, .users = load.users.now};
    return 0;
}
