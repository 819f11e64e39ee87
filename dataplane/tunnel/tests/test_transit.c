/* Packets on their way: what has arrived, what a broken connection gives back, when something is stuck; and how much a
 * new connection may have on its way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "joining.h"
#include "resend.h"
#include "transit.h"

static void append(struct transit *transit, uint64_t sequence, uint64_t place) {
    struct queued_packet *packet = calloc(1, sizeof(*packet));
    packet->sequence = sequence;
    packet->place = place;
    transit_append(transit, packet);
}

static void expect_next(struct transit *transit, uint64_t sequence) {
    struct queued_packet *packet = transit_take(transit);
    assert_non_null(packet);
    assert_int_equal(packet->sequence, sequence);
    free(packet);
}

static void test_what_is_acknowledged_is_forgotten(void **state) {
    struct transit transit = {0};
    (void)state;
    append(&transit, 1, 100);
    append(&transit, 3, 250);
    append(&transit, 4, 300);
    transit_arrived(&transit, 99);
    assert_int_equal(transit.first->sequence, 1);
    /* A frame that arrived in part has not arrived. */
    transit_arrived(&transit, 299);
    expect_next(&transit, 4);
    assert_null(transit_take(&transit));
    append(&transit, 9, 400);
    transit_free(&transit);
    assert_null(transit.first);
    assert_null(transit.last);
}

static void test_packets_of_broken_connections_are_in_order(void **state) {
    struct transit again = {0}, one = {0}, other = {0};
    (void)state;
    append(&one, 2, 10);
    append(&one, 5, 20);
    append(&other, 1, 10);
    append(&other, 3, 20);
    append(&other, 7, 30);
    transit_merge(&again, &one);
    transit_merge(&again, &other);
    transit_merge(&again, &other);
    assert_null(other.first);
    for (size_t i = 0; i < 5; i++)
        expect_next(&again, (const uint64_t[]){1, 2, 3, 5, 7}[i]);
    assert_null(again.last);
}

static void test_patience(void **state) {
    (void)state;
    /* No shorter than delayed acknowledgements take; on a long path three round trips. */
    assert_int_equal(resend_patience_us(500), 100000);
    assert_int_equal(resend_patience_us(200000), 600000);
}

static void test_a_new_connection_grows_by_a_segment_per_round_trip(void **state) {
    struct joining joining = {.window_bytes = 10000, .mean_bytes = 10000, .rtt_us = 50000, .mss_bytes = 1000};
    (void)state;
    joining.since_us = 1000000;
    assert_int_equal(joining_bound(&joining, 1000000), 10000);
    assert_int_equal(joining_bound(&joining, 1049999), 10000);
    assert_int_equal(joining_bound(&joining, 1150000), 13000);
    /* The others have more room now. */
    joining.mean_bytes = 20000;
    assert_int_equal(joining_bound(&joining, 1150000), 20000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_acknowledged_is_forgotten),
        cmocka_unit_test(test_packets_of_broken_connections_are_in_order),
        cmocka_unit_test(test_patience),
        cmocka_unit_test(test_a_new_connection_grows_by_a_segment_per_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
