/* Both ends' connections in one process over loopback, under the sanitizers: m changes under load, connections that
 * break, a destination that dies and comes back, one that refuses. Packets carry a number; none may be lost or come out
 * of order while nothing breaks. */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "inlets.h"
#include "loop.h"
#include "pool.h"
#include "resequencer.h"

#define PACKET_BYTES 700
#define LIMIT_US 20000000

struct world {
    struct options options;
    int epoll;
    bool answers; /* the destination is there */
    struct scheduler scheduler;
    struct pool pool;
    struct inlets inlets;
    struct resequencer resequencer;
    uint32_t wanted;
    uint32_t sent, received, reordered, next;
    uint64_t sessions;
};

static void begin(void *context, const struct hello *hello) {
    struct world *world = context;
    world->sessions++;
    resequencer_restart(&world->resequencer, hello->next_sequence);
}

static void take(void *context, uint64_t sequence, const uint8_t *bytes, size_t count) {
    struct world *world = context;
    (void)resequencer_put(&world->resequencer, sequence, bytes, count, loop_now_us());
}

static void deliver(void *context, const uint8_t *bytes, size_t count) {
    struct world *world = context;
    uint32_t number;
    static const uint8_t NOTHING_UNDONE[OFFLOAD_DEVICE_BYTES];
    assert_int_equal(count, OFFLOAD_DEVICE_BYTES + PACKET_BYTES);
    /* Every third packet has a checksum to be done. */
    memcpy(&number, bytes + OFFLOAD_DEVICE_BYTES, sizeof(number));
    assert_int_equal(memcmp(bytes, NOTHING_UNDONE, sizeof(NOTHING_UNDONE)) == 0, number % 3 != 0);
    world->received++;
    world->reordered += number < world->next;
    world->next = number + 1;
}

static void start_destination(struct world *world) {
    const struct inlets_handler handler = {begin, take, world};
    assert_int_equal(
        inlets_open(&world->inlets, &world->options, NULL, world->epoll, TAG_LISTENER, TAG_CONTROL, &handler), 0);
    world->answers = true;
}

static void stop_destination(struct world *world) {
    inlets_close(&world->inlets);
    world->answers = false;
}

/* A port that is free now: the options need its number before anybody listens. */
static void choose_port(struct options *options) {
    socklen_t bytes = sizeof(options->endpoint.v4);
    int descriptor = socket(AF_INET, SOCK_STREAM, 0);
    options->endpoint.v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(bind(descriptor, &options->endpoint.any, bytes), 0);
    assert_int_equal(getsockname(descriptor, &options->endpoint.any, &bytes), 0);
    close(descriptor);
    options->endpoint_text = "the test's port";
}

static int start(void **state) {
    struct world *world = calloc(1, sizeof(*world));
    world->options = (struct options){
        .congestion = "cubic", .batch_bytes = 4096, .period_us = 50000, .queue_bytes = 4000000, .class_count = 1};
    choose_port(&world->options);
    world->epoll = epoll_create1(EPOLL_CLOEXEC);
    world->wanted = 1;
    assert_int_equal(scheduler_init(&world->scheduler, 1, world->options.queue_bytes), 0);
    assert_int_equal(resequencer_init(&world->resequencer, 4096, 500000, deliver, world), 0);
    pool_init(&world->pool, &world->options, &world->scheduler, NULL, world->epoll, TAG_CONNECTION, 77);
    loop_catch_signals();
    *state = world;
    return 0;
}

static int finish(void **state) {
    struct world *world = *state;
    pool_free(&world->pool);
    if (world->answers)
        stop_destination(world);
    resequencer_free(&world->resequencer);
    scheduler_free(&world->scheduler);
    close(world->epoll);
    free(world);
    return 0;
}

static void step(struct world *world) {
    struct epoll_event events[LOOP_EVENTS];
    uint64_t now_us = loop_now_us();
    (void)pool_update(&world->pool, world->wanted, now_us);
    pool_pump(&world->pool, now_us);
    (void)resequencer_tick(&world->resequencer, now_us);
    int count = epoll_wait(world->epoll, events, LOOP_EVENTS, 1);
    now_us = loop_now_us();
    for (int i = 0; i < count; i++) {
        uint64_t data = events[i].data.u64;
        if (TAG_OF(data) == TAG_CONNECTION)
            pool_event(&world->pool, INDEX_OF(data), events[i].events, now_us);
        else if (world->answers && TAG_OF(data) == TAG_LISTENER)
            inlets_accept(&world->inlets, now_us);
        else if (world->answers)
            inlets_event(&world->inlets, INDEX_OF(data), now_us);
    }
}

static void put(struct world *world, int packets) {
    uint8_t packet[PACKET_BYTES] = {0};
    const struct offload unsummed = {.flags = 1, .checksum_start = 20, .checksum_offset = 16};
    for (int i = 0; i < packets; i++) {
        memcpy(packet, &world->sent, sizeof(world->sent));
        assert_int_equal(
            scheduler_put(&world->scheduler, 0, packet, sizeof(packet), world->sent % 3 ? NULL : &unsummed), 0);
        world->sent++;
    }
}

