/* Tests of decide.h: which rate a grant gets here, and which grants are ours at all. */
#include "decide_cases.h"

#include <arpa/inet.h>

static void available_is_the_least_of_the_path(void **state) {
    (void)state;
    struct decide *decide = alpha();

    put(decide, grant("r1"));
    rates(decide, 50 * MBPS, 20 * MBPS, 90 * MBPS);
    const struct decide_applied *row = only(decide, T0);
    assert_int_equal(row->gr_bps, 10 * MBPS);
    assert_int_equal(row->ar_bps, 20 * MBPS);
    assert_int_equal(row->ar_valid_until_us, T0 + 10 * SECOND);
    assert_int_equal(row->valid_until_us, T0 + 60 * SECOND);
    assert_int_equal(row->ifindex, 7);
    assert_true(row->sending);
    decide_free(decide);
}

/* A link of 97 Mb/s for explicit rates that counts `flows` grants. */
static void shared_link(struct decide *decide, uint64_t available_bps, uint32_t flows, uint64_t generation,
                        int64_t now_us) {
    struct decide_link_rate rate = {
        .available_bps = available_bps, .explicit_rate_capacity_bps = 97 * MBPS, .active_users = flows};

    snprintf(rate.link_id, sizeof(rate.link_id), "%s", PATH[1]);
    assert_true(decide_put_link_rates(decide, "bravo", generation, T0 + 60 * SECOND, &rate, 1, NULL, 0, now_us) >= 0);
}

static void a_newcomer_takes_its_part_until_the_rates_count_it(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct decide_observed silent = {.matching_flows = 1}, observed = {.matching_flows = 1, .sent_bytes = 1000};
    int64_t began = T0 + SECOND, next;

    put(decide, grant("r1"));
    rate(decide, "alpha", PATH[0], 400 * MBPS, 1, T0 + 60 * SECOND);
    rate(decide, "charlie", PATH[2], 400 * MBPS, 1, T0 + 60 * SECOND);
    /* The rate is no younger than the grant: the link does not know yet that 10 Mb/s of GR will be in use. */
    shared_link(decide, 97 * MBPS, 0, 1, T0);
    assert_int_equal(only(decide, T0)->ar_bps, 87 * MBPS);
    assert_int_equal(only(decide, T0 + DECIDE_UNKNOWN_GRANT_US)->ar_bps, 97 * MBPS);
    /* A younger one sets it aside. Two others are there: a part of what a third gets, though R says more. */
    shared_link(decide, 60 * MBPS, 2, 2, T0 + 1);
    assert_int_equal(only(decide, T0 + 1)->ar_bps, 97 * MBPS / 3 / DECIDE_NEWCOMER_PART);
    decide_set_observed(decide, "r1", &silent, T0 + 2);
    /* Data begin: still a newcomer, and the end of that is planned. */
    assert_int_equal(decide_set_observed(decide, "r1", &observed, began), 1);
    assert_int_equal(only(decide, began)->ar_bps, 97 * MBPS / 3 / DECIDE_NEWCOMER_PART);
    desired(decide, began, &next);
    assert_int_equal(next, began + DECIDE_NEWCOMER_US);
    assert_int_equal(only(decide, began + DECIDE_NEWCOMER_US)->ar_bps, 60 * MBPS);
    /* No octets for a while: a newcomer again. */
    assert_int_equal(only(decide, began + DECIDE_IDLE_US)->ar_bps, 97 * MBPS / 3 / DECIDE_NEWCOMER_PART);
    decide_free(decide);
}

static void a_rate_that_counts_the_newcomer_is_taken_at_once(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct decide_observed silent = {.matching_flows = 1}, observed = {.matching_flows = 1, .sent_bytes = 1000};
    int64_t began = T0 + SECOND;

    put(decide, grant("r1"));
    rate(decide, "alpha", PATH[0], 400 * MBPS, 1, T0 + 60 * SECOND);
    rate(decide, "charlie", PATH[2], 400 * MBPS, 1, T0 + 60 * SECOND);
    shared_link(decide, 97 * MBPS, 1, 1, T0 + 1);
    decide_set_observed(decide, "r1", &silent, T0 + 2);
    /* The others' count changes while it is silent: that is not this grant. */
    shared_link(decide, 97 * MBPS, 2, 2, T0 + 3);
    assert_int_equal(only(decide, T0 + 3)->ar_bps, 97 * MBPS / 3 / DECIDE_NEWCOMER_PART);
    decide_set_observed(decide, "r1", &silent, T0 + 4);
    /* A rate that counts it may be here before its octets were seen. */
    shared_link(decide, 32 * MBPS, 3, 3, began - 1);
    decide_set_observed(decide, "r1", &observed, began);
    assert_int_equal(only(decide, began)->ar_bps, 32 * MBPS);
    decide_free(decide);
}

