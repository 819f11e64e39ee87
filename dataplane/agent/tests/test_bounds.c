/* What a node refuses whoever says it: long grants, rates above its links, capacities that no interface has. */
#include "decide_cases.h"

#include "grants/bounds.h"

static void grants_hold_for_minutes_at_most(void **state) {
    (void)state;
    assert_true(bounds_validity(T0 + BOUNDS_GRANT_VALIDITY_US, T0));
    assert_false(bounds_validity(T0 + BOUNDS_GRANT_VALIDITY_US + 1, T0));
    assert_false(bounds_validity(INT64_MAX, T0));
    /* What is over is no danger. */
    assert_true(bounds_validity(T0 - SECOND, T0));
    assert_true(bounds_validity(INT64_MIN, T0));
}

static void capacities_are_of_the_interface(void **state) {
    (void)state;
    assert_true(bounds_capacity(100 * MBPS, 1000 * MBPS));
    assert_true(bounds_capacity(1000 * MBPS, 1000 * MBPS));
    assert_false(bounds_capacity(100 * MBPS - 1, 1000 * MBPS));
    assert_false(bounds_capacity(1000 * MBPS + 1, 1000 * MBPS));
    assert_false(bounds_capacity(1, 1000 * MBPS));
    /* Nothing is known of the interface. */
    assert_true(bounds_capacity(1, 0));
}

static void every_rate_of_a_link_is_within_its_capacity(void **state) {
    struct decide_link_rate rate = {.available_bps = 100 * MBPS,
                                    .explicit_rate_capacity_bps = 100 * MBPS,
                                    .legacy_share_bps = 100 * MBPS,
                                    .gr_lease_bps = 100 * MBPS};
    uint64_t *const rates[] = {&rate.available_bps, &rate.explicit_rate_capacity_bps, &rate.legacy_share_bps,
                               &rate.gr_lease_bps};
    (void)state;
    assert_true(bounds_link_rate(&rate, 100 * MBPS));
    for (size_t i = 0; i < COUNT(rates); i++) {
        *rates[i] += 1;
        assert_false(bounds_link_rate(&rate, 100 * MBPS));
        assert_true(bounds_link_rate(&rate, 0));
        *rates[i] -= 1;
    }
}

/* A node whose link has 100 Mb/s. */
static struct decide *narrow(void) {
    struct decide_link link = {.id = "alpha:to-bravo", .ifindex = 7, .up = true, .capacity_bps = 100 * MBPS};
    struct decide *decide = alpha();
    assert_int_equal(decide_set_links(decide, &link, 1), 1);
    return decide;
}

static int wanted(struct decide *decide) {
    int64_t next;
    return desired(decide, T0, &next);
}

static void a_grant_that_outlives_its_bound_fails(void **state) {
    struct decide *decide = narrow();
    struct decide_grant g = grant("r1");
    struct told told = {0};
    (void)state;
    g.valid_until_us = T0 + 3600 * SECOND;
    assert_int_equal(decide_put_grant(decide, &g, NULL, T0), 1);
    assert_int_equal(wanted(decide), 0);
    decide_statuses(decide, T0, take, &told);
    assert_int_equal(told.last.state, DECIDE_FAILED);
    assert_string_equal(told.reason, "refused: the grant is valid for 3600 s, this node takes at most 300 s");
    assert_int_equal(decide_counts(decide).refused[BOUNDS_GRANT_VALIDITY], 1);
    g.valid_until_us = T0 + 60 * SECOND;
    g.generation++;
    assert_int_equal(decide_put_grant(decide, &g, NULL, T0), 1);
    assert_int_equal(wanted(decide), 1);
    decide_free(decide);
}

static void a_guarantee_above_the_link_fails_until_the_link_has_it(void **state) {
    struct decide_link link = {.id = "alpha:to-bravo", .ifindex = 7, .up = true, .capacity_bps = 200 * MBPS};
    struct decide *decide = narrow();
    struct decide_grant g = grant("r1");
    struct told told = {0};
    (void)state;
    g.guaranteed_bps = 100 * MBPS + 1;
    assert_int_equal(decide_put_grant(decide, &g, NULL, T0), 1);
    assert_int_equal(wanted(decide), 0);
    decide_statuses(decide, T0, take, &told);
    assert_int_equal(told.last.state, DECIDE_FAILED);
    assert_string_equal(told.reason, "refused: 100000001 bit/s are guaranteed, link alpha:to-bravo has less");
    assert_int_equal(decide_counts(decide).refused[BOUNDS_RATE], 1);
    assert_int_equal(decide_set_links(decide, &link, 1), 1);
    assert_int_equal(wanted(decide), 1);
    decide_free(decide);
}

static void a_link_rate_above_the_link_does_not_hold(void **state) {
    struct decide *decide = narrow();
    struct decide_link_rate rate = {.link_id = "alpha:to-bravo",
                                    .available_bps = 10 * MBPS,
                                    .gr_lease_bps = 101 * MBPS,
                                    .gr_lease_until_us = T0 + SECOND};
    int64_t until_us;
    uint64_t bps;
    (void)state;
    assert_int_equal(decide_put_link_rates(decide, "alpha", 1, T0 + SECOND, &rate, 1, NULL, 0, T0), 1);
    assert_null(decide_link_rate(decide, "alpha:to-bravo", T0));
    assert_false(decide_in_band_rate(decide, "alpha:to-bravo", T0, &bps, &until_us));
    assert_int_equal(decide_in_band_lease(decide, "alpha:to-bravo", T0, &until_us), 0);
    assert_true(decide_rate_is_refused(decide, "alpha:to-bravo", T0));
    assert_false(decide_rate_is_refused(decide, "alpha:to-bravo", T0 + SECOND));
    assert_int_equal(decide_counts(decide).refused[BOUNDS_RATE], 1);
    rate.gr_lease_bps = 100 * MBPS;
    assert_int_equal(decide_put_link_rates(decide, "alpha", 2, T0 + SECOND, &rate, 1, NULL, 0, T0), 1);
    assert_non_null(decide_link_rate(decide, "alpha:to-bravo", T0));
    assert_int_equal(decide_counts(decide).refused[BOUNDS_RATE], 1);
    decide_free(decide);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grants_hold_for_minutes_at_most),
        cmocka_unit_test(capacities_are_of_the_interface),
        cmocka_unit_test(every_rate_of_a_link_is_within_its_capacity),
        cmocka_unit_test(a_grant_that_outlives_its_bound_fails),
        cmocka_unit_test(a_guarantee_above_the_link_fails_until_the_link_has_it),
        cmocka_unit_test(a_link_rate_above_the_link_does_not_hold),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
