/* The token bucket: the rate over time, how much is made up for, no limit, another limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "shaper.h"

#define FRAME_BYTES 1000
/* A thousand frames per second. */
#define RATE_BPS (8ULL * 1000 * FRAME_BYTES)

/* Sends frames as they may go until a time; returns how many. */
static int send_until(struct shaper *shaper, uint64_t *now_us, uint64_t until_us) {
    int sent = 0;
    while (*now_us < until_us) {
        if (shaper_open(shaper, *now_us)) {
            shaper_spend(shaper, FRAME_BYTES);
            sent++;
            continue;
        }
        uint64_t next_us = shaper_open_at_us(shaper, *now_us);
        assert_true(next_us > *now_us);
        *now_us = next_us;
    }
    return sent;
}

static void test_rate_is_kept(void **unused) {
    (void)unused;
    struct shaper shaper = {0};
    uint64_t now_us = 5000000;
    shaper_set(&shaper, RATE_BPS, now_us);
    assert_in_range(send_until(&shaper, &now_us, 15000000), 9990, 10005);
}

static void test_a_fifth_of_a_second_is_made_up_for(void **unused) {
    (void)unused;
    struct shaper shaper = {0};
    uint64_t now_us = 0;
    shaper_set(&shaper, RATE_BPS, now_us);
    (void)send_until(&shaper, &now_us, 1000000);
    now_us = 1050000;
    assert_in_range(send_until(&shaper, &now_us, 2000000), 995, 1005);
    now_us = 12000000;
    assert_in_range(send_until(&shaper, &now_us, 13000000), 1195, 1205);
}

static void test_no_limit_is_always_open(void **unused) {
    (void)unused;
    struct shaper shaper = {0};
    for (int i = 0; i < 1000; i++) {
        assert_true(shaper_open(&shaper, 1));
        shaper_spend(&shaper, FRAME_BYTES);
    }
    assert_int_equal(shaper_open_at_us(&shaper, 7), 7);
    shaper_set(&shaper, RATE_BPS, 1);
    assert_false(shaper_open(&shaper, 1));
    shaper_set(&shaper, 0, 2);
    assert_true(shaper_open(&shaper, 2));
}

static void test_another_rate_holds_at_once(void **unused) {
    (void)unused;
    struct shaper shaper = {0};
    uint64_t now_us = 0;
    shaper_set(&shaper, RATE_BPS, now_us);
    (void)send_until(&shaper, &now_us, 1000000);
    shaper_set(&shaper, RATE_BPS / 4, now_us);
    assert_in_range(send_until(&shaper, &now_us, 2000000), 245, 255);
    /* What was earned at a high rate is no more than the depth of a low one. */
    shaper_set(&shaper, 100 * RATE_BPS, now_us);
    now_us += 10000000;
    assert_true(shaper_open(&shaper, now_us));
    shaper_set(&shaper, RATE_BPS, now_us);
    uint64_t until_us = now_us + 1000000;
    assert_in_range(send_until(&shaper, &now_us, until_us), 1195, 1205);
    /* The same once more is no new beginning. */
    double tokens_bytes = shaper.tokens_bytes;
    shaper_set(&shaper, RATE_BPS, now_us + 1000);
    assert_true(shaper.tokens_bytes == tokens_bytes);
}

static void test_slow_and_fast_rates(void **unused) {
    (void)unused;
    static const uint64_t RATES[] = {1, 8000, SHAPER_RATE_MAX_BPS};
    for (int i = 0; i < 3; i++) {
        struct shaper shaper = {0};
        shaper_set(&shaper, RATES[i], 100);
        shaper_spend(&shaper, FRAME_BYTES);
        uint64_t next_us = shaper_open_at_us(&shaper, 100);
        assert_true(next_us > 100);
        assert_true(shaper_open(&shaper, next_us + 1));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate_is_kept),
        cmocka_unit_test(test_a_fifth_of_a_second_is_made_up_for),
        cmocka_unit_test(test_no_limit_is_always_open),
        cmocka_unit_test(test_another_rate_holds_at_once),
        cmocka_unit_test(test_slow_and_fast_rates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
