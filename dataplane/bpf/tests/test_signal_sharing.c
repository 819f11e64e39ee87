/* Who gets what of a link in band, in the kernel's test run: what is available is shared by users, each user's part by
 * its flows; what is guaranteed goes to the higher pre-emption priority. Skipped without root. */
#define _GNU_SOURCE
#include "signal_cases.h"

#include <stdlib.h>

static const uint8_t other[4] = {192, 0, 2, 9}, third[4] = {192, 0, 2, 77};

/* What the link leaves of a request for all there is, bits per second, of the flow's next packet. */
static uint64_t available(const uint8_t *from, uint16_t port, uint8_t flags) {
    struct chart_parsed parsed;

    sent(from, server, port, PORT, flags, 0);
    cloned(from, server, port, PORT, flags, 0, &parsed);
    assert_int_equal(parsed.signal.qos.status, CHART_REQUEST);
    return chart_rate_decode(parsed.signal.qos.available_rate);
}

static uint64_t rounded(uint64_t bps) {
    return chart_rate_decode(chart_rate_encode(bps));
}

static void assert_load(uint32_t users, uint32_t flows) {
    struct signal_load load;

    assert_int_equal(signal_tables_load(run.tables, LOOPBACK, &load), 0);
    assert_int_equal(load.users, users);
    assert_int_equal(load.flows, flows);
}

/* Every hold of the test before is over. */
static int alone(void **state) {
    struct signal_load load;

    each(state);
    as_origin(0, LINK_BPS * 10);
    policy(false, 500000, 500000);
    for (int i = 0; i < 100; i++) {
        if (signal_tables_load(run.tables, LOOPBACK, &load))
            return 1;
        if (!load.flows && !load.users && !load.held_bps)
            break;
        usleep(100000);
    }
    next_port += 100;
    return 0;
}

static void test_users_share_and_then_their_flows(void **state) {
    (void)state;
    assert_int_equal(available(client, next_port, SYN), rounded(LINK_BPS));
    assert_int_equal(available(client, next_port + 1, SYN), rounded(LINK_BPS / 2));
    assert_load(1, 2);
    assert_int_equal(available(other, next_port, SYN), rounded(LINK_BPS / 2));
    assert_load(2, 3);
    assert_int_equal(available(client, next_port + 2, SYN), rounded(LINK_BPS / 2 / 3));
    assert_int_equal(available(other, next_port + 1, SYN), rounded(LINK_BPS / 2 / 2));
    assert_int_equal(available(third, next_port, SYN), rounded(LINK_BPS / 3));
    assert_load(3, 6);
}

static void test_the_common_rate_is_that_of_a_user(void **state) {
    const struct signal_link without = {
        .ifindex = LOOPBACK, .header_bytes = ETHERNET, .explicit_bps = LINK_BPS, .guaranteed_bps = LINK_BPS / 2};
    struct signal_link link = {.ifindex = LOOPBACK,
                               .header_bytes = ETHERNET,
                               .explicit_bps = LINK_BPS,
                               .guaranteed_bps = LINK_BPS / 2,
                               .rate_bps = 30000000,
                               .rate_lease_us = 60000000};
    (void)state;
    assert_int_equal(signal_tables_link(run.tables, &link), 0);
    assert_int_equal(available(client, next_port, SYN), rounded(30000000));
    assert_int_equal(available(client, next_port + 1, SYN), rounded(15000000));
    assert_int_equal(available(other, next_port, SYN), rounded(30000000));
    /* A newcomer takes no more than its part of what there is. */
    assert_int_equal(available(third, next_port, SYN), rounded(30000000));
    link.rate_bps = 40000000;
    assert_int_equal(signal_tables_link(run.tables, &link), 0);
    assert_int_equal(available(third, next_port + 1, SYN), rounded(LINK_BPS / 3 / 2));
    assert_int_equal(signal_tables_link(run.tables, &without), 0);
}