/* A silent grant on a path whose shared link has one user. */
static struct decide *silent_beside_one(void) {
    struct decide *decide = alpha();
    struct decide_observed silent = {.matching_flows = 1};

    put(decide, grant("r1"));
    rate(decide, "alpha", PATH[0], 400 * MBPS, 1, T0 + 60 * SECOND);
    rate(decide, "charlie", PATH[2], 400 * MBPS, 1, T0 + 60 * SECOND);
    shared_link(decide, 97 * MBPS, 1, 1, T0 + 1);
    assert_int_equal(decide_set_observed(decide, "r1", &silent, T0 + 2), 0);
    return decide;
}

static void octets_seen_while_a_rate_is_applied_change_the_outcome(void **state) {
    (void)state;
    struct decide *decide = silent_beside_one();
    struct decide_observed observed = {.matching_flows = 1, .sent_bytes = 1000};

    /* The rate that counts it comes before its octets were looked at: it is applied to a newcomer ... */
    shared_link(decide, 48 * MBPS, 2, 2, T0 + 3);
    assert_int_equal(only(decide, T0 + 3)->ar_bps, 97 * MBPS / 3 / DECIDE_NEWCOMER_PART);
    /* ... and what is observed then says that it is none, which is not for the next rate to find out. */
    assert_int_equal(decide_set_result(decide, "r1", 0, &observed, T0 + 3), 1);
    assert_int_equal(only(decide, T0 + 3)->ar_bps, 48 * MBPS);
    assert_int_equal(decide_set_result(decide, "r1", 0, &observed, T0 + 4), 0);
    decide_free(decide);
}

/* A link of 97 Mb/s with one rate for each user; `flows` of them are tom's when there are several. */
static void link_of_users(struct decide *decide, uint64_t available_bps, uint32_t users, uint32_t flows,
                          uint64_t generation, int64_t now_us) {
    struct decide_link_rate rate = {
        .available_bps = available_bps, .explicit_rate_capacity_bps = 97 * MBPS, .active_users = users};
    const struct decide_user_flows named[] = {{.user = "zoe", .flows = 9}, {.user = "tom", .flows = flows}};

    snprintf(rate.link_id, sizeof(rate.link_id), "%s", PATH[1]);
    assert_true(decide_put_link_rates(decide, "bravo", generation, T0 + 60 * SECOND, &rate, 1, named, flows ? 2 : 1,
                                      now_us) >= 0);
}

static void flows_of_a_user_share_one_user_s_rate(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct decide_observed silent = {.matching_flows = 1}, observed = {.matching_flows = 1, .sent_bytes = 1000};
    struct decide_grant mine = grant("r1"), whose = grant("r2");
    const struct decide_applied *table;
    int64_t began = T0 + SECOND, next;

    mine.user = "tom";
    put(decide, mine);
    put(decide, whose);
    assert_string_equal(decide_user(decide, "r1"), "tom");
    assert_string_equal(decide_user(decide, "r2"), "");
    assert_string_equal(decide_user(decide, "r3"), "");
    rate(decide, "alpha", PATH[0], 400 * MBPS, 1, T0 + 60 * SECOND);
    rate(decide, "charlie", PATH[2], 400 * MBPS, 1, T0 + 60 * SECOND);
    /* Tom has two flows there; a third one takes no more than a third of his rate, and less than a new user would. */
    link_of_users(decide, 24 * MBPS, 4, 2, 1, T0 + 1);
    decide_set_observed(decide, "r1", &silent, T0 + 2);
    decide_set_observed(decide, "r2", &silent, T0 + 2);
    assert_int_equal(decide_desired(decide, T0 + 2, &table, &next), 2);
    assert_int_equal(table[0].ar_bps, 97 * MBPS / 5 / DECIDE_NEWCOMER_PART);
    /* No new user, but a flow more of tom's: it is counted. Who belongs to nobody has a rate for itself, once counted.
     */
    link_of_users(decide, 24 * MBPS, 4, 3, 2, began - 1);
    decide_set_observed(decide, "r1", &observed, began);
    decide_set_observed(decide, "r2", &observed, began);
    assert_int_equal(decide_desired(decide, began, &table, &next), 2);
    assert_int_equal(table[0].ar_bps, 24 * MBPS / 3);
    assert_int_equal(table[1].ar_bps, 97 * MBPS / 5 / DECIDE_NEWCOMER_PART);
    assert_int_equal(decide_desired(decide, began + DECIDE_NEWCOMER_US, &table, &next), 2);
    assert_int_equal(table[0].ar_bps, 24 * MBPS / 3);
    assert_int_equal(table[1].ar_bps, 24 * MBPS);
    /* His others have left. */
    link_of_users(decide, 30 * MBPS, 3, 0, 3, began + DECIDE_NEWCOMER_US);
    assert_int_equal(decide_desired(decide, began + DECIDE_NEWCOMER_US, &table, &next), 2);
    assert_int_equal(table[0].ar_bps, 30 * MBPS);
    decide_free(decide);
}

