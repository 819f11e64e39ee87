/* Quick-Start through the classifier, once each in the kernel (BPF_PROG_TEST_RUN): requests that are approved, lowered
 * and refused, IPv4's checksum against one computed anew, what is left as it was. Needs root. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include "paths/overlay_table.h"
#include "quick_start_run.h"

/* It got a rate: nothing but the option and IPv4's checksum differs, and that one is right. */
static void assert_answered(const struct packet *packet, uint32_t rate) {
    struct packet out = run(packet);
    const uint8_t *was = packet->frame + packet->option, *is = out.frame + out.option, *ip = out.frame + ETHERNET_BYTES;
    uint32_t asked = chart_qs_rate(was);
    assert_int_equal(chart_qs_rate(is), rate);
    assert_int_equal(is[3], rate ? was[3] - packet->forwarded : 0);
    assert_int_equal(is[7] & 3, was[7] & 3);
    if (rate == asked)
        assert_int_equal(chart_qs_nonce(is), chart_qs_nonce(was));
    else if (rate)
        assert_int_equal(chart_qs_nonce(is) & ((1u << 2 * rate) - 1), NONCE & ((1u << 2 * rate) - 1));
    else
        assert_int_equal(chart_qs_nonce(is), 0);
    if (ip[0] >> 4 == 4)
        assert_int_equal(checksum(ip, (ip[0] & 0xfu) * 4), 0);
    memcpy(out.frame + out.option, was, CHART_QS_OCTETS);
    if (ip[0] >> 4 == 4)
        memcpy(out.frame + ETHERNET_BYTES + 10, packet->frame + ETHERNET_BYTES + 10, 2);
    assert_memory_equal(out.frame, packet->frame, packet->size);
}

/* At every place that it may have in the header, also where no word begins. */
static void approved_as_asked(void **state) {
    (void)state;
    for (uint32_t nops = 0; nops <= 16; nops++) {
        set_up();
        struct packet packet = ipv4(10, nops, 24), six = ipv6(9);
        assert_answered(&packet, 10);
        assert_answered(&six, 9);
    }
    assert_int_equal(counters().quick_start_requests, 2);
    assert_int_equal(counters().quick_start_lowered + counters().quick_start_refused, 0);
}

/* The host that asks is no hop of its own packet. */
static void its_own_host_decrements_nothing(void **state) {
    struct packet packet = ipv4(10, 0, 8);
    (void)state;
    set_up();
    packet.forwarded = false;
    assert_answered(&packet, 10);
}

/* A fair rate of 50 Mb/s is 40.96; a grant of 3 Mb/s is 2.56, and needs no spare rate. */
static void lowered(void **state) {
    struct packet packet = ipv4(15, 0, 8), granted = ipv4(15, 0, 8), six = ipv6(15);
    (void)state;
    set_up();
    assert_answered(&packet, 10);
    assert_answered(&six, 10);
    granted.frame[granted.size - 20 + 2] = 444 >> 8;
    granted.frame[granted.size - 20 + 3] = 444 & 0xff;
    assert_answered(&granted, 6);
    assert_int_equal(counters().quick_start_lowered, 3);
}

/* Of a hundred at once the link approves what is spare; those after it are refused, reports pass. */
static void no_more_than_is_spare(void **state) {
    uint64_t approved_bps = 0;
    struct packet packet = ipv4(9, 0, 8), report = ipv4(9, 0, 8);
    (void)state;
    set_up();
    for (int i = 0; i < 100; i++) {
        struct packet out = run(&packet);
        approved_bps += chart_qs_bps(chart_qs_rate(out.frame + out.option));
    }
    assert_true(approved_bps <= 90 * MBPS);
    assert_true(approved_bps > 89 * MBPS);
    assert_answered(&packet, 0);
    report.frame[report.option + 2] = CHART_QS_REPORT << 4 | 9;
    seal(&report);
    assert_unchanged(&report);
    assert_int_equal(counters().quick_start_requests, 101);
    assert_true(counters().quick_start_refused > 90);
}