static void test_who_is_gone_leaves_its_part(void **state) {
    (void)state;
    available(client, next_port, SYN);
    available(other, next_port, SYN);
    available(other, next_port + 1, SYN);
    assert_load(2, 3);
    usleep(1600000);
    assert_load(0, 0);
    assert_int_equal(available(other, next_port + 2, SYN), rounded(LINK_BPS));
    assert_load(1, 1);
}

static void test_the_user_is_whom_an_authorisation_names(void **state) {
    struct signal_authorisation receivers = {.available_bps = LINK_BPS * 2, .services = 0xf};
    (void)state;
    decide_parse_prefix("198.51.100.0/24", &receivers.prefix);
    assert_int_equal(signal_tables_authorisations(run.tables, &receivers, 1, 1), 0);
    assert_int_equal(available(client, next_port, SYN), rounded(LINK_BPS));
    assert_int_equal(available(other, next_port, SYN), rounded(LINK_BPS / 2));
    assert_int_equal(available(third, next_port, SYN), rounded(LINK_BPS / 3));
    assert_load(1, 3);
}

static void test_a_flow_that_asks_for_no_share_does_not_count(void **state) {
    struct chart_parsed parsed;
    (void)state;
    as_origin(10000000, 0);
    sent(client, server, next_port, PORT, SYN, 0);
    cloned(client, server, next_port, PORT, SYN, 0, &parsed);
    assert_load(0, 0);
    as_origin(0, LINK_BPS * 10);
    assert_int_equal(available(other, next_port, SYN), rounded(LINK_BPS - 10000000));
    assert_load(1, 1);
}

/* What the link leaves of a request that passes through this element. */
static uint64_t passed_on(const uint8_t *from, uint16_t port, uint8_t status) {
    struct chart_qos qos = qos_of(status, 0, LINK_BPS * 10);
    struct chart_parsed parsed;
    struct frame frame = received(from, server, port, PORT, &qos, UPSTREAM);

    assert_int_equal(frame.verdict, TCX_NEXT_VERDICT);
    assert_int_equal(chart_ipv4_parse(&parsed, frame.octets + ETHERNET, frame.length - ETHERNET), CHART_QOS_OK);
    return chart_rate_decode(parsed.signal.qos.available_rate);
}

static void test_users_share_where_their_flows_pass_through(void **state) {
    (void)state;
    signal_run_path(&run, false, false);
    for (uint16_t n = 1; n <= 4; n++)
        assert_int_equal(passed_on(client, next_port + n, CHART_REQUEST), rounded(LINK_BPS / n));
    assert_load(1, 4);
    assert_int_equal(passed_on(other, next_port, CHART_REQUEST), rounded(LINK_BPS / 2));
    assert_load(2, 5);
    for (uint16_t n = 1; n <= 4; n++)
        assert_int_equal(passed_on(client, next_port + n, CHART_RENEGOTIATE), rounded(LINK_BPS / 2 / 4));
    assert_load(2, 5);
}

/* GR of a flow's signal after it passed through this element, bits per second; nothing is ever promised twice. */
static uint64_t guaranteed(uint16_t port, uint8_t status, uint64_t asked_bps, uint8_t priority) {
    struct chart_qos qos = qos_of(status, asked_bps, 0);
    struct chart_parsed parsed;
    struct frame frame;

    qos.preemption_priority = priority;
    frame = received(client, server, port, PORT, &qos, UPSTREAM);
    assert_int_equal(frame.verdict, TCX_NEXT_VERDICT);
    assert_int_equal(chart_ipv4_parse(&parsed, frame.octets + ETHERNET, frame.length - ETHERNET), CHART_QOS_OK);
    assert_true(held(&(uint32_t){0}) <= LINK_BPS / 2);
    return chart_rate_decode(parsed.signal.qos.guaranteed_rate);
}

/* Rates travel in steps of a 512th. */
static void assert_about(uint64_t bps, uint64_t wanted_bps) {
    assert_in_range(bps + 100000, wanted_bps, wanted_bps + 200000);
}

