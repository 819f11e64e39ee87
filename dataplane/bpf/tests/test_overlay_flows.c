/* Which of several paths flows take where they enter the overlay: the program run in the kernel. Needs root. */
#include "overlay_run.h"

#include "maps.h"

/* Numbers of the paths by colours 1 and 2. */
#define NORTH 64
#define SOUTH 65
#define EF (46 << 2)

static void set_path(uint32_t number, uint64_t unanswered) {
    struct chart_overlay_liveness liveness = {
        .sent = 100, .answered = 100 - unanswered, .allowed = ALLOWED, .usable = 1};
    put(skeleton->maps.overlay_liveness, &number, &liveness);
}

/* Colours 1, by neighbour 1, and 2, by neighbour 2, lead to the owner; new flows of data take them in turn. `left`:
 * bits of colours. */
static void choose(uint32_t left) {
    struct chart_overlay_choice_key key = {.owner = OWNER, .class = CHART_OVERLAY_DATA};
    struct chart_overlay_choice choice = {
        .numbers = {[1] = NORTH, [2] = SOUTH}, .order = {1, 2}, .n_order = 2, .left = left};
    for (int i = 0; i < CHART_OVERLAY_SLOTS; i++)
        choice.slots[i] = (uint8_t)(1 + i % 2);
    put(skeleton->maps.overlay_choices, &key, &choice);
    for (uint32_t colour = 1; colour <= 2; colour++) {
        struct chart_overlay_path_key at = {.owner = OWNER, .colour = colour};
        struct chart_overlay_path path = {.hops = {colour, 3 - colour}};
        put(skeleton->maps.overlay_paths, &at, &path);
    }
}

/* A packet of a flow of this port; the number of the path that it took, 0: none that was chosen. */
static uint32_t flow(uint16_t port, uint8_t traffic_class) {
    uint64_t north = liveness_of(NORTH).forwarded_packets, south = liveness_of(SOUTH).forwarded_packets;
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    packet[15] = traffic_class;
    put_u16(34, port);
    assert_int_equal(enter(), REDIRECT);
    return liveness_of(NORTH).forwarded_packets > north   ? NORTH
           : liveness_of(SOUTH).forwarded_packets > south ? SOUTH
                                                          : 0;
}

static void flows_take_turns_and_keep_their_path(void **state) {
    uint64_t north;
    (void)state;
    set_path(NORTH, 0);
    set_path(SOUTH, 0);
    choose(0);
    for (int turn = 0; turn < 3; turn++)
        for (uint16_t port = 100; port < 120; port++)
            assert_int_equal(flow(port, 0), port % 2 ? SOUTH : NORTH);
    assert_int_equal(counters().flows, 20);
    assert_int_equal(counters().flows_moved + counters().flows_failed_over, 0);
    assert_int_equal(liveness_of(1).forwarded_packets, 30);
    assert_int_equal(liveness_of(2).forwarded_packets, 30);
    /* A class that has no choice takes colour 0. */
    north = liveness_of(1).forwarded_packets;
    assert_int_equal(flow(100, EF), 0);
    assert_int_equal(liveness_of(1).forwarded_packets, north + 1);
}

static void only_flows_of_the_failed_path_move_and_stay_away(void **state) {
    (void)state;
    set_path(NORTH, 0);
    set_path(SOUTH, 0);
    choose(0);
    for (uint16_t port = 200; port < 210; port++)
        flow(port, 0);
    set_path(NORTH, ALLOWED + 1);
    for (uint16_t port = 200; port < 210; port++)
        assert_int_equal(flow(port, 0), SOUTH);
    assert_int_equal(counters().flows_failed_over, 5);
    set_path(NORTH, 0);
    for (uint16_t port = 200; port < 210; port++)
        assert_int_equal(flow(port, 0), SOUTH);
    assert_int_equal(counters().flows, 10);
    assert_int_equal(counters().flows_failed_over, 5);
    assert_int_equal(counters().flows_moved, 0);
}

static void flows_leave_a_path_that_the_agent_says_they_leave(void **state) {
    (void)state;
    set_path(NORTH, 0);
    set_path(SOUTH, 0);
    choose(0);
    for (uint16_t port = 300; port < 310; port++)
        flow(port, 0);
    choose(1 << 2);
    for (uint16_t port = 300; port < 310; port++)
        assert_int_equal(flow(port, 0), NORTH);
    assert_int_equal(counters().flows_moved, 5);
    /* When the other one fails, a bad path is better than none. */
    set_path(NORTH, ALLOWED + 1);
    assert_int_equal(flow(300, 0), SOUTH);
    /* And when all have failed, packets go all the same. */
    set_path(SOUTH, ALLOWED + 1);
    assert_true(flow(301, 0) != 0);
}