static void a_handshake_counts_as_traffic(void **state) {
    (void)state;
    struct decide *decide = silent_beside_one();
    struct decide_observed shakes_hands = {.matching_flows = 1, .packets = true};

    /* The link has seen the SYN, no octet has left yet. */
    shared_link(decide, 48 * MBPS, 2, 2, T0 + 3);
    assert_int_equal(decide_set_result(decide, "r1", 0, &shakes_hands, T0 + 3), 1);
    assert_int_equal(only(decide, T0 + 3)->ar_bps, 48 * MBPS);
    /* A handshake that nothing follows ends as any silence. */
    assert_int_equal(decide_set_observed(decide, "r1", &shakes_hands, T0 + 4), 0);
    assert_int_equal(only(decide, T0 + 3 + DECIDE_IDLE_US)->ar_bps, 97 * MBPS / 3 / DECIDE_NEWCOMER_PART);
    decide_free(decide);
}

static void alone_a_newcomer_gets_all_there_is(void **state) {
    (void)state;
    struct decide *decide = alpha();

    put(decide, grant("r1"));
    rate(decide, "alpha", PATH[0], 400 * MBPS, 1, T0 + 60 * SECOND);
    rate(decide, "charlie", PATH[2], 400 * MBPS, 1, T0 + 60 * SECOND);
    shared_link(decide, 97 * MBPS, 0, 1, T0 + 1);
    assert_int_equal(only(decide, T0 + 1)->ar_bps, 97 * MBPS);
    decide_free(decide);
}

static void a_newcomer_with_more_gr_than_is_there_gets_no_more(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct decide_grant large = grant("r1");

    large.guaranteed_bps = 98 * MBPS;
    put(decide, large);
    rate(decide, "alpha", PATH[0], 400 * MBPS, 1, T0 + 60 * SECOND);
    rate(decide, "charlie", PATH[2], 400 * MBPS, 1, T0 + 60 * SECOND);
    shared_link(decide, 97 * MBPS, 0, 1, T0);
    assert_int_equal(only(decide, T0)->ar_bps, 0);
    assert_int_equal(only(decide, T0)->gr_bps, 98 * MBPS);
    decide_free(decide);
}

static void without_available_rate_only_gr(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct decide_grant g = grant("r1");

    g.with_available_rate = false;
    put(decide, g);
    rates(decide, 50 * MBPS, 20 * MBPS, 90 * MBPS);
    assert_int_equal(only(decide, T0)->ar_bps, 0);
    assert_int_equal(only(decide, T0)->ar_valid_until_us, 0);
    decide_free(decide);
}

static void one_missing_link_rate_makes_available_zero(void **state) {
    (void)state;
    struct decide *decide = alpha();

    put(decide, grant("r1"));
    rate(decide, "alpha", PATH[0], 50 * MBPS, 1, T0 + 10 * SECOND);
    rate(decide, "bravo", PATH[1], 50 * MBPS, 1, T0 + 10 * SECOND);
    assert_int_equal(only(decide, T0)->ar_bps, 0);
    rate(decide, "charlie", "charlie:elsewhere", 50 * MBPS, 1, T0 + 10 * SECOND);
    assert_int_equal(only(decide, T0)->ar_bps, 0);
    decide_free(decide);
}

