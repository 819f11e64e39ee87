/* The policer run in the kernel (BPF_PROG_TEST_RUN): verdict, mark, checksum, counters. Needs root.
 *
 * Rates are low enough that what a bucket regains while a test runs is less than a packet. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "grants/selectors.h"
#include "police.h"
#include "police.skel.h"

#define NODE 42
#define GRANT 7
#define PACKET_BYTES 514
#define ETHERNET_BYTES 14
#define IP_BYTES (PACKET_BYTES - ETHERNET_BYTES)
#define LOOPBACK 1
#define NEXT (-1)
#define DROP 2
#define EXPEDITED 46
#define ECN_CAPABLE 2
/* 100 octets a second: a bucket regains a packet of 500 in 5 s. */
#define SLOW_BPS 800
/* Deep enough for ten of them: 5000 octets at that rate. */
#define TEN_PACKETS_NS (50ull * 1000000000)

static struct chart_police *skeleton;
static uint8_t packet[PACKET_BYTES];

static uint64_t monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static void put(struct bpf_map *map, const void *key, const void *value) {
    assert_int_equal(bpf_map_update_elem(bpf_map__fd(map), key, value, BPF_ANY), 0);
}

struct scene {
    uint64_t gr_bps, ar_bps, aggregate_bps;
    /* 0: room for ten packets at SLOW_BPS. */
    uint64_t depth_ns;
    int lease_ms;
    bool expedited, drop, off;
};

/* One grant: 10.0.0.0/8 (or 2001:db8::/32) to port 80, as it holds at the edge `LOOPBACK`. A number of its own for
 * every scene, so that each begins with a full bucket. */
static void set_up(struct scene scene, const char *prefix) {
    static uint32_t generation;
    struct decide_selector selector = {.protocol = IPPROTO_TCP, .destination_port = 80};
    struct chart_selector_table table = {.count = 1};
    struct chart_node_config config = {.node = NODE, .enforce = !scene.off, .generation = ++generation};
    struct chart_grant_key key = {.node = NODE, .grant = GRANT + generation};
    struct chart_police_edge edge = {.link_header_bytes = ETHERNET_BYTES,
                                     .aggregate_bps = scene.aggregate_bps,
                                     .depth_ns = scene.depth_ns ? scene.depth_ns : TEN_PACKETS_NS,
                                     .exceed = scene.drop ? CHART_POLICE_DROP : CHART_POLICE_REMARK};
    uint64_t end_ns = monotonic_ns() + (uint64_t)((int64_t)scene.lease_ms * 1000000);
    struct chart_rate rate = {
        .gr_bps = scene.gr_bps, .ar_bps = scene.ar_bps, .enforce = 1, .gr_expires_ns = end_ns, .ar_expires_ns = end_ns};
    uint32_t zero = 0, ifindex = LOOPBACK;
    assert_int_equal(decide_parse_prefix(prefix, &selector.source), 0);
    assert_int_equal(selector_to_kernel(&selector, &table.selectors[0]), 0);
    table.selectors[0].grant = key.grant;
    table.selectors[0].expedited = scene.expedited;
    put(skeleton->maps.selectors, &zero, &table);
    put(skeleton->maps.rates, &key, &rate);
    put(skeleton->maps.police_edges, &ifindex, &edge);
    put(skeleton->maps.node_config, &zero, &config);
}

static uint16_t checksum(const uint8_t *header) {
    uint32_t sum = 0;
    for (int i = 0; i < 20; i += 2)
        sum += (uint32_t)(header[i] << 8 | header[i + 1]);
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

static int run_packet(void) {
    struct __sk_buff context = {.ifindex = LOOPBACK};
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = packet, .data_size_in = sizeof(packet), .data_out = packet,
                .data_size_out = sizeof(packet), .ctx_in = &context, .ctx_size_in = sizeof(context), .repeat = 1);
    assert_int_equal(bpf_prog_test_run_opts(bpf_program__fd(skeleton->progs.police), &options), 0);
    return (int)options.retval;
}

/* Police one IPv4 packet; its verdict. `packet` is what came out. */
static int run(const char *source, uint8_t dscp) {
    uint16_t sum;
    memset(packet, 0, sizeof(packet));
    packet[12] = 0x08;
    packet[14] = 0x45;
    packet[15] = (uint8_t)(dscp << 2 | ECN_CAPABLE);
    packet[16] = IP_BYTES >> 8;
    packet[17] = IP_BYTES & 0xff;
    packet[22] = 64;
    packet[23] = IPPROTO_TCP;
    inet_pton(AF_INET, source, packet + 26);
    inet_pton(AF_INET, "192.0.2.1", packet + 30);
    packet[37] = 80;
    sum = checksum(packet + ETHERNET_BYTES);
    packet[24] = (uint8_t)(sum >> 8);
    packet[25] = (uint8_t)sum;
    return run_packet();
}

