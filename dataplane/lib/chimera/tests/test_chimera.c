/* Chimera: identifiers, whom a node keeps, where messages go, what it asks for when somebody is lost. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <errno.h>
#include <string.h>

#include "lib/chimera/chimera.h"

#define ZEROS "000000000000000000000000000000000000"

/* An identifier of four digits, and zeros. */
static struct chimera_id id_of(const char *digits) {
    char text[CHIMERA_ID_TEXT];
    struct chimera_id id;

    strcpy(text, digits);
    strcat(text, ZEROS);
    assert_int_equal(chimera_id_parse(text, &id), 0);
    return id;
}

static struct chimera_peer peer_of(const char *digits, uint32_t rtt_us) {
    static uint32_t handle;

    return (struct chimera_peer){.id = id_of(digits), .handle = ++handle, .rtt_us = rtt_us, .alive = true};
}

static void meet(struct chimera *node, const char *digits, uint32_t rtt_us) {
    struct chimera_peer peer = peer_of(digits, rtt_us);

    assert_true(chimera_learn(node, &peer) >= 0);
}

static void begin(struct chimera *node, const char *digits) {
    struct chimera_peer self = peer_of(digits, 0);

    chimera_init(node, &self);
}

/* The first four digits of the next hops, the first one first: "1000 2000 ". */
static const char *hops(const struct chimera *node, const char *key) {
    static char text[CHIMERA_NEXT_HOPS * 5 + 1];
    struct chimera_peer found[CHIMERA_NEXT_HOPS];
    struct chimera_id id = id_of(key);
    size_t n = chimera_next_hops(node, &id, found);
    char printed[CHIMERA_ID_TEXT];

    for (size_t i = 0; i < n; i++) {
        chimera_id_print(&found[i].id, printed);
        memcpy(text + 5 * i, printed, 4);
        text[5 * i + 4] = ' ';
    }
    text[5 * n] = '\0';
    return text;
}

static void an_identifier_is_of_a_key_and_reads_as_it_prints(void **state) {
    struct chimera_id one = chimera_id_of_key((const uint8_t *)"abc", 3), read;
    char text[CHIMERA_ID_TEXT];

    (void)state;
    chimera_id_print(&one, text);
    /* SHA-256 of "abc", FIPS 180-2, appendix B.1. */
    assert_string_equal(text, "ba7816bf8f01cfea414140de5dae2223b00361a3");
    assert_int_equal(chimera_id_parse(text, &read), 0);
    assert_true(chimera_same(&one, &read));
    assert_int_equal(chimera_digit(&one, 0), 0xb);
    assert_int_equal(chimera_digit(&one, 39), 3);
    assert_int_equal(chimera_id_parse("ba78", &read), -EINVAL);
    text[5] = 'G';
    assert_int_equal(chimera_id_parse(text, &read), -EINVAL);
}

static void distance_is_the_shorter_way_round(void **state) {
    struct chimera_id low = id_of("0001"), high = id_of("ffff"), expected = id_of("0002"), found;

    (void)state;
    found = chimera_distance(&low, &high);
    assert_true(chimera_same(&found, &expected));
    found = chimera_clockwise(&high, &low);
    assert_true(chimera_same(&found, &expected));
    expected = id_of("fffe");
    found = chimera_clockwise(&low, &high);
    assert_true(chimera_same(&found, &expected));
    assert_int_equal(chimera_shared_digits(&low, &low), CHIMERA_DIGITS);
    low = id_of("1234"), high = id_of("1253");
    assert_int_equal(chimera_shared_digits(&low, &high), 2);
}

/* Enough others around that keys elsewhere are not among the leaves. */
static void surround(struct chimera *node) {
    static const char *const near[] = {"0001", "0002", "0003", "0004", "fff1", "fff2", "fff3", "fff4"};

    for (size_t i = 0; i < sizeof(near) / sizeof(near[0]); i++)
        meet(node, near[i], 90000);
}

