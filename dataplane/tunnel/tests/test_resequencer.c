/* The resequencing buffer: order, both bounds, late packets, restarts. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "resequencer.h"

static uint8_t seen[4096];
static size_t seen_count;

static void deliver(void *context, const uint8_t *packet, size_t bytes) {
    (void)context;
    assert_int_equal(bytes, 1);
    assert_true(seen_count < sizeof(seen));
    seen[seen_count++] = packet[0];
}

static int start(void **state) {
    struct resequencer *resequencer = malloc(sizeof(*resequencer));
    seen_count = 0;
    *state = resequencer;
    return resequencer_init(resequencer, 8, 1000, deliver, NULL);
}

static int finish(void **state) {
    resequencer_free(*state);
    free(*state);
    return 0;
}

static void put(struct resequencer *resequencer, uint64_t sequence, uint64_t now_us) {
    uint8_t byte = (uint8_t)sequence;
    assert_int_equal(resequencer_put(resequencer, sequence, &byte, 1, now_us), 0);
}

static void expect_seen(const char *digits) {
    assert_int_equal(seen_count, strlen(digits));
    for (size_t i = 0; i < seen_count; i++)
        assert_int_equal(seen[i], digits[i] - '0');
}

static void test_order_is_restored(void **state) {
    static const uint64_t ORDER[] = {1, 0, 4, 3, 2, 5, 7, 6};
    for (size_t i = 0; i < 8; i++)
        put(*state, ORDER[i], 1);
    expect_seen("01234567");
    assert_int_equal(((struct resequencer *)*state)->held, 0);
    assert_int_equal(((struct resequencer *)*state)->held_maximum, 2);
}

static void test_nothing_waits_longer_than_the_bound(void **state) {
    struct resequencer *resequencer = *state;
    assert_true(resequencer_tick(resequencer, 0) == RESEQUENCER_NEVER_US);
    put(resequencer, 3, 100);
    put(resequencer, 1, 500);
    assert_int_equal(resequencer_tick(resequencer, 1099), 1100);
    expect_seen("");
    /* 3 is due at 1100: all before it leaves or is given up. */
    assert_true(resequencer_tick(resequencer, 1100) == RESEQUENCER_NEVER_US);
    expect_seen("13");
    assert_int_equal(resequencer->skipped, 2);
    put(resequencer, 2, 1200);
    expect_seen("132");
    assert_int_equal(resequencer->late, 1);
}

static void test_the_window_is_bounded(void **state) {
    struct resequencer *resequencer = *state;
    put(resequencer, 1, 0);
    put(resequencer, 2, 0);
    put(resequencer, 9, 0);
    /* 9 fits only when the window begins at 2: 0 is given up, 1 and 2 leave. */
    expect_seen("12");
    assert_int_equal(resequencer->skipped, 1);
    assert_int_equal(resequencer->held, 1);
    put(resequencer, UINT64_MAX - 1, 0);
    assert_int_equal(resequencer->held, 1);
    assert_int_equal(seen_count, 3);
}

static void test_duplicates_are_dropped_while_held(void **state) {
    put(*state, 1, 0);
    put(*state, 1, 0);
    put(*state, 0, 0);
    expect_seen("01");
    assert_int_equal(((struct resequencer *)*state)->duplicates, 1);
}

/* The origin sends what is stuck twice. */
static void test_a_number_is_delivered_once(void **state) {
    struct resequencer *resequencer = *state;
    put(resequencer, 0, 0);
    put(resequencer, 0, 0);
    put(resequencer, 3, 100);
    (void)resequencer_tick(resequencer, 1100);
    expect_seen("03");
    /* 1 and 2 had been given up: each comes late, once. */
    put(resequencer, 2, 1200);
    put(resequencer, 2, 1300);
    put(resequencer, 3, 1300);
    put(resequencer, 1, 1300);
    expect_seen("0321");
    assert_int_equal(resequencer->late, 2);
    assert_int_equal(resequencer->duplicates, 3);
    /* Further back than the capacity nobody knows: better twice than never. */
    put(resequencer, 40, 1400);
    (void)resequencer_tick(resequencer, 2400);
    put(resequencer, 9, 2500);
    assert_int_equal(resequencer->late, 3);
    put(resequencer, 39, 2500);
    put(resequencer, 39, 2500);
    assert_int_equal(resequencer->late, 4);
    assert_int_equal(resequencer->duplicates, 4);
}

static void test_restart_delivers_what_is_held(void **state) {
    struct resequencer *resequencer = *state;
    put(resequencer, 5, 0);
    put(resequencer, 2, 0);
    resequencer_restart(resequencer, 1);
    expect_seen("25");
    assert_int_equal(resequencer->held, 0);
    assert_int_equal(resequencer->skipped, 4);
    put(resequencer, 1, 0);
    /* A connection that is behind the one which said where the session begins. */
    put(resequencer, 0, 0);
    expect_seen("2510");
}

static void test_restart_at_the_end_of_the_range(void **state) {
    struct resequencer *resequencer = *state;
    resequencer_restart(resequencer, UINT64_MAX - 1);
    put(resequencer, UINT64_MAX, 0);
    resequencer_restart(resequencer, 3);
    assert_int_equal(resequencer->held, 0);
    assert_int_equal(seen_count, 1);
    put(resequencer, 3, 0);
    assert_int_equal(seen_count, 2);
}

/* Whatever comes, as long as it comes within the bounds, leaves once and in order. */
static void test_any_order_within_the_bounds(void **state) {
    struct resequencer *resequencer = *state;
    srand(7);
    for (uint64_t base = 0; base < 2048; base += 8) {
        uint64_t order[8];
        for (uint64_t i = 0; i < 8; i++)
            order[i] = base + i;
        for (int i = 7; i > 0; i--) {
            int other = rand() % (i + 1);
            uint64_t kept = order[i];
            order[i] = order[other];
            order[other] = kept;
        }
        for (int i = 0; i < 8; i++)
            put(resequencer, order[i], base);
    }
    assert_int_equal(seen_count, 2048);
    for (size_t i = 0; i < seen_count; i++)
        assert_int_equal(seen[i], (uint8_t)i);
    assert_int_equal(resequencer->late + resequencer->skipped + resequencer->duplicates, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order_is_restored, start, finish),
        cmocka_unit_test_setup_teardown(test_nothing_waits_longer_than_the_bound, start, finish),
        cmocka_unit_test_setup_teardown(test_the_window_is_bounded, start, finish),
        cmocka_unit_test_setup_teardown(test_duplicates_are_dropped_while_held, start, finish),
        cmocka_unit_test_setup_teardown(test_a_number_is_delivered_once, start, finish),
        cmocka_unit_test_setup_teardown(test_restart_delivers_what_is_held, start, finish),
        cmocka_unit_test_setup_teardown(test_restart_at_the_end_of_the_range, start, finish),
        cmocka_unit_test_setup_teardown(test_any_order_within_the_bounds, start, finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