static void ended_link_rate_leaves_gr(void **state) {
    (void)state;
    struct decide *decide = alpha();
    int64_t next;

    put(decide, grant("r1"));
    rates(decide, 50 * MBPS, 20 * MBPS, 90 * MBPS);
    assert_int_equal(desired(decide, T0 + 3 * SECOND, &next), 1);
    assert_int_equal(next, T0 + 10 * SECOND);
    const struct decide_applied *row = only(decide, T0 + 10 * SECOND);
    assert_int_equal(row->ar_bps, 0);
    assert_int_equal(row->gr_bps, 10 * MBPS);
    assert_int_equal(desired(decide, T0 + 10 * SECOND, &next), 1);
    assert_int_equal(next, T0 + 60 * SECOND);
    assert_int_equal(desired(decide, T0 + 60 * SECOND, &next), 0);
    decide_free(decide);
}

static void maximum_bounds_the_sum(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct decide_grant g = grant("r1");

    g.maximum_bps = 15 * MBPS;
    put(decide, g);
    rates(decide, 50 * MBPS, 20 * MBPS, 90 * MBPS);
    assert_int_equal(only(decide, T0)->ar_bps, 5 * MBPS);
    g.maximum_bps = 8 * MBPS;
    g.generation = 2;
    put(decide, g);
    assert_int_equal(only(decide, T0)->gr_bps, 8 * MBPS);
    assert_int_equal(only(decide, T0)->ar_bps, 0);
    decide_free(decide);
}

static void older_generations_are_ignored_while_in_force(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct decide_grant g = grant("r1");

    g.generation = 5;
    put(decide, g);
    g.generation = 4;
    g.guaranteed_bps = 99 * MBPS;
    assert_int_equal(decide_put_grant(decide, &g, NULL, T0), 0);
    assert_int_equal(only(decide, T0)->gr_bps, 10 * MBPS);
    g.valid_until_us = T0 + 200 * SECOND;
    assert_int_equal(decide_put_grant(decide, &g, NULL, T0 + 61 * SECOND), 1);
    assert_int_equal(only(decide, T0 + 61 * SECOND)->gr_bps, 99 * MBPS);
    decide_free(decide);
}

static void older_link_rates_are_ignored_until_the_lease_ends(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct decide_link_rate r = {.link_id = "alpha:to-bravo", .available_bps = 1 * MBPS};

    rate(decide, "alpha", PATH[0], 50 * MBPS, 9, T0 + 10 * SECOND);
    assert_int_equal(decide_put_link_rates(decide, "alpha", 8, T0 + 20 * SECOND, &r, 1, NULL, 0, T0 + 9 * SECOND), 0);
    assert_int_equal(decide_link_rate(decide, PATH[0], T0 + 9 * SECOND)->available_bps, 50 * MBPS);
    assert_int_equal(decide_put_link_rates(decide, "alpha", 1, T0 + 30 * SECOND, &r, 1, NULL, 0, T0 + 10 * SECOND), 1);
    assert_int_equal(decide_link_rate(decide, PATH[0], T0 + 11 * SECOND)->available_bps, 1 * MBPS);
    assert_null(decide_link_rate(decide, PATH[0], T0 + 30 * SECOND));
    assert_int_equal(decide_remove_link_rates(decide, "alpha"), 1);
    assert_int_equal(decide_remove_link_rates(decide, "alpha"), 0);
    assert_null(decide_link_rate(decide, PATH[0], T0 + 11 * SECOND));
    decide_free(decide);
}

static void grants_of_other_paths_are_not_ours(void **state) {
    (void)state;
    struct decide *decide = node("alph", "alph:to-bravo");
    struct decide_grant g = grant("r1");
    int64_t next;

    assert_int_equal(decide_put_grant(decide, &g, NULL, T0), 0);
    assert_int_equal(desired(decide, T0, &next), 0);
    assert_int_equal(decide_counts(decide).grants, 0);
    decide_free(decide);
}

static void a_node_in_the_middle_does_not_send(void **state) {
    (void)state;
    struct decide *decide = node("bravo", "bravo:to-charlie");

    put(decide, grant("r1"));
    const struct decide_applied *row = only(decide, T0);
    assert_false(row->sending);
    assert_string_equal(row->link_id, "bravo:to-charlie");
    decide_free(decide);
}