static void the_nearest_candidate_that_is_alive_is_taken(void **state) {
    struct chimera node;
    struct chimera_id near = id_of("8100");

    (void)state;
    begin(&node, "0000");
    surround(&node);
    meet(&node, "8300", 30000);
    meet(&node, "8100", 10000);
    meet(&node, "8200", 20000);
    /* Last comes who is closer on the ring: fff1 is, by way of the top. */
    assert_string_equal(hops(&node, "8888"), "8100 8200 8300 fff1 ");
    assert_true(chimera_tell(&node, &near, false, 0));
    assert_string_equal(hops(&node, "8888"), "8200 8300 fff1 fff2 ");
    assert_true(chimera_tell(&node, &near, true, 25000));
    assert_string_equal(hops(&node, "8888"), "8200 8100 8300 fff1 ");
    /* The key's own node comes before those that are nearer by latency. */
    assert_string_equal(hops(&node, "8300"), "8300 8200 8100 fff1 ");
    chimera_free(&node);
}

static void a_nearer_one_takes_the_place_of_the_farthest(void **state) {
    struct chimera node;
    struct chimera_peer far = peer_of("8500", 50000), near = peer_of("8400", 5000);

    (void)state;
    begin(&node, "0000");
    surround(&node);
    meet(&node, "8100", 10000);
    meet(&node, "8200", 20000);
    meet(&node, "8300", 30000);
    assert_int_equal(chimera_learn(&node, &far), 0);
    assert_false(chimera_knows(&node, &far.id));
    assert_int_equal(chimera_learn(&node, &near), 1);
    assert_int_equal(chimera_learn(&node, &near), 0);
    assert_string_equal(hops(&node, "8888"), "8400 8100 8200 fff1 ");
    chimera_free(&node);
}

static void among_the_leaves_the_closest_is_the_root(void **state) {
    struct chimera node;

    (void)state;
    begin(&node, "1000");
    meet(&node, "0f00", 1000);
    meet(&node, "1100", 1000);
    meet(&node, "1300", 1000);
    assert_string_equal(hops(&node, "10f0"), "1100 ");
    assert_string_equal(hops(&node, "1010"), "");
    assert_string_equal(hops(&node, "0f10"), "0f00 ");
    /* As near to both: the smaller identifier, whoever is asked. */
    assert_string_equal(hops(&node, "1080"), "");
    chimera_free(&node);
}

static void where_a_cell_is_empty_somebody_closer_goes_on(void **state) {
    struct chimera node;

    (void)state;
    begin(&node, "0000");
    surround(&node);
    meet(&node, "7000", 1000);
    meet(&node, "9000", 1000);
    assert_string_equal(hops(&node, "8100"), "9000 7000 fff1 fff2 ");
    assert_string_equal(hops(&node, "7900"), "7000 9000 0004 0003 ");
    chimera_free(&node);
}

static void the_leaf_set_is_of_the_nearest_on_both_sides(void **state) {
    struct chimera node;
    struct chimera_peer leaves[CHIMERA_LEAF_SET + 1];
    struct chimera_id outside = id_of("0005"), inside = id_of("0003");

    (void)state;
    begin(&node, "0000");
    surround(&node);
    meet(&node, "0005", 1000);
    meet(&node, "5000", 1000);
    assert_int_equal(chimera_answer_leaves(&node, leaves), CHIMERA_LEAF_SET + 1);
    assert_true(chimera_same(&leaves[0].id, &node.self.id));
    for (size_t i = 1; i <= CHIMERA_LEAF_SET; i++)
        assert_false(chimera_same(&leaves[i].id, &outside));
    assert_true(chimera_lose(&node, &inside));
    assert_int_equal(chimera_answer_leaves(&node, leaves), CHIMERA_LEAF_SET);
    chimera_free(&node);
}

