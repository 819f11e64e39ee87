/* Session rules: which become asks of this node, in which order, and what happens when there are too many. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "signal/session_rules.h"

#define NOW 1700000000000000ll
#define LATER (NOW + SESSION_RULE_ASKS_AFTER_US)
#define ROOM 256

static struct session_rules *rules;
static struct signal_ask asks[ROOM];
static int64_t next_us;

static int open_rules(void **state) {
    (void)state;
    rules = session_rules_new();
    return rules ? 0 : -1;
}

static int close_rules(void **state) {
    (void)state;
    session_rules_free(rules);
    return 0;
}

/* A rule of one selector for everybody. */
static struct session_rule rule_of(const char *id, uint64_t revision) {
    struct session_rule rule = {.id = id, .revision = revision, .n_asks = 1, .authorised = true};
    rule.asks[0].guaranteed_bps = revision * 1000;
    return rule;
}

static void put(struct session_rule rule, int64_t now_us) {
    assert_int_equal(session_rules_put(rules, &rule, now_us), 1);
}

static size_t asked(int64_t now_us) {
    return session_rules_asks(rules, now_us, asks, ROOM, &next_us);
}

static struct session_rule_state state_of(const char *id) {
    struct session_rule_state states[SESSION_RULES_MAX];
    size_t n = session_rules_list(rules, states, SESSION_RULES_MAX);
    for (size_t i = 0; i < n; i++)
        if (strcmp(states[i].id, id) == 0)
            return states[i];
    fail_msg("no rule %s", id);
    return states[0];
}

/* The other end of a session permits by then. */
static void test_a_new_rule_permits_first_and_asks_a_second_later(void **state) {
    (void)state;
    put(rule_of("calls", 1), NOW);
    assert_int_equal(asked(NOW), 1);
    assert_true(asks[0].permits && asks[0].elsewhere);
    assert_int_equal(next_us, LATER);
    assert_false(state_of("calls").asks);
    assert_int_equal(asked(LATER), 1);
    assert_true(asks[0].permits && !asks[0].elsewhere);
    assert_int_equal(asks[0].rule, state_of("calls").number);
    assert_int_equal(next_us, INT64_MAX);
    assert_true(state_of("calls").asks);
    /* A change is asked for at once; the same again is none. */
    put(rule_of("calls", 2), LATER);
    assert_int_equal(asked(LATER), 1);
    assert_false(asks[0].elsewhere);
    assert_int_equal(asks[0].guaranteed_bps, 2000);
    struct session_rule again = rule_of("calls", 2);
    assert_int_equal(session_rules_put(rules, &again, LATER), 0);
    assert_true(session_rules_remove(rules, "calls"));
    assert_false(session_rules_remove(rules, "calls"));
    assert_int_equal(asked(LATER), 0);
}

static void test_nodes_ask_by_name_or_by_all_tags(void **state) {
    static const char *const wanted[] = {"site=lab", "role=edge"}, *const some[] = {"site=lab"},
                             *const all[] = {"role=edge", "site=lab", "x=y"};
    struct session_rule other = rule_of("other", 1), named = rule_of("named", 1), tagged = rule_of("tagged", 1);
    (void)state;
    other.names_nodes = named.names_nodes = named.names_this_node = true;
    tagged.tags = wanted;
    tagged.n_tags = 2;
    put(other, NOW);
    put(named, NOW);
    put(tagged, NOW);
    assert_int_equal(asked(LATER), 3);
    assert_false(state_of("other").asks);
    assert_true(state_of("named").asks);
    assert_false(state_of("tagged").asks);
    assert_int_equal(session_rules_set_tags(rules, some, 1), 1);
    assert_int_equal(session_rules_set_tags(rules, some, 1), 0);
    asked(LATER);
    assert_false(state_of("tagged").asks);
    assert_int_equal(session_rules_set_tags(rules, all, 3), 1);
    asked(LATER);
    assert_true(state_of("tagged").asks);
    assert_int_equal(session_rules_set_tags(rules, NULL, 0), 1);
    asked(LATER);
    assert_false(state_of("tagged").asks);
    /* Of a rule for other nodes that authorises nothing there is nothing to keep here. */
    other.authorised = false;
    other.revision = 2;
    put(other, NOW);
    assert_int_equal(asked(LATER), 2);
}

static void test_own_rules_stand_before_built_in_ones(void **state) {
    struct session_rule built_in = rule_of("a-telephony", 1);
    (void)state;
    built_in.built_in = true;
    put(built_in, NOW);
    put(rule_of("z", 2), NOW);
    put(rule_of("m", 3), NOW);
    assert_int_equal(asked(LATER), 3);
    assert_int_equal(asks[0].guaranteed_bps, 3000);
    assert_int_equal(asks[1].guaranteed_bps, 2000);
    assert_int_equal(asks[2].guaranteed_bps, 1000);
}

static void test_what_has_no_room_says_so(void **state) {
    struct session_rule wide = rule_of("b-wide", 1), broken = rule_of("c-broken", 1);
    char id[16];
    (void)state;
    wide.n_asks = 3;
    snprintf(broken.fault, sizeof(broken.fault), "selector 1: its DSCP is out of range");
    put(rule_of("a", 1), NOW);
    put(wide, NOW);
    put(broken, NOW);
    put(rule_of("d", 1), NOW);
    assert_int_equal(session_rules_asks(rules, LATER, asks, 3, &next_us), 2);
    assert_string_equal(state_of("a").fault, "");
    assert_string_equal(state_of("b-wide").fault, "no room for its 3 selectors: 2 are left on this node");
    assert_string_equal(state_of("c-broken").fault, broken.fault);
    assert_true(state_of("d").asks);
    assert_int_equal(asked(LATER), 5);
    assert_string_equal(state_of("b-wide").fault, "");
    for (int i = 4; i < SESSION_RULES_MAX; i++) {
        snprintf(id, sizeof(id), "rule-%d", i);
        put(rule_of(id, 1), NOW);
    }
    struct session_rule more = rule_of("more", 1);
    assert_int_equal(session_rules_put(rules, &more, NOW), -ENOSPC);
    assert_int_equal(session_rules_left_out(rules), 1);
    assert_true(session_rules_remove(rules, "a"));
    assert_int_equal(session_rules_left_out(rules), 0);
    assert_int_equal(session_rules_put(rules, &more, NOW), 1);
    more.id = "";
    assert_int_equal(session_rules_put(rules, &more, NOW), -EINVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_new_rule_permits_first_and_asks_a_second_later, open_rules, close_rules),
        cmocka_unit_test_setup_teardown(test_nodes_ask_by_name_or_by_all_tags, open_rules, close_rules),
        cmocka_unit_test_setup_teardown(test_own_rules_stand_before_built_in_ones, open_rules, close_rules),
        cmocka_unit_test_setup_teardown(test_what_has_no_room_says_so, open_rules, close_rules),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
