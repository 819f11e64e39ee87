/* The overlay's program run in the kernel (BPF_PROG_TEST_RUN) where packets enter: which are taken, by which neighbour,
 * and what becomes of them. What comes out of the VXLAN device needs a device and is tested in a lab. Needs root. */
#include "overlay_run.h"

static void a_packet_to_an_owner_goes_to_the_first_neighbour(void **state) {
    (void)state;
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(liveness_of(1).forwarded_packets, 1);
    assert_int_equal(liveness_of(1).forwarded_bytes, 100);
    assert_int_equal(packet[22], TTL - 1);
    assert_int_equal(fold(sum_of(packet + ETHERNET, 20, 0)), 0);
    assert_memory_equal(packet,
                        "\x02"
                        "CHAR\x02\x02"
                        "CHAR\x01",
                        12);
    assert_int_equal(counters().entered, 1);
}

static void what_the_node_sends_itself_keeps_its_hops(void **state) {
    (void)state;
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    assert_int_equal(run(skeleton->progs.overlay_originate), REDIRECT);
    assert_int_equal(packet[22], TTL);
}

static void others_packets_take_the_kernels_way(void **state) {
    static const char *const destinations[] = {"10.4.0.1", "10.2.0.9"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        uint8_t before[ROOM];
        ipv4(destinations[i], IPPROTO_UDP, 100, true);
        memcpy(before, packet, sizeof(before));
        assert_int_equal(enter(), NEXT);
        assert_memory_equal(before, packet, length);
    }
    assert_int_equal(counters().entered, 0);
}

static void the_last_hop_is_the_kernels_to_refuse(void **state) {
    (void)state;
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    packet[22] = 1;
    assert_int_equal(enter(), NEXT);
}

static void an_owner_without_next_hop_is_left_to_the_kernel(void **state) {
    (void)state;
    own("10.9.0.0", 16, OWNER + 1);
    ipv4("10.9.0.1", IPPROTO_UDP, 100, true);
    assert_int_equal(enter(), NEXT);
    assert_int_equal(counters().no_path, 1);
}

static void nothing_is_taken_when_it_is_off(void **state) {
    struct chart_overlay_config off = {0};
    uint32_t zero = 0;
    (void)state;
    put(skeleton->maps.overlay_config, &zero, &off);
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    assert_int_equal(enter(), NEXT);
}

static void as_many_unanswered_probes_as_allowed_are_no_failure(void **state) {
    (void)state;
    set_neighbour(1, "10.1.1.2", ALLOWED);
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(liveness_of(1).forwarded_packets, 1);
    assert_int_equal(counters().detours, 0);
}

static void one_more_moves_packets_to_the_next_and_they_stay_there(void **state) {
    (void)state;
    set_neighbour(1, "10.1.1.2", ALLOWED + 1);
    for (int i = 0; i < 2; i++) {
        ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
        assert_int_equal(enter(), REDIRECT);
        /* An answer alone does not bring it back. */
        struct chart_overlay_liveness answered = liveness_of(1);
        uint32_t number = 1;
        answered.answered = answered.sent;
        put(skeleton->maps.overlay_liveness, &number, &answered);
    }
    assert_int_equal(liveness_of(1).usable, 0);
    assert_int_equal(liveness_of(1).forwarded_packets, 0);
    assert_int_equal(liveness_of(2).forwarded_packets, 2);
    assert_int_equal(counters().detours, 2);
}

static void patience_is_kept_however_many_are_unanswered(void **state) {
    struct chart_overlay_liveness patient;
    uint32_t number = 1;
    (void)state;
    set_neighbour(1, "10.1.1.2", ALLOWED + 1);
    patient = liveness_of(1);
    patient.patience_ns = UINT64_MAX;
    put(skeleton->maps.overlay_liveness, &number, &patient);
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(liveness_of(1).forwarded_packets, 1);
}

static void the_first_stays_when_nobody_answers(void **state) {
    (void)state;
    set_neighbour(1, "10.1.1.2", ALLOWED + 1);
    set_neighbour(2, "10.1.2.2", ALLOWED + 9);
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(liveness_of(1).forwarded_packets, 1);
    assert_int_equal(counters().all_stale, 1);
}

/* A SYN whose options begin with so many octets of no operation, then the largest segment. */
static void opening(uint16_t segment, int before) {
    size_t options = 34 + 20;
    ipv4("10.3.7.7", IPPROTO_TCP, 20 + 20 + 12, true);
    packet[34 + 12] = 8 << 4;
    packet[34 + 13] = 2;
    memset(packet + options, 1, 12);
    packet[options + (size_t)before] = 2;
    packet[options + (size_t)before + 1] = 4;
    put_u16(options + (size_t)before + 2, segment);
    put_u16(34 + 16, 0);
    put_u16(34 + 16, transport_sum());
}