static void test_the_higher_priority_takes_from_the_lower(void **state) {
    const uint64_t all = LINK_BPS / 2, part = 20000000, rest = all - part;
    uint16_t low = next_port, high = next_port + 1, late = next_port + 2;
    uint64_t before = signal_run_count(&run, CHART_COUNT_PREEMPTED);
    (void)state;
    signal_run_path(&run, false, false);
    assert_about(guaranteed(low, CHART_REQUEST, all, 0), all);
    assert_about(guaranteed(low, CHART_CONFIRM, all, 0), all);
    /* Nobody is told yet, so nothing is free. */
    assert_about(guaranteed(high, CHART_REQUEST, part, 100), 0);
    assert_about(guaranteed(low, CHART_RENEGOTIATE, all, 0), rest);
    assert_int_equal(signal_run_count(&run, CHART_COUNT_PREEMPTED) - before, 1);
    /* What became free is for who wanted it, and is taken from the others once. */
    assert_about(guaranteed(late, CHART_REQUEST, part, 15), 0);
    assert_about(guaranteed(low, CHART_RENEGOTIATE, all, 0), rest);
    assert_about(guaranteed(low, CHART_CONFIRM, rest, 0), rest);
    assert_about(guaranteed(high, CHART_REQUEST, part, 100), part);
    assert_about(guaranteed(high, CHART_CONFIRM, part, 100), part);
    assert_about(guaranteed(low, CHART_RENEGOTIATE, all, 0), rest);
    assert_int_equal(signal_run_count(&run, CHART_COUNT_PREEMPTED) - before, 1);
    /* It gets back what it lost. */
    guaranteed(high, CHART_CLOSE, 0, 100);
    assert_about(guaranteed(low, CHART_RENEGOTIATE, all, 0), all);
}

static void test_equal_priorities_take_nothing_from_each_other(void **state) {
    const uint64_t all = LINK_BPS / 2;
    (void)state;
    signal_run_path(&run, false, false);
    assert_about(guaranteed(next_port, CHART_REQUEST, all, 100), all);
    assert_about(guaranteed(next_port + 1, CHART_REQUEST, all, 111), 0); /* of the same class */
    assert_about(guaranteed(next_port, CHART_RENEGOTIATE, all, 100), all);
}

static void test_a_want_ends_with_its_hold(void **state) {
    const uint64_t all = LINK_BPS / 2;
    (void)state;
    signal_run_path(&run, false, false);
    assert_about(guaranteed(next_port, CHART_REQUEST, all, 0), all);
    assert_about(guaranteed(next_port + 1, CHART_REQUEST, all, 200), 0);
    usleep(1600000);
    assert_about(guaranteed(next_port, CHART_REQUEST, all, 0), all);
}

/* A namespace of its own, in which the way to the server leads through the loopback device. */
static int open_with_a_route(void **state) {
    if (unshare(CLONE_NEWNET) ||
        system("ip link set lo up && ip route add 198.51.100.0/24 dev lo && sysctl -qw net.ipv4.conf.all.forwarding=1"))
        return 1;
    return open_run(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_users_share_and_then_their_flows, alone),
        cmocka_unit_test_setup(test_the_common_rate_is_that_of_a_user, alone),
        cmocka_unit_test_setup(test_who_is_gone_leaves_its_part, alone),
        cmocka_unit_test_setup(test_the_user_is_whom_an_authorisation_names, alone),
        cmocka_unit_test_setup(test_a_flow_that_asks_for_no_share_does_not_count, alone),
        cmocka_unit_test_setup(test_users_share_where_their_flows_pass_through, alone),
        cmocka_unit_test_setup(test_the_higher_priority_takes_from_the_lower, alone),
        cmocka_unit_test_setup(test_equal_priorities_take_nothing_from_each_other, alone),
        cmocka_unit_test_setup(test_a_want_ends_with_its_hold, alone),
    };

    return geteuid() == 0 ? cmocka_run_group_tests(tests, open_with_a_route, close_run) : skipped();
}
