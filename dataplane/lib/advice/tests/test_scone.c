/* Signals and rates as the SCONE draft's table has them, packets by its format, and how often a flow is told. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <math.h>
#include <string.h>

#include "lib/advice/scone.h"

#define SECOND_NS 1000000000ull

/* The examples of "Rate Signals" with the digits that they have, and the signals beside them. */
static void rates_of_the_draft(void **state) {
    static const struct {
        double bps;
        double digit_bps;
        uint32_t signal;
    } rows[] = {{1e5, 0, 0},       {112e3, 1e3, 1},    {126e3, 1e3, 2},   {141e3, 1e3, 3},    {1e6, 0, 20},
                {1.12e6, 1e4, 21}, {10e6, 0, 40},      {11.2e6, 1e5, 41}, {100e6, 0, 60},     {112e6, 1e6, 61},
                {1e9, 0, 80},      {1.12e9, 1e7, 81},  {10e9, 0, 100},    {11.2e9, 1e8, 101}, {100e9, 0, 120},
                {112e9, 1e9, 121}, {199.5e9, 1e8, 126}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_true(fabs((double)chart_scone_rates[rows[i].signal] - rows[i].bps) <= rows[i].digit_bps / 2 + 1);
        assert_int_equal(chart_scone_encode(chart_scone_rates[rows[i].signal]), rows[i].signal);
    }
}

/* Against the formula in floating point: the greatest step that is not above the rate. */
static void every_step_is_a_floor(void **state) {
    (void)state;
    for (uint32_t n = 0; n <= CHART_SCONE_HIGHEST; n++) {
        double exact = 1e5 * pow(10, n / 20.0);
        uint64_t rate_bps = chart_scone_rates[n];
        assert_true(fabs((double)rate_bps - exact) <= 1 + exact * 1e-12);
        assert_int_equal(chart_scone_encode(rate_bps), n);
        assert_int_equal(chart_scone_encode(rate_bps + 1), n);
        assert_int_equal(chart_scone_encode(rate_bps - 1), n ? n - 1 : 0);
    }
}

static void rates_outside_of_the_scale(void **state) {
    (void)state;
    assert_int_equal(chart_scone_encode(0), 0);
    assert_int_equal(chart_scone_encode(99999), 0);
    assert_int_equal(chart_scone_encode(1000000000000ull), 126);
    assert_int_equal(chart_scone_encode(UINT64_MAX), 126);
}

