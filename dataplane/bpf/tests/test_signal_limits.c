/* The program `signal`, packet by packet in the kernel: floods of flows and of users, a hundred thousand forgeries.
 * Skipped without root. */
#define _GNU_SOURCE
#include "signal_cases.h"

#include "signal/session_count.h"
#include "signal/signal_keys.h"

/* Requests of `count` flows, from number `first` on. Returns how many were dropped. */
static uint32_t many_flows(uint32_t first, uint32_t count) {
    struct chart_qos request = qos_of(CHART_REQUEST, 0, 20000000);
    uint32_t dropped = 0;
    for (uint32_t i = first; i < first + count; i++) {
        const uint8_t from[4] = {192, 0, 2, (uint8_t)(i >> 14)};
        struct frame frame;
        make_frame(&frame, from, server, (uint16_t)(1024 + i % 16384), PORT, 6, SYN, 0);
        put_signal(&frame, &request, UPSTREAM, EPOCH, ++sequence, signal_run_key(UPSTREAM, OWN));
        assert_int_equal(run_frame(run.program->progs.signal_ingress, &frame, 1), 0);
        dropped += frame.verdict == DROP_VERDICT;
        assert_int_equal(frame.mark, frame.verdict == DROP_VERDICT ? 0 : CHART_MARK_SIGNAL);
    }
    return dropped;
}

static uint32_t entries_of_flows(void) {
    struct chart_signal_key key, next;
    uint32_t entries = 0;
    int more = bpf_map_get_next_key(bpf_map__fd(run.program->maps.signal_flows), NULL, &next);
    while (more == 0) {
        key = next;
        entries++;
        more = bpf_map_get_next_key(bpf_map__fd(run.program->maps.signal_flows), &key, &next);
    }
    return entries;
}

/* What the kernel says the flow table takes of memory, in octets. */
static unsigned long memory_of_flows(void) {
    char path[64], line[128];
    unsigned long octets = 0;
    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", bpf_map__fd(run.program->maps.signal_flows));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file))
        sscanf(line, "memlock: %lu", &octets);
    fclose(file);
    assert_true(octets > 0);
    return octets;
}

/* Walks that end: as the agent makes them, at this time. */
static void swept(uint64_t now_ns, uint32_t walks) {
    struct session_walk *walk = session_walk_new(run.tables);
    int error = 0;
    assert_non_null(walk);
    for (uint32_t i = 0; walks && i < 10000; i++)
        walks -= session_walk_step(walk, now_ns, &error);
    assert_int_equal(walks, 0);
    assert_int_equal(error, 0);
    session_walk_free(walk);
}

static uint32_t entries_of_users(void) {
    struct chart_signal_user_key key, next;
    uint32_t entries = 0;
    int more = bpf_map_get_next_key(bpf_map__fd(run.program->maps.signal_users), NULL, &next);
    while (more == 0) {
        key = next;
        entries++;
        more = bpf_map_get_next_key(bpf_map__fd(run.program->maps.signal_users), &key, &next);
    }
    return entries;
}

#define SECOND_NS 1000000000ull
#define HOLDER_BPS 10000000ull

/* A flow that holds a guaranteed rate and sends nothing any more; the link keeps it for 30 s. */
static uint16_t idle_holder(void) {
    struct chart_qos answer = qos_of(CHART_RESPONSE, HOLDER_BPS, 0);
    next_port = 62000;
    as_origin(HOLDER_BPS, 0);
    sent(client, server, next_port, PORT, SYN, 0);
    received(server, client, PORT, next_port, &answer, DOWNSTREAM);
    sent(client, server, next_port, PORT, ACK, 0);
    assert_int_equal(half_of(next_port).state, CHART_SOCKET_AGREED);
    return next_port;
}

/* Two hundred thousand flows come while one holds a rate in silence: it is still there, and its table takes no more
 * memory. Those beyond its room are dropped and counted. When everything is over nothing is left. */
static void test_a_flood_of_flows_evicts_nobody(void **state) {
    unsigned long memory = memory_of_flows();
    uint64_t no_room = signal_run_count(&run, CHART_COUNT_NO_ROOM), now_ns = signal_monotonic_ns();
    uint32_t flows, dropped;
    uint16_t holder;
    (void)state;
    swept(now_ns + 3600 * SECOND_NS, 1);
    assert_int_equal(entries_of_flows(), 0);
    holder = idle_holder();
    dropped = many_flows(0, 200000);
    assert_int_equal(entries_of_flows(), CHART_SIGNAL_FLOWS_MAX);
    assert_int_equal(dropped, 200000 - (CHART_SIGNAL_FLOWS_MAX - 1));
    assert_int_equal(signal_run_count(&run, CHART_COUNT_NO_ROOM) - no_room, dropped);
    assert_in_range(half_of(holder).held_bps, HOLDER_BPS * 99 / 100, HOLDER_BPS);
    assert_in_range(held(&flows), HOLDER_BPS * 99 / 100, HOLDER_BPS);
    assert_int_equal(memory_of_flows(), memory);
    print_message("the flow table takes %.1f MB, whatever is in it\n", (double)memory / 1e6);
    assert_true(memory < 64ul << 20);
    /* What the flood left is over within seconds, so that others find room; the holder stays as long as its rate. */
    swept(signal_monotonic_ns() + 5 * SECOND_NS, 2);
    assert_int_equal(entries_of_flows(), 1);
    assert_in_range(half_of(holder).held_bps, HOLDER_BPS * 99 / 100, HOLDER_BPS);
    assert_int_equal(many_flows(0, 1), 0);
    swept(signal_monotonic_ns() + 70 * SECOND_NS, 1);
    assert_int_equal(entries_of_flows(), 0);
    assert_int_equal(entries_of_users(), 0);
}

