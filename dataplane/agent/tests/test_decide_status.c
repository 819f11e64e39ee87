/* Tests of decide.h: what is told about a grant, and when. */
#include "decide_cases.h"

static void applied_once_then_refreshed(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct told told = {0};

    put(decide, grant("r1"));
    apply(decide, "r1", T0 + 5, 10 * MBPS);
    assert_int_equal(decide_statuses(decide, T0 + 5, take, &told), 1);
    assert_int_equal(told.last.state, DECIDE_APPLIED);
    assert_int_equal(told.last.applied_at_us, T0 + 5);
    assert_int_equal(told.last.observed.kernel_rate_bps, 10 * MBPS);
    assert_string_equal(told.reason, "");
    assert_string_equal(told.traceparent, "00-aa-bb-01");
    apply(decide, "r1", T0 + SECOND, 10 * MBPS);
    assert_int_equal(decide_statuses(decide, T0 + 9 * SECOND, take, &told), 0);
    assert_int_equal(decide_statuses(decide, T0 + 5 + 10 * SECOND, take, &told), 1);
    assert_int_equal(told.last.applied_at_us, T0 + 5);
    decide_free(decide);
}

static void a_new_generation_is_told_at_once(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct decide_grant g = grant("r1");
    struct told told = {0};

    put_and_tell(decide, g, &told);
    g.generation = 2;
    put(decide, g);
    apply(decide, "r1", T0, 10 * MBPS);
    assert_int_equal(decide_statuses(decide, T0 + 1, take, &told), 1);
    assert_int_equal(told.last.generation, 2);
    decide_free(decide);
}

static void a_moved_rate_is_told_after_a_second(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct told told = {0};

    put_and_tell(decide, grant("r1"), &told);
    apply(decide, "r1", T0, 40 * MBPS);
    assert_int_equal(decide_statuses(decide, T0 + SECOND - 1, take, &told), 0);
    assert_int_equal(decide_statuses(decide, T0 + SECOND, take, &told), 1);
    apply(decide, "r1", T0, 41 * MBPS);
    assert_int_equal(decide_statuses(decide, T0 + 3 * SECOND, take, &told), 0);
    decide_free(decide);
}

static void the_first_packets_are_told(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct told told = {0};
    const struct decide_observed idle = {.kernel_rate_bps = 10 * MBPS};
    const struct decide_observed packets = {.kernel_rate_bps = 10 * MBPS, .packets = true};

    int64_t next;

    put(decide, grant("r1"));
    desired(decide, T0, &next);
    decide_set_result(decide, "r1", 0, &idle, T0);
    assert_int_equal(decide_statuses(decide, T0, take, &told), 1);
    assert_int_equal(told.last.seen_at_us, 0);
    /* Datagrams have no octets of a socket: that they pass is told all the same, after a second and then when due. */
    decide_set_observed(decide, "r1", &packets, T0 + SECOND / 2);
    assert_int_equal(decide_statuses(decide, T0 + SECOND - 1, take, &told), 0);
    assert_int_equal(decide_statuses(decide, T0 + SECOND, take, &told), 1);
    assert_int_equal(told.last.seen_at_us, T0 + SECOND / 2);
    decide_set_observed(decide, "r1", &packets, T0 + 3 * SECOND);
    assert_int_equal(decide_statuses(decide, T0 + 4 * SECOND, take, &told), 0);
    decide_set_observed(decide, "r1", &idle, T0 + 5 * SECOND);
    assert_int_equal(decide_statuses(decide, T0 + 11 * SECOND, take, &told), 1);
    assert_int_equal(told.last.seen_at_us, T0 + 3 * SECOND);
    decide_free(decide);
}

