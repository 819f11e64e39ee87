/* Replay window, sequences and epochs; verification of signals with them. */
#include "support.h"

static void test_vectors(void **state) {
    struct chart_replay replay = {0};
    const cJSON *vector;
    int seen = 0;

    (void)state;
    cJSON_ArrayForEach(vector, vectors("replay")) {
        uint32_t sequence = (uint32_t)number_of(vector, "sequence");
        struct chart_replay before = replay;

        assert_int_equal(chart_replay_check(&replay, sequence), error_of(text_of(vector, "result")));
        assert_memory_equal(&before, &replay, sizeof(replay));
        assert_int_equal(chart_replay_accept(&replay, sequence), error_of(text_of(vector, "result")));
        seen++;
    }
    assert_in_range(seen, 20, 1000);
}

/* Against a plain list of everything accepted: jumps of every size around a block and the window. */
static void test_model(void **state) {
    static uint8_t accepted[1 << 21];
    uint32_t random = 88172645, highest = 0, round, verdicts[CHART_QOS_ERRORS] = {0};
    struct chart_replay replay = {0};

    (void)state;
    memset(accepted, 0, sizeof(accepted));
    for (round = 0; round < 400000; round++) {
        uint32_t sequence, back, expected;

        random ^= random << 13, random ^= random >> 17, random ^= random << 5;
        back = random % 8 == 0 ? (random >> 8) % 9000 : (random >> 8) % 200;
        sequence = random & 0x80 ? highest + (random >> 8) % 5 : highest > back ? highest - back : 0;
        if (random % 4096 == 0)
            sequence = highest + 4000 + (random >> 16) % 4400;
        if (sequence >= sizeof(accepted))
            break;
        expected = sequence == 0 || (sequence <= highest && highest - sequence >= CHART_REPLAY_WINDOW)
                       ? CHART_QOS_TOO_OLD
                   : accepted[sequence] ? CHART_QOS_REPLAYED
                                        : CHART_QOS_OK;
        assert_int_equal(chart_replay_accept(&replay, sequence), expected);
        verdicts[expected]++;
        if (!expected) {
            accepted[sequence] = 1;
            highest = sequence > highest ? sequence : highest;
        }
    }
    assert_true(verdicts[CHART_QOS_OK] > 10000 && verdicts[CHART_QOS_REPLAYED] > 10000 &&
                verdicts[CHART_QOS_TOO_OLD] > 1000);
}

static void test_sequences(void **state) {
    uint32_t next = 0;

    (void)state;
    assert_int_equal(chart_sequence_next(&next, 0), CHART_QOS_OK);
    assert_int_equal(next, 1);
    assert_int_equal(chart_sequence_next(&next, CHART_SEQUENCE_MAX - 1), CHART_QOS_OK);
    assert_int_equal(next, CHART_SEQUENCE_MAX);
    assert_int_equal(chart_sequence_next(&next, CHART_SEQUENCE_MAX), CHART_QOS_EXHAUSTED);
    assert_false(chart_epoch_due((1 << 23) - 1));
    assert_true(chart_epoch_due(1 << 23));
}

static void key_make(struct chart_hmac_key *ret_key, uint8_t fill) {
    struct chart_hmac_scratch scratch;
    uint8_t octets[CHART_KEY_OCTETS];

    memset(octets, fill, sizeof(octets));
    chart_hmac_key_set(ret_key, octets, &scratch);
}

static void test_epochs(void **state) {
    struct chart_hmac_key key;
    struct chart_pair pair = {0};

    (void)state;
    key_make(&key, 1);
    assert_null(chart_pair_find(&pair, 0));
    assert_int_equal(chart_pair_install(&pair, 0, &key), CHART_QOS_OK);
    assert_int_equal(chart_pair_install(&pair, 0, &key), CHART_QOS_EPOCH_IN_USE);
    assert_int_equal(chart_pair_next_epoch(&pair), 1);
    assert_int_equal(chart_pair_install(&pair, 255, &key), CHART_QOS_OK);
    assert_int_equal(chart_pair_next_epoch(&pair), 1); /* 0 is accepted */
    assert_int_equal(chart_pair_install(&pair, 1, &key), CHART_QOS_OK);
    assert_null(chart_pair_find(&pair, 0)); /* the oldest went */
    assert_non_null(chart_pair_find(&pair, 255));
    assert_int_equal(chart_pair_install(&pair, 255, &key), CHART_QOS_EPOCH_IN_USE);
    assert_int_equal(chart_pair_retire(&pair, 1), CHART_QOS_OK);
    assert_int_equal(chart_pair_retire(&pair, 1), CHART_QOS_UNKNOWN_EPOCH);
    assert_int_equal(chart_pair_install(&pair, 2, &key), CHART_QOS_OK);
    assert_non_null(chart_pair_find(&pair, 255)); /* the retired one made room */
}

static void test_verify(void **state) {
    struct chart_flow flow = {.family = 4, .protocol = 6, .source = {10, 0, 1, 1}, .destination = {10, 0, 9, 2}};
    struct chart_signal signal = {.qos = {.version = CHART_QOS_VERSION}, .sender = 9, .epoch = 5, .sequence = 70};
    struct chart_hmac_scratch scratch;
    struct chart_hmac_key key;
    struct chart_pair pair = {0}, before;

    (void)state;
    key_make(&key, 7);
    chart_signal_tag(signal.tag, &signal, &flow, &key, &scratch);
    assert_int_equal(chart_pair_verify(&pair, &signal, &flow, &scratch), CHART_QOS_UNKNOWN_EPOCH);
    assert_int_equal(chart_pair_install(&pair, 5, &key), CHART_QOS_OK);

    before = pair;
    signal.tag[15] ^= 1; /* a forgery moves nothing */
    assert_int_equal(chart_pair_verify(&pair, &signal, &flow, &scratch), CHART_QOS_BAD_TAG);
    assert_memory_equal(&before, &pair, sizeof(pair));
    signal.tag[15] ^= 1;
    flow.selector[3] ^= 1; /* the signal of another flow */
    assert_int_equal(chart_pair_verify(&pair, &signal, &flow, &scratch), CHART_QOS_BAD_TAG);
    flow.selector[3] ^= 1;
    signal.sequence++; /* a later sequence on the same tag */
    assert_int_equal(chart_pair_verify(&pair, &signal, &flow, &scratch), CHART_QOS_BAD_TAG);
    signal.sequence--;
    assert_int_equal(chart_pair_verify(&pair, &signal, &flow, &scratch), CHART_QOS_OK);
    assert_int_equal(chart_pair_verify(&pair, &signal, &flow, &scratch), CHART_QOS_REPLAYED);

    key_make(&key, 8); /* a new epoch starts with an empty window and its own key; the old one stays valid */
    assert_int_equal(chart_pair_install(&pair, 6, &key), CHART_QOS_OK);
    assert_int_equal(chart_pair_verify(&pair, &signal, &flow, &scratch), CHART_QOS_REPLAYED);
    signal.epoch = 6;
    assert_int_equal(chart_pair_verify(&pair, &signal, &flow, &scratch), CHART_QOS_BAD_TAG);
    chart_signal_tag(signal.tag, &signal, &flow, &key, &scratch);
    assert_int_equal(chart_pair_verify(&pair, &signal, &flow, &scratch), CHART_QOS_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors), cmocka_unit_test(test_model),  cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_epochs),  cmocka_unit_test(test_verify),
    };
    return cmocka_run_group_tests_name("qos_replay", tests, NULL, NULL);
}
