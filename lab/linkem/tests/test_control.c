/* Commands and their answers, without a socket. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <stdlib.h>
#include <string.h>

#include "control.h"

static struct link emulated;

static int begin(void **state) {
    (void)state;
    memset(&emulated, 0, sizeof(emulated));
    direction_start(&emulated.forward, 1, 0);
    direction_start(&emulated.reverse, 2, 0);
    return 0;
}

static int end(void **state) {
    (void)state;
    direction_stop(&emulated.forward);
    direction_stop(&emulated.reverse);
    return 0;
}

static void expect(const char *line, const char *fragment) {
    char *answer = control_answer(&emulated, line, 1000);
    if (!strstr(answer, fragment))
        fail_msg("%s was answered by %s, not by %s", line, answer, fragment);
    free(answer);
}

static void test_set_changes_what_it_names_in_the_direction_it_names(void **state) {
    (void)state;
    expect("{\"command\":\"set\",\"direction\":\"forward\",\"parameters\":{\"rate_bps\":5000000,\"loss\":0.1}}",
           "{\"ok\":true}");
    expect("{\"command\":\"set\",\"parameters\":{\"delay_us\":7000}}", "{\"ok\":true}");
    assert_int_equal(emulated.forward.parameters.rate_bps, 5000000);
    assert_int_equal(emulated.forward.parameters.delay_us, 7000);
    assert_true(emulated.forward.parameters.loss == 0.1);
    assert_int_equal(emulated.reverse.parameters.rate_bps, 0);
    assert_int_equal(emulated.reverse.parameters.delay_us, 7000);
}

static void test_refusals_name_the_member_and_change_nothing(void **state) {
    (void)state;
    expect("{\"command\":\"set\",\"parameters\":{\"delay_us\":5,\"loss\":1.5}}", "loss must be a number from 0 to 1");
    assert_int_equal(emulated.forward.parameters.delay_us, 0);
    expect("{\"command\":\"set\",\"parameters\":{\"rate_bps\":\"fast\"}}", "rate_bps must be a number");
    expect("{\"command\":\"set\",\"parameters\":{\"speed\":1}}", "no such parameter: speed");
    expect("{\"command\":\"set\",\"parameters\":{\"queue\":{\"red\":{\"minimum_packets\":9}}}}",
           "minimum_packets below");
    expect("{\"command\":\"set\",\"parameters\":{\"queue\":7}}", "queue must be");
    expect("{\"command\":\"set\",\"direction\":\"up\",\"parameters\":{}}", "direction must be");
    expect("{\"command\":\"fly\"}", "command must be");
    expect("nonsense", "not a JSON object");
}

static void test_queues_bursts_and_schedules_are_read(void **state) {
    (void)state;
    expect("{\"command\":\"set\",\"parameters\":{\"queue\":{\"packets\":50},\"burst\":{\"enter\":0.01,\"leave\":0.3},"
           "\"schedule\":{\"lost\":[1,5],\"period\":9}}}",
           "{\"ok\":true}");
    assert_int_equal(emulated.forward.parameters.queue.limit_packets, 50);
    assert_true(emulated.forward.parameters.burst.enabled);
    assert_true(emulated.forward.parameters.burst.loss_bad == 1);
    assert_int_equal(emulated.forward.parameters.schedule.lost[1], 5);
    expect("{\"command\":\"set\",\"parameters\":{\"queue\":\"default\",\"burst\":null,\"schedule\":null}}",
           "{\"ok\":true}");
    assert_false(emulated.forward.parameters.burst.enabled);
    assert_int_equal(emulated.forward.parameters.schedule.count, 0);
    assert_int_equal(emulated.forward.parameters.queue.limit_bytes, 48000);
}

static void test_outage_has_a_duration(void **state) {
    (void)state;
    expect("{\"command\":\"outage\",\"direction\":\"reverse\",\"duration_us\":2000}", "{\"ok\":true}");
    assert_true(emulated.reverse.parameters.outage);
    assert_false(emulated.forward.parameters.outage);
    assert_int_equal(emulated.reverse.outage_ends_ns, 1000 + 2000000);
    expect("{\"command\":\"outage\",\"duration_us\":-1}", "duration_us must be");
}

static void test_counters_and_parameters_are_told(void **state) {
    (void)state;
    expect("{\"command\":\"counters\"}", "\"dropped\":{\"loss\":{\"packets\":0,\"bytes\":0}");
    expect("{\"command\":\"get\"}", "\"queue\":{\"kind\":\"drop_tail\",\"default\":true");
    expect("{\"command\":\"link\",\"spin_us\":40}", "{\"ok\":true}");
    assert_int_equal(emulated.spin_ns, 40000);
    expect("{\"command\":\"reset\"}", "{\"ok\":true}");
    expect("{\"command\":\"quit\"}", "{\"ok\":true}");
    assert_true(emulated.stop);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_set_changes_what_it_names_in_the_direction_it_names, begin, end),
        cmocka_unit_test_setup_teardown(test_refusals_name_the_member_and_change_nothing, begin, end),
        cmocka_unit_test_setup_teardown(test_queues_bursts_and_schedules_are_read, begin, end),
        cmocka_unit_test_setup_teardown(test_outage_has_a_duration, begin, end),
        cmocka_unit_test_setup_teardown(test_counters_and_parameters_are_told, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