/* A packet of the overlay, whose inner one has a request. */
static struct packet in_overlay(const struct packet *inner) {
    struct packet packet = {.forwarded = inner->forwarded, .option = inner->option + 50};
    uint8_t *ip = packet.frame + ETHERNET_BYTES, *udp = ip + 20;
    uint32_t octets = inner->size + 8 + 8;
    packet.size = ETHERNET_BYTES + 20 + octets;
    packet.frame[12] = 0x08;
    ip[0] = 0x45;
    ip[2] = (uint8_t)((20 + octets) >> 8);
    ip[3] = (uint8_t)(20 + octets);
    ip[8] = 1;
    ip[9] = IPPROTO_UDP;
    inet_pton(AF_INET, "10.9.0.1", ip + 12);
    inet_pton(AF_INET, "10.9.0.2", ip + 16);
    udp[0] = 0xc0;
    udp[2] = OVERLAY_PORT >> 8;
    udp[3] = OVERLAY_PORT & 0xff;
    udp[4] = (uint8_t)(octets >> 8);
    udp[5] = (uint8_t)octets;
    udp[8] = 0x08;
    memcpy(udp + 16, inner->frame, inner->size);
    seal(&packet);
    return packet;
}

/* What an inner packet asks for is answered by the link that the outer one leaves by. */
static void answered_inside_the_overlay(void **state) {
    struct packet inner = ipv4(15, 3, 12), six = ipv6(15), plain = ipv4(0, 0, 0);
    struct chart_node_config config = {.node = NODE, .enforce = 1, .generation = 2000000};
    uint32_t zero = 0;
    (void)state;
    set_up();
    struct packet packets[] = {in_overlay(&inner), in_overlay(&six)}, without = in_overlay(&plain);
    for (size_t i = 0; i < 2; i++)
        assert_unchanged(&packets[i]);
    config.overlay_port = OVERLAY_PORT;
    put(skeleton->maps.node_config, &zero, &config);
    for (size_t i = 0; i < 2; i++) {
        struct packet out = run(&packets[i]);
        const uint8_t *is = out.frame + out.option, *was = packets[i].frame + packets[i].option;
        assert_int_equal(chart_qs_rate(is), 10);
        assert_int_equal(is[3], was[3] - 1);
        if (i == 0)
            assert_int_equal(checksum(out.frame + ETHERNET_BYTES + 50, 32), 0);
        assert_memory_equal(out.frame, packets[i].frame, ETHERNET_BYTES + 50);
    }
    assert_unchanged(&without);
    assert_int_equal(counters().quick_start_requests, 2);
}

/* One that asks gets no more than its share of what is spare. */
static void no_more_than_its_share(void **state) {
    struct chart_link_advice advice = {.quick_start = 1,
                                       .fair_bps = 50 * MBPS,
                                       .fair_expires_ns = in_ms(60000),
                                       .spare_bps = 90 * MBPS,
                                       .spare_expires_ns = in_ms(60000),
                                       .begin_bps = 9 * MBPS};
    struct packet packet = ipv4(11, 0, 8);
    uint32_t ifindex = LOOPBACK;
    (void)state;
    set_up();
    put(skeleton->maps.link_advice, &ifindex, &advice);
    assert_answered(&packet, 7);
}

static void only_its_prefixes_are_served(void **state) {
    struct chart_link_advice advice = {.quick_start = 1,
                                       .fair_bps = 50 * MBPS,
                                       .fair_expires_ns = in_ms(60000),
                                       .spare_bps = 90 * MBPS,
                                       .spare_expires_ns = in_ms(60000),
                                       .begin_bps = 90 * MBPS,
                                       .prefixes = 1};
    struct chart_advice_prefix prefix = {.bits = 32 + 96 + 24, .ifindex = LOOPBACK, .address = {0, 0, htonl(0xffff)}};
    struct packet packet = ipv4(9, 0, 8), six = ipv6(9);
    uint32_t ifindex = LOOPBACK;
    uint8_t known = 1;
    (void)state;
    set_up();
    put(skeleton->maps.link_advice, &ifindex, &advice);
    assert_unchanged(&packet);
    inet_pton(AF_INET, "192.0.2.0", &prefix.address[3]);
    put(skeleton->maps.advice_prefixes, &prefix, &known);
    assert_answered(&packet, 9);
    assert_unchanged(&six);
    bpf_map_delete_elem(bpf_map__fd(skeleton->maps.advice_prefixes), &prefix);
    /* Of another link. */
    prefix.ifindex = LOOPBACK + 1;
    put(skeleton->maps.advice_prefixes, &prefix, &known);
    assert_unchanged(&packet);
    bpf_map_delete_elem(bpf_map__fd(skeleton->maps.advice_prefixes), &prefix);
}

