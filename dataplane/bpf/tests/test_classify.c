/* The classifier run once per packet in the kernel (BPF_PROG_TEST_RUN): class and counters. Needs root. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <arpa/inet.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "classifier.h"
#include "grants/selectors.h"
#include "lib/htb/htb_classes.h"
#include "marks.h"

#define NODE 42
#define GRANT 7
#define PACKET_BYTES 114
#define ETHERNET_BYTES 14

/* One grant: 10.0.0.0/8 to TCP port 80. */
static void set_up(uint64_t gr_bps, int lease_ms, uint8_t expedited) {
    static uint32_t generation;
    struct decide_selector selector = {.protocol = 6, .destination_port = 80};
    struct chart_selector_table table = {.count = 1};
    struct chart_node_config config = {.node = NODE, .enforce = 1, .generation = ++generation, .sensor_port = 18300};
    struct chart_grant_key key = {.node = NODE, .grant = GRANT};
    struct chart_link link = {.link_header_bytes = ETHERNET_BYTES};
    struct timespec now;
    uint32_t zero = 0, ifindex = LOOPBACK;
    clock_gettime(CLOCK_MONOTONIC, &now);
    struct chart_rate rate = {.gr_bps = gr_bps, .enforce = 1};
    rate.gr_expires_ns = (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec + (uint64_t)lease_ms * 1000000;
    assert_int_equal(decide_parse_prefix("10.0.0.0/8", &selector.source), 0);
    assert_int_equal(selector_to_kernel(&selector, &table.selectors[0]), 0);
    table.selectors[0].grant = GRANT;
    table.selectors[0].expedited = expedited;
    put(skeleton->maps.selectors, &zero, &table);
    put(skeleton->maps.rates, &key, &rate);
    put(skeleton->maps.links, &ifindex, &link);
    put(skeleton->maps.node_config, &zero, &config);
}

/* Runs the classifier over one IPv4 packet that comes with a mark and a priority; the class id it wrote. */
static uint32_t run_marked(uint8_t protocol, const char *source, uint16_t port, uint8_t tos, uint32_t mark,
                           uint32_t priority) {
    uint8_t packet[PACKET_BYTES] = {0};
    struct __sk_buff context = {.ifindex = LOOPBACK, .mark = mark, .priority = priority};
    packet[12] = 0x08;
    packet[14] = 0x45;
    packet[15] = tos;
    packet[17] = PACKET_BYTES - ETHERNET_BYTES;
    packet[22] = 64;
    packet[23] = protocol;
    inet_pton(AF_INET, source, packet + 26);
    inet_pton(AF_INET, "192.0.2.1", packet + 30);
    packet[36] = (uint8_t)(port >> 8);
    packet[37] = (uint8_t)port;
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = packet, .data_size_in = sizeof(packet), .ctx_in = &context,
                .ctx_size_in = sizeof(context), .ctx_out = &context, .ctx_size_out = sizeof(context), .repeat = 1);
    assert_int_equal(bpf_prog_test_run_opts(bpf_program__fd(skeleton->progs.classify), &options), 0);
    return context.priority;
}

static uint32_t run_protocol(uint8_t protocol, const char *source, uint16_t port, uint8_t tos) {
    return run_marked(protocol, source, port, tos, 0, 0);
}

static uint32_t run(const char *source, uint16_t port, uint8_t tos) {
    return run_protocol(IPPROTO_TCP, source, port, tos);
}

static void granted_flow(void **state) {
    (void)state;
    set_up(1000000, 1000, 0);
    assert_int_equal(run("10.1.1.1", 80, 0), HTB_CLASS_ID(HTB_MINOR_EXPLICIT_RATE));
    assert_int_equal(run("10.1.1.1", 80, 0), HTB_CLASS_ID(HTB_MINOR_EXPLICIT_RATE));
    struct chart_link link = counters();
    assert_int_equal(link.explicit_rate_bytes, 2 * (PACKET_BYTES - ETHERNET_BYTES));
    assert_int_equal(link.legacy_bytes, 0);
}

static uint64_t used_bytes(void) {
    struct chart_grant_link key = {.grant = GRANT, .ifindex = LOOPBACK};
    struct chart_grant_use use = {0};
    bpf_map_lookup_elem(bpf_map__fd(skeleton->maps.grant_uses), &key, &use);
    return use.bytes;
}

/* By the interface that they leave by, also while the grant has no rate; of others nothing. */
static void octets_of_a_grant_by_interface(void **state) {
    (void)state;
    uint64_t before = used_bytes();
    set_up(1000000, 1000, 0);
    run("10.1.1.1", 80, 0);
    run("11.1.1.1", 80, 0);
    set_up(1000000, -1, 0);
    run("10.1.1.1", 80, 0);
    assert_int_equal(used_bytes() - before, 2 * (PACKET_BYTES - ETHERNET_BYTES));
}

