/* Marking packets, pacing them, and when an application is too slow. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "event.h"
#include "guard.h"
#include "mark.h"
#include "pacer.h"

/* RFC 1071 over the header: 0xffff when its checksum is right. */
static uint16_t sum(const uint8_t *header) {
    uint32_t total = 0;
    for (size_t i = 0; i < 20; i += 2)
        total += (uint32_t)(header[i] << 8 | header[i + 1]);
    while (total >> 16)
        total = (total & 0xffff) + (total >> 16);
    return (uint16_t)total;
}

static void set_checksum(uint8_t *header) {
    header[10] = header[11] = 0;
    uint16_t checksum = (uint16_t)~sum(header);
    header[10] = (uint8_t)(checksum >> 8);
    header[11] = (uint8_t)checksum;
}

static void test_a_mark_keeps_the_checksum_right(void **unused) {
    (void)unused;
    for (unsigned before = 0; before < 256; before++) {
        for (unsigned value = 0; value < 256; value++) {
            uint8_t header[20] = {0x45, (uint8_t)before, 0, 20, 0x12, 0x34, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0,
                                  2};
            set_checksum(header);
            assert_int_equal(mark_packet(header, sizeof(header), value), 0);
            assert_int_equal(sum(header), 0xffff);
            assert_int_equal(header[1] >> 2, value >> 2);
            unsigned ecn = before & 3U;
            assert_int_equal(header[1] & 3U, (value & 3U) == ITM_MARK_CE && ecn ? ITM_MARK_CE : ecn);
        }
    }
}

static void test_a_mark_of_ipv6_leaves_its_flow_label(void **unused) {
    (void)unused;
    uint8_t header[40] = {0x60, 0x1a, 0xbc, 0xde}; /* traffic class 0x01: ECT(1) */
    assert_int_equal(mark_packet(header, sizeof(header), 46 << 2 | ITM_MARK_CE), 0);
    assert_int_equal(header[0], 0x6b);
    assert_int_equal(header[1], 0xba);
    assert_int_equal(header[2], 0xbc);
    assert_int_equal(header[3], 0xde);
    assert_int_equal(mark_packet(header, 39, 0), -EBADMSG);
    header[0] = 0x20;
    assert_int_equal(mark_packet(header, sizeof(header), 0), -EBADMSG);
}

static char order[16];

static void go(void *context, const uint8_t *packet, size_t bytes, const struct offload *offload) {
    (void)context;
    assert_int_equal(bytes, 1);
    assert_null(offload);
    order[strlen(order)] = (char)packet[0];
}

static void test_paced_packets_go_when_they_are_due(void **unused) {
    (void)unused;
    static struct pacer pacer;
    static const struct {
        const char *packet;
        uint64_t due_us;
    } GIVEN[] = {{"d", 40}, {"b", 20}, {"c", 20}, {"a", 10}, {"e", 50}};
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(pacer_put(&pacer, (const uint8_t *)GIVEN[i].packet, 1, NULL, GIVEN[i].due_us), 0);
    assert_int_equal(pacer_run(&pacer, 9, go, NULL), 10);
    assert_string_equal(order, "");
    assert_int_equal(pacer_run(&pacer, 20, go, NULL), 40);
    assert_string_equal(order, "abc");
    assert_true(pacer_run(&pacer, 100, go, NULL) == PACER_NEVER_US);
    assert_string_equal(order, "abcde");
    assert_int_equal(pacer.bytes, 0);
}

static void test_the_pacer_is_bounded(void **unused) {
    (void)unused;
    static struct pacer pacer;
    static uint8_t large[PACER_BYTES / 2];
    const uint8_t packet = 0;
    for (int i = 0; i < PACER_PACKETS; i++)
        assert_int_equal(pacer_put(&pacer, &packet, 1, NULL, 1), 0);
    assert_int_equal(pacer_put(&pacer, &packet, 1, NULL, 1), -ENOSPC);
    pacer_free(&pacer);
    memset(&pacer, 0, sizeof(pacer));
    assert_int_equal(pacer_put(&pacer, large, sizeof(large), NULL, 1), 0);
    assert_int_equal(pacer_put(&pacer, large, sizeof(large), NULL, 1), 0);
    assert_int_equal(pacer_put(&pacer, &packet, 1, NULL, 1), -ENOSPC);
    assert_int_equal(pacer.unpaced_packets, 1);
    pacer_free(&pacer);
}

static void test_waits_are_bounded_in_sum(void **unused) {
    (void)unused;
    struct guard guard = {0};
    uint64_t now_us = 1000;
    /* 6 ms of every 20: less than half, for good. */
    for (int i = 0; i < 500; i++, now_us += 20000)
        assert_false(guard_too_slow(&guard, now_us, now_us + 6000));
    /* 12 ms of every 20: within a window it is over. */
    int answers = 0;
    while (!guard_too_slow(&guard, now_us, now_us + 12000)) {
        now_us += 20000;
        assert_true(++answers < 100);
    }
    assert_true(answers > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_mark_keeps_the_checksum_right),
        cmocka_unit_test(test_a_mark_of_ipv6_leaves_its_flow_label),
        cmocka_unit_test(test_paced_packets_go_when_they_are_due),
        cmocka_unit_test(test_the_pacer_is_bounded),
        cmocka_unit_test(test_waits_are_bounded_in_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
