/* Applications in processes of their own: loaded, configured, switched, replaced, removed, and taken out when they
 * crash, end, answer nonsense or are slow. This program is its own host, as chart-tunnel is. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "application_control.h"
#include "applications.h"
#include "host.h"
#include "loader.h"
#include "loop.h"

/* Under the sanitizers, beside others on the machine: what is slow has to be told from what only waits for the CPU. */
#define LIMIT_US GUARD_LIMIT_MOST_US

static struct applications applications;
static unsigned went;

static const uint8_t PACKET[28] = {0x45, 2, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2};

static const char *file_of(const char *name) {
    static char path[4096];
    snprintf(path, sizeof(path), "%s/%s.so", getenv("ITM_APPLICATIONS"), name);
    return path;
}

static int begin(void **unused) {
    (void)unused;
    applications_init(&applications);
    went = 0;
    return 0;
}

static int end(void **unused) {
    (void)unused;
    applications_close(&applications);
    return 0;
}

static void go(void *context, const uint8_t *packet, size_t bytes, const struct offload *offload) {
    (void)context;
    (void)packet;
    (void)bytes;
    (void)offload;
    went++;
}

static const struct application *load(const char *name, const char *argument) {
    assert_int_equal(applications_load(&applications, name, file_of("itm-faulty"), argument, LIMIT_US, loop_now_us()),
                     0);
    (void)applications_await(&applications);
    return applications_find(&applications, name);
}

/* A batch of packets at the origin: the verdict on the last one. */
static struct itm_action ask(unsigned packets) {
    const struct offload nothing = {0};
    applications.batch.count = 0;
    while (applications.batch.count < packets) {
        memcpy(applications_slot(&applications, applications.batch.count), PACKET, sizeof(PACKET));
        applications_put(&applications, sizeof(PACKET), &nothing);
    }
    applications_decide(&applications, ITM_ARRIVAL, loop_now_us());
    return applications.batch.actions[packets - 1];
}

static void tick_until(bool (*reached)(void)) {
    uint64_t until_us = loop_now_us() + 10000000;
    while (!reached() && loop_now_us() < until_us)
        (void)applications_tick(&applications, loop_now_us(), go, NULL);
    assert_true(reached());
}

static void test_verdicts_come_back(void **unused) {
    (void)unused;
    const struct application *application = load("one", "drop");
    assert_int_equal(application->state, APPLICATION_ON);
    assert_true(applications_want(&applications, ITM_ARRIVAL));
    assert_int_equal(ask(EXCHANGE_PACKETS).verdict, ITM_DROP);
    assert_int_equal(applications_configure(&applications, "one", "divert=3"), 0);
    assert_int_equal(ask(1).verdict, ITM_DIVERT);
    assert_int_equal(applications.batch.actions[0].value, 3);
    assert_int_equal(applications_configure(&applications, "one", "mark=0xbb"), 0);
    assert_int_equal(ask(1).verdict, ITM_PASS);
    assert_int_equal(applications_slot(&applications, 0)[1], 0xbb);
    assert_int_equal(application->counters.packets, EXCHANGE_PACKETS + 2);
    assert_int_equal(application->counters.verdicts[ITM_DROP], EXCHANGE_PACKETS);
}

static void test_applications_are_asked_in_order(void **unused) {
    (void)unused;
    load("first", "mark=0x20");
    const struct application *second = load("second", "drop"), *third = load("third", "pass");
    assert_int_equal(ask(2).verdict, ITM_DROP);
    assert_int_equal(second->counters.packets, 2);
    assert_int_equal(third->counters.packets, 0);
    assert_int_equal(applications_unload(&applications, "second"), 0);
    assert_non_null(applications_find(&applications, "third"));
    assert_int_equal(ask(2).verdict, ITM_PASS);
    assert_int_equal(applications_find(&applications, "third")->counters.packets, 2);
}

static bool one_went(void) {
    return went == 1;
}

static void test_a_paced_packet_goes_later(void **unused) {
    (void)unused;
    load("one", "pace=30000");
    uint64_t asked_us = loop_now_us();
    assert_int_equal(ask(1).verdict, ITM_TAKE);
    (void)applications_tick(&applications, asked_us, go, NULL);
    assert_int_equal(went, 0);
    tick_until(one_went);
    assert_true(loop_now_us() - asked_us >= 30000);
}

/* What becomes of the packets of an application that fails: they pass, at once, and it is asked nothing any more. */
static void fails_with(const char *argument, const char *sentence) {
    const struct application *application = load("one", argument);
    uint64_t asked_us = loop_now_us();
    assert_int_equal(ask(8).verdict, ITM_PASS);
    assert_true(loop_now_us() - asked_us < 10 * LIMIT_US);
    assert_int_equal(application->state, APPLICATION_FAILED);
    assert_non_null(strstr(application->fault, sentence));
    assert_false(applications_want(&applications, ITM_ARRIVAL));
    assert_int_equal(applications_switch(&applications, "one", true, 0), -ENOTCONN);
    assert_int_equal(applications_unload(&applications, "one"), 0);
}

