/* Tests of egress.h and of what decide.h tells of it. */
#include "decide_cases.h"

#define NORTH "alpha:north"
#define SOUTH "alpha:south"
#define NORTH_INDEX 3
#define SOUTH_INDEX 4

static bool note(struct egress *egress, uint64_t north, uint64_t south, int64_t now_us) {
    const struct egress_count counts[] = {{NORTH, NORTH_INDEX, north}, {SOUTH, SOUTH_INDEX, south}};

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
    egress_begin_anew(&egress);
    assert_int_equal(egress.n, 0);
    assert_false(note(&egress, 6000, 0, T0 + 62 * SECOND));
    /* Counters that went back count from 0. */
    assert_true(note(&egress, 0, 5000, T0 + 63 * SECOND));
    assert_string_equal(egress.links[0].link_id, SOUTH);
}

static void packets_of_before_a_route_change_are_not_judged_by_the_new_routes(void **state) {
    struct egress egress = {0};

    (void)state;
    assert_true(note(&egress, 60000, 0, T0));
    egress.against_routes = true;
    egress_begin_anew(&egress);
    assert_false(egress.against_routes);
    /* What left between the last counts and the change was routed by the old tables. */
    assert_false(note(&egress, 90000, 1000, T0 + 100000));
    assert_int_equal(egress.n, 0);
    assert_true(note(&egress, 90000, 7000, T0 + 300000));
    assert_int_equal(egress.n, 1);
    assert_string_equal(egress.links[0].link_id, SOUTH);
    assert_int_equal(egress.links[0].recent_bytes, 6000);
}

static void a_link_that_was_not_counted_for_a_while_does_not_tell_of_before(void **state) {
    struct egress egress = {0};
    const struct egress_count south = {SOUTH, SOUTH_INDEX, 0};
    struct egress_count alone = south;

    (void)state;
    assert_true(note(&egress, 90000, 0, T0));
    alone.bytes = 6000;
    assert_true(egress_note(&egress, &alone, 1, T0 + 200000));
    assert_false(note(&egress, 90000, 12000, T0 + 400000));
    assert_int_equal(egress.n, 1);
    assert_string_equal(egress.links[0].link_id, SOUTH);
}

static void every_link_s_counter_is_remembered(void **state) {
    struct egress egress = {0};
    struct egress_count counts[EGRESS_COUNTERS_MAX];
    char names[EGRESS_COUNTERS_MAX][16];

    (void)state;
    for (size_t i = 0; i < COUNT(counts); i++) {
        snprintf(names[i], sizeof(names[i]), "alpha:l%zu", i);
        counts[i] = (struct egress_count){names[i], (uint32_t)i + 1, 10000 - 10 * i};
    }
    counts[0].bytes = 1000000;
    assert_true(egress_note(&egress, counts, COUNT(counts), T0));
    counts[EGRESS_COUNTERS_MAX - 1].bytes += 5000;
    assert_true(egress_note(&egress, counts, COUNT(counts), T0 + 200000));
    assert_int_equal(egress.n, 1);
    assert_int_equal(egress.links[0].recent_bytes, 5000);
    /* An interface of another index takes the place of one that is gone. */
    counts[0] = (struct egress_count){"alpha:new", 1000, 7000};
    assert_true(egress_note(&egress, counts, COUNT(counts), T0 + 400000));
    assert_string_equal(egress.links[0].link_id, "alpha:new");
    counts[0].bytes += 5000;
    assert_false(egress_note(&egress, counts, COUNT(counts), T0 + 600000));
    assert_int_equal(egress.links[0].recent_bytes, 5000);
}

static struct decide_grant north_only(uint64_t generation) {
    static const char *const path[] = {NORTH};
    struct decide_grant r1 = grant("r1");

    r1.link_ids = path;
    r1.n_link_ids = 1;
    r1.with_available_rate = false;
    r1.generation = generation;
    return r1;
}

static bool of_all(const struct decide_selector *selector, void *context) {
    (void)selector;
    return *(bool *)context;
}

static void a_mark_against_routes_goes_with_what_it_was_made_of(void **state) {
    struct decide *decide = node("alpha", NORTH);
    struct told told = {0};
    struct egress_count north = {NORTH, NORTH_INDEX, 6000};
    bool concerned = false;

    (void)state;
    put_and_tell(decide, north_only(1), &told);
    assert_non_null(decide_set_egress(decide, "r1", &north, 1, T0 + 200000));
    decide_set_against_routes(decide, "r1", true);
    assert_int_equal(decide_statuses(decide, T0 + 200000, take, &told), 1);
    assert_true(told.last.egress->against_routes);
    /* Packets go on there: the tables are asked again while it is marked. */
    north.bytes += 6000;
    assert_non_null(decide_set_egress(decide, "r1", &north, 1, T0 + 400000));
    /* Routes of others changed, then its own. */
    decide_routes_changed(decide, of_all, &concerned);
    assert_int_equal(decide_statuses(decide, T0 + 400000, take, &told), 0);
    concerned = true;
    decide_routes_changed(decide, of_all, &concerned);
    assert_int_equal(decide_statuses(decide, T0 + 500000, take, &told), 1);
    assert_false(told.last.egress->against_routes);
    assert_int_equal(told.last.egress->n, 0);
    decide_free(decide);
}

static void a_grant_that_comes_back_tells_nothing_of_its_time_before(void **state) {
    static const char *const elsewhere[] = {"bravo:to-charlie"};
    struct decide *decide = node("alpha", NORTH);
    struct decide_grant r1 = north_only(2);
    struct told told = {0};
    struct egress_count north = {NORTH, NORTH_INDEX, 6000};

    (void)state;
    put_and_tell(decide, north_only(1), &told);
    assert_non_null(decide_set_egress(decide, "r1", &north, 1, T0 + 200000));
    decide_set_against_routes(decide, "r1", true);
    assert_int_equal(decide_statuses(decide, T0 + 200000, take, &told), 1);
    /* The link is cut: the request moves to a path without this node, and back. */
    r1.link_ids = elsewhere;
    assert_int_equal(decide_put_grant(decide, &r1, NULL, T0 + SECOND), 1);
    put_and_tell(decide, north_only(3), &told);
    assert_int_equal(told.last.generation, 3);
    assert_false(told.last.egress->against_routes);
    assert_int_equal(told.last.egress->n, 0);
    decide_free(decide);
}

static void leaving_by_another_link_is_told_at_once(void **state) {
    struct decide *decide = node("alpha", NORTH);
    struct told told = {0};
    struct egress_count counts[] = {{NORTH, NORTH_INDEX, 6000}, {SOUTH, SOUTH_INDEX, 0}};

    (void)state;
    put_and_tell(decide, north_only(1), &told);
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
        cmocka_unit_test(packets_of_before_a_route_change_are_not_judged_by_the_new_routes),
        cmocka_unit_test(a_link_that_was_not_counted_for_a_while_does_not_tell_of_before),
        cmocka_unit_test(every_link_s_counter_is_remembered),
        cmocka_unit_test(leaving_by_another_link_is_told_at_once),
        cmocka_unit_test(a_mark_against_routes_goes_with_what_it_was_made_of),
        cmocka_unit_test(a_grant_that_comes_back_tells_nothing_of_its_time_before),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