/* Flows that nothing is asked for take no place of those that ask. */
static void test_flows_without_an_ask_are_not_kept(void **state) {
    uint32_t before = entries_of_flows();
    (void)state;
    as_origin(0, 20000000);
    for (uint32_t i = 0; i < 100000; i++) {
        const uint8_t from[4] = {192, 0, 2, (uint8_t)(i >> 14)};
        struct frame frame;
        make_frame(&frame, from, server, (uint16_t)(1024 + i % 16384), PORT + 1, 6, ACK, 0);
        assert_int_equal(run_frame(run.program->progs.signal_egress, &frame, 1), 0);
    }
    assert_int_equal(entries_of_flows(), before);
    sent(client, server, next_port, PORT, SYN, 0);
    assert_int_equal(half_of(next_port).role, CHART_ROLE_ORIGIN);
}

/* The table of users forgets nobody either who has a flow. */
static void test_users_beyond_the_table_take_nobodys_place(void **state) {
    uint64_t unknown = signal_run_count(&run, CHART_COUNT_UNKNOWN_USER);
    (void)state;
    signal_run_authorise(&run, 0, 0);
    as_origin(0, 20000000);
    swept(signal_monotonic_ns() + 3600 * SECOND_NS, 1);
    for (uint32_t i = 0; i < CHART_SIGNAL_USERS_MAX + 1000; i++) {
        const uint8_t from[4] = {192, 0, (uint8_t)(i >> 8), (uint8_t)i};
        sent(from, server, 1024, PORT, SYN, 0);
    }
    assert_int_equal(entries_of_users(), CHART_SIGNAL_USERS_MAX);
    assert_int_equal(signal_run_count(&run, CHART_COUNT_UNKNOWN_USER) - unknown, 1000);
    swept(signal_monotonic_ns() + 3600 * SECOND_NS, 1);
    assert_int_equal(entries_of_users(), 0);
}

static uint32_t next_random(void) {
    static uint64_t state = 88172645463325252ull;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

/* Replayed, flipped, cut, raised under an old tag, signed with another key or by a stranger: none is accepted. */
static void test_a_hundred_thousand_forgeries(void **state) {
    struct chart_qos request = qos_of(CHART_REQUEST, 0, 20000000), raised = qos_of(CHART_REQUEST, LINK_BPS, LINK_BPS);
    struct frame good, frame;
    (void)state;
    make_frame(&good, client, server, next_port, PORT, 6, SYN, 0);
    put_signal(&good, &request, UPSTREAM, EPOCH, ++sequence, signal_run_key(UPSTREAM, OWN));
    frame = good;
    assert_int_equal(run_frame(run.program->progs.signal_ingress, &frame, 1), 0);
    assert_int_equal(frame.mark, CHART_MARK_SIGNAL);
    uint64_t accepted = signal_run_count(&run, CHART_COUNT_ACCEPTED);
    for (uint32_t i = 0; i < 100000; i++) {
        uint32_t fresh = sequence + 1 + next_random() % 100000, kind = i % 6;
        frame = good;
        /* Each is judged for itself, whatever came before it. */
        forget_failures(&run);
        if (kind == 1 || kind == 2)
            frame.octets[ETHERNET + 12 + next_random() % 48] ^= (uint8_t)(1 << next_random() % 8);
        if (kind == 2)
            frame.length = ETHERNET + 40 + next_random() % 16;
        if (kind > 2)
            make_frame(&frame, client, server, next_port, PORT, 6, SYN, 0);
        if (kind == 3) {
            put_signal(&frame, &raised, UPSTREAM, EPOCH, fresh, signal_run_key(UPSTREAM, OWN));
            memcpy(frame.octets + ETHERNET + 22 + CHART_SIGNED_OCTETS,
                   good.octets + ETHERNET + 22 + CHART_SIGNED_OCTETS, CHART_TAG_OCTETS);
        }
        if (kind == 4)
            put_signal(&frame, &raised, UPSTREAM, EPOCH, fresh, signal_run_key(DOWNSTREAM, OWN));
        if (kind == 5)
            put_signal(&frame, &raised, (uint16_t)(100 + next_random() % 1000), EPOCH, fresh,
                       signal_run_key(UPSTREAM, OWN));
        assert_int_equal(run_frame(run.program->progs.signal_ingress, &frame, 1), 0);
        assert_int_equal(frame.mark, 0);
    }
    assert_int_equal(signal_run_count(&run, CHART_COUNT_ACCEPTED), accepted);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_a_flood_of_flows_evicts_nobody),
        TEST(test_flows_without_an_ask_are_not_kept),
        TEST(test_users_beyond_the_table_take_nobodys_place),
        TEST(test_a_hundred_thousand_forgeries),
    };

    return RUN(tests);
}
