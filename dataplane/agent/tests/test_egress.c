/* Tests of egress.h and of what decide.h tells of it. */
#include "decide_cases.h"

#define NORTH "alpha:north"
#define SOUTH "alpha:south"

static bool note(struct egress *egress, uint64_t north, uint64_t south, int64_t now_us) {
    const struct egress_count counts[] = {{NORTH, north}, {SOUTH, south}};

    return egress_note(egress, counts, COUNT(counts), now_us);
}

static void packets_are_seen_where_they_leave(void **state) {
    struct egress egress = {0};

    (void)state;
    assert_false(note(&egress, 0, 0, T0));
    assert_true(note(&egress, 6000, 0, T0 + 200000));
    assert_int_equal(egress.n, 1);
    assert_string_equal(egress.links[0].link_id, NORTH);
    /* The same again is no news; a move is, and shares are those of the newest interval. */
    assert_false(note(&egress, 12000, 0, T0 + 400000));
    assert_true(note(&egress, 18000, 94000, T0 + 600000));
    assert_int_equal(egress.n, 2);
    assert_string_equal(egress.links[0].link_id, SOUTH);
    assert_int_equal(egress.links[0].recent_bytes, 94000);
    assert_int_equal(egress.links[1].recent_bytes, 6000);
    assert_true(note(&egress, 18000, 200000, T0 + 800000));
    assert_int_equal(egress.n, 1);
}

static void a_few_octets_wait_and_stray_ones_do_not_count(void **state) {
    struct egress egress = {0};

    (void)state;
    assert_false(note(&egress, 0, 0, T0));
    assert_false(note(&egress, 100, 0, T0 + 200000));
    assert_true(note(&egress, 200, 0, T0 + 1000000));
    /* Less than a twentieth by the other link. */
    assert_false(note(&egress, 100200, 4000, T0 + 1200000));
    assert_int_equal(egress.n, 1);
}

static void what_was_seen_stays_until_routes_change(void **state) {
    struct egress egress = {0};

    (void)state;
    assert_true(note(&egress, 6000, 0, T0));
    assert_false(note(&egress, 6000, 0, T0 + 60 * SECOND));
    assert_int_equal(egress.n, 1);
    egress_routes_changed(&egress, T0 + 60 * SECOND);
    assert_false(note(&egress, 6000, 0, T0 + 61 * SECOND));
    assert_true(note(&egress, 6000, 0, T0 + 62 * SECOND));
    assert_int_equal(egress.n, 0);
    /* Counters that went back count from 0. */
    assert_true(note(&egress, 0, 5000, T0 + 63 * SECOND));
    assert_string_equal(egress.links[0].link_id, SOUTH);
}

static void leaving_by_another_link_is_told_at_once(void **state) {
    static const char *const path[] = {NORTH};
    struct decide *decide = node("alpha", NORTH);
    struct decide_grant r1 = grant("r1");
    struct told told = {0};
    struct egress_count counts[] = {{NORTH, 6000}, {SOUTH, 0}};

    (void)state;
    r1.link_ids = path;
    r1.n_link_ids = 1;
    r1.with_available_rate = false;
    put_and_tell(decide, r1, &told);
    assert_non_null(decide_set_egress(decide, "r1", counts, 2, T0 + 200000));
    assert_int_equal(decide_statuses(decide, T0 + 200000, take, &told), 0);
    counts[1].bytes = 60000;
    assert_non_null(decide_set_egress(decide, "r1", counts, 2, T0 + 400000));
    assert_int_equal(decide_statuses(decide, T0 + 400000, take, &told), 1);
    assert_string_equal(told.last.egress->links[0].link_id, SOUTH);
    assert_false(told.last.egress->against_routes);
    /* Against the kernel's tables: told also of a link that is committed. */
    counts[0].bytes = 200000;
    assert_non_null(decide_set_egress(decide, "r1", counts, 2, T0 + 600000));
    decide_set_against_routes(decide, "r1", true);
    assert_int_equal(decide_statuses(decide, T0 + 600000, take, &told), 1);
    assert_true(told.last.egress->against_routes);
    decide_set_against_routes(decide, "r1", false);
    assert_int_equal(decide_statuses(decide, T0 + 700000, take, &told), 1);
    assert_int_equal(decide_statuses(decide, T0 + 800000, take, &told), 0);
    assert_null(decide_set_egress(decide, "unknown", counts, 2, T0));
    decide_free(decide);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packets_are_seen_where_they_leave),
        cmocka_unit_test(a_few_octets_wait_and_stray_ones_do_not_count),
        cmocka_unit_test(what_was_seen_stays_until_routes_change),
        cmocka_unit_test(leaving_by_another_link_is_told_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
