/* The event API: order of the five functions, verdicts, periods, and the template application. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "event.h"
#include "template/application.h"

struct trace {
    char calls[64];
    uint64_t elapsed_us;
    uint32_t class_id;
    struct itm_action action;
};

static void called(struct trace *trace, char what) {
    size_t used = strlen(trace->calls);
    if (used + 1 < sizeof(trace->calls))
        trace->calls[used] = what;
}

static uint32_t classify(void *state, const struct itm_event *event) {
    (void)event;
    called(state, 'c');
    return ((struct trace *)state)->class_id;
}

static void log_event(void *state, const struct itm_event *event, uint32_t class_id) {
    (void)class_id;
    called(state, 'l');
    ((struct trace *)state)->elapsed_us = event->elapsed_us;
}

static struct itm_action process(void *state, const struct itm_event *event, uint32_t class_id) {
    (void)event;
    (void)class_id;
    called(state, 'p');
    return ((struct trace *)state)->action;
}

static void class_update(void *state, const struct itm_event *event, uint32_t class_id) {
    (void)event;
    (void)class_id;
    called(state, 'u');
}

static void controller_update(void *state, const struct itm_event *event) {
    (void)event;
    called(state, 'x');
}

static struct itm_application traced(const char *name, struct trace *trace, uint64_t period_us) {
    return (struct itm_application){
        .name = name,
        .state = trace,
        .events = 1U << ITM_ARRIVAL,
        .period_us = period_us,
        .classify = classify,
        .log = log_event,
        .process = process,
        .class_update = class_update,
        .controller_update = controller_update,
    };
}

static const uint8_t PACKET[20] = {0x45};

static struct itm_action packet_of(struct itm_dispatcher *dispatcher, enum itm_event_kind kind, size_t bytes,
                                   uint64_t now_us) {
    const struct itm_event event = {.kind = kind, .now_us = now_us, .packet = PACKET, .packet_bytes = bytes};
    return itm_packet(dispatcher, &event);
}

static void test_five_functions_in_order(void **unused) {
    (void)unused;
    struct trace trace = {0};
    struct itm_dispatcher dispatcher;
    struct itm_application application = traced("one", &trace, 1000);
    itm_dispatcher_init(&dispatcher);
    assert_int_equal(itm_register(&dispatcher, &application, 0), 0);
    assert_int_equal(packet_of(&dispatcher, ITM_ARRIVAL, 20, 1).verdict, ITM_PASS);
    assert_string_equal(trace.calls, "clpux");
    assert_int_equal(packet_of(&dispatcher, ITM_DEPARTURE, 20, 2).verdict, ITM_PASS);
    assert_string_equal(trace.calls, "clpux");
    memset(&trace, 0, sizeof(trace));
    assert_int_equal(itm_tick(&dispatcher, 999), 1000);
    assert_string_equal(trace.calls, "");
    assert_int_equal(itm_tick(&dispatcher, 1001), 2000);
    assert_string_equal(trace.calls, "lux");
    assert_int_equal(trace.elapsed_us, 1001);
}

static void test_verdicts_end_the_round(void **unused) {
    (void)unused;
    static const enum itm_verdict ENDING[] = {ITM_TAKE, ITM_DROP, ITM_DIVERT, ITM_PACE};
    for (size_t i = 0; i < 4; i++) {
        struct trace first = {.action = {ENDING[i], 7}}, second = {0};
        struct itm_dispatcher dispatcher;
        struct itm_application one = traced("one", &first, 0), two = traced("two", &second, 0);
        itm_dispatcher_init(&dispatcher);
        assert_int_equal(itm_register(&dispatcher, &one, 0), 0);
        assert_int_equal(itm_register(&dispatcher, &two, 0), 0);
        struct itm_action action = packet_of(&dispatcher, ITM_ARRIVAL, 20, 1);
        assert_int_equal(action.verdict, ENDING[i]);
        assert_int_equal(action.value, 7);
        assert_string_equal(second.calls, "");
        const struct itm_counters *counters = itm_counters(&dispatcher, "one");
        assert_int_equal(counters->verdicts[ENDING[i]], 1);
    }
}

static void test_a_mark_lets_the_next_be_asked(void **unused) {
    (void)unused;
    struct trace first = {.action = {ITM_MARK, 0xb8}}, second = {0};
    struct itm_dispatcher dispatcher;
    struct itm_application one = traced("one", &first, 0), two = traced("two", &second, 0);
    itm_dispatcher_init(&dispatcher);
    assert_int_equal(itm_register(&dispatcher, &one, 0), 0);
    assert_int_equal(itm_register(&dispatcher, &two, 0), 0);
    struct itm_action action = packet_of(&dispatcher, ITM_ARRIVAL, 20, 1);
    assert_int_equal(action.verdict, ITM_MARK);
    assert_int_equal(action.value, 0xb8);
    assert_string_equal(second.calls, "clpux");
}

static void test_events_without_a_packet(void **unused) {
    (void)unused;
    static const enum itm_event_kind WITHOUT[] = {ITM_LOSS, ITM_FEEDBACK, ITM_TIMER};
    for (size_t i = 0; i < 3; i++) {
        struct trace trace = {0};
        const struct itm_event event = {.kind = WITHOUT[i]};
        struct itm_application application = traced("one", &trace, 0);
        itm_inform(&application, &event);
        assert_string_equal(trace.calls, "lux");
    }
}

static void test_unclassified_goes_to_the_next(void **unused) {
    (void)unused;
    struct trace first = {.class_id = ITM_CLASS_NONE}, second = {.action = {ITM_TAKE, 0}};
    struct itm_dispatcher dispatcher;
    struct itm_application one = traced("one", &first, 0), two = traced("two", &second, 0);
    itm_dispatcher_init(&dispatcher);
    itm_register(&dispatcher, &one, 0);
    itm_register(&dispatcher, &two, 0);
    assert_int_equal(packet_of(&dispatcher, ITM_ARRIVAL, 20, 1).verdict, ITM_TAKE);
    assert_string_equal(first.calls, "c");
    assert_int_equal(itm_counters(&dispatcher, "one")->packets, 0);
    assert_int_equal(itm_unregister(&dispatcher, "two"), 0);
    assert_int_equal(packet_of(&dispatcher, ITM_ARRIVAL, 20, 2).verdict, ITM_PASS);
    assert_int_equal(itm_unregister(&dispatcher, "two"), -ENOENT);
    assert_null(itm_counters(&dispatcher, "two"));
}

static void test_registration_is_checked(void **unused) {
    (void)unused;
    struct trace trace = {0};
    struct itm_dispatcher dispatcher;
    struct itm_application application = traced("one", &trace, 0);
    char names[ITM_APPLICATIONS + 1][4];
    itm_dispatcher_init(&dispatcher);
    application.events = 0;
    assert_int_equal(itm_register(&dispatcher, &application, 0), -EINVAL);
    application.events = 1U << ITM_TIMER; /* asked for by its period */
    assert_int_equal(itm_register(&dispatcher, &application, 0), -EINVAL);
    application.events = 1;
    for (int i = 0; i <= ITM_APPLICATIONS; i++) {
        names[i][0] = (char)('a' + i);
        names[i][1] = '\0';
        application.name = names[i];
        assert_int_equal(itm_register(&dispatcher, &application, 0), i < ITM_APPLICATIONS ? 0 : -ENOSPC);
    }
    application.name = "a";
    assert_int_equal(itm_register(&dispatcher, &application, 0), -EEXIST);
}

