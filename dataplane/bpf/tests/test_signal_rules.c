/* The program `signal`, packet by packet in the kernel: session rules, what they ask and what they permit. Skipped
 * without root. */
#define _GNU_SOURCE
#include "signal_cases.h"

#include "signal/session_count.h"

#define VOICE_BPS 82000
#define VOICE_PRIORITY 218
#define FIRST_PORT 16384
#define LAST_PORT 16386

/* Calls to a range of ports, by a rule. */
static struct signal_ask voice(void) {
    struct signal_ask ask = {.guaranteed_bps = VOICE_BPS,
                             .delay_priority = VOICE_PRIORITY,
                             .service = CHART_GUARANTEED,
                             .rule = 3,
                             .permits = true};
    ask.selector.destination_port = FIRST_PORT;
    ask.destination_port_last = LAST_PORT;
    return ask;
}

static void apply(struct signal_ask ask) {
    assert_int_equal(signal_tables_asks(run.tables, &ask, 1), 0);
}

/* What is kept of the data that the client sends from the newest port. */
static struct chart_signal_half half_to(uint16_t port) {
    uint8_t mapped[2][16] = {{[10] = 0xff, [11] = 0xff}, {[10] = 0xff, [11] = 0xff}};
    struct chart_signal_key key = {.protocol = 6};
    struct chart_signal_flow flow;
    memcpy(mapped[0] + 12, client, 4);
    memcpy(mapped[1] + 12, server, 4);
    for (int low = 0; low < 2; low++) {
        memcpy(key.low, mapped[!low], 16);
        memcpy(key.high, mapped[low], 16);
        key.low_port = htobe16(low ? next_port : port);
        key.high_port = htobe16(low ? port : next_port);
        if (bpf_map_lookup_elem(bpf_map__fd(run.program->maps.signal_flows), &key, &flow) == 0)
            return flow.halves[low ? 0 : 1];
    }
    return (struct chart_signal_half){0}; /* nothing is asked for it */
}

/* A flow of the client begins: whether something is asked for it. */
static bool asks_for(uint16_t port) {
    next_port++;
    sent(client, server, next_port, port, SYN, 0);
    return half_to(port).role == CHART_ROLE_ORIGIN;
}

static void test_a_range_of_ports_asks_with_the_rules_own_authorisation(void **state) {
    struct chart_parsed parsed;
    (void)state;
    signal_run_path(&run, false, true);
    signal_run_authorise(&run, 0, 0);
    apply(voice());
    for (uint16_t port = FIRST_PORT - 1; port <= LAST_PORT + 1; port++) {
        bool within = port >= FIRST_PORT && port <= LAST_PORT;
        assert_int_equal(asks_for(port), within);
        if (!within)
            continue;
        assert_int_equal(half_to(port).rule, 3);
        cloned(client, server, next_port, port, SYN, 0, &parsed);
        assert_int_equal(parsed.signal.qos.guaranteed_rate, chart_rate_encode(VOICE_BPS));
        assert_int_equal(parsed.signal.qos.delay_priority, VOICE_PRIORITY);
    }
}

static void test_a_rule_of_other_nodes_asks_nothing_here(void **state) {
    struct signal_ask ask = voice();
    (void)state;
    signal_run_path(&run, false, true);
    ask.elsewhere = true;
    apply(ask);
    assert_false(asks_for(FIRST_PORT));
}

/* What the last element offers a request of the client to a port. */
static struct chart_qos offered(uint16_t port, uint8_t service, uint64_t guaranteed_bps) {
    struct chart_qos request = qos_of(CHART_REQUEST, guaranteed_bps, 0);
    request.service = service;
    request.delay_priority = 255;
    request.preemption_priority = 9;
    next_port++;
    signal_run_path(&run, true, false);
    received(client, server, next_port, port, &request, UPSTREAM);
    return half_to(port).asked;
}

