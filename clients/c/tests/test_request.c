/* What can be said of an ask before the network is asked, and what a socket answers where no agent is. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "chart.h"

static void test_wrong_asks_are_named(void **state) {
    const struct {
        struct chart_ask ask;
        const char *word;
    } cases[] = {
        {{0}, "above 0"},
        {{.guaranteed_bps = CHART_ALL}, "must be a number"},
        {{.available_bps = 1, .burst_tolerance = 16}, "0 to 15"},
        {{.available_bps = 1, .service = 4}, "variable"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *complaint = chart_ask_complaint(&cases[i].ask);
        assert_non_null(complaint);
        assert_non_null(strstr(complaint, cases[i].word));
        assert_int_equal(chart_request(0, &cases[i].ask), -EINVAL);
    }
    const struct chart_ask right = {.available_bps = CHART_ALL, .service = CHART_SERVICE_VARIABLE};
    assert_null(chart_ask_complaint(&right));
    assert_int_equal(chart_request(-1, NULL), -EINVAL);
}

static void test_errors_are_negative_and_have_words(void **state) {
    const struct chart_ask ask = {.available_bps = 1000};
    struct chart_rate rate = {.bps = 7};
    struct chart_watch *watch = NULL;
    struct chart_paced *paced = NULL;
    const struct chart_paced_options silent = {0}, options = {.fallback_bps = 1000};
    (void)state;
    assert_int_equal(chart_request(-1, &ask), -EBADF);
    assert_int_equal(chart_get_rate(-1, &rate), -EBADF);
    assert_int_equal(rate.bps, 7);
    assert_int_equal(chart_watch_open(-1, &watch), -EBADF);
    assert_null(watch);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(chart_paced_open(fd, &silent, &paced), -EINVAL);
    assert_int_equal(chart_paced_open(fd, &options, &paced), -ENOTCONN);
    assert_null(paced);
    close(fd);
    assert_non_null(strstr(chart_error_text(-ENOPROTOOPT), "chart-agent"));
    assert_non_null(strstr(chart_error_text(-EBADF), "descriptor"));
    assert_string_equal(chart_state_name(CHART_STATE_LEGACY), "legacy");
    assert_string_equal(chart_state_name((enum chart_state)9), "unknown");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_asks_are_named),
        cmocka_unit_test(test_errors_are_negative_and_have_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
