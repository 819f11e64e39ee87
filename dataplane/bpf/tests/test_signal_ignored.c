/* The program `signal`, packet by packet in the kernel: which neighbour answers nothing, by which the agent knows that
 * it may have started anew. Skipped without root. */
#define _GNU_SOURCE
#include "signal_cases.h"

static void answered(void) {
    struct chart_qos answer = qos_of(CHART_RESPONSE, 0, 40000000);
    received(server, client, PORT, next_port, &answer, DOWNSTREAM);
}

static void hasty(uint32_t tries, uint64_t legacy_us) {
    struct signal_policy changed = {
        .element = OWN, .mode = DECIDE_MODE_ENFORCE, .retry_us = TICK_US / 2, .tries = tries, .legacy_us = legacy_us};
    assert_int_equal(signal_tables_policy(run.tables, &changed), 0);
    answered(); /* what tests before this one asked */
}

static uint32_t ignored(void) {
    bool answering;
    return signal_tables_ignored(run.tables, DOWNSTREAM, &answering);
}

static void test_requests_of_this_element_that_stay_without_an_answer_count(void **state) {
    uint32_t before = ignored();
    (void)state;
    hasty(3, 10000000);
    as_origin(0, 50000000);
    sent(client, server, next_port, PORT, SYN, 0);
    answered();
    usleep(TICK_US);
    next_port++;
    sent(client, server, next_port, PORT, SYN, 0);
    /* Another flow, a moment later: the answer may be on its way. */
    next_port++;
    sent(client, server, next_port, PORT, SYN, 0);
    assert_int_equal(ignored(), before);
    for (uint32_t i = 1; i < 3; i++) {
        usleep(TICK_US);
        sent(client, server, next_port, PORT, ACK, 0);
        assert_int_equal(ignored(), before + i);
    }
    /* It gives up: nothing more is sent. */
    usleep(TICK_US);
    sent(client, server, next_port, PORT, ACK, 0);
    assert_int_equal(ignored(), before + 2);
}

static void test_an_answer_ends_the_silence(void **state) {
    uint32_t before = ignored();
    (void)state;
    hasty(3, 10000000);
    as_origin(0, 50000000);
    sent(client, server, next_port, PORT, SYN, 0);
    usleep(TICK_US);
    answered();
    next_port++;
    sent(client, server, next_port, PORT, SYN, 0);
    assert_int_equal(ignored(), before);
}

static void test_what_was_asked_long_ago_is_no_sign(void **state) {
    uint32_t before = ignored();
    (void)state;
    hasty(1, TICK_US * 5);
    as_origin(0, 50000000);
    sent(client, server, next_port, PORT, SYN, 0);
    answered();
    next_port++;
    sent(client, server, next_port, PORT, SYN, 0);
    usleep(TICK_US * 8);
    next_port++;
    sent(client, server, next_port, PORT, SYN, 0);
    assert_int_equal(ignored(), before);
}

static void test_requests_that_pass_through_count_too(void **state) {
    struct chart_qos request = qos_of(CHART_REQUEST, 0, 20000000), answer = qos_of(CHART_RESPONSE, 0, 20000000);
    uint32_t before = ignored();
    (void)state;
    hasty(3, 10000000);
    received(client, server, next_port, PORT, &request, UPSTREAM);
    received(server, client, PORT, next_port, &answer, DOWNSTREAM);
    received(client, server, next_port, PORT, &request, UPSTREAM);
    assert_int_equal(ignored(), before);
    usleep(TICK_US);
    received(client, server, next_port, PORT, &request, UPSTREAM);
    assert_int_equal(ignored(), before + 1);
    received(server, client, PORT, next_port, &answer, DOWNSTREAM);
    usleep(TICK_US);
    received(client, server, next_port, PORT, &request, UPSTREAM);
    assert_int_equal(ignored(), before + 1);
    /* Nobody is asked for anything by a close. */
    usleep(TICK_US);
    request.status = CHART_CLOSE;
    received(client, server, next_port, PORT, &request, UPSTREAM);
    assert_int_equal(ignored(), before + 1);
}

static void test_with_a_new_key_it_is_seen_anew(void **state) {
    uint32_t before;
    bool answering;
    (void)state;
    test_requests_of_this_element_that_stay_without_an_answer_count(state);
    before = ignored();
    signal_run_keys(&run, EPOCH + 1);
    next_port++;
    sent(client, server, next_port, PORT, SYN, 0);
    assert_int_equal(ignored(), before);
    usleep(TICK_US);
    sent(client, server, next_port, PORT, ACK, 0);
    assert_int_equal(ignored(), before + 1);
    signal_run_keys(&run, EPOCH);
    /* No key, nobody. */
    assert_int_equal(signal_tables_ignored(run.tables, 77, &answering), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_requests_of_this_element_that_stay_without_an_answer_count),
        TEST(test_an_answer_ends_the_silence),
        TEST(test_what_was_asked_long_ago_is_no_sign),
        TEST(test_requests_that_pass_through_count_too),
        TEST(test_with_a_new_key_it_is_seen_anew),
    };

    return RUN(tests);
}