/* Steps until it is true. */
#define UNTIL(world, condition)                                                                                        \
    do {                                                                                                               \
        uint64_t limit_us = loop_now_us() + LIMIT_US;                                                                  \
        while (!(condition)) {                                                                                         \
            assert_true(loop_now_us() < limit_us);                                                                     \
            step(world);                                                                                               \
        }                                                                                                              \
    } while (0)

static void test_nothing_is_lost_while_m_changes(void **state) {
    struct world *world = *state;
    static const uint32_t WANTED[] = {1, 8, 2, 40, 3, 1, 12};
    start_destination(world);
    for (int round = 0; round < 70; round++) {
        world->wanted = WANTED[round % 7];
        put(world, 100);
        for (int i = 0; i < 5; i++)
            step(world);
    }
    UNTIL(world, world->received == world->sent);
    assert_int_equal(world->reordered, 0);
    assert_int_equal(world->resequencer.skipped, 0);
    assert_int_equal(world->pool.counters.broken, 0);
    UNTIL(world, pool_count(&world->pool, CONNECTION_DRAINING) == 0 &&
                     pool_count(&world->pool, CONNECTION_UP) == world->wanted);
    UNTIL(world, inlets_count(&world->inlets) == world->wanted);
    assert_int_equal(world->sessions, 1);
}

static void test_a_destination_that_dies_comes_back(void **state) {
    struct world *world = *state;
    start_destination(world);
    world->wanted = 4;
    UNTIL(world, pool_count(&world->pool, CONNECTION_UP) == 4);
    stop_destination(world);
    put(world, 200);
    UNTIL(world, pool_count(&world->pool, CONNECTION_WAITING) == 4);
    assert_true(strlen(world->pool.last_error) > 0);
    assert_true(world->pool.counters.broken + world->pool.counters.connect_failures >= 4);
    start_destination(world);
    UNTIL(world, pool_count(&world->pool, CONNECTION_UP) == 4);
    assert_string_equal(world->pool.last_error, "");
    /* What had not been acknowledged before the break goes out again. */
    put(world, 50);
    UNTIL(world, world->received == world->sent);
    assert_true(world->pool.counters.resent_packets > 0);
    assert_int_equal(world->sessions, 2);
}

/* The destination reads nothing from one connection: what its window holds back goes out over the other one. */
static void test_what_is_stuck_goes_out_over_another_connection(void **state) {
    struct world *world = *state;
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.u64 = TAG_CONTROL};
    int least_bytes = 1;
    start_destination(world);
    world->wanted = 2;
    UNTIL(world, pool_count(&world->pool, CONNECTION_UP) == 2);
    int stalled = world->inlets.slots[0].channel.descriptor;
    assert_int_equal(epoll_ctl(world->epoll, EPOLL_CTL_DEL, stalled, NULL), 0);
    assert_int_equal(setsockopt(stalled, SOL_SOCKET, SO_RCVBUF, &least_bytes, sizeof(least_bytes)), 0);
    put(world, 1000);
    UNTIL(world, world->pool.counters.repeated_packets >= 3);
    assert_true(world->pool.slots[0]->transit.first || world->pool.slots[1]->transit.first);
    assert_int_equal(epoll_ctl(world->epoll, EPOLL_CTL_ADD, stalled, &event), 0);
    UNTIL(world,
          world->received == world->sent && world->resequencer.duplicates == world->pool.counters.repeated_packets);
    /* Nothing is kept of what has arrived. */
    UNTIL(world, !world->pool.slots[0]->transit.first && !world->pool.slots[1]->transit.first);
    assert_int_equal(world->received, world->sent);
    assert_int_equal(world->pool.counters.broken, 0);
}

static void test_nobody_listens(void **state) {
    struct world *world = *state;
    world->wanted = 2;
    put(world, 10);
    UNTIL(world, world->pool.counters.connect_failures >= 4);
    assert_non_null(strstr(world->pool.last_error, "Connection refused"));
    assert_int_equal(world->scheduler.queue_packets, 10);
    start_destination(world);
    UNTIL(world, world->received == 10);
    assert_int_equal(world->reordered, 0);
}

/* Some other program answers: first nonsense, then a refusal. */
static void test_strangers_get_no_packets(void **state) {
    struct world *world = *state;
    uint8_t refusal[FRAME_HEADER_BYTES + FRAME_REFUSAL_MAX];
    size_t bytes = frame_write_refusal(refusal, "we are \x01 full");
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    assert_int_equal(bind(listener, &world->options.endpoint.any, sizeof(world->options.endpoint.v4)), 0);
    assert_int_equal(listen(listener, 4), 0);
    put(world, 5);
    step(world);
    int stranger = accept(listener, NULL, NULL);
    assert_int_equal(write(stranger, "SSH-2.0-OpenSSH and so on", 25), 25);
    UNTIL(world, strstr(world->pool.last_error, "no destination of a tunnel"));
    close(stranger);
    UNTIL(world, pool_count(&world->pool, CONNECTION_GREETING) == 1);
    stranger = accept(listener, NULL, NULL);
    assert_int_equal(write(stranger, refusal, bytes), bytes);
    UNTIL(world, strstr(world->pool.last_error, "we are ? full"));
    close(stranger);
    close(listener);
    assert_int_equal(world->scheduler.queue_packets, 5);
}