static void a_new_path_without_us_removes(void **state) {
    (void)state;
    static const char *const other[] = {"bravo:to-charlie"};
    struct decide *decide = alpha();
    struct decide_grant g = grant("r1");
    struct told told = {0};
    int64_t next;

    put(decide, g);
    apply(decide, "r1", T0, 10 * MBPS);
    decide_statuses(decide, T0, take, &told);
    g.generation = 2;
    g.link_ids = other;
    g.n_link_ids = 1;
    assert_int_equal(decide_put_grant(decide, &g, NULL, T0), 1);
    assert_int_equal(desired(decide, T0, &next), 0);
    decide_statuses(decide, T0, take, &told);
    assert_int_equal(told.last.state, DECIDE_REMOVED);
    decide_free(decide);
}

static void policy_of_the_node_beats_default(void **state) {
    (void)state;
    struct decide *decide = alpha();
    int64_t next;

    put(decide, grant("r1"));
    assert_int_equal(decide_mode(decide), DECIDE_MODE_ENFORCE);
    assert_int_equal(decide_put_policy(decide, "default", DECIDE_MODE_OFF), 1);
    assert_int_equal(decide_mode(decide), DECIDE_MODE_OFF);
    assert_int_equal(desired(decide, T0, &next), 0);
    decide_put_policy(decide, "bravo", DECIDE_MODE_ENFORCE);
    assert_int_equal(decide_mode(decide), DECIDE_MODE_OFF);
    decide_put_policy(decide, "alpha", DECIDE_MODE_ENFORCE);
    assert_int_equal(desired(decide, T0, &next), 1);
    assert_int_equal(decide_remove_policy(decide, "alpha"), 1);
    assert_int_equal(decide_mode(decide), DECIDE_MODE_OFF);
    assert_int_equal(decide_put_policy(decide, "alpha", (enum decide_mode)0), -EINVAL);
    decide_free(decide);
}

static void a_node_that_was_never_told_observes(void **state) {
    (void)state;
    struct decide *decide = decide_new("alpha");

    assert_non_null(decide);
    assert_int_equal(decide_mode(decide), DECIDE_MODE_OBSERVE);
    decide_free(decide);
}

static void a_node_may_have_the_longest_host_name(void **state) {
    (void)state;
    char name[254], link_id[sizeof(name) + 16];
    const char *path[] = {link_id};
    struct decide_grant g = grant("r1");
    struct told told = {0};
    struct decide *decide;

    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    snprintf(link_id, sizeof(link_id), "%s:to-bravo-012345", name);
    decide = node(name, link_id);
    g.link_ids = path;
    g.n_link_ids = 1;
    put_and_tell(decide, g, &told);
    assert_int_equal(told.last.state, DECIDE_APPLIED);
    assert_int_equal(decide_put_policy(decide, name, DECIDE_MODE_OFF), 1);
    assert_int_equal(decide_mode(decide), DECIDE_MODE_OFF);
    decide_free(decide);
}

static void without_a_policy_a_node_stays_in_its_mode(void **state) {
    (void)state;
    struct decide *decide = alpha();

    assert_int_equal(decide_mode(decide), DECIDE_MODE_ENFORCE);
    /* Another node's policy says nothing here. */
    decide_put_policy(decide, "bravo", DECIDE_MODE_OFF);
    decide_remove_policy(decide, "bravo");
    assert_int_equal(decide_mode(decide), DECIDE_MODE_ENFORCE);
    decide_put_policy(decide, "alpha", DECIDE_MODE_OFF);
    assert_int_equal(decide_mode(decide), DECIDE_MODE_OFF);
    assert_int_equal(decide_remove_policy(decide, "alpha"), 1);
    assert_int_equal(decide_mode(decide), DECIDE_MODE_OBSERVE);
    assert_int_equal(decide_remove_policy(decide, "alpha"), 0);
    decide_free(decide);
}

static void a_grant_in_the_future_waits(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct decide_grant g = grant("r1");
    struct told told = {0};
    int64_t next;

    g.valid_from_us = T0 + 5 * SECOND;
    put(decide, g);
    assert_int_equal(desired(decide, T0, &next), 0);
    assert_int_equal(next, T0 + 5 * SECOND);
    assert_int_equal(decide_statuses(decide, T0, take, &told), 0);
    assert_int_equal(desired(decide, T0 + 5 * SECOND, &next), 1);
    decide_free(decide);
}