static void the_largest_segment_is_lowered_to_what_fits(void **state) {
    (void)state;
    for (int before = 0; before < 4; before++) {
        opening(1460, before);
        assert_int_equal(transport_sum(), 0);
        assert_int_equal(enter(), REDIRECT);
        assert_int_equal(get_u16((size_t)(34 + 20 + before + 2)), MTU - 40);
        assert_int_equal(transport_sum(), 0);
    }
    assert_int_equal(counters().clamped, 4);
    opening(1200, 0);
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(get_u16(34 + 20 + 2), 1200);
    assert_int_equal(counters().clamped, 4);
}

static void a_packet_that_does_not_fit_is_answered(void **state) {
    uint8_t quoted[28];
    (void)state;
    ipv4("10.3.7.7", IPPROTO_UDP, MTU + 1, true);
    put_u16(34, 4711);
    memcpy(quoted, packet + ETHERNET, sizeof(quoted));
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(length, ETHERNET + 20 + 8 + 28);
    assert_int_equal(packet[0], 0xbb);
    assert_int_equal(packet[6], 0xaa);
    assert_int_equal(fold(sum_of(packet + ETHERNET, 20, 0)), 0);
    assert_int_equal(packet[23], IPPROTO_ICMP);
    assert_memory_equal(packet + 30, "\x0a\x02\x00\x01", 4);
    assert_int_equal(packet[34], 3);
    assert_int_equal(packet[35], 4);
    assert_int_equal(get_u16(40), MTU);
    assert_int_equal(fold(sum_of(packet + 34, 8 + 28, 0)), 0);
    assert_memory_equal(packet + 42, quoted, sizeof(quoted));
    assert_int_equal(counters().too_big, 1);
    assert_int_equal(liveness_of(1).forwarded_packets, 0);
    /* As large as allowed, or one that may be fragmented, goes on. */
    ipv4("10.3.7.7", IPPROTO_UDP, MTU, true);
    assert_int_equal(enter(), REDIRECT);
    ipv4("10.3.7.7", IPPROTO_UDP, MTU + 1, false);
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(liveness_of(1).forwarded_packets, 2);
}

static void what_passes_through_gets_new_outer_addresses(void **state) {
    (void)state;
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    wrap("10.1.2.2", PORT);
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(length, ETHERNET + OUTER + 100);
    assert_memory_equal(packet + 26, "\x0a\x01\x01\x01\x0a\x01\x01\x02", 8);
    assert_int_equal(fold(sum_of(packet + ETHERNET, 20, 0)), 0);
    assert_int_equal(packet[22], 1);
    assert_int_equal(packet[INNER + 8], TTL - 1);
    assert_int_equal(fold(sum_of(packet + INNER, 20, 0)), 0);
    assert_int_equal(counters().relayed, 1);
    assert_int_equal(liveness_of(1).forwarded_packets, 1);
    assert_int_equal(liveness_of(1).forwarded_bytes, 100);
}

static void it_goes_back_only_when_nobody_else_is_left(void **state) {
    (void)state;
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    wrap("10.1.1.2", PORT);
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(liveness_of(2).forwarded_packets, 1);
    set_neighbour(2, "10.1.2.2", ALLOWED + 1);
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    wrap("10.1.1.2", PORT);
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(liveness_of(1).forwarded_packets, 1);
    assert_int_equal(counters().detours, 2);
}

/* Everything that is not plainly a neighbour's packet to somebody else. */
static void the_rest_goes_to_the_device(void **state) {
    static const struct {
        const char *from, *to;
        uint16_t port;
        uint8_t hops;
        size_t bytes;
    } cases[] = {
        {"10.9.9.9", "10.3.7.7", PORT, TTL, 100}, /* a stranger */
        {"10.1.2.2", "10.2.0.1", PORT, TTL, 100}, /* for this node */
        {"10.1.2.2", "10.8.0.1", PORT, TTL, 100}, /* nobody's */
        {"10.1.2.2", "10.3.7.7", 4789, TTL, 100}, /* another's VXLAN */
        {"10.1.2.2", "10.3.7.7", PORT, 1, 100},   /* its last hop */
        {"10.1.2.2", "10.3.7.7", PORT, TTL, 1451} /* too large for the next link */
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t before[ROOM];
        ipv4(cases[i].to, IPPROTO_UDP, cases[i].bytes, true);
        packet[22] = cases[i].hops;
        wrap(cases[i].from, cases[i].port);
        memcpy(before, packet, sizeof(before));
        assert_int_equal(enter(), NEXT);
        assert_memory_equal(before, packet, length);
    }
    assert_int_equal(counters().relayed, 0);
}

