/* The program `signal`, packet by packet in the kernel: a hundred thousand flows, a hundred thousand forgeries. Skipped
 * without root. */
#define _GNU_SOURCE
#include "signal_cases.h"

/* Requests of `count` flows, from number `first` on. */
static void many_flows(uint32_t first, uint32_t count) {
    struct chart_qos request = qos_of(CHART_REQUEST, 0, 20000000);
    for (uint32_t i = first; i < first + count; i++) {
        const uint8_t from[4] = {192, 0, 2, (uint8_t)(i >> 14)};
        struct frame frame;
        make_frame(&frame, from, server, (uint16_t)(1024 + i % 16384), PORT, 6, SYN, 0);
        put_signal(&frame, &request, UPSTREAM, EPOCH, ++sequence, signal_run_key(UPSTREAM, OWN));
        assert_int_equal(run_frame(run.program->progs.signal_ingress, &frame, 1), 0);
        assert_int_equal(frame.mark, CHART_MARK_SIGNAL);
    }
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

/* A hundred thousand flows at once find room; a hundred thousand more push out the oldest and take no more memory. */
static void test_a_hundred_thousand_flows(void **state) {
    unsigned long memory = memory_of_flows();
    (void)state;
    many_flows(0, 100000);
    assert_in_range(entries_of_flows(), 100000, CHART_SIGNAL_FLOWS_MAX);
    many_flows(100000, 100000);
    assert_in_range(entries_of_flows(), 100000, CHART_SIGNAL_FLOWS_MAX);
    assert_int_equal(memory_of_flows(), memory);
    print_message("the flow table takes %.1f MB, whatever is in it\n", (double)memory / 1e6);
    assert_true(memory < 64ul << 20);
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
        TEST(test_a_hundred_thousand_flows),
        TEST(test_a_hundred_thousand_forgeries),
    };

    return RUN(tests);
}