static void test_what_fails_is_taken_out(void **unused) {
    (void)unused;
    fails_with("end=5", "exit status 7");
    fails_with("slow=200", "no answer within 40 ms");
    fails_with("nonsense", "its answer is none");
    fails_with("crash=1", "its process ended: signal 11 (Segmentation fault)");
}

static bool timer_killed(void) {
    return applications.all[0].state == APPLICATION_FAILED;
}

static void test_a_crash_at_a_timer_is_one(void **unused) {
    (void)unused;
    load("one", "timer-crash");
    tick_until(timer_killed);
    assert_int_equal(applications.all[0].failures, 1);
}

static bool replaced(void) {
    return applications.all[0].replacements == 1;
}

static bool given_up(void) {
    return !applications.all[0].replacing;
}

static void test_the_old_one_decides_until_the_new_one_is_open(void **unused) {
    (void)unused;
    const struct application *application = load("one", "drop");
    uint64_t now_us = loop_now_us();
    assert_int_equal(applications_replace(&applications, "two", file_of("itm-faulty"), "pass", 0, now_us), -ENOENT);
    assert_int_equal(applications_replace(&applications, "one", file_of("itm-faulty"), "divert=1", LIMIT_US, now_us),
                     0);
    assert_int_equal(applications_replace(&applications, "one", "x.so", "", 0, now_us), -EALREADY);
    assert_int_equal(ask(1).verdict, ITM_DROP);
    tick_until(replaced);
    assert_int_equal(ask(1).verdict, ITM_DIVERT);
    assert_string_equal(application->source.argument, "divert=1");
    /* One that cannot be opened changes nothing. */
    assert_int_equal(applications_replace(&applications, "one", "/nowhere.so", "", LIMIT_US, now_us), 0);
    tick_until(given_up);
    assert_non_null(strstr(application->fault, "it was not replaced"));
    assert_int_equal(ask(1).verdict, ITM_DIVERT);
}

static void test_one_that_failed_can_be_replaced(void **unused) {
    (void)unused;
    load("one", "end=1");
    (void)ask(1);
    assert_int_equal(applications.all[0].state, APPLICATION_FAILED);
    assert_int_equal(applications_replace(&applications, "one", file_of("itm-faulty"), "drop", LIMIT_US, loop_now_us()),
                     0);
    tick_until(replaced);
    assert_int_equal(ask(1).verdict, ITM_DROP);
}

static void test_off_asks_nothing_and_goes_on(void **unused) {
    (void)unused;
    load("one", "drop");
    assert_int_equal(applications_switch(&applications, "one", false, loop_now_us()), 0);
    assert_int_equal(ask(1).verdict, ITM_PASS);
    assert_int_equal(applications_configure(&applications, "one", "take"), 0);
    assert_int_equal(applications_switch(&applications, "one", true, loop_now_us()), 0);
    assert_int_equal(ask(1).verdict, ITM_TAKE);
    assert_int_equal(applications_switch(&applications, "two", true, 0), -ENOENT);
}

static bool three_events(void) {
    return applications.all[0].counters.events >= 3;
}

static void test_losses_feedback_and_timers_are_told(void **unused) {
    (void)unused;
    load("one", "pass");
    applications_feedback(&applications, loop_now_us());
    assert_int_equal(applications.all[0].counters.events, 1);
    applications_lost(&applications, 5);
    tick_until(three_events);
    assert_int_equal(applications.lost_packets, 0);
}

static void test_a_wrong_file_or_argument_is_said(void **unused) {
    (void)unused;
    const struct application *one = load("one", "no such word");
    assert_int_equal(one->state, APPLICATION_FAILED);
    assert_non_null(strstr(one->fault, "refuses the argument \"no such word\": Invalid argument"));
    assert_int_equal(applications_unload(&applications, "one"), 0);
    assert_int_equal(applications_load(&applications, "two", "/nowhere.so", "", 0, loop_now_us()), 0);
    assert_int_equal(applications_await(&applications), -ECANCELED);
    assert_non_null(strstr(applications_find(&applications, "two")->fault, "/nowhere.so"));
    assert_int_equal(applications_load(&applications, "two", "/x.so", "", 0, 0), -EEXIST);
    assert_int_equal(applications_load(&applications, "", "/x.so", "", 0, 0), -EINVAL);
    assert_int_equal(applications_load(&applications, "three", "/x.so", "", GUARD_LIMIT_MOST_US + 1, 0), -EINVAL);
}

static const char *answer(const char *command) {
    const char *error = NULL;
    cJSON *parsed = cJSON_Parse(command);
    assert_non_null(parsed);
    application_answer(&applications, parsed, loop_now_us(), &error);
    cJSON_Delete(parsed);
    return error;
}

