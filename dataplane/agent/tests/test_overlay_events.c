/* What happened to the overlay lately: a ring. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include "paths/overlay_events.h"

#define NOW_US 1000000000000ll

static void add(struct overlay_events *events, int64_t at_us) {
    const struct overlay_event event = {.at_us = at_us, .kind = OVERLAY_EVENT_LINK_FAILED, .subject = "alpha:a"};

    overlay_events_add(events, &event);
}

static void they_are_told_in_their_order(void **state) {
    struct overlay_events events = {0};
    struct overlay_event recent[OVERLAY_EVENTS_MAX];

    (void)state;
    assert_int_equal(overlay_events_recent(&events, NOW_US, recent), 0);
    add(&events, NOW_US - 2);
    add(&events, NOW_US - 1);
    assert_int_equal(overlay_events_recent(&events, NOW_US, recent), 2);
    assert_int_equal(recent[0].sequence, 1);
    assert_int_equal(recent[1].sequence, 2);
    assert_string_equal(recent[1].subject, "alpha:a");
}

static void the_oldest_go_where_there_are_many(void **state) {
    struct overlay_events events = {0};
    struct overlay_event recent[OVERLAY_EVENTS_MAX];

    (void)state;
    for (int i = 0; i < OVERLAY_EVENTS_MAX + 5; i++)
        add(&events, NOW_US + i);
    assert_int_equal(overlay_events_recent(&events, NOW_US, recent), OVERLAY_EVENTS_MAX);
    assert_int_equal(recent[0].sequence, 6);
    assert_int_equal(recent[OVERLAY_EVENTS_MAX - 1].sequence, OVERLAY_EVENTS_MAX + 5);
}

static void what_is_old_is_told_no_more(void **state) {
    struct overlay_events events = {0};
    struct overlay_event recent[OVERLAY_EVENTS_MAX];

    (void)state;
    add(&events, NOW_US - OVERLAY_EVENT_AGE_US);
    add(&events, NOW_US - OVERLAY_EVENT_AGE_US + 1);
    assert_int_equal(overlay_events_recent(&events, NOW_US, recent), 1);
    assert_int_equal(recent[0].sequence, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_are_told_in_their_order),
        cmocka_unit_test(the_oldest_go_where_there_are_many),
        cmocka_unit_test(what_is_old_is_told_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