static void for_one_that_is_lost_others_are_asked_and_not_for_ever(void **state) {
    struct chimera node;
    struct chimera_gap gap;
    struct chimera_id lost = id_of("8100"), leaf = id_of("0002");
    int rows = 0, leaves = 0;

    (void)state;
    begin(&node, "0000");
    surround(&node);
    meet(&node, "8100", 10000);
    meet(&node, "9100", 10000);
    assert_false(chimera_next_gap(&node, &gap));
    assert_true(chimera_lose(&node, &lost));
    assert_false(chimera_lose(&node, &lost));
    while (chimera_next_gap(&node, &gap)) {
        assert_int_equal(gap.question, CHIMERA_ASK_ROW);
        assert_int_equal(gap.row, 0);
        assert_false(chimera_same(&gap.whom.id, &lost));
        rows++;
    }
    assert_int_equal(rows, CHIMERA_ASKS);
    assert_true(chimera_lose(&node, &leaf));
    for (; chimera_next_gap(&node, &gap); leaves += gap.question == CHIMERA_ASK_LEAVES)
        if (gap.question == CHIMERA_ASK_LEAVES)
            assert_true(gap.whom.alive);
    assert_int_equal(leaves, CHIMERA_ASKS);
    chimera_free(&node);
}

static void who_joins_is_sent_on_until_nobody_is_nearer(void **state) {
    struct chimera node;
    struct chimera_id joining = id_of("8888");
    struct chimera_peer next;

    (void)state;
    begin(&node, "0000");
    surround(&node);
    meet(&node, "8100", 10000);
    assert_true(chimera_next_to_ask(&node, &joining, &next));
    assert_int_equal(chimera_digit(&next.id, 0), 8);
    /* Also when it is known already, as when it looks for its neighbours again. */
    meet(&node, "8888", 1000);
    assert_true(chimera_next_to_ask(&node, &joining, &next));
    assert_int_equal(chimera_digit(&next.id, 1), 1);
    chimera_free(&node);
    begin(&node, "8880");
    meet(&node, "8888", 1000);
    meet(&node, "0001", 1000);
    assert_false(chimera_next_to_ask(&node, &joining, &next));
    chimera_free(&node);
}

static void rows_and_peers_are_told_once(void **state) {
    struct chimera node;
    struct chimera_peer peers[CHIMERA_ROW_MAX];
    struct chimera_id dead = id_of("9100");

    (void)state;
    begin(&node, "0000");
    meet(&node, "8100", 10000);
    meet(&node, "9100", 10000);
    meet(&node, "0100", 10000);
    assert_int_equal(chimera_peers(&node, peers, CHIMERA_ROW_MAX), 3);
    assert_int_equal(chimera_answer_row(&node, 0, peers), 3);
    assert_int_equal(chimera_answer_row(&node, 1, peers), 2);
    assert_int_equal(chimera_answer_row(&node, 39, peers), 1);
    assert_true(chimera_tell(&node, &dead, false, 0));
    assert_int_equal(chimera_answer_row(&node, 0, peers), 2);
    chimera_free(&node);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_identifier_is_of_a_key_and_reads_as_it_prints),
        cmocka_unit_test(distance_is_the_shorter_way_round),
        cmocka_unit_test(the_nearest_candidate_that_is_alive_is_taken),
        cmocka_unit_test(a_nearer_one_takes_the_place_of_the_farthest),
        cmocka_unit_test(among_the_leaves_the_closest_is_the_root),
        cmocka_unit_test(where_a_cell_is_empty_somebody_closer_goes_on),
        cmocka_unit_test(the_leaf_set_is_of_the_nearest_on_both_sides),
        cmocka_unit_test(for_one_that_is_lost_others_are_asked_and_not_for_ever),
        cmocka_unit_test(who_joins_is_sent_on_until_nobody_is_nearer),
        cmocka_unit_test(rows_and_peers_are_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
