/* The responder under abuse: forged, flipped, replayed, sent on from elsewhere, asked for more than was paid. */
#include "support.h"

#include <errno.h>

#include "replay.h"
#include "responder.h"
#include "session.h"

struct fixture {
    struct keyring keyring;
    struct responder *responder;
    struct session session;
    union address client;
    union address server;
    int64_t monotonic_ns;
};

static int setup(void **state) {
    static const struct responder_limits LIMITS = {.replies_per_s = 10, .burst_replies = 20};
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct failure failure = {0};

    fixture->keyring = test_keyring(KEY_ONE);
    fixture->responder = responder_new(&fixture->keyring, &LIMITS);
    fixture->client = test_address("10.0.0.1", 40000);
    fixture->server = test_address("10.0.0.2", 18300);
    assert_int_equal(session_init(&fixture->session, &fixture->keyring, &fixture->client, &fixture->server, &failure),
                     0);
    *state = fixture;
    return 0;
}

static int teardown(void **state) {
    struct fixture *fixture = *state;

    responder_free(fixture->responder);
    keyring_free(&fixture->keyring);
    free(fixture);
    return 0;
}

static size_t give(struct fixture *fixture, const uint8_t *bytes, size_t length, const union address *source,
                   uint8_t *reply) {
    struct responder_datagram datagram = {
        .bytes = bytes,
        .length = length,
        .source = *source,
        .destination = fixture->server,
        .arrived_at_ns = 1000,
        .now_ns = 3500,
        .monotonic_ns = fixture->monotonic_ns,
    };
    size_t reply_length = responder_handle(fixture->responder, &datagram, reply);

    /* Holds for everything that is ever answered. */
    assert_true(reply_length <= length);
    return reply_length;
}

static void open_session(struct fixture *fixture) {
    uint8_t bytes[WIRE_DATAGRAM_MAX_BYTES], reply[WIRE_DATAGRAM_MAX_BYTES];
    struct wire_header header;

    assert_true(session_make_hello(&fixture->session, bytes) > 0);
    assert_int_equal(give(fixture, bytes, WIRE_HEADER_BYTES, &fixture->client, reply), WIRE_HEADER_BYTES);
    assert_int_equal(session_read(&fixture->session, reply, WIRE_HEADER_BYTES, &header), 0);
    assert_int_equal(header.type, WIRE_WELCOME);
    assert_true(fixture->session.token != 0);
}

static size_t make(struct fixture *fixture, uint8_t type, uint32_t train, uint16_t index, size_t length,
                   uint8_t *bytes) {
    struct wire_header header = {.type = type, .train = train, .index = index, .count = 4};

    assert_true(session_make(&fixture->session, &header, length, bytes) > 0);
    return length;
}

static void echo_is_answered_in_kind(void **state) {
    struct fixture *fixture = *state;
    uint8_t bytes[WIRE_DATAGRAM_MAX_BYTES], reply[WIRE_DATAGRAM_MAX_BYTES];
    struct wire_header header;

    open_session(fixture);
    make(fixture, WIRE_ECHO, 0, 0, 100, bytes);
    assert_int_equal(give(fixture, bytes, 100, &fixture->client, reply), 100);
    assert_int_equal(session_read(&fixture->session, reply, 100, &header), 0);
    assert_int_equal(header.type, WIRE_ECHO_REPLY);
    assert_int_equal(header.sequence, fixture->session.sequence);
    assert_int_equal(header.time_ns, 1000);
    assert_int_equal(header.train, 2500);
}

static void every_flipped_bit_is_refused(void **state) {
    struct fixture *fixture = *state;
    uint8_t bytes[WIRE_DATAGRAM_MAX_BYTES], reply[WIRE_DATAGRAM_MAX_BYTES];
    uint8_t original[100];

    open_session(fixture);
    make(fixture, WIRE_ECHO, 0, 0, sizeof(original), original);
    for (size_t bit = 0; bit < 8 * sizeof(original); bit++) {
        memcpy(bytes, original, sizeof(original));
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(give(fixture, bytes, sizeof(original), &fixture->client, reply), 0);
    }
    assert_int_equal(give(fixture, original, sizeof(original), &fixture->client, reply), sizeof(original));
}