/* The destination's side: what is no HELLO, another version, silence. */
static void test_the_destination_refuses(void **state) {
    struct world *world = *state;
    uint8_t hello[FRAME_HEADER_BYTES + FRAME_HELLO_BYTES], answer[256];
    struct frame frame;
    char sentence[FRAME_REFUSAL_MAX + 1];
    const struct hello from = {1, 2, 3};
    start_destination(world);
    world->wanted = 1;
    int other = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(other, &world->options.endpoint.any, sizeof(world->options.endpoint.v4)), 0);
    size_t bytes = frame_write_hello(hello, &from);
    hello[FRAME_HEADER_BYTES + 5] = FRAME_VERSION + 1;
    assert_int_equal(write(other, hello, bytes), bytes);
    UNTIL(world, world->inlets.counters.refused == 1);
    ssize_t got = read(other, answer, sizeof(answer));
    assert_true(got > 0 && frame_parse(answer, (size_t)got, &frame) == got);
    assert_int_equal(frame_read_refusal(&frame, sentence), 0);
    assert_non_null(strstr(sentence, "another version"));
    close(other);
    other = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(other, &world->options.endpoint.any, sizeof(world->options.endpoint.v4)), 0);
    assert_int_equal(write(other, "GET / HTTP/1.1\r\n", 16), 16);
    UNTIL(world, world->inlets.counters.malformed == 1);
    assert_int_equal(read(other, answer, sizeof(answer)) <= 0, 1);
    close(other);
    /* Whoever says nothing is closed in the end. */
    other = socket(AF_INET, SOCK_STREAM, 0);
    uint64_t accepted = world->inlets.counters.accepted;
    assert_int_equal(connect(other, &world->options.endpoint.any, sizeof(world->options.endpoint.v4)), 0);
    UNTIL(world, world->inlets.counters.accepted > accepted);
    inlets_expire(&world->inlets, loop_now_us() + INLET_HELLO_TIMEOUT_US + 1);
    assert_int_equal(read(other, answer, sizeof(answer)), 0);
    close(other);
}

/* Whatever another origin says, the one that is connected keeps the tunnel; then the next one gets it. */
static void test_a_running_session_stays(void **state) {
    struct world *world = *state;
    uint8_t hello[FRAME_HEADER_BYTES + FRAME_HELLO_BYTES], answer[256];
    struct frame frame;
    char sentence[FRAME_REFUSAL_MAX + 1];
    const struct hello from = {.session = 78, .next_sequence = 0, .period_us = 50000};
    size_t bytes = frame_write_hello(hello, &from);
    start_destination(world);
    world->wanted = 3;
    UNTIL(world, inlets_count(&world->inlets) == 3);
    int other = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(other, &world->options.endpoint.any, sizeof(world->options.endpoint.v4)), 0);
    assert_int_equal(write(other, hello, bytes), bytes);
    UNTIL(world, world->inlets.counters.refused == 1);
    ssize_t got = read(other, answer, sizeof(answer));
    assert_true(got > 0 && frame_parse(answer, (size_t)got, &frame) == got);
    assert_int_equal(frame_read_refusal(&frame, sentence), 0);
    assert_non_null(strstr(sentence, "another origin is connected"));
    close(other);
    put(world, 300);
    UNTIL(world, world->received == world->sent);
    assert_int_equal(world->reordered, 0);
    assert_int_equal(inlets_count(&world->inlets), 3);
    assert_int_equal(world->pool.counters.broken, 0);
    assert_int_equal(world->sessions, 1);
    pool_free(&world->pool);
    pool_init(&world->pool, &world->options, &world->scheduler, NULL, world->epoll, TAG_CONNECTION, 78);
    world->wanted = 1;
    UNTIL(world, world->sessions == 2 && inlets_count(&world->inlets) == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nothing_is_lost_while_m_changes, start, finish),
        cmocka_unit_test_setup_teardown(test_a_destination_that_dies_comes_back, start, finish),
        cmocka_unit_test_setup_teardown(test_what_is_stuck_goes_out_over_another_connection, start, finish),
        cmocka_unit_test_setup_teardown(test_nobody_listens, start, finish),
        cmocka_unit_test_setup_teardown(test_strangers_get_no_packets, start, finish),
        cmocka_unit_test_setup_teardown(test_the_destination_refuses, start, finish),
        cmocka_unit_test_setup_teardown(test_a_running_session_stays, start, finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
