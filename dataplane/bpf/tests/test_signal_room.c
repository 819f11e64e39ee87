/* The program `signal` when its table of flows takes no more: requests of flows that it cannot keep are dropped.
 * Skipped without root. */
#define _GNU_SOURCE
#include "signal_cases.h"

#define ROOM 4

static struct frame asked_by(uint8_t status, uint16_t port) {
    struct chart_qos qos = qos_of(status, 0, 20000000);
    struct frame frame;
    make_frame(&frame, client, server, port, PORT, 6, status == CHART_CLOSE ? FIN | ACK : SYN, 0);
    put_signal(&frame, &qos, UPSTREAM, EPOCH, ++sequence, signal_run_key(UPSTREAM, OWN));
    assert_int_equal(run_frame(run.program->progs.signal_ingress, &frame, 1), 0);
    return frame;
}

static int open_full(void **state) {
    int error = signal_run_open_with(&run, ROOM);
    (void)state;
    for (uint16_t i = 0; i < ROOM && !error; i++)
        assert_int_equal(asked_by(CHART_REQUEST, (uint16_t)(1024 + i)).verdict, TCX_NEXT_VERDICT);
    return error;
}

static void test_a_request_without_room_does_not_go_on(void **state) {
    uint64_t dropped = signal_run_count(&run, CHART_COUNT_NO_ROOM), sent = signal_run_count(&run, CHART_COUNT_SENT);
    (void)state;
    for (uint16_t i = 0; i < 100; i++)
        assert_int_equal(asked_by(CHART_REQUEST, (uint16_t)(2000 + i)).verdict, DROP_VERDICT);
    assert_int_equal(signal_run_count(&run, CHART_COUNT_NO_ROOM), dropped + 100);
    assert_int_equal(signal_run_count(&run, CHART_COUNT_SENT), sent);
}

static void test_what_is_kept_goes_on(void **state) {
    uint64_t dropped = signal_run_count(&run, CHART_COUNT_NO_ROOM);
    (void)state;
    struct frame frame = asked_by(CHART_REQUEST, 1024);
    assert_int_equal(frame.verdict, TCX_NEXT_VERDICT);
    assert_int_equal(frame.mark, CHART_MARK_SIGNAL);
    /* The end of a flow that is not kept takes nothing: it goes on. */
    assert_int_equal(asked_by(CHART_CLOSE, 3000).verdict, TCX_NEXT_VERDICT);
    assert_int_equal(signal_run_count(&run, CHART_COUNT_NO_ROOM), dropped);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_a_request_without_room_does_not_go_on),
        TEST(test_what_is_kept_goes_on),
    };

    return geteuid() == 0 ? cmocka_run_group_tests(tests, open_full, close_run) : skipped();
}
