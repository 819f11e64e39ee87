/* Which paths flows take and leave, by what probes met. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "paths/path_choice.h"

#define VOICE CHART_OVERLAY_VOICE
#define VIDEO CHART_OVERLAY_VIDEO
#define DATA CHART_OVERLAY_DATA
#define NORTH 0
#define SOUTH 1
/* Every 10 ms; looks take turns. */
#define PROBES(look) (12 + (look) % 2)
#define MBIT 1000000ull

/* What a path does from now on. */
struct conduct {
    double rtt_ms;
    /* Share of exchanges. */
    double loss;
    double mbit;
};

struct network {
    struct path_group group;
    struct path_seen seen[2];
    unsigned looks;
};

static struct network two_paths(uint64_t north_bps, uint64_t south_bps) {
    struct network network = {.group = {.n = 2, .colours = {0, 1}, .numbers = {64, 65}}};

    network.group.paths[NORTH].capacity_bps = north_bps;
    network.group.paths[SOUTH].capacity_bps = south_bps;
    network.seen[NORTH].alive = network.seen[SOUTH].alive = true;
    return network;
}

/* Chance as a seed has it, not as a day has it. */
static bool chance(double share) {
    static uint64_t state = 88172645463325252ull;

    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(state >> 11) / 9007199254740992.0 < share;
}

static void look(struct network *network, const struct conduct conduct[2]) {
    for (size_t i = 0; i < 2; i++) {
        struct path_seen *seen = &network->seen[i];

        for (unsigned k = 0; k < PROBES(network->looks); k++) {
            seen->answered++;
            seen->answers += !chance(conduct[i].loss);
        }
        seen->rtt_ns = (uint64_t)(conduct[i].rtt_ms * 1e6);
        seen->rtt_variation_ns = 200000;
        seen->forwarded_bytes += (uint64_t)(conduct[i].mbit * 1e6 / 8 * PATH_LOOK_US / 1e6);
        path_memory_look(&network->group.paths[i], seen);
    }
    network->looks++;
    path_group_judge(&network->group);
}

/* So many seconds; how often a class left a path. */
static unsigned pass(struct network *network, double seconds, struct conduct north, struct conduct south,
                     enum chart_overlay_class class) {
    const struct conduct conduct[2] = {north, south};
    uint32_t before = path_group_choice(&network->group, class).left;
    unsigned changes = 0;

    for (int i = 0; i < (int)(seconds * 1e6 / PATH_LOOK_US); i++) {
        uint32_t now;

        look(network, conduct);
        now = path_group_choice(&network->group, class).left;
        changes += now != before;
        before = now;
    }
    return changes;
}

/* Seconds until flows of a class leave north; infinite: not within ten. */
static double leaves_north(struct network *network, struct conduct north, struct conduct south,
                           enum chart_overlay_class class) {
    const struct conduct conduct[2] = {north, south};

    for (int i = 1; i <= 80; i++) {
        look(network, conduct);
        if (path_group_choice(&network->group, class).left & 1)
            return i * PATH_LOOK_US / 1e6;
    }
    return INFINITY;
}

static unsigned slots_of(const struct path_group *group, enum chart_overlay_class class, uint8_t colour) {
    struct chart_overlay_choice choice = path_group_choice(group, class);
    unsigned n = 0;

    for (size_t i = 0; i < CHART_OVERLAY_SLOTS; i++)
        n += choice.slots[i] == colour;
    return n;
}

static const struct conduct quick = {20, 0, 0}, near = {22, 0, 0};

static void the_best_path_is_taken_first(void **state) {
    struct network network = two_paths(100 * MBIT, 100 * MBIT);

    (void)state;
    assert_int_equal(pass(&network, 2, (struct conduct){80, 0, 0}, quick, VOICE), 1);
    assert_int_equal(slots_of(&network.group, VOICE, 1), CHART_OVERLAY_SLOTS);
    assert_int_equal(path_group_choice(&network.group, VOICE).order[0], 1);
}

