/* Quick-Start's rates, nonce and approvals as RFC 4782 has them. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <string.h>

#include "lib/advice/quick_start_host.h"

#define MBPS 1000000ull
#define INTERVAL CHART_QS_INTERVAL_NS
#define ALL_BITS 0x3fffffffu

/* Table 1. */
static void rates_of_the_table(void **state) {
    static const uint64_t kbps[] = {0,     80,    160,   320,   640,    1280,   2560,   5120,
                                    10240, 20480, 40960, 81920, 163840, 327680, 655360, 1310720};
    (void)state;
    for (uint32_t n = 0; n <= CHART_QS_RATE_MAX; n++) {
        assert_int_equal(chart_qs_bps(n), kbps[n] * 1000);
        assert_int_equal(chart_qs_encode(kbps[n] * 1000), n);
        assert_int_equal(chart_qs_encode(kbps[n] * 1000 + 1), n);
        if (n)
            assert_int_equal(chart_qs_encode(kbps[n] * 1000 - 1), n - 1);
    }
    assert_int_equal(chart_qs_encode(79999), 0);
    assert_int_equal(chart_qs_encode(UINT64_MAX), CHART_QS_RATE_MAX);
}

/* Figures 3 and 4: requests and reports of both families, and what is none. */
static void options_are_told(void **state) {
    uint8_t ipv4[] = {25, 8, 0x0b, 77, 0, 0, 0, 0}, ipv6[] = {0x26, 6, 0x0b, 77, 0, 0, 0, 0};
    (void)state;
    assert_int_equal(chart_qs_kind(ipv4, 0), CHART_QS_REQUEST);
    assert_int_equal(chart_qs_kind(ipv6, 1), CHART_QS_REQUEST);
    assert_int_equal(chart_qs_kind(ipv4, 1), CHART_QS_NONE);
    assert_int_equal(chart_qs_kind(ipv6, 0), CHART_QS_NONE);
    for (int function = 1; function <= 15; function++) {
        ipv4[2] = (uint8_t)(function << 4 | 11);
        assert_int_equal(chart_qs_kind(ipv4, 0), CHART_QS_OTHER);
    }
    ipv4[2] = 0;
    assert_int_equal(chart_qs_kind(ipv4, 0), CHART_QS_OTHER);
    ipv4[2] = 11;
    ipv4[1] = 7;
    assert_int_equal(chart_qs_kind(ipv4, 0), CHART_QS_NONE);
}

static void an_approved_request_loses_a_hop_only(void **state) {
    uint8_t option[] = {25, 8, 0x0b, 0, 0x12, 0x34, 0x56, 0x7b};
    (void)state;
    chart_qs_approve(option, 11, 1, ALL_BITS);
    /* QS TTL is modulo 256. */
    assert_memory_equal(option, ((uint8_t[]){25, 8, 0x0b, 255, 0x12, 0x34, 0x56, 0x7b}), 8);
    chart_qs_approve(option, 15, 0, ALL_BITS);
    assert_memory_equal(option, ((uint8_t[]){25, 8, 0x0b, 255, 0x12, 0x34, 0x56, 0x7b}), 8);
}

/* Section 3.4: from K to L the fields of K to L + 1 are random, all others as they were, the reserved bits too. */
static void the_nonce_changes_where_the_rate_does(void **state) {
    (void)state;
    for (uint32_t asked = 1; asked <= CHART_QS_RATE_MAX; asked++)
        for (uint32_t rate = 1; rate < asked; rate++) {
            uint8_t option[] = {25, 8, (uint8_t)asked, 9, 0, 0, 0, 3};
            chart_qs_approve(option, rate, 1, ALL_BITS);
            uint32_t nonce = chart_qs_nonce(option);
            for (uint32_t step = 1; step <= 15; step++)
                assert_int_equal(nonce >> (2 * step - 2) & 3, step > rate && step <= asked ? 3 : 0);
            assert_int_equal(chart_qs_rate(option), rate);
            assert_int_equal(option[7] & 3, 3);
        }
}

/* Who reports a rate higher by n steps than it received guesses n fields: one in 4^n gets through. */
static void who_lies_is_found_out(void **state) {
    uint32_t accepted = 0, seed = 1;
    (void)state;
    for (int i = 0; i < 160000; i++) {
        uint8_t option[] = {25, 8, 12, 9, 0, 0, 0, 0};
        seed = seed * 1664525u + 1013904223u;
        uint32_t sent = seed >> 2;
        chart_qs_put_nonce(option, sent);
        seed = seed * 1664525u + 1013904223u;
        chart_qs_approve(option, 10, 1, seed >> 2);
        accepted += (chart_qs_nonce(option) & ((1u << 24) - 1)) == (sent & ((1u << 24) - 1));
    }
    /* Two steps: 1 in 16, of 160,000 within five deviations. */
    assert_true(accepted > 10000 - 5 * 97 && accepted < 10000 + 5 * 97);
}

static void a_refused_request_has_nothing_left(void **state) {
    uint8_t option[] = {25, 8, 0x0b, 77, 0xff, 0xff, 0xff, 0xff};
    (void)state;
    chart_qs_refuse(option);
    assert_memory_equal(option, ((uint8_t[]){25, 8, 0, 0, 0, 0, 0, 3}), 8);
}