static void off_and_observe_are_observed(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct told told = {0};
    int64_t next;

    put_and_tell(decide, grant("r1"), &told);
    decide_put_policy(decide, "default", DECIDE_MODE_OBSERVE);
    desired(decide, T0, &next);
    decide_statuses(decide, T0, take, &told);
    assert_int_equal(told.last.state, DECIDE_OBSERVED);
    assert_string_equal(told.reason, "enforcement is observe on this node");
    decide_put_policy(decide, "default", DECIDE_MODE_OFF);
    assert_int_equal(desired(decide, T0, &next), 0);
    decide_statuses(decide, T0, take, &told);
    assert_string_equal(told.reason, "enforcement is off on this node");
    assert_int_equal(told.last.observed.kernel_rate_bps, 0);
    decide_put_policy(decide, "default", DECIDE_MODE_ENFORCE);
    assert_int_equal(decide_set_local_off(decide, true), 1);
    assert_int_equal(decide_set_local_off(decide, true), 0);
    assert_int_equal(decide_mode(decide), DECIDE_MODE_OFF);
    decide_statuses(decide, T0, take, &told);
    assert_string_equal(told.reason, "enforcement is off on this node, switched off there");
    decide_set_local_off(decide, false);
    decide_put_policy(decide, "default", DECIDE_MODE_ENFORCE);
    desired(decide, T0, &next);
    assert_int_equal(decide_statuses(decide, T0, take, &told), 0);
    apply(decide, "r1", T0 + 3, 10 * MBPS);
    decide_statuses(decide, T0 + 3, take, &told);
    assert_int_equal(told.last.state, DECIDE_APPLIED);
    assert_int_equal(told.last.applied_at_us, T0 + 3);
    decide_free(decide);
}

static void failures_say_why(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct decide_grant g = grant("r1");
    struct decide_link link = {.id = "alpha:to-bravo", .ifindex = 7};
    struct told told = {0};
    int64_t next;

    g.selector_error = "source_prefix \"x\" is no address";
    put(decide, g);
    assert_int_equal(desired(decide, T0, &next), 0);
    decide_statuses(decide, T0, take, &told);
    assert_int_equal(told.last.state, DECIDE_FAILED);
    assert_string_equal(told.reason, "source_prefix \"x\" is no address");

    put(decide, (g = grant("r1"), g.generation = 2, g));
    desired(decide, T0, &next);
    decide_set_result(decide, "r1", -ENOSPC, NULL, T0);
    decide_statuses(decide, T0, take, &told);
    assert_string_equal(told.reason, "this node has no room for another grant");
    decide_set_result(decide, "r1", -EINVAL, NULL, T0);
    decide_statuses(decide, T0, take, &told);
    assert_string_equal(told.reason, "the kernel refused it: Invalid argument");

    assert_int_equal(decide_set_links(decide, &link, 1), 1);
    assert_int_equal(decide_set_links(decide, &link, 1), 0);
    desired(decide, T0, &next);
    decide_statuses(decide, T0, take, &told);
    assert_string_equal(told.reason, "link alpha:to-bravo is down");
    assert_true(told.last.link_down);

    assert_int_equal(decide_set_links(decide, NULL, 0), 1);
    desired(decide, T0, &next);
    decide_statuses(decide, T0, take, &told);
    assert_string_equal(told.reason, "this node has no link alpha:to-bravo");
    assert_false(told.last.link_down);
    decide_free(decide);
}

static void no_rate_at_all_fails_after_the_grace(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct decide_grant g = grant("r1");
    struct told told = {0};

    g.guaranteed_bps = 0;
    put(decide, g);
    apply(decide, "r1", T0, 0);
    assert_int_equal(decide_statuses(decide, T0 + DECIDE_GRACE_US - 1, take, &told), 0);
    assert_int_equal(decide_statuses(decide, T0 + DECIDE_GRACE_US, take, &told), 1);
    assert_int_equal(told.last.state, DECIDE_FAILED);
    assert_string_equal(told.reason, "link alpha:to-bravo has no fresh rate");
    rates(decide, 5 * MBPS, 6 * MBPS, 7 * MBPS);
    apply(decide, "r1", T0 + 2 * SECOND, 5 * MBPS);
    decide_statuses(decide, T0 + 2 * SECOND, take, &told);
    assert_int_equal(told.last.state, DECIDE_APPLIED);
    decide_free(decide);
}

