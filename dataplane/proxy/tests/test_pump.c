/* Octets from socket to socket over real ones: all of them, in order, no more than fit, and the end. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "pump.h"

/* A host at each end, the pump between: source -> from, to -> sink. */
struct line {
    int source, from, to, sink;
    struct pump pump;
    struct pipes pipes;
};

static void make_pair(int *ret_outer, int *ret_inner) {
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    *ret_outer = pair[0];
    *ret_inner = pair[1];
}

static int set_up(void **state) {
    struct line *line = calloc(1, sizeof(*line));
    make_pair(&line->source, &line->from);
    make_pair(&line->sink, &line->to);
    pump_init(&line->pump, line->from, line->to);
    *state = line;
    return 0;
}

static int tear_down(void **state) {
    struct line *line = *state;
    pump_close(&line->pump, &line->pipes);
    pipes_close(&line->pipes);
    close(line->source), close(line->from), close(line->to), close(line->sink);
    free(line);
    return 0;
}

static void test_octets_and_the_end_arrive(void **state) {
    struct line *line = *state;
    char got[16];
    assert_int_equal(pump_run(&line->pump, &line->pipes), PUMP_IDLE);
    assert_int_equal(write(line->source, "hello", 5), 5);
    assert_int_equal(pump_run(&line->pump, &line->pipes), PUMP_IDLE);
    assert_int_equal(read(line->sink, got, sizeof(got)), 5);
    assert_memory_equal(got, "hello", 5);
    assert_int_equal(line->pump.bytes, 5);
    shutdown(line->source, SHUT_WR);
    assert_int_equal(pump_run(&line->pump, &line->pipes), PUMP_DONE);
    assert_int_equal(read(line->sink, got, sizeof(got)), 0);
    /* The other direction is none of its business. */
    assert_int_equal(write(line->sink, "back", 4), 4);
    assert_int_equal(read(line->to, got, sizeof(got)), 4);
    assert_int_equal(pump_run(&line->pump, &line->pipes), PUMP_DONE);
}

static void test_idle_connections_hold_no_pipe(void **state) {
    struct line *line = *state;
    assert_int_equal(write(line->source, "x", 1), 1);
    assert_int_equal(pump_run(&line->pump, &line->pipes), PUMP_IDLE);
    assert_int_equal(line->pump.pipe[0], -1);
    assert_int_equal(line->pipes.count, 1);
}

/* The octet at each place of an endless stream. */
static uint8_t octet_at(size_t place) {
    return (uint8_t)(place * 2654435761u >> 7);
}

static size_t put_in(const struct line *line, size_t place) {
    static uint8_t block[8192];
    for (;;) {
        for (size_t i = 0; i < sizeof(block); i++)
            block[i] = octet_at(place + i);
        ssize_t sent = write(line->source, block, sizeof(block));
        if (sent <= 0)
            return place;
        place += (size_t)sent;
    }
}

static size_t take_out(const struct line *line, size_t place) {
    static uint8_t block[65536];
    ssize_t got;
    while ((got = read(line->sink, block, sizeof(block))) > 0)
        for (ssize_t i = 0; i < got; i++)
            if (block[i] != octet_at(place++))
                fail_msg("another octet at %zu", place - 1);
    return place;
}

static void test_a_slow_receiver_holds_the_sender_back(void **state) {
    struct line *line = *state;
    size_t sent = 0, got = 0, before = SIZE_MAX;
    enum pump_result result = PUMP_IDLE;
    while (sent != before) {
        before = sent;
        sent = put_in(line, sent);
        result = pump_run(&line->pump, &line->pipes);
    }
    assert_int_equal(result, PUMP_IDLE);
    assert_in_range(line->pump.waiting, 1, PIPE_BYTES);
    assert_true(line->pump.pipe[0] >= 0);
    /* Two sockets' buffers and a pipe. */
    assert_in_range(sent, PIPE_BYTES / 4, 2 * 1024 * 1024);
    shutdown(line->source, SHUT_WR);
    for (int i = 0; i < 1000 && result != PUMP_DONE; i++) {
        got = take_out(line, got);
        result = pump_run(&line->pump, &line->pipes);
    }
    assert_int_equal(result, PUMP_DONE);
    got = take_out(line, got);
    assert_int_equal(got, sent);
    assert_int_equal(line->pump.bytes, sent);
    assert_int_equal(line->pump.waiting, 0);
}

static void test_a_gone_receiver_is_a_reset(void **state) {
    struct line *line = *state;
    assert_int_equal(write(line->source, "x", 1), 1);
    close(line->sink);
    line->sink = open("/dev/null", O_RDONLY);
    assert_int_equal(pump_run(&line->pump, &line->pipes), PUMP_RESET);
    assert_true(line->pump.to_broke);
    /* What waits in a pipe must not reach another connection. */
    pump_close(&line->pump, &line->pipes);
    assert_int_equal(line->pipes.count, 0);
}

static void test_what_was_said_before_a_break_arrives_without_an_end(void **state) {
    struct line *line = *state;
    char got[16];
    assert_int_equal(write(line->source, "last", 4), 4);
    close(line->source);
    line->source = open("/dev/null", O_RDONLY);
    assert_true(pump_rest(&line->pump, &line->pipes));
    assert_int_equal(read(line->sink, got, sizeof(got)), 4);
    assert_int_equal(read(line->sink, got, sizeof(got)), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(line->pump.bytes, 4);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_octets_and_the_end_arrive, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_idle_connections_hold_no_pipe, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_slow_receiver_holds_the_sender_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_gone_receiver_is_a_reset, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_was_said_before_a_break_arrives_without_an_end, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
