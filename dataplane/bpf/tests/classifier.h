/* The classifier in the kernel, for tests that run it once (BPF_PROG_TEST_RUN). Needs root. */
#pragma once

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <time.h>

#include "classify.skel.h"
#include "grants/selectors.h"
#include "maps.h"

#define LOOPBACK 1

static struct chart_classify *skeleton;

static void put(struct bpf_map *map, const void *key, const void *value) {
    assert_int_equal(bpf_map_update_elem(bpf_map__fd(map), key, value, BPF_ANY), 0);
}

/* By CLOCK_MONOTONIC, nanoseconds. */
static __attribute__((unused)) uint64_t in_ms(int64_t ms) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)(now.tv_sec * 1000000000ll + now.tv_nsec + ms * 1000000);
}

static __attribute__((unused)) struct chart_link counters(void) {
    struct chart_link link;
    uint32_t ifindex = LOOPBACK;
    assert_int_equal(bpf_map_lookup_elem(bpf_map__fd(skeleton->maps.links), &ifindex, &link), 0);
    return link;
}

/* A grant of 3 Mb/s for packets of a protocol to port 444, and a link that gives advice. */
static __attribute__((unused)) void put_grant_and_link(struct chart_node_config config, uint8_t protocol) {
    static uint32_t generation;
    struct decide_selector selector = {.protocol = protocol, .destination_port = 444};
    struct chart_selector_table table = {.count = 1};
    struct chart_grant_key key = {.node = config.node, .grant = 7};
    struct chart_link link = {.link_header_bytes = 14};
    struct chart_rate rate = {.gr_bps = 3000000, .enforce = 1, .gr_expires_ns = in_ms(60000)};
    uint32_t zero = 0, ifindex = LOOPBACK;
    assert_int_equal(selector_to_kernel(&selector, &table.selectors[0]), 0);
    table.selectors[0].grant = key.grant;
    config.generation = ++generation;
    put(skeleton->maps.selectors, &zero, &table);
    put(skeleton->maps.rates, &key, &rate);
    put(skeleton->maps.links, &ifindex, &link);
    put(skeleton->maps.node_config, &zero, &config);
    skeleton->bss->advising_links = 1;
}

static int load(void **state) {
    (void)state;
    skeleton = chart_classify__open_and_load();
    return skeleton ? 0 : -1;
}

static int unload(void **state) {
    (void)state;
    chart_classify__destroy(skeleton);
    return 0;
}