static void a_tombstone_removes_and_is_remembered_for_a_while(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct told told = {0};
    int64_t next;

    put_and_tell(decide, grant("r1"), &told);
    assert_int_equal(decide_remove_grant(decide, "r1", "00-cc-dd-01", T0 + SECOND), 1);
    assert_int_equal(decide_remove_grant(decide, "r1", NULL, T0 + SECOND), 0);
    assert_int_equal(desired(decide, T0 + SECOND, &next), 0);
    assert_int_equal(decide_statuses(decide, T0 + SECOND, take, &told), 1);
    assert_int_equal(told.last.state, DECIDE_REMOVED);
    assert_string_equal(told.reason, "released");
    assert_string_equal(told.traceparent, "00-cc-dd-01");
    assert_int_equal(decide_statuses(decide, T0 + 30 * SECOND, take, &told), 0);
    decide_undelivered(decide, "r1");
    assert_int_equal(decide_statuses(decide, T0 + 31 * SECOND, take, &told), 1);
    assert_int_equal(told.last.state, DECIDE_REMOVED);
    decide_statuses(decide, T0 + SECOND + DECIDE_FORGET_US, take, &told);
    assert_int_equal(decide_counts(decide).grants, 0);
    decide_free(decide);
}

/* Its rate would drain for a minute otherwise. */
static void a_tombstone_of_an_untold_grant_is_told(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct told told = {0};
    int64_t next;

    assert_int_equal(desired(decide, T0, &next), 0);
    put(decide, grant("r1"));
    decide_remove_grant(decide, "r1", NULL, T0);
    assert_int_equal(decide_statuses(decide, T0, take, &told), 1);
    assert_int_equal(told.last.state, DECIDE_REMOVED);
    assert_int_equal(told.last.generation, 1);
    assert_int_equal(decide_statuses(decide, T0 + 1, take, &told), 0);
    assert_int_equal(decide_remove_grant(decide, "nobody", NULL, T0), 0);
    decide_free(decide);
}

/* What the kernel may still hold is not said to be gone. */
static void removed_is_told_after_decisions_left_it_out(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct told told = {0};
    int64_t next;

    put_and_tell(decide, grant("r1"), &told);
    decide_remove_grant(decide, "r1", NULL, T0 + SECOND);
    assert_int_equal(decide_statuses(decide, T0 + SECOND, take, &told), 0);
    assert_int_equal(desired(decide, T0 + SECOND, &next), 0);
    assert_int_equal(decide_statuses(decide, T0 + SECOND, take, &told), 1);
    assert_int_equal(told.last.state, DECIDE_REMOVED);
    decide_free(decide);
}

/* Read before the first decisions: flows of a process before this one may still be at its rate. */
static void an_untold_grant_of_a_process_before_drains(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct told told = {0};
    int64_t next;

    put(decide, grant("r1"));
    decide_remove_grant(decide, "r1", NULL, T0);
    assert_int_equal(desired(decide, T0, &next), 0);
    assert_int_equal(decide_statuses(decide, T0, take, &told), 0);
    assert_int_equal(decide_statuses(decide, T0 + 60 * SECOND, take, &told), 0);
    assert_int_equal(decide_counts(decide).grants, 0);
    decide_free(decide);
}

/* A node that only passes them on has no flows that a process before this one could have left at a rate. */
static void an_untold_grant_of_a_process_before_is_told_by_a_node_that_only_forwards(void **state) {
    (void)state;
    struct decide *decide = decide_new("bravo");
    struct decide_link link = {.id = "bravo:to-charlie", .ifindex = 7, .up = true};
    struct told told = {0};
    int64_t next;

    decide_put_policy(decide, "default", DECIDE_MODE_ENFORCE);
    decide_set_links(decide, &link, 1);
    put(decide, grant("r1"));
    decide_remove_grant(decide, "r1", NULL, T0);
    assert_int_equal(desired(decide, T0, &next), 0);
    assert_int_equal(decide_statuses(decide, T0, take, &told), 1);
    assert_int_equal(told.last.state, DECIDE_REMOVED);
    decide_free(decide);
}