static void test_late_caller_gets_one_period(void **unused) {
    (void)unused;
    struct trace trace = {0};
    struct itm_dispatcher dispatcher;
    struct itm_application application = traced("one", &trace, 1000);
    itm_dispatcher_init(&dispatcher);
    itm_register(&dispatcher, &application, 0);
    assert_int_equal(itm_tick(&dispatcher, 5500), 6500);
    assert_string_equal(trace.calls, "lux");
    assert_int_equal(trace.elapsed_us, 5500);
    assert_int_equal(itm_set_period(&dispatcher, "one", 0, 6000), 0);
    assert_true(itm_tick(&dispatcher, 60000) == ITM_NEVER_US);
    assert_int_equal(itm_set_period(&dispatcher, "none", 1, 0), -ENOENT);
}

static void test_template_separates_long_flows(void **unused) {
    (void)unused;
    struct template_state state;
    struct itm_dispatcher dispatcher;
    struct itm_application application = template_application(&state, 50, 1000);
    itm_dispatcher_init(&dispatcher);
    assert_int_equal(itm_register(&dispatcher, &application, 0), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(packet_of(&dispatcher, ITM_ARRIVAL, 20, 1).value, 0);
    itm_tick(&dispatcher, 1000);
    assert_int_equal(state.long_flows, 1);
    assert_int_equal(packet_of(&dispatcher, ITM_ARRIVAL, 20, 1001).value, 1);
    itm_tick(&dispatcher, 2000);
    itm_tick(&dispatcher, 3000);
    assert_int_equal(state.long_flows, 0);
    assert_int_equal(packet_of(&dispatcher, ITM_ARRIVAL, 20, 3001).value, 0);
    assert_int_equal(packet_of(&dispatcher, ITM_ARRIVAL, 10, 3002).verdict, ITM_PASS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_five_functions_in_order),       cmocka_unit_test(test_verdicts_end_the_round),
        cmocka_unit_test(test_a_mark_lets_the_next_be_asked), cmocka_unit_test(test_events_without_a_packet),
        cmocka_unit_test(test_unclassified_goes_to_the_next), cmocka_unit_test(test_registration_is_checked),
        cmocka_unit_test(test_late_caller_gets_one_period),   cmocka_unit_test(test_template_separates_long_flows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