static void refused(void **state) {
    struct packet packet = ipv4(9, 0, 8), six = ipv6(9);
    (void)state;
    set_up();
    advise(50 * MBPS, 90 * MBPS, -1);
    assert_answered(&packet, 0);
    advise(50 * MBPS, 0, 60000);
    assert_answered(&six, 0);
    advise(0, 90 * MBPS, 60000);
    assert_answered(&packet, 0);
    assert_int_equal(counters().quick_start_refused, 3);
}

static void no_answers_no_change(void **state) {
    struct packet packet = ipv4(9, 0, 8), six = ipv6(9);
    struct chart_link_advice scone_only = {.scone = 1, .fair_bps = 50 * MBPS, .fair_expires_ns = in_ms(60000)};
    struct chart_node_config observing = {.node = NODE, .enforce = 0, .generation = 1000000};
    uint32_t zero = 0, ifindex = LOOPBACK;
    (void)state;
    set_up();
    put(skeleton->maps.link_advice, &ifindex, &scone_only);
    assert_unchanged(&packet);
    assert_unchanged(&six);
    set_up();
    skeleton->bss->advising_links = 0;
    assert_unchanged(&packet);
    set_up();
    put(skeleton->maps.node_config, &zero, &observing);
    assert_unchanged(&packet);
    assert_unchanged(&six);
    assert_int_equal(counters().quick_start_requests, 0);
}

/* Options that cannot be read, cut off or of another kind, later fragments, no options at all. */
static void other_packets_are_left_alone(void **state) {
    struct packet odd = ipv4(9, 0, 8), ended = ipv4(9, 4, 12), cut = ipv4(9, 0, 8), nothing = ipv4(9, 0, 8);
    struct packet zero = ipv4(9, 4, 12), fragment = ipv4(9, 0, 8), wanted = ipv4(0, 0, 8), six = ipv6(9);
    struct packet far = ipv6(9), endless = ipv6(9);
    (void)state;
    set_up();
    odd.frame[odd.option + 1] = 6;
    ended.frame[ended.options] = 0;
    cut.frame[ETHERNET_BYTES] = 0x46;
    nothing.frame[ETHERNET_BYTES] = 0x45;
    zero.frame[zero.options] = 0x44;
    zero.frame[zero.options + 1] = 0;
    fragment.frame[ETHERNET_BYTES + 7] = 1;
    six.frame[six.option] = 0x06;
    far.frame[far.options + 1] = 200;
    endless.frame[ETHERNET_BYTES + 41] = 255;
    memset(endless.frame + endless.options, 0, 34);
    struct packet *packets[] = {&odd, &ended, &cut, &nothing, &zero, &fragment, &wanted, &six, &far, &endless};
    for (size_t i = 0; i < sizeof(packets) / sizeof(packets[0]); i++)
        assert_unchanged(packets[i]);
    assert_int_equal(counters().quick_start_requests, 0);
}

/* Any octets as options: whatever they are, only the option of a request and the checksum change. */
static void any_octets(void **state) {
    uint32_t seed = 7;
    (void)state;
    set_up();
    for (int i = 0; i < 20000; i++) {
        struct packet packet = ipv4(9, 0, OPTIONS_MAX);
        for (uint32_t at = 0; at < OPTIONS_MAX; at++) {
            seed = seed * 1664525u + 1013904223u;
            /* Small numbers are kinds and lengths that lead somewhere. */
            packet.frame[packet.options + at] = seed >> 31 ? (uint8_t)(seed >> 16) % 27 : (uint8_t)(seed >> 8);
        }
        seal(&packet);
        struct packet out = run(&packet);
        uint32_t differ = 0;
        for (uint32_t at = 0; at < packet.size; at++)
            differ += out.frame[at] != packet.frame[at];
        assert_true(differ <= CHART_QS_OCTETS - 2 + 2);
        assert_int_equal(checksum(out.frame + ETHERNET_BYTES, 60), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(approved_as_asked),
        cmocka_unit_test(its_own_host_decrements_nothing),
        cmocka_unit_test(lowered),
        cmocka_unit_test(no_more_than_is_spare),
        cmocka_unit_test(refused),
        cmocka_unit_test(no_answers_no_change),
        cmocka_unit_test(no_more_than_its_share),
        cmocka_unit_test(answered_inside_the_overlay),
        cmocka_unit_test(only_its_prefixes_are_served),
        cmocka_unit_test(any_octets),
        cmocka_unit_test(other_packets_are_left_alone),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