/* Both versions, the reserved bit either way; short headers, other versions and one wrong bit are none. */
static void packets_are_told(void **state) {
    static const uint8_t low[] = {0x80, 0x6f, 0x7d, 0xc0, 0xfd}, high[] = {0xff, 0xef, 0x7d, 0xc0, 0xfd};
    (void)state;
    assert_true(chart_scone_is(low));
    assert_true(chart_scone_is(high));
    assert_int_equal(chart_scone_signal(low), 0);
    assert_int_equal(chart_scone_signal(high), CHART_SCONE_UNKNOWN);
    for (int bit = 0; bit < 8 * CHART_SCONE_OCTETS; bit++) {
        uint8_t changed[CHART_SCONE_OCTETS];
        /* All of the first octet but its highest bit, and the highest of the version. */
        int of_signal = (bit < 8 && bit != 7) || bit == 15;
        memcpy(changed, low, sizeof(changed));
        changed[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(chart_scone_is(changed), of_signal);
    }
    static const uint8_t quic_1[] = {0xc0, 0, 0, 0, 1};
    assert_false(chart_scone_is(quic_1));
}

static void every_signal_is_read_as_written(void **state) {
    (void)state;
    for (uint32_t reserved = 0; reserved <= 0x40; reserved += 0x40)
        for (uint32_t signal = 0; signal <= CHART_SCONE_UNKNOWN; signal++) {
            uint8_t data[] = {(uint8_t)(0xbf | reserved), 0xef, 0x7d, 0xc0, 0xfd};
            chart_scone_write(data, signal);
            assert_true(chart_scone_is(data));
            assert_int_equal(chart_scone_signal(data), signal);
            assert_int_equal(data[0] & 0xc0, 0x80 | reserved);
            assert_int_equal(data[0] & 0x3f, signal >> 1);
            assert_int_equal(data[1], signal & 1 ? 0xef : 0x6f);
        }
}

static void few_datagrams_of_a_period(void **state) {
    struct chart_scone_flow flow = {0};
    uint64_t now_ns = 5 * SECOND_NS;
    int written = 0;
    (void)state;
    for (int i = 0; i < 1000; i++)
        written += chart_scone_may_write(&flow, 40, now_ns + (uint64_t)i);
    assert_int_equal(written, CHART_SCONE_UPDATES);
    assert_false(chart_scone_may_write(&flow, 40, now_ns + CHART_SCONE_PERIOD_NS - 1));
    assert_true(chart_scone_may_write(&flow, 40, now_ns + CHART_SCONE_PERIOD_NS));
}

/* However many datagrams went before; advice that changes all the time goes once a second. */
static void changed_advice_goes_at_once(void **state) {
    struct chart_scone_flow flow = {0};
    uint64_t now_ns = 5 * SECOND_NS;
    int written = 0;
    (void)state;
    for (int i = 0; i < 100; i++)
        chart_scone_may_write(&flow, 40, now_ns);
    assert_true(chart_scone_may_write(&flow, 39, now_ns + SECOND_NS));
    assert_false(chart_scone_may_write(&flow, 39, now_ns + SECOND_NS));
    for (uint64_t i = 1; i <= 1000; i++)
        written += chart_scone_may_write(&flow, 20 + i % 2, now_ns + SECOND_NS + i * 10000000);
    assert_in_range(written, 9, 10);
}

static void grant_before_fair_rate(void **state) {
    const struct chart_link_advice link = {.fair_bps = 7, .fair_expires_ns = 100};
    (void)state;
    assert_int_equal(chart_advice_bps(&link, 5, 99), 5);
    assert_int_equal(chart_advice_bps(&link, 5, 100), 5);
    assert_int_equal(chart_advice_bps(&link, 0, 99), 7);
    assert_int_equal(chart_advice_bps(&link, 0, 100), 0);
}

/* The highest advice of the present period and the one before it; after two without any there is no limit. */
static void a_flow_may_send_the_highest_advice_of_two_periods(void **state) {
    const uint64_t period = CHART_SCONE_PERIOD_NS, begin = 5 * SECOND_NS;
    struct chart_scone_flow flow = {0};
    (void)state;
    assert_int_equal(chart_scone_limit_bps(&flow, begin), 0);
    chart_scone_note(&flow, 40, begin);
    assert_int_equal(chart_scone_limit_bps(&flow, begin), 10 * 1000000);
    chart_scone_note(&flow, 20, begin + SECOND_NS);
    assert_int_equal(chart_scone_limit_bps(&flow, begin + SECOND_NS), 10 * 1000000);
    chart_scone_note(&flow, 20, begin + period);
    assert_int_equal(chart_scone_limit_bps(&flow, begin + 2 * period - 1), 10 * 1000000);
    assert_int_equal(chart_scone_limit_bps(&flow, begin + 2 * period), 1000000);
    chart_scone_note(&flow, 0, begin + 2 * period);
    assert_int_equal(chart_scone_limit_bps(&flow, begin + 2 * period), 1000000);
    assert_int_equal(chart_scone_limit_bps(&flow, begin + 3 * period), 100000);
    assert_int_equal(chart_scone_limit_bps(&flow, begin + 4 * period), 0);
    /* What was before a pause counts no more. */
    chart_scone_note(&flow, 20, begin + 10 * period);
    assert_int_equal(chart_scone_limit_bps(&flow, begin + 10 * period), 1000000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_of_the_draft),
        cmocka_unit_test(every_step_is_a_floor),
        cmocka_unit_test(rates_outside_of_the_scale),
        cmocka_unit_test(packets_are_told),
        cmocka_unit_test(every_signal_is_read_as_written),
        cmocka_unit_test(few_datagrams_of_a_period),
        cmocka_unit_test(changed_advice_goes_at_once),
        cmocka_unit_test(grant_before_fair_rate),
        cmocka_unit_test(a_flow_may_send_the_highest_advice_of_two_periods),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
