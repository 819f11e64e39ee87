/* The program `signal`, packet by packet in the kernel: which of an address's authorisations a request is checked
 * against. Skipped without root. */
#define _GNU_SOURCE
#include "signal_cases.h"

#define MBIT 1000000ull
#define SERVICE(number) ((uint8_t)(1u << (number)))

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void authorise(const struct signal_authorisation *list, size_t n, const char *const *prefixes) {
    struct signal_authorisation copies[8];
    for (size_t i = 0; i < n; i++) {
        copies[i] = list[i];
        assert_int_equal(decide_parse_prefix(prefixes[i], &copies[i].prefix), 0);
    }
    assert_int_equal(signal_tables_authorisations(run.tables, copies, n, now_us()), 0);
}

/* What the last element offers a request of the client for all it can have of a service. */
static struct chart_qos offered(uint8_t service) {
    struct chart_qos request = qos_of(CHART_REQUEST, 40 * MBIT, 40 * MBIT);
    request.service = service;
    request.preemption_priority = 200;
    next_port++;
    signal_run_path(&run, true, false);
    received(client, server, next_port, PORT, &request, UPSTREAM);
    return half_of(next_port).asked;
}

static void assert_rates(const struct chart_qos *qos, uint64_t guaranteed_bps, uint64_t available_bps) {
    assert_int_equal(qos->guaranteed_rate, chart_rate_encode(guaranteed_bps));
    assert_int_equal(qos->available_rate, chart_rate_encode(available_bps));
}

static void test_the_largest_of_the_service_applies(void **state) {
    const struct signal_authorisation list[] = {
        {.guaranteed_bps = 2 * MBIT, .available_bps = 30 * MBIT, .services = SERVICE(CHART_GUARANTEED)},
        {.guaranteed_bps = 8 * MBIT, .available_bps = 1 * MBIT, .services = SERVICE(CHART_GUARANTEED)},
        {.guaranteed_bps = 9 * MBIT, .available_bps = 20 * MBIT, .services = SERVICE(CHART_AVAILABLE)},
        {.guaranteed_bps = 0, .available_bps = 25 * MBIT, .services = SERVICE(CHART_AVAILABLE)},
    };
    static const char *const prefixes[] = {"192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.1"};
    struct chart_qos qos;
    (void)state;
    authorise(list, 4, prefixes);
    qos = offered(CHART_GUARANTEED);
    assert_rates(&qos, 8 * MBIT, 1 * MBIT);
    qos = offered(CHART_AVAILABLE);
    assert_rates(&qos, 0, 25 * MBIT);
    /* Nobody allowed this one: the free level. */
    qos = offered(CHART_MAXIMUM);
    assert_rates(&qos, 0, 1 * MBIT);
    assert_int_equal(qos.preemption_priority, 0);
}

static void test_the_longest_prefix_with_the_service_applies(void **state) {
    const struct signal_authorisation list[] = {
        {.guaranteed_bps = 3 * MBIT, .services = SERVICE(CHART_GUARANTEED), .preemption_priority = 9},
        {.guaranteed_bps = 20 * MBIT, .services = SERVICE(CHART_GUARANTEED)},
        {.guaranteed_bps = 7 * MBIT, .services = SERVICE(CHART_VARIABLE)},
    };
    static const char *const prefixes[] = {"192.0.2.1", "192.0.2.0/24", "192.0.0.0/16"};
    struct chart_qos qos;
    (void)state;
    authorise(list, 3, prefixes);
    qos = offered(CHART_GUARANTEED);
    assert_rates(&qos, 3 * MBIT, 0);
    assert_int_equal(qos.preemption_priority, 9);
    qos = offered(CHART_VARIABLE);
    assert_rates(&qos, 7 * MBIT, 0);
}

/* Times decide too: a larger one that has ended or not begun leaves the smaller one in force, also a shorter prefix. */
static void test_times_decide(void **state) {
    const int64_t now = now_us();
    const struct signal_authorisation list[] = {
        {.guaranteed_bps = 30 * MBIT, .services = 0xf, .until_us = now - 1},
        {.guaranteed_bps = 20 * MBIT, .services = 0xf, .from_us = now + 3000000},
        {.guaranteed_bps = 5 * MBIT, .services = 0xf, .until_us = now + 60000000},
        {.guaranteed_bps = 4 * MBIT, .services = 0xf},
    };
    static const char *const same[] = {"192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.1"};
    static const char *const shorter[] = {"192.0.2.1", "192.0.2.1", "192.0.2.0/24", "0.0.0.0/0"};
    struct chart_qos qos;
    (void)state;
    authorise(list, 4, same);
    qos = offered(CHART_GUARANTEED);
    assert_rates(&qos, 5 * MBIT, 0);
    authorise(list, 4, shorter);
    qos = offered(CHART_GUARANTEED);
    assert_rates(&qos, 5 * MBIT, 0);
    /* Taken back one by one. */
    authorise(list + 3, 1, shorter + 3);
    qos = offered(CHART_GUARANTEED);
    assert_rates(&qos, 4 * MBIT, 0);
    authorise(list, 0, same);
    qos = offered(CHART_GUARANTEED);
    assert_rates(&qos, 0, 1 * MBIT);
}

/* The end of a large one within a second hands over to the next without a look of the agent. */
static void test_the_next_one_follows_by_itself(void **state) {
    const int64_t now = now_us();
    const struct signal_authorisation list[] = {
        {.guaranteed_bps = 30 * MBIT, .services = 0xf, .until_us = now + 200000},
        {.guaranteed_bps = 5 * MBIT, .services = 0xf},
    };
    static const char *const prefixes[] = {"192.0.2.1", "192.0.2.1"};
    struct chart_qos qos;
    (void)state;
    authorise(list, 2, prefixes);
    qos = offered(CHART_GUARANTEED);
    assert_rates(&qos, 30 * MBIT, 0);
    while (now_us() < now + 250000)
        ;
    qos = offered(CHART_GUARANTEED);
    assert_rates(&qos, 5 * MBIT, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_the_largest_of_the_service_applies),
        TEST(test_the_longest_prefix_with_the_service_applies),
        TEST(test_times_decide),
        TEST(test_the_next_one_follows_by_itself),
    };

    return RUN(tests);
}