static void replays_are_refused(void **state) {
    struct fixture *fixture = *state;
    uint8_t hello[WIRE_DATAGRAM_MAX_BYTES], echo[WIRE_DATAGRAM_MAX_BYTES], reply[WIRE_DATAGRAM_MAX_BYTES];

    assert_true(session_make_hello(&fixture->session, hello) > 0);
    assert_true(give(fixture, hello, WIRE_HEADER_BYTES, &fixture->client, reply) > 0);
    assert_int_equal(give(fixture, hello, WIRE_HEADER_BYTES, &fixture->client, reply), 0);
    open_session(fixture);
    make(fixture, WIRE_ECHO, 0, 0, 80, echo);
    assert_true(give(fixture, echo, 80, &fixture->client, reply) > 0);
    assert_int_equal(give(fixture, echo, 80, &fixture->client, reply), 0);
    assert_int_equal(responder_counters(fixture->responder)->refused_replayed, 2);
}

static void another_source_is_refused(void **state) {
    struct fixture *fixture = *state;
    uint8_t bytes[WIRE_DATAGRAM_MAX_BYTES], reply[WIRE_DATAGRAM_MAX_BYTES];
    union address victim = test_address("10.0.0.9", 40000);
    union address other_port = test_address("10.0.0.1", 40001);

    assert_true(session_make_hello(&fixture->session, bytes) > 0);
    assert_int_equal(give(fixture, bytes, WIRE_HEADER_BYTES, &victim, reply), 0);
    assert_int_equal(give(fixture, bytes, WIRE_HEADER_BYTES, &other_port, reply), 0);
    assert_int_equal(responder_counters(fixture->responder)->refused_unauthenticated, 2);
    assert_int_equal(responder_counters(fixture->responder)->replies, 0);
}

static void another_key_is_refused(void **state) {
    struct fixture *fixture = *state;
    struct keyring other = test_keyring(KEY_TWO);
    uint8_t bytes[WIRE_DATAGRAM_MAX_BYTES], reply[WIRE_DATAGRAM_MAX_BYTES];

    fixture->session.keyring = &other;
    assert_true(session_make_hello(&fixture->session, bytes) > 0);
    assert_int_equal(give(fixture, bytes, WIRE_HEADER_BYTES, &fixture->client, reply), 0);
    /* The right id does not help without the secret. */
    bytes[6] = 0;
    bytes[7] = 1;
    assert_int_equal(give(fixture, bytes, WIRE_HEADER_BYTES, &fixture->client, reply), 0);
    keyring_free(&other);
}

static void token_of_another_run_is_refused(void **state) {
    struct fixture *fixture = *state;
    uint8_t bytes[WIRE_DATAGRAM_MAX_BYTES], reply[WIRE_DATAGRAM_MAX_BYTES];

    open_session(fixture);
    fixture->session.token ^= 1;
    make(fixture, WIRE_ECHO, 0, 0, 80, bytes);
    assert_int_equal(give(fixture, bytes, 80, &fixture->client, reply), 0);
    assert_int_equal(responder_counters(fixture->responder)->refused_unknown_session, 1);
}

static void replies_are_not_requests(void **state) {
    struct fixture *fixture = *state;
    uint8_t bytes[WIRE_DATAGRAM_MAX_BYTES], reply[WIRE_DATAGRAM_MAX_BYTES];

    open_session(fixture);
    make(fixture, WIRE_ECHO_REPLY, 0, 0, 80, bytes);
    assert_int_equal(give(fixture, bytes, 80, &fixture->client, reply), 0);
    make(fixture, WIRE_WELCOME, 0, 0, 80, bytes);
    assert_int_equal(give(fixture, bytes, 80, &fixture->client, reply), 0);
}