static void sensors_signals_and_outer_packets_keep_the_kernels_routes(void **state) {
    (void)state;
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    put_u16(36, SENSOR_PORT);
    assert_int_equal(enter(), NEXT);
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    put_u16(34, SENSOR_PORT);
    assert_int_equal(run(skeleton->progs.overlay_originate), NEXT);
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    put_u16(34, CHART_SHIM_PORT);
    assert_int_equal(enter(), NEXT);
    ipv4("10.3.7.7", IPPROTO_TCP, 100, true);
    packet[14] = 0x47;
    assert_int_equal(enter(), NEXT);
    /* Somebody states a neighbour's address on the link as his own. */
    own("10.1.2.2", 32, OWNER);
    ipv4("10.1.2.2", IPPROTO_UDP, 100, true);
    assert_int_equal(run(skeleton->progs.overlay_originate), NEXT);
    assert_int_equal(counters().entered, 0);
}

/* A request to the routers takes the path of the data: in, one hop spent, unless a signal stands beside it. */
static void who_asks_by_quick_start_enters(void **state) {
    const uint8_t request[] = {25, 8, 11, 200, 1, 2, 3, 4}, signal[] = {CHART_IPV4_OPTION_TYPE, 8, 0, 0, 0, 0, 0, 0};
    (void)state;
    ipv4("10.3.7.7", IPPROTO_TCP, 100, true);
    packet[14] = 0x47;
    memcpy(packet + 34, request, sizeof(request));
    put_u16(24, 0);
    put_u16(24, fold(sum_of(packet + ETHERNET, 28, 0)));
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(packet[22], TTL - 1);
    assert_memory_equal(packet + 34, request, sizeof(request));
    ipv4("10.3.7.7", IPPROTO_TCP, 100, true);
    packet[14] = 0x49;
    memcpy(packet + 34, signal, sizeof(signal));
    memcpy(packet + 42, request, sizeof(request));
    assert_int_equal(enter(), NEXT);
    assert_int_equal(counters().entered, 1);
}

static void ipv6(size_t bytes) {
    memset(packet, 0, sizeof(packet));
    length = ETHERNET + bytes;
    memset(packet, 0xaa, 6);
    memset(packet + 6, 0xbb, 6);
    put_u16(12, 0x86dd);
    packet[14] = 0x60;
    put_u16(18, (uint16_t)(bytes - 40));
    packet[20] = IPPROTO_UDP;
    packet[21] = TTL;
    inet_pton(AF_INET6, "2001:db8:ffff::1", packet + 22);
    inet_pton(AF_INET6, "2001:db8::7", packet + 38);
}

static void ipv6_enters_and_is_answered_too(void **state) {
    uint8_t quoted[48];
    uint32_t sum;
    (void)state;
    ipv6(MTU);
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(packet[21], TTL - 1);
    assert_int_equal(liveness_of(1).forwarded_packets, 1);
    ipv6(MTU + 1);
    memcpy(quoted, packet + ETHERNET, sizeof(quoted));
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(length, ETHERNET + 40 + 8 + 48);
    assert_int_equal(packet[20], IPPROTO_ICMPV6);
    assert_int_equal(packet[54], 2);
    assert_int_equal(get_u16(60), MTU);
    assert_memory_equal(packet + 62, quoted, sizeof(quoted));
    sum = sum_of(packet + 22, 32, 0) + IPPROTO_ICMPV6 + 56;
    assert_int_equal(fold(sum_of(packet + 54, 56, sum)), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_packet_to_an_owner_goes_to_the_first_neighbour, set_up),
        cmocka_unit_test_setup(what_the_node_sends_itself_keeps_its_hops, set_up),
        cmocka_unit_test_setup(others_packets_take_the_kernels_way, set_up),
        cmocka_unit_test_setup(the_last_hop_is_the_kernels_to_refuse, set_up),
        cmocka_unit_test_setup(an_owner_without_next_hop_is_left_to_the_kernel, set_up),
        cmocka_unit_test_setup(nothing_is_taken_when_it_is_off, set_up),
        cmocka_unit_test_setup(as_many_unanswered_probes_as_allowed_are_no_failure, set_up),
        cmocka_unit_test_setup(one_more_moves_packets_to_the_next_and_they_stay_there, set_up),
        cmocka_unit_test_setup(patience_is_kept_however_many_are_unanswered, set_up),
        cmocka_unit_test_setup(the_first_stays_when_nobody_answers, set_up),
        cmocka_unit_test_setup(the_largest_segment_is_lowered_to_what_fits, set_up),
        cmocka_unit_test_setup(a_packet_that_does_not_fit_is_answered, set_up),
        cmocka_unit_test_setup(what_passes_through_gets_new_outer_addresses, set_up),
        cmocka_unit_test_setup(it_goes_back_only_when_nobody_else_is_left, set_up),
        cmocka_unit_test_setup(the_rest_goes_to_the_device, set_up),
        cmocka_unit_test_setup(sensors_signals_and_outer_packets_keep_the_kernels_routes, set_up),
        cmocka_unit_test_setup(who_asks_by_quick_start_enters, set_up),
        cmocka_unit_test_setup(ipv6_enters_and_is_answered_too, set_up),
    };
    skeleton = chart_overlay__open_and_load();
    if (!skeleton) {
        fprintf(stderr, "the program cannot be loaded: run as root\n");
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