static void test_the_last_element_permits_what_the_rule_asks_and_no_more(void **state) {
    struct signal_ask ask = voice();
    struct chart_qos qos;
    (void)state;
    signal_run_authorise(&run, 0, 0);
    ask.elsewhere = true; /* whoever asks by it */
    apply(ask);
    qos = offered(FIRST_PORT, CHART_GUARANTEED, VOICE_BPS);
    assert_int_equal(qos.guaranteed_rate, chart_rate_encode(VOICE_BPS));
    assert_int_equal(qos.delay_priority, VOICE_PRIORITY);
    assert_int_equal(qos.preemption_priority, 0);
    qos = offered(LAST_PORT, CHART_GUARANTEED, 10 * VOICE_BPS);
    assert_int_equal(qos.guaranteed_rate, chart_rate_encode(VOICE_BPS));
    /* Another port, another service: nobody permits it. */
    assert_int_equal(offered(LAST_PORT + 1, CHART_GUARANTEED, VOICE_BPS).guaranteed_rate, 0);
    assert_int_equal(offered(FIRST_PORT, CHART_VARIABLE, VOICE_BPS).guaranteed_rate, 0);
    /* Without its own authorisation a rule permits nothing. */
    ask.permits = false;
    apply(ask);
    assert_int_equal(offered(FIRST_PORT, CHART_GUARANTEED, VOICE_BPS).guaranteed_rate, 0);
}

/* The authorisation of the address has no delay priority, as those of the authority by default: the rule adds it to
 * what it covers, and not to more. */
static void test_beside_an_authorisation_of_the_address(void **state) {
    struct chart_qos qos;
    (void)state;
    signal_run_authorise(&run, 10 * VOICE_BPS, 0);
    apply(voice());
    qos = offered(FIRST_PORT, CHART_GUARANTEED, VOICE_BPS);
    assert_int_equal(qos.guaranteed_rate, chart_rate_encode(VOICE_BPS));
    assert_int_equal(qos.delay_priority, VOICE_PRIORITY);
    qos = offered(FIRST_PORT, CHART_GUARANTEED, 5 * VOICE_BPS);
    assert_int_equal(qos.guaranteed_rate, chart_rate_encode(5 * VOICE_BPS));
    assert_int_equal(qos.delay_priority, 0);
    assert_int_equal(qos.preemption_priority, 7);
}

/* Of several rules that match, one that covers the rates counts. */
static void test_the_rule_that_covers_the_rates_permits(void **state) {
    struct signal_ask both[] = {voice(), voice()};
    (void)state;
    signal_run_authorise(&run, 0, 0);
    both[0].guaranteed_bps = VOICE_BPS / 2;
    assert_int_equal(signal_tables_asks(run.tables, both, 2), 0);
    assert_int_equal(offered(FIRST_PORT, CHART_GUARANTEED, VOICE_BPS).guaranteed_rate, chart_rate_encode(VOICE_BPS));
    assert_int_equal(offered(FIRST_PORT, CHART_GUARANTEED, 9 * VOICE_BPS).guaranteed_rate,
                     chart_rate_encode(VOICE_BPS / 2));
}

/* The counts of rule 3 after a whole walk. */
static struct session_count counted(struct session_walk *walk) {
    int error = 0;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    for (int i = 0; i < 1000; i++)
        if (session_walk_step(walk, (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec, &error))
            return session_walk_count(walk, 3);
    fail_msg("the walk does not end: %d", error);
    return (struct session_count){0};
}

static void test_sessions_are_counted_by_rule(void **state) {
    struct session_walk *walk = session_walk_new(run.tables);
    struct chart_qos answer = qos_of(CHART_RESPONSE, VOICE_BPS, 0);
    struct session_count count;
    (void)state;
    signal_run_path(&run, false, true);
    apply(voice());
    for (int i = 0; i < 3; i++) {
        assert_true(asks_for(FIRST_PORT));
        answer.delay_priority = i == 0 ? 0 : VOICE_PRIORITY;
        if (i < 2)
            received(server, client, FIRST_PORT, next_port, &answer, DOWNSTREAM);
    }
    count = counted(walk);
    assert_int_equal(count.sessions, 2);
    assert_int_equal(count.expedited, 1);
    assert_int_equal(count.guaranteed_bps, 2 * chart_rate_decode(chart_rate_encode(VOICE_BPS)));
    assert_int_equal(session_walk_count(walk, 4).sessions, 0);
    session_walk_free(walk);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_a_range_of_ports_asks_with_the_rules_own_authorisation),
        TEST(test_a_rule_of_other_nodes_asks_nothing_here),
        TEST(test_the_last_element_permits_what_the_rule_asks_and_no_more),
        TEST(test_beside_an_authorisation_of_the_address),
        TEST(test_the_rule_that_covers_the_rates_permits),
        TEST(test_sessions_are_counted_by_rule),
    };

    return RUN(tests);
}
