/* What signals that fail to verify may cost: a budget for each sender, and none of it paid by others. Skipped without
 * root. */
#define _GNU_SOURCE
#include "signal_cases.h"

#include "signal/signal_keys.h"

#define FLOOD 2000u

static const uint8_t forger[4] = {192, 0, 2, 66};

/* A request that names UPSTREAM; forged: signed with the key of another pair. */
static struct frame asked_from(const uint8_t *from, uint16_t port, bool forged) {
    struct chart_qos request = qos_of(CHART_REQUEST, 0, 20000000);
    struct frame frame;
    make_frame(&frame, from, server, port, PORT, 6, SYN, 0);
    put_signal(&frame, &request, UPSTREAM, EPOCH, forged ? sequence + 1000 : ++sequence,
               signal_run_key(forged ? DOWNSTREAM : UPSTREAM, OWN));
    assert_int_equal(run_frame(run.program->progs.signal_ingress, &frame, 1), 0);
    assert_int_equal(frame.verdict, TCX_NEXT_VERDICT);
    return frame;
}

static void flood(const uint8_t *from, uint16_t port, uint64_t *ret_verified, uint64_t *ret_refused) {
    uint64_t verified = signal_run_count(&run, CHART_QOS_BAD_TAG);
    uint64_t refused = signal_run_count(&run, CHART_COUNT_OVER_BUDGET);
    for (uint32_t i = 0; i < FLOOD; i++)
        assert_int_equal(asked_from(from, port ? port : (uint16_t)(1024 + i), true).mark, 0);
    *ret_verified = signal_run_count(&run, CHART_QOS_BAD_TAG) - verified;
    *ret_refused = signal_run_count(&run, CHART_COUNT_OVER_BUDGET) - refused;
}

/* So many are verified, and those whose time was paid off during the flood. */
static void assert_bounded(uint64_t verified, uint64_t refused, uint64_t begun_ns) {
    uint64_t paid = (signal_monotonic_ns() - begun_ns) / CHART_FAILURE_NS + 1;
    assert_in_range(verified, CHART_FAILURES_AT_ONCE, CHART_FAILURES_AT_ONCE + paid);
    assert_int_equal(verified + refused, FLOOD);
}

static void test_a_flood_is_refused_without_being_verified(void **state) {
    uint64_t verified, refused, begun_ns = signal_monotonic_ns();
    (void)state;
    flood(forger, 0, &verified, &refused);
    assert_bounded(verified, refused, begun_ns);
}

/* The forger names the same element; what counts is where its packets come from. */
static void test_others_of_the_same_element_are_verified(void **state) {
    uint64_t verified, refused;
    (void)state;
    flood(forger, 0, &verified, &refused);
    assert_true(refused > 0);
    assert_int_equal(asked_from(client, next_port, false).mark, CHART_MARK_SIGNAL);
}

static void test_a_known_flow_of_a_forged_address_is_verified(void **state) {
    uint64_t verified, refused;
    (void)state;
    assert_int_equal(asked_from(client, next_port, false).mark, CHART_MARK_SIGNAL);
    flood(client, 0, &verified, &refused);
    assert_true(refused > 0);
    assert_int_equal(asked_from(client, next_port, false).mark, CHART_MARK_SIGNAL);
    /* One that is not known waits until failures are paid off. */
    assert_int_equal(asked_from(client, (uint16_t)(next_port + 1000), false).mark, 0);
}

/* Who knows a flow, its own perhaps, does not get round the budget with it. */
static void test_a_known_flow_has_a_budget_too(void **state) {
    uint64_t verified, refused, again, all;
    (void)state;
    assert_int_equal(asked_from(client, next_port, false).mark, CHART_MARK_SIGNAL);
    flood(client, next_port, &verified, &refused);
    assert_true(verified >= 2 * CHART_FAILURES_AT_ONCE);
    assert_true(refused > FLOOD / 2);
    flood(client, next_port, &again, &all);
    assert_true(all > FLOOD / 2);
}

static void test_failures_are_paid_off(void **state) {
    int fd = bpf_map__fd(run.program->maps.signal_failing);
    struct chart_signal_sender key;
    struct chart_signal_failing failing;
    uint64_t verified, refused;
    (void)state;
    flood(forger, 0, &verified, &refused);
    assert_int_equal(asked_from(forger, 60000, false).mark, 0);
    /* A second later. */
    assert_int_equal(bpf_map_get_next_key(fd, NULL, &key), 0);
    assert_int_equal(bpf_map_lookup_elem(fd, &key, &failing), 0);
    failing.until_ns -= 1000000000ull;
    assert_int_equal(bpf_map_update_elem(fd, &key, &failing, BPF_EXIST), 0);
    assert_int_equal(asked_from(forger, 60000, false).mark, CHART_MARK_SIGNAL);
}

/* Who has many addresses takes no more memory, and no place of anybody else. */
static void test_the_table_is_bounded(void **state) {
    uint32_t entries = 0;
    struct chart_signal_sender key, next;
    int more;
    (void)state;
    for (uint32_t i = 0; i < 2 * CHART_SIGNAL_FAILING_MAX; i++) {
        const uint8_t from[4] = {10, 1, (uint8_t)(i >> 8), (uint8_t)i};
        asked_from(from, 1024, true);
    }
    more = bpf_map_get_next_key(bpf_map__fd(run.program->maps.signal_failing), NULL, &next);
    for (; more == 0; entries++) {
        key = next;
        more = bpf_map_get_next_key(bpf_map__fd(run.program->maps.signal_failing), &key, &next);
    }
    assert_in_range(entries, 1, CHART_SIGNAL_FAILING_MAX);
    assert_int_equal(asked_from(client, next_port, false).mark, CHART_MARK_SIGNAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_a_flood_is_refused_without_being_verified),
        TEST(test_others_of_the_same_element_are_verified),
        TEST(test_a_known_flow_of_a_forged_address_is_verified),
        TEST(test_a_known_flow_has_a_budget_too),
        TEST(test_failures_are_paid_off),
        TEST(test_the_table_is_bounded),
    };

    return RUN(tests);
}