static void an_untold_grant_whose_validity_is_over_is_silent(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct told told = {0};
    int64_t next;

    assert_int_equal(desired(decide, T0, &next), 0);
    put(decide, grant("r1"));
    decide_remove_grant(decide, "r1", NULL, T0);
    assert_int_equal(decide_statuses(decide, T0 + 60 * SECOND, take, &told), 0);
    assert_int_equal(decide_counts(decide).grants, 0);
    decide_free(decide);
}

static void what_was_released_is_not_brought_back_by_a_late_record(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct decide_grant g = grant("r1");
    struct told told = {0};
    int64_t next;

    g.generation = 5;
    put(decide, g);
    decide_remove_grant(decide, "r1", NULL, T0);
    decide_statuses(decide, T0, take, &told);
    assert_int_equal(decide_put_grant(decide, &g, NULL, T0 + SECOND), 0);
    g.generation = 4;
    assert_int_equal(decide_put_grant(decide, &g, NULL, T0 + 59 * SECOND), 0);
    assert_int_equal(desired(decide, T0 + 59 * SECOND, &next), 0);
    /* A newer one is no late one: a path that left this node out comes back to it. */
    g.generation = 6;
    g.valid_until_us = T0 + 200 * SECOND;
    assert_int_equal(decide_put_grant(decide, &g, NULL, T0 + 59 * SECOND), 1);
    assert_int_equal(desired(decide, T0 + 59 * SECOND, &next), 1);
    decide_free(decide);
}

static void validity_that_ends_is_told_and_a_renewal_applies_again(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct decide_grant g = grant("r1");
    struct told told = {0};
    int64_t next, late = T0 + 60 * SECOND;

    put_and_tell(decide, g, &told);
    desired(decide, late, &next);
    decide_statuses(decide, late, take, &told);
    assert_int_equal(told.last.state, DECIDE_REMOVED);
    assert_string_equal(told.reason, "its validity ended");
    g.generation = 2;
    g.valid_until_us = late + 60 * SECOND;
    put(decide, g);
    apply(decide, "r1", late + 1, 10 * MBPS);
    decide_statuses(decide, late + 1, take, &told);
    assert_int_equal(told.last.state, DECIDE_APPLIED);
    assert_int_equal(told.last.applied_at_us, late + 1);
    decide_free(decide);
}

static void a_refused_status_stays_due(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct told told = {.refuse = 1};

    put(decide, grant("r1"));
    apply(decide, "r1", T0, 10 * MBPS);
    assert_int_equal(decide_statuses(decide, T0, take, &told), 0);
    told.refuse = 0;
    assert_int_equal(decide_statuses(decide, T0 + 1, take, &told), 1);
    decide_free(decide);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(applied_once_then_refreshed),
        cmocka_unit_test(a_new_generation_is_told_at_once),
        cmocka_unit_test(a_moved_rate_is_told_after_a_second),
        cmocka_unit_test(the_first_packets_are_told),
        cmocka_unit_test(off_and_observe_are_observed),
        cmocka_unit_test(failures_say_why),
        cmocka_unit_test(no_rate_at_all_fails_after_the_grace),
        cmocka_unit_test(a_tombstone_removes_and_is_remembered_for_a_while),
        cmocka_unit_test(a_tombstone_of_an_untold_grant_is_told),
        cmocka_unit_test(removed_is_told_after_decisions_left_it_out),
        cmocka_unit_test(an_untold_grant_of_a_process_before_drains),
        cmocka_unit_test(an_untold_grant_of_a_process_before_is_told_by_a_node_that_only_forwards),
        cmocka_unit_test(an_untold_grant_whose_validity_is_over_is_silent),
        cmocka_unit_test(what_was_released_is_not_brought_back_by_a_late_record),
        cmocka_unit_test(validity_that_ends_is_told_and_a_renewal_applies_again),
        cmocka_unit_test(a_refused_status_stays_due),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
