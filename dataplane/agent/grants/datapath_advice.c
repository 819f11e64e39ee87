/* See datapath.h. This file: advice that the classifier gives to flows which nobody controls here, and to whom. */
#include <bpf/bpf.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "grants/datapath_state.h"
#include "grants/selectors.h"
#include "lib/advice/scone.h"
#include "quick_start_maps.h"

#define BATCH 256

/* A time of the wall clock by CLOCK_MONOTONIC; 0: it is over. */
static uint64_t expires_ns(int64_t until_us, int64_t now_us) {
    return until_us > now_us ? datapath_monotonic_ns() + (uint64_t)(until_us - now_us) * 1000 : 0;
}

static void police(struct datapath *datapath, struct datapath_link *link, bool wanted) {
    if (wanted && !link->polices)
        datapath->classify->bss->policing_links++;
    else if (!wanted && link->polices)
        datapath->classify->bss->policing_links--;
    link->polices = wanted;
}

/* A trie is walked anew after each entry that goes. */
static void forget_prefixes(struct datapath *datapath, uint32_t ifindex) {
    int fd = bpf_map__fd(datapath->classify->maps.advice_prefixes);
    struct chart_advice_prefix key, next;
    int more = bpf_map_get_next_key(fd, NULL, &next);

    while (more == 0) {
        key = next;
        more = bpf_map_get_next_key(fd, &key, &next);
        if (key.ifindex == ifindex && bpf_map_delete_elem(fd, &key) == 0)
            more = bpf_map_get_next_key(fd, NULL, &next);
    }
}

int datapath_advise_prefixes(struct datapath *datapath, uint32_t ifindex, const struct decide_prefix *prefixes,
                             size_t n_prefixes) {
    int fd = bpf_map__fd(datapath->classify->maps.advice_prefixes);
    uint8_t known = 1;

    forget_prefixes(datapath, ifindex);
    for (size_t i = 0; i < n_prefixes; i++) {
        struct chart_selector mapped = {0};
        struct decide_selector selector = {.source = prefixes[i]};
        struct chart_advice_prefix key = {.ifindex = ifindex};
        int error = selector_to_kernel(&selector, &mapped);

        if (error)
            return error;
        key.bits = 32 + prefixes[i].bits + (prefixes[i].family == AF_INET ? 96 : 0);
        memcpy(key.address, mapped.source, sizeof(key.address));
        if (bpf_map_update_elem(fd, &key, &known, BPF_ANY))
            return -errno;
    }
    return 0;
}

int datapath_advise(struct datapath *datapath, uint32_t ifindex, const struct datapath_advice *advice, int64_t now_us) {
    struct datapath_link *link = datapath_find_link(datapath, ifindex);
    struct chart_link_advice kernel = {
        .fair_bps = advice->fair_bps,
        .fair_expires_ns = expires_ns(advice->fair_until_us, now_us),
        .spare_bps = advice->spare_bps,
        .spare_expires_ns = expires_ns(advice->spare_until_us, now_us),
        .scone = advice->scone,
        .quick_start = advice->quick_start,
        .begin_bps = advice->begin_bps,
        .scone_police = advice->scone_police,
        .prefixes = advice->prefixes,
    };

    if (!link)
        return -ENOENT;
    if (bpf_map_update_elem(bpf_map__fd(datapath->classify->maps.link_advice), &ifindex, &kernel, BPF_ANY))
        return -errno;
    datapath->classify->bss->advising_links += !link->advises;
    link->advises = true;
    police(datapath, link, advice->scone && advice->scone_police);
    return 0;
}

void datapath_no_advice(struct datapath *datapath, uint32_t ifindex) {
    struct datapath_link *link = datapath_find_link(datapath, ifindex);

    if (!link || !link->advises)
        return;
    bpf_map_delete_elem(bpf_map__fd(datapath->classify->maps.link_advice), &ifindex);
    datapath->classify->bss->advising_links--;
    link->advises = false;
    police(datapath, link, false);
    forget_prefixes(datapath, ifindex);
}