static void expedited_needs_gr_priority_and_a_small_bucket(void **state) {
    (void)state;
    const struct {
        uint64_t gr;
        uint32_t delay_priority, burst_tolerance;
        enum decide_class class;
    } cases[] = {{1, 128, 3, DECIDE_CLASS_EXPEDITED},
                 {1, 128, 4, DECIDE_CLASS_EXPLICIT_RATE},
                 {1, 127, 0, DECIDE_CLASS_EXPLICIT_RATE},
                 {0, 255, 0, DECIDE_CLASS_EXPLICIT_RATE}};

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct decide *decide = alpha();
        struct decide_grant g = grant("r1");

        g.guaranteed_bps = cases[i].gr;
        g.delay_priority = cases[i].delay_priority;
        g.burst_tolerance = cases[i].burst_tolerance;
        put(decide, g);
        assert_int_equal(only(decide, T0)->class, cases[i].class);
        decide_free(decide);
    }
}

static void ten_thousand_grants_are_ordered(void **state) {
    (void)state;
    struct decide *decide = alpha();
    const struct decide_applied *table;
    int64_t next;
    char id[32];

    for (int i = 0; i < 10000; i++) {
        snprintf(id, sizeof(id), "request-%05d", i * 7919 % 10000);
        put(decide, grant(id));
    }
    rates(decide, 50 * MBPS, 20 * MBPS, 90 * MBPS);
    assert_int_equal(decide_desired(decide, T0, &table, &next), 10000);
    for (int i = 0; i < 10000; i++) {
        snprintf(id, sizeof(id), "request-%05d", i);
        assert_string_equal(table[i].request_id, id);
        assert_int_equal(table[i].ar_bps, 20 * MBPS);
    }
    decide_free(decide);
}

static void bad_ids_are_refused(void **state) {
    (void)state;
    static char long_id[DECIDE_ID_LEN + 1];
    static const char *const bad_path[] = {"alpha:to-bravo", ""};
    struct decide *decide = alpha();
    struct decide_grant g = grant("r1");

    memset(long_id, 'x', DECIDE_ID_LEN);
    g.request_id = long_id;
    assert_int_equal(decide_put_grant(decide, &g, NULL, T0), -EINVAL);
    g.request_id = "";
    assert_int_equal(decide_put_grant(decide, &g, NULL, T0), -EINVAL);
    g = grant("r1");
    g.link_ids = bad_path;
    g.n_link_ids = 2;
    assert_int_equal(decide_put_grant(decide, &g, NULL, T0), -EINVAL);
    assert_int_equal(decide_counts(decide).grants, 0);
    assert_null(decide_new(""));
    decide_free(decide);
}

static void an_in_band_lease_ends_with_itself_or_with_the_links_rate(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct decide_link_rate rate = {
        .available_bps = MBPS, .gr_lease_bps = 8 * MBPS, .gr_lease_until_us = T0 + 20 * SECOND};
    int64_t until_us = 0;

    snprintf(rate.link_id, sizeof(rate.link_id), "%s", PATH[0]);
    assert_int_equal(decide_in_band_lease(decide, PATH[0], T0, &until_us), 0);
    assert_true(decide_put_link_rates(decide, "alpha", 1, T0 + 10 * SECOND, &rate, 1, NULL, 0, T0) >= 0);
    assert_int_equal(decide_in_band_lease(decide, PATH[0], T0, &until_us), 8 * MBPS);
    assert_int_equal(until_us, T0 + 20 * SECOND);
    assert_int_equal(decide_in_band_lease(decide, PATH[1], T0, &until_us), 0);
    /* The allocator is silent: its rates end, and what they said of the lease with them. */
    assert_int_equal(decide_in_band_lease(decide, PATH[0], T0 + 10 * SECOND, &until_us), 0);
    /* It says the rates again, and of the lease what it knew: that ends at its own time. */
    assert_true(decide_put_link_rates(decide, "alpha", 2, T0 + 60 * SECOND, &rate, 1, NULL, 0, T0 + 11 * SECOND) >= 0);
    assert_int_equal(decide_in_band_lease(decide, PATH[0], T0 + 20 * SECOND - 1, &until_us), 8 * MBPS);
    assert_int_equal(decide_in_band_lease(decide, PATH[0], T0 + 20 * SECOND, &until_us), 0);
    decide_free(decide);
}