/* A hundred requests at once: together no more than is spare, in two intervals; then there is some again. */
static void approvals_count(void **state) {
    struct chart_qs_approvals approvals = {};
    uint64_t now_ns = 1000 * INTERVAL, total = 0;
    (void)state;
    for (int i = 0; i < 100; i++)
        total += chart_qs_bps(chart_qs_take(&approvals, 11, 90 * MBPS, now_ns + (uint64_t)i));
    /* 81.92, then what 8.08 Mb/s hold: 5.12, 2.56, 0.32, 0.08. */
    assert_int_equal(total, 90 * MBPS - 90 * MBPS % 80000);
    assert_int_equal(chart_qs_take(&approvals, 11, 90 * MBPS, now_ns + INTERVAL), 0);
    assert_int_equal(chart_qs_take(&approvals, 11, 90 * MBPS, now_ns + 2 * INTERVAL), 11);
    /* A day later nothing counts any more. */
    assert_int_equal(chart_qs_take(&approvals, 11, 90 * MBPS, now_ns + 1000000 * INTERVAL), 11);
    assert_int_equal(chart_qs_take(&approvals, 1, 0, now_ns + 2000000 * INTERVAL), 0);
}

static void a_busy_link_has_no_spare_rate(void **state) {
    (void)state;
    assert_int_equal(chart_qs_spare_bps(100 * MBPS, 900, 0), 90 * MBPS);
    assert_int_equal(chart_qs_spare_bps(100 * MBPS, 900, 60 * MBPS), 30 * MBPS);
    assert_int_equal(chart_qs_spare_bps(100 * MBPS, 900, 90 * MBPS), 0);
    assert_int_equal(chart_qs_spare_bps(100 * MBPS, 900, 200 * MBPS), 0);
    assert_int_equal(chart_qs_spare_bps(0, 900, 0), 0);
}

/* What comes back is believed when every router took part, none raised the rate and the nonce was not guessed. */
static void responses_are_checked(void **state) {
    const struct chart_qs_asked asked = {.nonce = 0x2fedcba9, .rate = 11, .ttl_difference = (uint8_t)(64 - 200)};
    uint8_t request[CHART_QS_OCTETS] = {CHART_QS_IPV4, CHART_QS_IPV4_LENGTH, 11, 200, 0, 0, 0, 3};
    uint8_t response[CHART_QS_TCP_OCTETS], forged[CHART_QS_TCP_OCTETS];
    (void)state;
    chart_qs_put_nonce(request, asked.nonce);
    for (int hop = 0; hop < 3; hop++)
        chart_qs_approve(request, hop == 1 ? 9 : 11, 1, 0);
    chart_qs_respond(response, request, 64 - 3);
    assert_int_equal(response[0], CHART_QS_TCP_KIND);
    assert_int_equal(response[1], CHART_QS_TCP_OCTETS);
    assert_int_equal(response[7] & 3, 0);
    assert_int_equal(chart_qs_rate(response), 9);
    assert_int_equal(chart_qs_check(response, &asked), CHART_QS_VALID);
    memcpy(forged, response, sizeof(forged));
    forged[3]++;
    assert_int_equal(chart_qs_check(forged, &asked), CHART_QS_INVALID);
    memcpy(forged, response, sizeof(forged));
    forged[2] = 12;
    assert_int_equal(chart_qs_check(forged, &asked), CHART_QS_INVALID);
    forged[2] = 10;
    assert_int_equal(chart_qs_check(forged, &asked), CHART_QS_LIE);
    forged[2] = 4;
    assert_int_equal(chart_qs_check(forged, &asked), CHART_QS_VALID);
}

/* 81.92 Mb/s over 200 ms are 1,365 segments of 1,500 octets. */
static void a_rate_is_a_window(void **state) {
    (void)state;
    assert_int_equal(chart_qs_window(81920000, 200000000, 1500), 1365);
    assert_int_equal(chart_qs_window(80000, 1000000, 1500), 0);
    assert_int_equal(chart_qs_window(UINT64_MAX / 8, 3000000000ull, 0), 0);
}

/* A SYN that a link lost costs ten seconds without requests; a box that drops options soon is asked no more. */
static void pauses_grow_while_it_goes_on(void **state) {
    const uint64_t second = 1000000000;
    const uint64_t pauses[] = {10, 20, 40, 80, 160, 320, 600, 600};
    struct chart_qs_dropper dropper = {};
    uint64_t now_ns = 77 * second;
    (void)state;
    for (size_t i = 0; i < sizeof(pauses) / sizeof(pauses[0]); i++) {
        chart_qs_unanswered(&dropper, now_ns);
        assert_int_equal(dropper.until_ns, now_ns + pauses[i] * second);
        now_ns = dropper.until_ns + second;
    }
    now_ns = dropper.until_ns + 600 * second;
    chart_qs_unanswered(&dropper, now_ns);
    assert_int_equal(dropper.until_ns, now_ns + 10 * second);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_of_the_table),
        cmocka_unit_test(options_are_told),
        cmocka_unit_test(an_approved_request_loses_a_hop_only),
        cmocka_unit_test(the_nonce_changes_where_the_rate_does),
        cmocka_unit_test(who_lies_is_found_out),
        cmocka_unit_test(a_refused_request_has_nothing_left),
        cmocka_unit_test(approvals_count),
        cmocka_unit_test(a_busy_link_has_no_spare_rate),
        cmocka_unit_test(responses_are_checked),
        cmocka_unit_test(a_rate_is_a_window),
        cmocka_unit_test(pauses_grow_while_it_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
