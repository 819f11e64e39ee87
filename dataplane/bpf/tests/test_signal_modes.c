/* The program `signal`, packet by packet in the kernel: what the modes off and observe leave of it. Skipped without
 * root. */
#define _GNU_SOURCE
#include "signal_cases.h"

static void mode(enum decide_mode wanted) {
    struct signal_policy changed = {.element = OWN, .mode = wanted};
    decide_parse_prefix("10.9.9.2", &changed.shim4);
    assert_int_equal(signal_tables_policy(run.tables, &changed), 0);
}

/* Option requests towards the next element that wait for an answer: every one that is sent counts. */
static uint32_t requests_sent(void) {
    struct chart_signal_out out;
    uint32_t element = DOWNSTREAM;
    assert_int_equal(bpf_map_lookup_elem(bpf_map__fd(run.program->maps.signal_out), &element, &out), 0);
    return out.unanswered;
}

/* A packet of the client's flow with which nothing is sent and whose class stays. */
static void assert_silent(uint16_t port, uint8_t flags) {
    uint32_t before = requests_sent();
    struct frame frame = sent(client, server, port, PORT, flags, 0);
    assert_int_equal(frame.priority, 0);
    assert_int_equal(requests_sent(), before);
}

/* A signal that passes as it came. */
static void assert_untouched(uint16_t port) {
    struct chart_qos request = qos_of(CHART_REQUEST, 0, 20000000);
    struct frame frame, before;
    uint64_t accepted = signal_run_count(&run, CHART_COUNT_ACCEPTED);
    make_frame(&frame, client, server, port, PORT, 6, SYN, 0);
    put_signal(&frame, &request, UPSTREAM, EPOCH, ++sequence, signal_run_key(UPSTREAM, OWN));
    before = frame;
    assert_int_equal(run_frame(run.program->progs.signal_ingress, &frame, 1), 0);
    assert_int_equal(frame.verdict, TCX_NEXT_VERDICT);
    assert_int_equal(frame.mark, 0);
    assert_int_equal(frame.length, before.length);
    assert_memory_equal(frame.octets, before.octets, before.length);
    assert_int_equal(signal_run_count(&run, CHART_COUNT_ACCEPTED), accepted);
}

static void test_off_touches_nothing(void **state) {
    uint64_t would_ask = signal_run_count(&run, CHART_COUNT_WOULD_ASK);
    uint64_t would_take = signal_run_count(&run, CHART_COUNT_WOULD_TAKE);
    (void)state;
    as_origin(0, 20000000);
    mode(DECIDE_MODE_OFF);
    assert_silent(next_port, SYN);
    signal_run_path(&run, false, false);
    assert_untouched(next_port);
    assert_int_equal(signal_run_count(&run, CHART_COUNT_WOULD_ASK), would_ask);
    assert_int_equal(signal_run_count(&run, CHART_COUNT_WOULD_TAKE), would_take);
}

static void test_observe_counts_and_touches_nothing(void **state) {
    uint64_t would_ask = signal_run_count(&run, CHART_COUNT_WOULD_ASK);
    uint64_t would_take = signal_run_count(&run, CHART_COUNT_WOULD_TAKE);
    (void)state;
    as_origin(0, 20000000);
    mode(DECIDE_MODE_OBSERVE);
    for (int i = 0; i < 3; i++)
        assert_silent(next_port, i ? ACK : SYN);
    assert_int_equal(signal_run_count(&run, CHART_COUNT_WOULD_ASK), would_ask + 1);
    signal_run_path(&run, false, false);
    assert_untouched(next_port);
    assert_int_equal(signal_run_count(&run, CHART_COUNT_WOULD_TAKE), would_take + 1);
}

/* A flow that was observed asks as soon as the node enforces; one that had its rate stops renewing and comes back. */
static void test_enforcing_again_resumes(void **state) {
    struct chart_parsed parsed;
    struct chart_qos answer = qos_of(CHART_RESPONSE, 0, 5000000);
    (void)state;
    as_origin(0, 20000000);
    mode(DECIDE_MODE_OBSERVE);
    assert_silent(next_port, SYN);
    assert_int_equal(half_of(next_port).state, CHART_SOCKET_NONE);
    mode(DECIDE_MODE_ENFORCE);
    sent(client, server, next_port, PORT, ACK, 0);
    assert_int_equal(half_of(next_port).state, CHART_SOCKET_ASKED);
    cloned(client, server, next_port, PORT, ACK, 0, &parsed);
    assert_int_equal(parsed.signal.qos.status, CHART_REQUEST);
    received(server, client, PORT, next_port, &answer, DOWNSTREAM);
    assert_int_equal(half_of(next_port).state, CHART_SOCKET_AGREED);
    mode(DECIDE_MODE_OFF);
    sent(client, server, next_port, PORT, ACK, 0);
    assert_true(half_of(next_port).confirm);
    mode(DECIDE_MODE_ENFORCE);
    sent(client, server, next_port, PORT, ACK, 0);
    assert_false(half_of(next_port).confirm);
    cloned(client, server, next_port, PORT, ACK, 0, &parsed);
    assert_int_equal(parsed.signal.qos.status, CHART_CONFIRM);
}

/* The last element does not send what it should have answered before it was switched off. */
static void test_an_answer_of_before_is_dropped(void **state) {
    struct chart_qos request = qos_of(CHART_REQUEST, 0, 20000000);
    (void)state;
    signal_run_path(&run, true, false);
    sent(server, client, PORT, next_port, ACK, 0);
    received(client, server, next_port, PORT, &request, UPSTREAM);
    assert_int_not_equal(half_of(next_port).pending, 0);
    sent(server, client, PORT, next_port, SYN | ACK, 0);
    assert_int_equal(half_of(next_port).pending, 0);
    received(client, server, next_port, PORT, &request, UPSTREAM);
    assert_int_not_equal(half_of(next_port).pending, 0);
    mode(DECIDE_MODE_OFF);
    sent(server, client, PORT, next_port, ACK, 0);
    assert_int_not_equal(half_of(next_port).pending, 0);
    mode(DECIDE_MODE_ENFORCE);
    sent(server, client, PORT, next_port, ACK, 0);
    assert_int_equal(half_of(next_port).pending, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_off_touches_nothing),
        TEST(test_observe_counts_and_touches_nothing),
        TEST(test_enforcing_again_resumes),
        TEST(test_an_answer_of_before_is_dropped),
    };

    return RUN(tests);
}
