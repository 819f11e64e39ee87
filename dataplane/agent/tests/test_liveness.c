/* When a neighbour's unanswered probes prove a failure, and when it is used again. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <stdlib.h>

#include "paths/liveness.h"

#define MS 1000000ull
#define PERIOD_NS (LIVENESS_PERIOD_US * 1000ull)
#define GIGABIT 1000000000ull

/* So many probes, one each period, each answered but one in `lose_every` (0: none is lost; 1: all). */
static enum liveness_change exchange(struct liveness *liveness, struct liveness_seen *seen, unsigned n,
                                     unsigned lose_every) {
    enum liveness_change last = LIVENESS_SAME;

    for (unsigned i = 0; i < n; i++) {
        seen->sent++;
        seen->answered_ago_ns += PERIOD_NS;
        if (!lose_every || seen->sent % lose_every) {
            seen->answers++;
            seen->answered = seen->sent;
            seen->answered_ago_ns = 0;
        }
        enum liveness_change change = liveness_judge(liveness, seen);
        if (change != LIVENESS_SAME) {
            seen->usable = change == LIVENESS_RETURNED;
            last = change;
        }
    }
    return last;
}

static struct liveness_seen with_rtt(uint64_t rtt_ns) {
    return (struct liveness_seen){.rtt_ns = rtt_ns};
}

static void nobody_is_used_before_three_good_windows(void **state) {
    struct liveness liveness = liveness_new(GIGABIT);
    struct liveness_seen seen = with_rtt(20 * MS);

    (void)state;
    assert_int_equal(exchange(&liveness, &seen, 3 * LIVENESS_WINDOW - 1, 0), LIVENESS_SAME);
    assert_false(liveness.up);
    assert_int_equal(exchange(&liveness, &seen, 1, 0), LIVENESS_RETURNED);
    assert_true(liveness.up);
}

static void a_clean_link_fails_after_five_probes_and_those_on_their_way(void **state) {
    struct liveness liveness = liveness_new(GIGABIT);
    struct liveness_seen seen = with_rtt(20 * MS);

    (void)state;
    exchange(&liveness, &seen, 5000, 0);
    assert_int_equal(liveness_unanswered(&liveness), LIVENESS_UNANSWERED_MIN);
    assert_int_equal(liveness_allowed(&liveness), LIVENESS_UNANSWERED_MIN + 1);
    assert_int_equal(liveness_patience_ns(&liveness), LIVENESS_UNANSWERED_MIN * PERIOD_NS + 20 * MS);
    assert_int_equal(exchange(&liveness, &seen, LIVENESS_UNANSWERED_MIN + 2, 1), LIVENESS_SAME);
    assert_int_equal(exchange(&liveness, &seen, 1, 1), LIVENESS_FAILED);
}

static void a_lossy_link_is_given_more(void **state) {
    struct liveness liveness = liveness_new(GIGABIT);
    struct liveness_seen seen = with_rtt(MS);

    (void)state;
    /* A tenth of the exchanges, as with 5 % each way: 0.1^9 is chance once in 1e9. */
    exchange(&liveness, &seen, 5000, 10);
    assert_in_range(liveness_unanswered(&liveness), 9, 10);
}

static void chance_alone_does_not_take_a_link_out(void **state) {
    struct liveness liveness = liveness_new(GIGABIT);
    struct liveness_seen seen = with_rtt(20 * MS);

    (void)state;
    srand(1);
    exchange(&liveness, &seen, 1000, 0);
    assert_true(liveness.up);
    /* 10 % each way, an hour of probes every 10 ms. */
    for (int i = 0; i < 360000; i++) {
        seen.sent++;
        seen.answered_ago_ns += PERIOD_NS;
        if (rand() % 100 >= 19) {
            seen.answers++;
            seen.answered = seen.sent;
            seen.answered_ago_ns = 0;
        }
        assert_int_equal(liveness_judge(&liveness, &seen), LIVENESS_SAME);
    }
}

static void silence_of_the_prober_proves_nothing(void **state) {
    struct liveness liveness = liveness_new(GIGABIT);
    struct liveness_seen seen = with_rtt(20 * MS);

    (void)state;
    exchange(&liveness, &seen, 1000, 0);
    for (int i = 0; i < 1000; i++) {
        seen.answered_ago_ns += PERIOD_NS;
        assert_int_equal(liveness_judge(&liveness, &seen), LIVENESS_SAME);
    }
}