static void test_the_control_socket_says_what_is_wrong(void **unused) {
    (void)unused;
    char command[5000];
    assert_non_null(strstr(answer("{\"action\":\"fly\",\"name\":\"one\"}"), "action must be load"));
    assert_non_null(strstr(answer("{\"action\":\"on\",\"name\":\"one\"}"), "no application of that name"));
    assert_non_null(strstr(answer("{\"action\":\"load\",\"name\":\"one\"}"), "wants a name"));
    snprintf(command, sizeof(command),
             "{\"action\":\"load\",\"name\":\"one\",\"file\":\"%s\",\"argument\":\"drop\",%s}", file_of("itm-faulty"),
             "\"limit_ms\":40");
    assert_null(answer(command));
    assert_non_null(strstr(answer("{\"action\":\"off\",\"name\":\"one\"}"), "does not run: it is starting"));
    assert_int_equal(applications_await(&applications), 0);
    assert_non_null(
        strstr(answer("{\"action\":\"configure\",\"name\":\"one\",\"argument\":\"x\"}"), "Invalid argument"));
    assert_null(answer("{\"action\":\"configure\",\"name\":\"one\",\"argument\":\"take\"}"));
    assert_int_equal(ask(1).verdict, ITM_TAKE);
    assert_null(answer("{\"action\":\"replace\",\"name\":\"one\",\"argument\":\"drop\"}"));
    tick_until(replaced);
    assert_int_equal(ask(1).verdict, ITM_DROP);
    assert_null(answer("{\"action\":\"unload\",\"name\":\"one\"}"));
    assert_int_equal(applications.count, 0);
}

/* The example of the developer's page: its rate grows with reports, halves at losses, and paces what comes too fast. */
static void test_the_example_follows_losses(void **unused) {
    (void)unused;
    char fault[LOADER_FAULT_BYTES];
    struct itm_application aimd;
    struct itm_inputs inputs = {.rtt_us = 20000};
    struct itm_action action;
    static uint8_t packet[1250] = {0x45, 2};
    struct itm_event arrival = {.kind = ITM_ARRIVAL, .packet = packet, .packet_bytes = 1250, .now_us = 1000000};
    struct itm_event loss = {.kind = ITM_LOSS, .inputs = &inputs, .lost_packets = 1, .now_us = 1000000};
    assert_int_equal(loader_load(file_of("itm-aimd"), "1000000", &aimd, fault), -EINVAL);
    assert_int_equal(loader_load(file_of("itm-aimd"), "1000000,500000,100000", &aimd, fault), 0);
    /* 1250 bytes at 1 Mbit/s: 10 ms apart. */
    static const uint32_t WAITS_US[] = {0, 10000, 20000};
    for (size_t i = 0; i < 3; i++) {
        assert_true(itm_ask(&aimd, &arrival, &action));
        assert_int_equal(action.verdict, i ? ITM_PACE : ITM_PASS);
        assert_int_equal(action.value, WAITS_US[i]);
    }
    /* At 500 kbit/s each takes 20 ms; a second loss within the round trip changes nothing. */
    itm_inform(&aimd, &loss);
    itm_inform(&aimd, &loss);
    itm_ask(&aimd, &arrival, &action);
    itm_ask(&aimd, &arrival, &action);
    assert_int_equal(action.value, 50000);
    /* Who would have to wait longer is marked. */
    itm_ask(&aimd, &arrival, &action);
    assert_int_equal(action.verdict, ITM_MARK);
    assert_int_equal(action.value, ITM_MARK_CE);
    /* The first report comes after a loss, the second after none. */
    struct itm_event feedback = {.kind = ITM_FEEDBACK, .inputs = &inputs, .now_us = 2000000};
    itm_inform(&aimd, &feedback);
    itm_inform(&aimd, &feedback);
    arrival.now_us = 3000000;
    itm_ask(&aimd, &arrival, &action);
    itm_ask(&aimd, &arrival, &action);
    assert_int_equal(action.value, 10000);
}

int main(int count, char **arguments) {
    if (count == 4 && strcmp(arguments[1], HOST_ROLE) == 0)
        return host_run(arguments[2], arguments[3]);
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(test_verdicts_come_back),
        TEST(test_applications_are_asked_in_order),
        TEST(test_a_paced_packet_goes_later),
        TEST(test_what_fails_is_taken_out),
        TEST(test_a_crash_at_a_timer_is_one),
        TEST(test_the_old_one_decides_until_the_new_one_is_open),
        TEST(test_one_that_failed_can_be_replaced),
        TEST(test_off_asks_nothing_and_goes_on),
        TEST(test_losses_feedback_and_timers_are_told),
        TEST(test_a_wrong_file_or_argument_is_said),
        TEST(test_the_control_socket_says_what_is_wrong),
        TEST(test_the_example_follows_losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