static void the_controllers_rate_holds_in_band_until_it_ends(void **state) {
    (void)state;
    struct decide *decide = alpha();
    struct decide_link_rate rate = {.available_bps = 40 * MBPS};
    uint64_t rate_bps = 7;
    int64_t until_us = 7;

    snprintf(rate.link_id, sizeof(rate.link_id), "%s", PATH[0]);
    assert_false(decide_in_band_rate(decide, PATH[0], T0, &rate_bps, &until_us));
    assert_int_equal(rate_bps, 7);
    assert_true(decide_put_link_rates(decide, "alpha", 1, T0 + SECOND, &rate, 1, NULL, 0, T0) >= 0);
    assert_true(decide_in_band_rate(decide, PATH[0], T0, &rate_bps, &until_us));
    assert_int_equal(rate_bps, 40 * MBPS);
    assert_int_equal(until_us, T0 + SECOND);
    assert_false(decide_in_band_rate(decide, PATH[1], T0, &rate_bps, &until_us));
    assert_false(decide_in_band_rate(decide, PATH[0], T0 + SECOND, &rate_bps, &until_us));
    decide_free(decide);
}

static void prefixes(void **state) {
    (void)state;
    static const char *const wrong[] = {"10.0.0.0/33", "10.0.0/8", "x",          "10.0.0.0/",
                                        "10.0.0.0/8x", "::/129",   "10.0.0.0/-1"};
    struct decide_prefix prefix;
    char text[64];

    assert_int_equal(decide_parse_prefix("", &prefix), 0);
    assert_int_equal(prefix.family, 0);
    assert_int_equal(decide_parse_prefix("10.1.2.3/15", &prefix), 0);
    assert_int_equal(prefix.bits, 15);
    assert_string_equal(inet_ntop(AF_INET, prefix.address, text, sizeof(text)), "10.0.0.0");
    assert_int_equal(decide_parse_prefix("10.1.2.3", &prefix), 0);
    assert_int_equal(prefix.bits, 32);
    assert_int_equal(decide_parse_prefix("fe80::1/10", &prefix), 0);
    assert_int_equal(prefix.family, AF_INET6);
    assert_string_equal(inet_ntop(AF_INET6, prefix.address, text, sizeof(text)), "fe80::");
    for (size_t i = 0; i < COUNT(wrong); i++)
        assert_int_equal(decide_parse_prefix(wrong[i], &prefix), -EINVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(available_is_the_least_of_the_path),
        cmocka_unit_test(a_newcomer_takes_its_part_until_the_rates_count_it),
        cmocka_unit_test(a_rate_that_counts_the_newcomer_is_taken_at_once),
        cmocka_unit_test(octets_seen_while_a_rate_is_applied_change_the_outcome),
        cmocka_unit_test(a_handshake_counts_as_traffic),
        cmocka_unit_test(flows_of_a_user_share_one_user_s_rate),
        cmocka_unit_test(alone_a_newcomer_gets_all_there_is),
        cmocka_unit_test(a_newcomer_with_more_gr_than_is_there_gets_no_more),
        cmocka_unit_test(without_available_rate_only_gr),
        cmocka_unit_test(one_missing_link_rate_makes_available_zero),
        cmocka_unit_test(ended_link_rate_leaves_gr),
        cmocka_unit_test(maximum_bounds_the_sum),
        cmocka_unit_test(older_generations_are_ignored_while_in_force),
        cmocka_unit_test(older_link_rates_are_ignored_until_the_lease_ends),
        cmocka_unit_test(grants_of_other_paths_are_not_ours),
        cmocka_unit_test(a_node_in_the_middle_does_not_send),
        cmocka_unit_test(a_new_path_without_us_removes),
        cmocka_unit_test(policy_of_the_node_beats_default),
        cmocka_unit_test(a_node_that_was_never_told_observes),
        cmocka_unit_test(a_node_may_have_the_longest_host_name),
        cmocka_unit_test(without_a_policy_a_node_stays_in_its_mode),
        cmocka_unit_test(a_grant_in_the_future_waits),
        cmocka_unit_test(expedited_needs_gr_priority_and_a_small_bucket),
        cmocka_unit_test(ten_thousand_grants_are_ordered),
        cmocka_unit_test(bad_ids_are_refused),
        cmocka_unit_test(an_in_band_lease_ends_with_itself_or_with_the_links_rate),
        cmocka_unit_test(the_controllers_rate_holds_in_band_until_it_ends),
        cmocka_unit_test(prefixes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