static void every_class_leaves_a_path_that_loses_within_two_seconds(void **state) {
    (void)state;
    for (enum chart_overlay_class class = VOICE; class < CHART_OVERLAY_CLASSES; class ++) {
        unsigned late = 0;

        for (int i = 0; i < 200; i++) {
            struct network network = two_paths(100 * MBIT, 100 * MBIT);

            pass(&network, 10, quick, near, class);
            /* 5 % in each direction. */
            late += leaves_north(&network, (struct conduct){20, 0.0975, 0}, near, class) > 2;
        }
        assert_in_range(late, 0, 2);
    }
}

static void every_class_leaves_a_path_that_became_slow_within_a_second(void **state) {
    (void)state;
    for (enum chart_overlay_class class = VOICE; class < CHART_OVERLAY_CLASSES; class ++) {
        struct network network = two_paths(100 * MBIT, 100 * MBIT);

        pass(&network, 10, quick, near, class);
        assert_true(leaves_north(&network, (struct conduct){70, 0, 0}, near, class) <= 1);
        assert_int_equal(slots_of(&network.group, class, 0), 0);
    }
}

static void one_look_is_no_reason(void **state) {
    struct network network = two_paths(0, 0);

    (void)state;
    pass(&network, 10, quick, near, VOICE);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(pass(&network, 0.125, (struct conduct){200, 0, 0}, near, VOICE), 0);
        assert_int_equal(pass(&network, 0.125, quick, near, VOICE), 0);
    }
}

static void paths_that_are_nearly_as_good_are_kept_for_ten_minutes(void **state) {
    static const double losses[] = {0, 0.005, 0.02, 0.1};

    (void)state;
    for (enum chart_overlay_class class = VOICE; class < CHART_OVERLAY_CLASSES; class ++)
        for (size_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++) {
            struct network network = two_paths(100 * MBIT, 100 * MBIT);

            pass(&network, 10, (struct conduct){20, losses[i], 0}, (struct conduct){22, losses[i], 0}, class);
            assert_int_equal(
                pass(&network, 600, (struct conduct){20, losses[i], 0}, (struct conduct){22, losses[i], 0}, class), 0);
        }
}

static void a_path_is_taken_again_after_three_good_windows(void **state) {
    struct network network = two_paths(100 * MBIT, 100 * MBIT);

    (void)state;
    pass(&network, 10, quick, near, DATA);
    pass(&network, 3, (struct conduct){70, 0, 0}, near, DATA);
    assert_int_equal(pass(&network, 2.875, quick, near, DATA), 0);
    assert_int_equal(pass(&network, 0.125, quick, near, DATA), 1);
    assert_int_equal(slots_of(&network.group, DATA, 0), CHART_OVERLAY_SLOTS / 2);
}

static void a_class_with_one_path_stays_where_it_went(void **state) {
    struct network network = two_paths(100 * MBIT, 100 * MBIT);

    (void)state;
    pass(&network, 10, quick, near, VOICE);
    assert_int_equal(slots_of(&network.group, VOICE, 0), CHART_OVERLAY_SLOTS);
    pass(&network, 3, (struct conduct){70, 0, 0}, near, VOICE);
    assert_int_equal(slots_of(&network.group, VOICE, 1), CHART_OVERLAY_SLOTS);
    pass(&network, 60, quick, near, VOICE);
    assert_int_equal(slots_of(&network.group, VOICE, 1), CHART_OVERLAY_SLOTS);
}

static void data_is_spread_by_capacity(void **state) {
    struct network network = two_paths(75 * MBIT, 25 * MBIT);
    struct chart_overlay_choice choice;

    (void)state;
    pass(&network, 5, quick, near, DATA);
    choice = path_group_choice(&network.group, DATA);
    for (size_t i = 0; i < CHART_OVERLAY_SLOTS; i += 4)
        assert_int_equal(choice.slots[i] + choice.slots[i + 1] + choice.slots[i + 2] + choice.slots[i + 3], 1);
    assert_int_equal(choice.numbers[1], 65);
}