static void a_path_that_is_chosen_no_more_is_left(void **state) {
    struct chart_overlay_choice_key key = {.owner = OWNER, .class = CHART_OVERLAY_DATA};
    struct chart_overlay_choice choice = {.numbers = {[2] = SOUTH}, .order = {2}, .n_order = 1};
    (void)state;
    set_path(NORTH, 0);
    set_path(SOUTH, 0);
    choose(0);
    assert_int_equal(flow(400, 0), NORTH);
    memset(choice.slots, 2, sizeof(choice.slots));
    put(skeleton->maps.overlay_choices, &key, &choice);
    assert_int_equal(flow(400, 0), SOUTH);
}

/* Flows from this port are a grant's, whose path has this colour. */
static void grant(uint16_t port, uint32_t colour, uint32_t generation) {
    static struct chart_selector_table table;
    struct chart_node_config node = {.generation = generation};
    uint32_t zero = 0;
    uint64_t number = 7;
    table.count = 1;
    table.selectors[0] = (struct chart_selector){.source_port = port, .protocol = IPPROTO_UDP, .grant = number};
    put(skeleton->maps.selectors, &zero, &table);
    put(skeleton->maps.node_config, &zero, &node);
    put(skeleton->maps.overlay_grants, &number, &colour);
}

static void flows_of_a_grant_take_its_path(void **state) {
    (void)state;
    set_path(NORTH, 0);
    set_path(SOUTH, 0);
    choose(0);
    assert_int_equal(flow(500, 0), NORTH);
    assert_int_equal(flow(501, 0), SOUTH);
    /* A grant that comes while the flow is there moves it, and no other. */
    grant(500, 2, 1);
    assert_int_equal(flow(500, 0), SOUTH);
    assert_int_equal(flow(501, 0), SOUTH);
    /* Worse is no reason to leave what is guaranteed; failed is, until it is back. */
    choose(1 << 2);
    assert_int_equal(flow(500, 0), SOUTH);
    set_path(SOUTH, ALLOWED + 1);
    assert_int_equal(flow(500, 0), NORTH);
    set_path(SOUTH, 0);
    assert_int_equal(flow(500, 0), SOUTH);
    /* Colour 0 is what grants take that say nothing. */
    grant(500, 0, 2);
    assert_int_equal(flow(500, 0), 0);
    grant(9, 0, 3);
    assert_true(flow(500, 0) != 0);
}

static void flows_that_signal_take_the_first_path(void **state) {
    (void)state;
    set_path(NORTH, 0);
    set_path(SOUTH, 0);
    choose(0);
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    packet[14] = 0x46;
    put_u16(38, 600);
    assert_int_equal(enter(), NEXT);
    assert_int_equal(flow(600, 0), 0);
    assert_true(flow(601, 0) != 0);
    /* Also when grants of others come; its own counts more. */
    grant(9, 0, 11);
    assert_int_equal(flow(600, 0), 0);
    grant(600, 2, 12);
    assert_int_equal(flow(600, 0), SOUTH);
}

static void what_arrives_strict_goes_by_its_path_or_nowhere(void **state) {
    (void)state;
    choose(0);
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    wrap("10.1.1.2", PORT);
    packet[48] = CHART_OVERLAY_STRICT | 2;
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(liveness_of(2).forwarded_packets, 1);
    set_neighbour(2, "10.1.2.2", ALLOWED + 1);
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    wrap("10.1.1.2", PORT);
    packet[48] = CHART_OVERLAY_STRICT | 2;
    /* To the device, which drops it. */
    assert_int_equal(enter(), NEXT);
    assert_int_equal(counters().relayed, 1);
    assert_int_equal(counters().detours, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(flows_take_turns_and_keep_their_path, set_up),
        cmocka_unit_test_setup(only_flows_of_the_failed_path_move_and_stay_away, set_up),
        cmocka_unit_test_setup(flows_leave_a_path_that_the_agent_says_they_leave, set_up),
        cmocka_unit_test_setup(a_path_that_is_chosen_no_more_is_left, set_up),
        cmocka_unit_test_setup(flows_of_a_grant_take_its_path, set_up),
        cmocka_unit_test_setup(flows_that_signal_take_the_first_path, set_up),
        cmocka_unit_test_setup(what_arrives_strict_goes_by_its_path_or_nowhere, set_up),
    };
    skeleton = chart_overlay__open_and_load();
    if (!skeleton) {
        fprintf(stderr, "the program cannot be loaded: run as root\n");
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