/* Flows by their age, as they are found. */
struct newest {
    struct datapath_advised *flows;
    size_t n, max;
    uint64_t now_ns;
};

/* A place for a flow of this time, whose age and ends are written; NULL: as many are newer. */
static struct datapath_advised *place(struct newest *newest, uint64_t at_ns, const struct qs_flow_key *ends) {
    uint64_t age_ms = (newest->now_ns - at_ns) / 1000000;
    struct datapath_advised *flow = newest->n < newest->max ? &newest->flows[newest->n] : NULL;

    for (size_t i = 0; !flow && i < newest->n; i++)
        if (newest->flows[i].age_ms > age_ms && (!flow || newest->flows[i].age_ms > flow->age_ms))
            flow = &newest->flows[i];
    if (!flow)
        return NULL;
    newest->n += flow == &newest->flows[newest->n];
    *flow = (struct datapath_advised){.age_ms = age_ms < UINT32_MAX ? (uint32_t)age_ms : UINT32_MAX};
    datapath_write_address(ends->source, ends->source_port, flow->source, sizeof(flow->source));
    datapath_write_address(ends->destination, ends->destination_port, flow->destination, sizeof(flow->destination));
    return flow;
}

static void take_scone(const void *key, const void *value, struct newest *newest) {
    const struct chart_packet_key *packet = key;
    const struct chart_scone_flow *told = value;
    struct qs_flow_key ends = {.source_port = packet->source_port, .destination_port = packet->destination_port};
    struct datapath_advised *flow;

    memcpy(ends.source, packet->source, sizeof(ends.source));
    memcpy(ends.destination, packet->destination, sizeof(ends.destination));
    flow = told->highest_plus_one ? place(newest, told->noted_ns, &ends) : NULL;
    if (!flow)
        return;
    flow->protocol = packet->protocol;
    flow->standard = "scone";
    flow->ifindex = packet->ifindex;
    flow->advised_bps = chart_scone_rates[told->advised & 127];
}

static void take_quick_start(const void *key, const void *value, struct newest *newest) {
    const struct qs_flow *told = value;
    struct datapath_advised *flow = told->approved ? place(newest, told->asked_ns, key) : NULL;

    if (!flow)
        return;
    flow->protocol = IPPROTO_TCP;
    flow->standard = "quick-start";
    flow->advised_bps = chart_qs_bps(told->approved);
}

static void walk(const struct bpf_map *map, void (*take)(const void *, const void *, struct newest *),
                 struct newest *newest) {
    size_t key_bytes = bpf_map__key_size(map), value_bytes = bpf_map__value_size(map);
    char *keys = calloc(BATCH, key_bytes), *values = calloc(BATCH, value_bytes);
    uint32_t cursor = 0, n = BATCH;
    void *from = NULL;

    while (keys && values) {
        int more = !bpf_map_lookup_batch(bpf_map__fd(map), from, &cursor, keys, values, &n, NULL);

        if (!more && errno != ENOENT)
            break;
        for (uint32_t i = 0; i < n; i++)
            take(keys + i * key_bytes, values + i * value_bytes, newest);
        if (!more)
            break;
        from = &cursor;
        n = BATCH;
    }
    free(values);
    free(keys);
}

static int newest_first(const void *one, const void *other) {
    const struct datapath_advised *a = one, *b = other;

    return a->age_ms < b->age_ms ? -1 : a->age_ms > b->age_ms;
}

size_t datapath_advised_flows(const struct datapath *datapath, struct datapath_advised *ret, size_t max) {
    struct newest newest = {.flows = ret, .max = max, .now_ns = datapath_monotonic_ns()};

    if (datapath->classify->bss->advising_links)
        walk(datapath->classify->maps.scone_flows, take_scone, &newest);
    if (datapath->config.quick_start_rate)
        walk(datapath->attach->maps.qs_flows, take_quick_start, &newest);
    qsort(ret, newest.n, sizeof(*ret), newest_first);
    return newest.n;
}