static void probes_sent_at_once_prove_nothing_before_their_time(void **state) {
    struct liveness liveness = liveness_new(GIGABIT);
    struct liveness_seen seen = with_rtt(20 * MS);

    (void)state;
    exchange(&liveness, &seen, 5000, 0);
    seen.sent += 100;
    seen.answered_ago_ns = 5 * PERIOD_NS;
    assert_int_equal(liveness_judge(&liveness, &seen), LIVENESS_SAME);
    seen.answered_ago_ns = 8 * PERIOD_NS;
    assert_int_equal(liveness_judge(&liveness, &seen), LIVENESS_FAILED);
}

static void what_the_program_took_out_comes_back_by_windows(void **state) {
    struct liveness liveness = liveness_new(GIGABIT);
    struct liveness_seen seen = with_rtt(20 * MS);

    (void)state;
    exchange(&liveness, &seen, 1000, 0);
    seen.usable = false;
    assert_int_equal(liveness_judge(&liveness, &seen), LIVENESS_FAILED);
    assert_int_equal(exchange(&liveness, &seen, 2 * LIVENESS_WINDOW, 0), LIVENESS_SAME);
    /* A window in which most is lost begins the count anew. */
    assert_int_equal(exchange(&liveness, &seen, LIVENESS_WINDOW, 1), LIVENESS_SAME);
    assert_int_equal(exchange(&liveness, &seen, 2 * LIVENESS_WINDOW, 0), LIVENESS_SAME);
    assert_int_equal(exchange(&liveness, &seen, LIVENESS_WINDOW, 0), LIVENESS_RETURNED);
}

static void an_outage_is_no_loss_of_the_link(void **state) {
    struct liveness liveness = liveness_new(GIGABIT);
    struct liveness_seen seen = with_rtt(20 * MS);

    (void)state;
    exchange(&liveness, &seen, 5000, 0);
    exchange(&liveness, &seen, 5000, 1);
    assert_false(liveness.up);
    assert_int_equal(liveness_unanswered(&liveness), LIVENESS_UNANSWERED_MIN);
}

static void round_trips_that_grew_are_remembered_for_a_while(void **state) {
    struct liveness liveness = liveness_new(GIGABIT);
    struct liveness_seen seen = with_rtt(20 * MS);

    (void)state;
    exchange(&liveness, &seen, 1000, 0);
    seen.rtt_ns = 200 * MS;
    exchange(&liveness, &seen, 1, 0);
    seen.rtt_ns = 20 * MS;
    assert_in_range(liveness_allowed(&liveness), LIVENESS_UNANSWERED_MIN + 18, LIVENESS_UNANSWERED_MIN + 19);
    exchange(&liveness, &seen, 1000, 0);
    assert_int_equal(liveness_allowed(&liveness), LIVENESS_UNANSWERED_MIN + 1);
}

static void probes_keep_to_a_hundredth_of_the_link(void **state) {
    (void)state;
    assert_int_equal(liveness_period_us(GIGABIT), LIVENESS_PERIOD_US);
    assert_int_equal(liveness_period_us(100000000), LIVENESS_PERIOD_US);
    assert_int_equal(liveness_period_us(1000000), 176000);
    assert_int_equal(liveness_period_us(0), liveness_period_us(10000000));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_is_used_before_three_good_windows),
        cmocka_unit_test(a_clean_link_fails_after_five_probes_and_those_on_their_way),
        cmocka_unit_test(a_lossy_link_is_given_more),
        cmocka_unit_test(chance_alone_does_not_take_a_link_out),
        cmocka_unit_test(silence_of_the_prober_proves_nothing),
        cmocka_unit_test(probes_sent_at_once_prove_nothing_before_their_time),
        cmocka_unit_test(what_the_program_took_out_comes_back_by_windows),
        cmocka_unit_test(an_outage_is_no_loss_of_the_link),
        cmocka_unit_test(round_trips_that_grew_are_remembered_for_a_while),
        cmocka_unit_test(probes_keep_to_a_hundredth_of_the_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