/* The mark that the packet has now; ECN bits and checksum have to be right. */
static int mark(void) {
    assert_int_equal(packet[15] & 3, ECN_CAPABLE);
    assert_int_equal(checksum(packet + ETHERNET_BYTES), 0);
    return packet[15] >> 2;
}

static struct chart_police_edge counters(void) {
    struct chart_police_edge edge;
    uint32_t ifindex = LOOPBACK;
    assert_int_equal(bpf_map_lookup_elem(bpf_map__fd(skeleton->maps.police_edges), &ifindex, &edge), 0);
    return edge;
}

static void a_bucket_of_ten_packets_takes_ten(void **state) {
    (void)state;
    set_up((struct scene){.gr_bps = SLOW_BPS, .lease_ms = 10000, .expedited = true, .drop = true}, "10.0.0.0/8");
    for (int i = 0; i < 10; i++) {
        assert_int_equal(run("10.1.1.1", 0), NEXT);
        assert_int_equal(mark(), EXPEDITED);
    }
    assert_int_equal(run("10.1.1.1", 0), DROP);
    struct chart_police_edge edge = counters();
    assert_int_equal(edge.conforming_packets, 10);
    assert_int_equal(edge.conforming_bytes, 10 * IP_BYTES);
    assert_int_equal(edge.exceeding_packets, 1);
    assert_int_equal(edge.exceeding_bytes, IP_BYTES);
}

/* The flows of one grant share one bucket. */
static void flows_of_a_grant_share_its_bucket(void **state) {
    (void)state;
    set_up((struct scene){.gr_bps = SLOW_BPS, .lease_ms = 10000, .expedited = true, .drop = true}, "10.0.0.0/8");
    for (int i = 0; i < 10; i++)
        assert_int_equal(run(i % 2 ? "10.1.1.1" : "10.2.2.2", 0), NEXT);
    assert_int_equal(run("10.3.3.3", 0), DROP);
}

static void what_exceeds_goes_on_unmarked(void **state) {
    (void)state;
    set_up((struct scene){.gr_bps = SLOW_BPS, .lease_ms = 10000, .expedited = true}, "10.0.0.0/8");
    for (int i = 0; i < 10; i++)
        run("10.1.1.1", EXPEDITED);
    assert_int_equal(mark(), EXPEDITED);
    assert_int_equal(run("10.1.1.1", EXPEDITED), NEXT);
    assert_int_equal(mark(), 0);
}

/* A megabyte a second, ten packets deep: in any time t it passes what was in it and t worth of its rate, no more. */
static void a_bucket_fills_again(void **state) {
    (void)state;
    set_up((struct scene){.gr_bps = 8000000, .depth_ns = 5000000, .lease_ms = 60000, .expedited = true, .drop = true},
           "10.0.0.0/8");
    uint64_t began_ns = monotonic_ns(), now_ns = began_ns, kept_ns = 0, passed = 0, dropped = 0;
    while (now_ns < began_ns + 200000000ull) {
        uint64_t before_ns = now_ns;
        if (run("10.1.1.1", 0) == NEXT)
            passed++;
        else
            dropped++;
        now_ns = monotonic_ns();
        /* While this process does not run, no more than its depth gathers in the bucket. */
        kept_ns += now_ns - before_ns < 5000000 ? now_ns - before_ns : 5000000;
    }
    assert_true(dropped > 0);
    assert_true(passed <= 10 + (now_ns - began_ns) / 500000 + 1);
    assert_true(passed >= kept_ns / 500000 / 2);
}

/* A flow under an explicit rate that is not premium is held to all that it may send, and its mark is not kept. */
static void available_rate_counts_where_nothing_is_premium(void **state) {
    (void)state;
    set_up((struct scene){.gr_bps = SLOW_BPS / 2, .ar_bps = SLOW_BPS / 2, .lease_ms = 10000, .drop = true},
           "10.0.0.0/8");
    for (int i = 0; i < 10; i++) {
        assert_int_equal(run("10.1.1.1", i % 2 ? EXPEDITED : 0), NEXT);
        assert_int_equal(mark(), 0);
    }
    assert_int_equal(run("10.1.1.1", 0), DROP);
}

