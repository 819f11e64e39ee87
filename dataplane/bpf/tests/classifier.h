/* The classifier in the kernel, for tests that run it once (BPF_PROG_TEST_RUN). Needs root. */
#pragma once

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <time.h>

#include "classify.skel.h"
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
