/* What is due on a connection, what is counted, and how the system's programs are run. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "command.h"
#include "connection.h"
#include "counters.h"

static void test_each_state_has_its_limit(void **unused) {
    (void)unused;
    const struct connection_limits limits = {
        .connect_us = 10, .accept_us = 20, .idle_us = 30, .break_us = 40, .close_us = 50};
    static const struct {
        enum connection_state state;
        uint64_t limit_us;
        enum connection_due due;
    } cases[] = {
        {CONNECTION_HELD, 10, DUE_UNANSWERED}, {CONNECTION_ACCEPTING, 20, DUE_UNACCEPTED},
        {CONNECTION_OPEN, 30, DUE_IDLE},       {CONNECTION_BREAKING, 40, DUE_BROKEN},
        {CONNECTION_CLOSING, 50, DUE_CLOSED},  {CONNECTION_FREE, 60, DUE_NOTHING},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct connection connection = {.state = cases[i].state, .since_us = 1000};
        assert_int_equal(connection_due(&connection, &limits, 1000 + cases[i].limit_us - 1), DUE_NOTHING);
        assert_int_equal(connection_due(&connection, &limits, 1000 + cases[i].limit_us), cases[i].due);
        assert_int_equal(connection_due(&connection, &limits, 999), DUE_NOTHING);
    }
}

static void test_metrics_name_everything(void **unused) {
    (void)unused;
    const struct counters counters = {.taken = 3,
                                      .passed = {[PASSED_REFUSED] = 2},
                                      .resets = {[RESET_IDLE] = 4},
                                      .onward_bytes = 5,
                                      .back_bytes = 6,
                                      .open = 7};
    static const char *const lines[] = {
        "\nchart_proxy_connections_taken_total 3\n",         "\nchart_proxy_passed_total{reason=\"refused\"} 2\n",
        "\nchart_proxy_passed_total{reason=\"limit\"} 0",    "\nchart_proxy_resets_total{reason=\"idle\"} 4\n",
        "\nchart_proxy_bytes_total{direction=\"onward\"} 5", "\nchart_proxy_bytes_total{direction=\"back\"} 6",
        "\nchart_proxy_connections{state=\"open\"} 7",       "\nchart_proxy_connections_limit 9\n",
    };
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    counters_write(&counters, 9, out);
    fclose(out);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (!strstr(text, lines[i]))
            fail_msg("%s is not in %s", lines[i], text);
    free(text);
}

static void test_programs_get_input_and_their_complaint_is_kept(void **unused) {
    (void)unused;
    char said[16];
    char *const echo[] = {"sh", "-c", "cat >&2; exit 3", NULL}, *const none[] = {"no-such-program", NULL};
    assert_int_equal(command_run(echo, "one\ntwo\n", said, sizeof(said)), 3);
    assert_string_equal(said, "one two");
    assert_int_equal(command_run(echo, "longer than there is room for", said, sizeof(said)), 3);
    assert_string_equal(said, "longer than the");
    assert_int_equal(command_run(none, "", said, sizeof(said)), -ENOENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_state_has_its_limit),
        cmocka_unit_test(test_metrics_name_everything),
        cmocka_unit_test(test_programs_get_input_and_their_complaint_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