static void nobody_granted_it(void **state) {
    (void)state;
    set_up((struct scene){.gr_bps = SLOW_BPS, .lease_ms = 10000, .expedited = true, .drop = true}, "10.0.0.0/8");
    assert_int_equal(run("11.1.1.1", EXPEDITED), NEXT);
    assert_int_equal(mark(), 0);
    assert_int_equal(counters().unmarked_packets, 1);
    /* Other marks are none of its business, and best effort is not policed. */
    for (int i = 0; i < 30; i++)
        assert_int_equal(run("11.1.1.1", 10), NEXT);
    assert_int_equal(mark(), 10);
}

static void a_grant_whose_lease_ended_is_none(void **state) {
    (void)state;
    set_up((struct scene){.gr_bps = SLOW_BPS, .lease_ms = -1, .expedited = true, .drop = true}, "10.0.0.0/8");
    assert_int_equal(run("10.1.1.1", EXPEDITED), NEXT);
    assert_int_equal(mark(), 0);
}

static void the_aggregate_of_a_domain_is_held(void **state) {
    (void)state;
    set_up((struct scene){.gr_bps = SLOW_BPS, .aggregate_bps = SLOW_BPS, .lease_ms = 10000, .drop = true},
           "10.0.0.0/8");
    for (int i = 0; i < 10; i++) {
        assert_int_equal(run(i % 2 ? "11.1.1.1" : "12.1.1.1", EXPEDITED), NEXT);
        assert_int_equal(mark(), EXPEDITED);
    }
    assert_int_equal(run("13.1.1.1", EXPEDITED), DROP);
    assert_int_equal(run("13.1.1.1", 0), NEXT);
}

static void switched_off_it_lets_everything_be(void **state) {
    (void)state;
    set_up((struct scene){.gr_bps = SLOW_BPS, .lease_ms = 10000, .expedited = true, .drop = true, .off = true},
           "10.0.0.0/8");
    for (int i = 0; i < 30; i++)
        assert_int_equal(run("10.1.1.1", 10), NEXT);
    assert_int_equal(mark(), 10);
}

static void ipv6_is_marked_too(void **state) {
    (void)state;
    set_up((struct scene){.gr_bps = SLOW_BPS, .lease_ms = 10000, .expedited = true, .drop = true}, "2001:db8::/32");
    for (int i = 0; i < 11; i++) {
        memset(packet, 0, sizeof(packet));
        packet[12] = 0x86;
        packet[13] = 0xdd;
        packet[14] = 0x60;
        packet[15] = ECN_CAPABLE << 4 | 0x0a;
        packet[16] = 0xbc;
        packet[17] = 0xde;
        packet[18] = (IP_BYTES - 40) >> 8;
        packet[19] = (IP_BYTES - 40) & 0xff;
        packet[20] = IPPROTO_TCP;
        packet[21] = 64;
        inet_pton(AF_INET6, "2001:db8::1", packet + 22);
        inet_pton(AF_INET6, "2001:db8::2", packet + 38);
        packet[57] = 80;
        assert_int_equal(run_packet(), i < 10 ? NEXT : DROP);
        if (i == 10)
            break;
        assert_int_equal((packet[14] & 0xf) << 2 | packet[15] >> 6, EXPEDITED);
        assert_int_equal(packet[14] >> 4, 6);
        /* ECN and flow label stay. */
        assert_int_equal(packet[15] & 0x3f, ECN_CAPABLE << 4 | 0x0a);
        assert_int_equal(packet[16] << 8 | packet[17], 0xbcde);
    }
}

static int load(void **state) {
    (void)state;
    skeleton = chart_police__open_and_load();
    return skeleton ? 0 : -1;
}

static int unload(void **state) {
    (void)state;
    chart_police__destroy(skeleton);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_of_ten_packets_takes_ten),
        cmocka_unit_test(flows_of_a_grant_share_its_bucket),
        cmocka_unit_test(what_exceeds_goes_on_unmarked),
        cmocka_unit_test(a_bucket_fills_again),
        cmocka_unit_test(available_rate_counts_where_nothing_is_premium),
        cmocka_unit_test(nobody_granted_it),
        cmocka_unit_test(a_grant_whose_lease_ended_is_none),
        cmocka_unit_test(the_aggregate_of_a_domain_is_held),
        cmocka_unit_test(switched_off_it_lets_everything_be),
        cmocka_unit_test(ipv6_is_marked_too),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