static void expedited_flow(void **state) {
    (void)state;
    set_up(1000000, 1000, 1);
    assert_int_equal(run("10.1.1.1", 80, 46 << 2), HTB_CLASS_ID(HTB_MINOR_EXPEDITED));
    assert_int_equal(counters().expedited_bytes, PACKET_BYTES - ETHERNET_BYTES);
}

static void everything_else_is_legacy(void **state) {
    (void)state;
    set_up(1000000, 1000, 0);
    assert_int_equal(run("11.1.1.1", 80, 0), HTB_CLASS_ID(HTB_MINOR_LEGACY));
    assert_int_equal(run("10.1.1.1", 81, 0), HTB_CLASS_ID(HTB_MINOR_LEGACY));
    /* Nobody granted it: the mark alone opens nothing. */
    assert_int_equal(run("11.1.1.1", 80, 46 << 2), HTB_CLASS_ID(HTB_MINOR_LEGACY));
    assert_int_equal(counters().legacy_bytes, 3 * (PACKET_BYTES - ETHERNET_BYTES));
}

static void rates_agreed_in_band(void **state) {
    const uint32_t explicit_rate = HTB_CLASS_ID(HTB_MINOR_EXPLICIT_RATE);
    (void)state;
    set_up(1000000, 1000, 0);
    assert_int_equal(run_marked(IPPROTO_TCP, "11.1.1.1", 80, 0, 0, explicit_rate), explicit_rate);
    assert_int_equal(run_marked(IPPROTO_TCP, "11.1.1.1", 80, 0, CHART_MARK_SIGNAL, 0),
                     HTB_CLASS_ID(HTB_MINOR_EXPEDITED));
    assert_int_equal(run_marked(IPPROTO_UDP, "11.1.1.1", 80, 0, 0, HTB_CLASS_ID(HTB_MINOR_EXPEDITED)),
                     HTB_CLASS_ID(HTB_MINOR_EXPEDITED));
    /* What programs may set by themselves opens nothing. */
    assert_int_equal(run_marked(IPPROTO_TCP, "11.1.1.1", 80, 0, 0, 6), HTB_CLASS_ID(HTB_MINOR_LEGACY));
    assert_int_equal(counters().explicit_rate_bytes, PACKET_BYTES - ETHERNET_BYTES);
    assert_int_equal(counters().expedited_bytes, 2 * (PACKET_BYTES - ETHERNET_BYTES));
    assert_int_equal(counters().legacy_bytes, PACKET_BYTES - ETHERNET_BYTES);
}

/* They meet what legacy traffic meets, and ask for nothing. */
static void probes_are_no_demand(void **state) {
    (void)state;
    set_up(1000000, 1000, 0);
    assert_int_equal(run_protocol(IPPROTO_UDP, "11.1.1.1", 18300, 0), HTB_CLASS_ID(HTB_MINOR_LEGACY));
    assert_int_equal(counters().legacy_bytes, 0);
    assert_int_equal(counters().background_bytes, PACKET_BYTES - ETHERNET_BYTES);
    run_protocol(IPPROTO_TCP, "11.1.1.1", 18300, 0);
    run_protocol(IPPROTO_UDP, "11.1.1.1", 18301, 0);
    assert_int_equal(counters().legacy_bytes, 2 * (PACKET_BYTES - ETHERNET_BYTES));
}

static void background(void **state) {
    (void)state;
    set_up(1000000, 1000, 0);
    assert_int_equal(run("11.1.1.1", 80, 8 << 2), HTB_CLASS_ID(HTB_MINOR_BACKGROUND));
    assert_int_equal(run("11.1.1.1", 80, 1 << 2), HTB_CLASS_ID(HTB_MINOR_BACKGROUND));
}

static void ended_lease_is_legacy(void **state) {
    (void)state;
    set_up(1000000, -1, 0);
    assert_int_equal(run("10.1.1.1", 80, 0), HTB_CLASS_ID(HTB_MINOR_LEGACY));
}

static void changed_selectors_forget_the_match(void **state) {
    (void)state;
    set_up(1000000, 1000, 0);
    assert_int_equal(run("10.1.1.1", 80, 0), HTB_CLASS_ID(HTB_MINOR_EXPLICIT_RATE));
    set_up(1000000, 1000, 1);
    assert_int_equal(run("10.1.1.1", 80, 0), HTB_CLASS_ID(HTB_MINOR_EXPEDITED));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(granted_flow),
        cmocka_unit_test(octets_of_a_grant_by_interface),
        cmocka_unit_test(expedited_flow),
        cmocka_unit_test(everything_else_is_legacy),
        cmocka_unit_test(rates_agreed_in_band),
        cmocka_unit_test(probes_are_no_demand),
        cmocka_unit_test(background),
        cmocka_unit_test(ended_lease_is_legacy),
        cmocka_unit_test(changed_selectors_forget_the_match),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
