/* The 16-bit rate: every word, and the examples of vectors.json. */
#include "support.h"

static void test_vectors(void **state) {
    const cJSON *vector;
    int seen = 0;

    (void)state;
    cJSON_ArrayForEach(vector, vectors("rates")) {
        uint16_t word = (uint16_t)strtoul(text_of(vector, "word"), NULL, 16);

        assert_int_equal(chart_rate_encode(number_of(vector, "rate_bps")), word);
        assert_int_equal(chart_rate_decode(word), number_of(vector, "decoded_bps"));
        seen++;
    }
    assert_in_range(seen, 15, 1000);
}

static void test_every_word(void **state) {
    uint32_t word;

    (void)state;
    for (word = 0; word <= 0xffff; word++) {
        uint64_t rate_bps = chart_rate_decode((uint16_t)word);
        uint32_t order = chart_rate_order((uint16_t)word);

        if (word & CHART_RATE_NONZERO)
            assert_int_equal(chart_rate_encode(rate_bps), word & CHART_RATE_MAX);
        else
            assert_int_equal(rate_bps, 0);
        assert_int_equal(order == 0, rate_bps == 0);
        assert_int_equal(chart_rate_decode(chart_rate_encode(rate_bps)), rate_bps);
    }
}

/* Walk the words as their rates are ordered: strictly rising, and a step is below 0.2 % (above the rounding to bit/s).
 */
static void test_order_and_error(void **state) {
    uint32_t exponent, mantissa, order = 0;
    uint64_t last_bps = 0;

    (void)state;
    for (exponent = 0; exponent < 32; exponent++) {
        for (mantissa = 0; mantissa < 512; mantissa++) {
            uint16_t word = (uint16_t)(CHART_RATE_NONZERO | (mantissa << 5) | exponent);
            uint64_t rate_bps = chart_rate_decode(word);

            assert_int_equal(chart_rate_order(word), ++order);
            assert_true(rate_bps > last_bps);
            if (last_bps) {
                /* The worst rate asked for lies just below the next word. */
                assert_int_equal(chart_rate_encode(rate_bps - 1), chart_rate_encode(last_bps));
                assert_true((double)(rate_bps - 1 - last_bps) < 0.002 * (double)(rate_bps - 1));
                assert_int_equal(chart_rate_min(word, chart_rate_encode(last_bps)), chart_rate_encode(last_bps));
                assert_int_equal(chart_rate_min(chart_rate_encode(last_bps), word), chart_rate_encode(last_bps));
            }
            last_bps = rate_bps;
        }
    }
    assert_int_equal(last_bps, CHART_RATE_MAX_BPS);
    assert_int_equal(chart_rate_min(0, CHART_RATE_MAX), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_every_word),
        cmocka_unit_test(test_order_and_error),
    };
    return cmocka_run_group_tests_name("qos_rate", tests, NULL, NULL);
}
