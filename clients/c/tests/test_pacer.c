/* When datagrams go, on a clock that the test moves. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include "clock.h"
#include "pacer.h"

#define MS 1000000ull
#define START (5 * CHART_NS_PER_S)

/* Sends whenever it may, waking `late_ns` after each due time; octets sent within a span. */
static uint64_t sent_within(struct chart_pacer *pacer, uint64_t from_ns, uint64_t span_ns, uint64_t late_ns) {
    uint64_t now_ns = from_ns, sent = 0;
    while (now_ns < from_ns + span_ns) {
        uint64_t wait_ns = chart_pacer_wait_ns(pacer, now_ns);
        if (wait_ns) {
            now_ns += wait_ns + late_ns;
            continue;
        }
        chart_pacer_sent(pacer, 1250, now_ns);
        sent += 1250;
    }
    return sent;
}

static void test_the_rate_is_kept(void **state) {
    (void)state;
    for (uint64_t rate_bps = 64000; rate_bps <= 1000000000; rate_bps *= 5) {
        struct chart_pacer pacer = {0};
        chart_pacer_rate(&pacer, rate_bps, START);
        uint64_t sent = sent_within(&pacer, START, 10 * CHART_NS_PER_S, 0);
        assert_in_range(sent, rate_bps / 8 * 10 - 1250, rate_bps / 8 * 10 + 1250);
    }
}

static void test_late_wakings_are_made_up_for_up_to_a_millisecond(void **state) {
    struct chart_pacer pacer = {0};
    (void)state;
    chart_pacer_rate(&pacer, 100000000, START); /* 100 us apart */
    uint64_t sent = sent_within(&pacer, START, CHART_NS_PER_S, 60000);
    assert_in_range(sent, 12500000 - 20000, 12500000 + 20000);
    /* 50 ms of nothing: at most a millisecond's worth goes at once. */
    uint64_t now_ns = pacer.due_ns + 50 * MS, burst = 0;
    while (!chart_pacer_wait_ns(&pacer, now_ns)) {
        chart_pacer_sent(&pacer, 1250, now_ns);
        burst++;
    }
    assert_in_range(burst, 10, 11);
}

static void test_a_new_rate_applies_to_the_present_wait(void **state) {
    struct chart_pacer pacer = {0};
    (void)state;
    chart_pacer_rate(&pacer, 1000000, START);
    assert_int_equal(chart_pacer_wait_ns(&pacer, START), 0);
    chart_pacer_sent(&pacer, 1250, START);
    uint64_t wait_ns = chart_pacer_wait_ns(&pacer, START);
    assert_in_range(wait_ns, 9 * MS, 10 * MS);
    chart_pacer_rate(&pacer, 10000000, START);
    assert_in_range(chart_pacer_wait_ns(&pacer, START), wait_ns / 10 - 1, wait_ns / 10 + 1);
    chart_pacer_rate(&pacer, 1000000, START);
    assert_in_range(chart_pacer_wait_ns(&pacer, START), wait_ns - 10, wait_ns + 10);
}

static void test_headers_count(void **state) {
    (void)state;
    assert_int_equal(chart_wire_octets(1400, 20, 1500), 1428);
    assert_int_equal(chart_wire_octets(1400, 40, 1500), 1448);
    assert_int_equal(chart_wire_octets(0, 20, 1500), 28);
    assert_int_equal(chart_wire_octets(1472, 20, 1500), 1500);
    /* 2008 octets in fragments of 1480 and 528, each with its header. */
    assert_int_equal(chart_wire_octets(2000, 20, 1500), 2048);
    assert_int_equal(chart_wire_octets(65000, 20, 1500), 65008 + 44 * 20);
    assert_int_equal(chart_wire_octets(2000, 20, 0), 2028);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_rate_is_kept),
        cmocka_unit_test(test_late_wakings_are_made_up_for_up_to_a_millisecond),
        cmocka_unit_test(test_a_new_rate_applies_to_the_present_wait),
        cmocka_unit_test(test_headers_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