static void a_slower_path_helps_when_the_best_is_loaded(void **state) {
    struct network network = two_paths(100 * MBIT, 100 * MBIT);
    struct conduct slow = {35, 0, 0};

    (void)state;
    pass(&network, 5, quick, slow, DATA);
    assert_int_equal(slots_of(&network.group, DATA, 1), 0);
    /* The flows' own queue is no reason to leave. */
    assert_int_equal(pass(&network, 30, (struct conduct){60, 0.005, 95}, slow, DATA), 0);
    assert_int_equal(slots_of(&network.group, DATA, 1), CHART_OVERLAY_SLOTS);
    pass(&network, 5, (struct conduct){20, 0, 95}, slow, DATA);
    assert_int_equal(slots_of(&network.group, DATA, 1), CHART_OVERLAY_SLOTS / 2);
}

static void what_is_dead_is_offered_to_nobody(void **state) {
    struct network network = two_paths(100 * MBIT, 100 * MBIT);

    (void)state;
    pass(&network, 5, quick, near, DATA);
    network.seen[NORTH].alive = false;
    pass(&network, 0.125, quick, near, VOICE);
    assert_int_equal(slots_of(&network.group, VOICE, 0), 0);
    assert_int_equal(slots_of(&network.group, DATA, 0), 0);
}

static void the_least_bad_is_taken_when_all_became_bad(void **state) {
    struct network network = two_paths(100 * MBIT, 100 * MBIT);

    (void)state;
    pass(&network, 10, quick, near, VOICE);
    pass(&network, 3, (struct conduct){300, 0, 0}, near, VOICE);
    assert_int_equal(slots_of(&network.group, VOICE, 1), CHART_OVERLAY_SLOTS);
    network.seen[SOUTH].alive = false;
    pass(&network, 0.125, (struct conduct){300, 0, 0}, near, VOICE);
    assert_int_equal(slots_of(&network.group, VOICE, 0), CHART_OVERLAY_SLOTS);
    assert_int_equal(path_group_choice(&network.group, VOICE).left, 0);
}

static void a_program_that_began_anew_is_learnt_anew(void **state) {
    struct network network = two_paths(100 * MBIT, 100 * MBIT);

    (void)state;
    pass(&network, 5, quick, near, DATA);
    memset(network.seen, 0, sizeof(network.seen));
    network.seen[NORTH].alive = network.seen[SOUTH].alive = true;
    assert_int_equal(pass(&network, 5, quick, near, DATA), 0);
    assert_true(network.group.paths[NORTH].quality.load >= 0);
    assert_true(network.group.paths[NORTH].quality.load < 1);
}

static void what_new_flows_take_is_told_as_the_program_chooses(void **state) {
    struct chart_overlay_choice choice = {.order = {2, 1, 0}, .n_order = 3};

    (void)state;
    for (size_t i = 0; i < sizeof(choice.slots); i++)
        choice.slots[i] = i % 2;
    assert_int_equal(path_choice_taken(&choice, 7), 1 | 2);
    assert_int_equal(path_choice_taken(&choice, 1 | 4), 1);
    /* None of the slots' is alive: the first of the order that is. */
    assert_int_equal(path_choice_taken(&choice, 4), 4);
    assert_int_equal(path_choice_taken(&choice, 0), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_path_is_taken_first),
        cmocka_unit_test(every_class_leaves_a_path_that_loses_within_two_seconds),
        cmocka_unit_test(every_class_leaves_a_path_that_became_slow_within_a_second),
        cmocka_unit_test(one_look_is_no_reason),
        cmocka_unit_test(paths_that_are_nearly_as_good_are_kept_for_ten_minutes),
        cmocka_unit_test(a_path_is_taken_again_after_three_good_windows),
        cmocka_unit_test(a_class_with_one_path_stays_where_it_went),
        cmocka_unit_test(data_is_spread_by_capacity),
        cmocka_unit_test(a_slower_path_helps_when_the_best_is_loaded),
        cmocka_unit_test(what_is_dead_is_offered_to_nobody),
        cmocka_unit_test(the_least_bad_is_taken_when_all_became_bad),
        cmocka_unit_test(a_program_that_began_anew_is_learnt_anew),
        cmocka_unit_test(what_new_flows_take_is_told_as_the_program_chooses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