static void replies_are_rationed(void **state) {
    struct fixture *fixture = *state;
    uint8_t bytes[WIRE_DATAGRAM_MAX_BYTES], reply[WIRE_DATAGRAM_MAX_BYTES];
    unsigned answered = 0;

    open_session(fixture);
    for (unsigned i = 0; i < 100; i++) {
        make(fixture, WIRE_ECHO, 0, 0, 80, bytes);
        answered += give(fixture, bytes, 80, &fixture->client, reply) > 0;
    }
    assert_int_equal(answered, 19); /* burst of 20, one taken by WELCOME */
    fixture->monotonic_ns += 500000000;
    answered = 0;
    for (unsigned i = 0; i < 100; i++) {
        make(fixture, WIRE_ECHO, 0, 0, 80, bytes);
        answered += give(fixture, bytes, 80, &fixture->client, reply) > 0;
    }
    assert_int_equal(answered, 5);
}

static void trains_are_kept_and_fetched(void **state) {
    struct fixture *fixture = *state;
    uint8_t bytes[WIRE_DATAGRAM_MAX_BYTES], reply[WIRE_DATAGRAM_MAX_BYTES];
    struct wire_train_entry entries[16];
    struct wire_header header;
    size_t length;

    open_session(fixture);
    for (uint16_t index = 0; index < 4; index++) {
        if (index == 2)
            continue;
        make(fixture, WIRE_CHIRP, 7, index, 500, bytes);
        assert_int_equal(give(fixture, bytes, 500, &fixture->client, reply), 0);
    }
    /* Room for two entries only: the reply stays within what was paid. */
    make(fixture, WIRE_FETCH, 7, 0, WIRE_HEADER_BYTES + 2 * WIRE_TRAIN_ENTRY_BYTES, bytes);
    length = give(fixture, bytes, WIRE_HEADER_BYTES + 2 * WIRE_TRAIN_ENTRY_BYTES, &fixture->client, reply);
    assert_int_equal(session_read(&fixture->session, reply, length, &header), 0);
    assert_int_equal(wire_decode_train(reply, &header, entries, 16), 2);
    make(fixture, WIRE_FETCH, 7, 2, 200, bytes);
    length = give(fixture, bytes, 200, &fixture->client, reply);
    assert_int_equal(session_read(&fixture->session, reply, length, &header), 0);
    assert_int_equal(wire_decode_train(reply, &header, entries, 16), 1);
    assert_int_equal(entries[0].index, 3);
    assert_int_equal(wire_decode_train(reply, &header, entries, 0), -EBADMSG);
}

static void replay_window_slides(void **state) {
    struct replay_window window = {0};
    struct replay_hellos hellos = {0};
    (void)state;

    assert_false(replay_window_accept(&window, 0));
    assert_true(replay_window_accept(&window, 5));
    assert_true(replay_window_accept(&window, 3));
    assert_false(replay_window_accept(&window, 3));
    assert_true(replay_window_accept(&window, 5 + REPLAY_WINDOW));
    assert_false(replay_window_accept(&window, 5));
    assert_true(replay_window_accept(&window, 6));
    assert_true(replay_window_accept(&window, UINT32_MAX));
    assert_false(replay_window_accept(&window, 7 + REPLAY_WINDOW));
    assert_true(replay_hello_accept(&hellos, 100));
    assert_true(replay_hello_accept(&hellos, 90));
    assert_false(replay_hello_accept(&hellos, 90));
    for (uint64_t i = 0; i < REPLAY_HELLOS; i++)
        assert_true(replay_hello_accept(&hellos, 200 + i));
    assert_false(replay_hello_accept(&hellos, 100));
    assert_false(replay_hello_accept(&hellos, 95));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(echo_is_answered_in_kind, setup, teardown),
        cmocka_unit_test_setup_teardown(every_flipped_bit_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(replays_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(another_source_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(another_key_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(token_of_another_run_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(replies_are_not_requests, setup, teardown),
        cmocka_unit_test_setup_teardown(replies_are_rationed, setup, teardown),
        cmocka_unit_test_setup_teardown(trains_are_kept_and_fetched, setup, teardown),
        cmocka_unit_test(replay_window_slides),
    };
    return cmocka_run_group_tests_name("responder", tests, NULL, NULL);
}
