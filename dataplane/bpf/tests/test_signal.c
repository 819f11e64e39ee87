/* The program `signal`, packet by packet in the kernel (BPF_PROG_TEST_RUN): the life of a flow's rate, and what is
 * refused. Skipped without root. */
#define _GNU_SOURCE
#include "signal_cases.h"

static void test_a_request_rides_ahead_of_the_syn(void **state) {
    struct chart_parsed parsed;
    uint16_t port = next_port;
    (void)state;
    as_origin(10000000, LINK_BPS * 10);
    struct frame plain = sent(client, server, port, PORT, SYN, 0);
    assert_int_equal(plain.length, ETHERNET + 52);
    assert_int_equal(plain.priority, 0); /* no rate yet: legacy */
    struct frame frame = cloned(client, server, port, PORT, SYN | PSH, 40, &parsed);
    assert_int_equal(frame.length, ETHERNET + 56 + 32);
    assert_int_equal(frame.octets[ETHERNET + 56 + 13], SYN);
    assert_int_equal(transport_sum(frame.octets + ETHERNET), 0xffff);
    assert_int_equal(chart_get16(frame.octets + ETHERNET + 10), chart_ipv4_checksum(frame.octets + ETHERNET, 56));
    assert_signed(&parsed, OWN, DOWNSTREAM);
    assert_int_equal(parsed.signal.qos.status, CHART_REQUEST);
    assert_int_equal(parsed.signal.qos.direction, CHART_FORWARD);
    assert_int_equal(parsed.signal.qos.guaranteed_rate, chart_rate_encode(10000000));
    /* What the authorisation and then the link have left. */
    assert_int_equal(parsed.signal.qos.available_rate, chart_rate_encode(LINK_BPS - 10000000));
    assert_int_equal(parsed.signal.qos.lowered, 1);
    assert_int_equal(parsed.signal.qos.source_port, port);
}

static void test_response_confirm_renewal_close(void **state) {
    struct chart_parsed parsed;
    uint16_t port = next_port;
    uint32_t flows = 0, before_flows = 0;
    uint64_t before = held(&before_flows);
    (void)state;
    as_origin(10000000, 50000000);
    sent(client, server, port, PORT, SYN, 0);
    assert_int_equal(held(&flows) - before, 10000000);
    assert_int_equal(flows, before_flows + 1);
    struct chart_qos answer = qos_of(CHART_RESPONSE, 8000000, 40000000);
    struct frame frame = received(server, client, PORT, port, &answer, DOWNSTREAM);
    assert_int_equal(frame.verdict, DROP_VERDICT);
    struct chart_signal_half half = half_of(port);
    assert_int_equal(half.state, CHART_SOCKET_AGREED);
    assert_int_equal(half.agreed.available_rate, chart_rate_encode(40000000));
    assert_int_equal(half.changes, 1);

    sent(client, server, port, PORT, ACK, 0);
    cloned(client, server, port, PORT, ACK, 0, &parsed);
    assert_int_equal(parsed.signal.qos.status, CHART_CONFIRM);
    assert_int_equal(parsed.signal.qos.guaranteed_rate, chart_rate_encode(8000000));
    assert_int_equal(held(&flows) - before, chart_rate_decode(chart_rate_encode(8000000)));

    uint64_t sent_before = signal_run_count(&run, CHART_COUNT_SENT);
    for (int i = 0; i < 126; i++)
        assert_int_equal(sent(client, server, port, PORT, ACK, 100).priority, HTB_CLASS_ID(HTB_MINOR_EXPLICIT_RATE));
    assert_int_equal(half_of(port).packets, 127);
    sent(client, server, port, PORT, ACK, 100);
    assert_int_equal(half_of(port).packets, 0);
    cloned(client, server, port, PORT, ACK, 100, &parsed);
    assert_int_equal(parsed.signal.qos.status, CHART_RENEGOTIATE);
    assert_int_equal(parsed.signal.qos.guaranteed_rate, chart_rate_encode(10000000));
    assert_int_equal(signal_run_count(&run, CHART_COUNT_SENT), sent_before + 1);

    sent(client, server, port, PORT, ACK | FIN, 0);
    frame = cloned(client, server, port, PORT, ACK | FIN, 0, &parsed);
    assert_int_equal(parsed.signal.qos.status, CHART_CLOSE);
    assert_int_equal(frame.octets[ETHERNET + 56 + 13], ACK);
    assert_int_equal(transport_sum(frame.octets + ETHERNET), 0xffff);
    assert_int_equal(held(&flows), before);
    assert_int_equal(flows, before_flows);
}

static void test_a_reset_closes(void **state) {
    struct chart_parsed parsed;
    uint16_t port = next_port;
    uint32_t flows = 0, before_flows = 0;
    uint64_t before = held(&before_flows);
    struct chart_qos answer = qos_of(CHART_RESPONSE, 8000000, 40000000);
    (void)state;
    as_origin(8000000, 50000000);
    sent(client, server, port, PORT, SYN, 0);
    received(server, client, PORT, port, &answer, DOWNSTREAM);
    sent(client, server, port, PORT, ACK, 0); /* the confirm */
    held(&flows);
    assert_int_equal(flows, before_flows + 1);
    sent(client, server, port, PORT, ACK | RST, 0);
    struct frame frame = cloned(client, server, port, PORT, ACK | RST, 0, &parsed);
    assert_int_equal(parsed.signal.qos.status, CHART_CLOSE);
    assert_int_equal(frame.octets[ETHERNET + 56 + 13], ACK);
    assert_int_equal(held(&flows), before);
    assert_int_equal(flows, before_flows);
    /* Another one asks for nothing. */
    uint64_t sent_before = signal_run_count(&run, CHART_COUNT_SENT);
    sent(client, server, port, PORT, ACK | RST, 0);
    assert_int_equal(signal_run_count(&run, CHART_COUNT_SENT), sent_before);
}

static void test_transit_signs_anew_and_changes_nothing_else(void **state) {
    uint8_t before[CHART_QOS_OCTETS], after[CHART_QOS_OCTETS];
    struct chart_parsed parsed;
    struct chart_qos request = qos_of(CHART_REQUEST, 5000000, 20000000);
    (void)state;
    struct frame frame = received(client, server, next_port, PORT, &request, UPSTREAM);
    assert_int_equal(frame.verdict, TCX_NEXT_VERDICT);
    assert_int_equal(frame.mark, CHART_MARK_SIGNAL);
    assert_int_equal(chart_ipv4_parse(&parsed, frame.octets + ETHERNET, frame.length - ETHERNET), CHART_QOS_OK);
    assert_signed(&parsed, OWN, DOWNSTREAM);
    chart_qos_pack(before, &request);
    chart_qos_pack(after, &parsed.signal.qos);
    assert_memory_equal(after, before, sizeof(before));
    assert_int_equal(half_of(next_port).role, CHART_ROLE_TRANSIT);
    struct chart_qos answer = qos_of(CHART_RESPONSE, 5000000, 20000000);
    frame = received(server, client, PORT, next_port, &answer, DOWNSTREAM);
    assert_int_equal(frame.verdict, TCX_NEXT_VERDICT);
    assert_int_equal(chart_ipv4_parse(&parsed, frame.octets + ETHERNET, frame.length - ETHERNET), CHART_QOS_OK);
    assert_signed(&parsed, OWN, UPSTREAM);
}

static void test_the_last_element_answers_with_the_next_packet_back(void **state) {
    struct chart_parsed parsed;
    struct chart_qos request = qos_of(CHART_REQUEST, 5000000, LINK_BPS * 3);
    (void)state;
    signal_run_path(&run, true, false);
    struct frame frame = received(client, server, next_port, PORT, &request, UPSTREAM);
    assert_int_equal(frame.verdict, DROP_VERDICT);
    assert_int_equal(half_of(next_port).role, CHART_ROLE_LAST);
    sent(server, client, PORT, next_port, SYN | ACK, 0);
    cloned(server, client, PORT, next_port, SYN | ACK, 0, &parsed);
    assert_signed(&parsed, OWN, UPSTREAM);
    assert_int_equal(parsed.signal.qos.status, CHART_RESPONSE);
    assert_int_equal(parsed.signal.qos.direction, CHART_BACKWARD);
    assert_int_equal(parsed.signal.qos.available_rate, chart_rate_encode(LINK_BPS));
    assert_int_equal(half_of(next_port).pending, 0);
}

static void test_a_guarantee_that_nothing_is_left_of_is_rejected(void **state) {
    struct chart_parsed parsed;
    struct chart_qos request = qos_of(CHART_REQUEST, 0, 0);
    (void)state;
    request.service = CHART_GUARANTEED;
    signal_run_path(&run, true, false);
    received(client, server, next_port, PORT, &request, UPSTREAM);
    sent(server, client, PORT, next_port, ACK, 0);
    cloned(server, client, PORT, next_port, ACK, 0, &parsed);
    assert_int_equal(parsed.signal.qos.status, CHART_REJECT);
}

static void test_unauthorised_asks(void **state) {
    struct chart_qos request = qos_of(CHART_REQUEST, 5000000, 50000000);
    (void)state;
    signal_run_path(&run, true, false);
    signal_run_authorise(&run, 0, 0);
    request.preemption_priority = 9;
    received(client, server, next_port, PORT, &request, UPSTREAM);
    struct chart_signal_half half = half_of(next_port);
    assert_int_equal(half.agreed.guaranteed_rate, 0);
    assert_int_equal(half.agreed.available_rate, chart_rate_encode(1000000));
    assert_int_equal(half.agreed.preemption_priority, 0);
    policy(true, 0, 0);
    next_port++;
    received(client, server, next_port, PORT, &request, UPSTREAM);
    assert_int_equal(half_of(next_port).pending, 0);
    /* The end that asks does not even ask. */
    next_port++;
    as_origin(0, LINK_BPS);
    sent(client, server, next_port, PORT, SYN, 0);
    assert_int_equal(half_of(next_port).role, CHART_ROLE_NONE);
}

static void test_authorisation_bounds_rates_and_priority(void **state) {
    struct chart_qos request = qos_of(CHART_REQUEST, 5000000, 50000000);
    (void)state;
    signal_run_path(&run, true, false);
    signal_run_authorise(&run, 2000000, 3000000);
    request.preemption_priority = 9;
    received(client, server, next_port, PORT, &request, UPSTREAM);
    struct chart_signal_half half = half_of(next_port);
    assert_int_equal(half.agreed.guaranteed_rate, chart_rate_encode(2000000));
    assert_int_equal(half.agreed.available_rate, chart_rate_encode(3000000));
    assert_int_equal(half.agreed.preemption_priority, 7);
}

static void test_a_hold_ends_by_itself(void **state) {
    uint32_t flows = 0, before_flows = 0;
    (void)state;
    policy(false, 500000, 500000);
    as_origin(10000000, 50000000);
    uint64_t before = held(&before_flows);
    sent(client, server, next_port, PORT, SYN, 0);
    assert_int_equal(held(&flows) - before, 10000000);
    usleep(1600000);
    assert_true(held(&flows) <= before);
    assert_true(flows <= before_flows);
}

static void test_guarantees_end_at_the_links_limit(void **state) {
    struct chart_parsed parsed;
    uint64_t left = LINK_BPS / 2 - held(&(uint32_t){0});
    (void)state;
    as_origin(LINK_BPS, 0);
    sent(client, server, next_port, PORT, SYN, 0);
    cloned(client, server, next_port, PORT, SYN, 0, &parsed);
    assert_int_equal(parsed.signal.qos.guaranteed_rate, chart_rate_encode(left));
    next_port++;
    sent(client, server, next_port, PORT, SYN, 0);
    cloned(client, server, next_port, PORT, SYN, 0, &parsed);
    assert_int_equal(parsed.signal.qos.guaranteed_rate, 0);
    assert_int_equal(parsed.signal.qos.service, CHART_VARIABLE);
}

/* What the link may guarantee in band is a lease that ends `lease_us` from now. */
static void leased(uint64_t lease_bps, uint64_t lease_us) {
    const struct signal_link link = {.ifindex = LOOPBACK,
                                     .header_bytes = ETHERNET,
                                     .explicit_bps = LINK_BPS,
                                     .guaranteed_bps = lease_bps,
                                     .leased = true,
                                     .lease_us = lease_us};

    assert_int_equal(signal_tables_link(run.tables, &link), 0);
}

/* GR of the signal that goes ahead of a packet of the client's flow, bits per second. */
static uint64_t offered(uint16_t port, uint8_t flags, uint32_t payload, uint8_t status) {
    struct chart_parsed parsed;

    sent(client, server, port, PORT, flags, payload);
    cloned(client, server, port, PORT, flags, payload, &parsed);
    assert_int_equal(parsed.signal.qos.status, status);
    return chart_rate_decode(parsed.signal.qos.guaranteed_rate);
}

static void test_guarantees_draw_on_the_links_lease(void **state) {
    const struct signal_link unleased = {
        .ifindex = LOOPBACK, .header_bytes = ETHERNET, .explicit_bps = LINK_BPS, .guaranteed_bps = LINK_BPS / 2};
    const struct chart_qos answer = qos_of(CHART_RESPONSE, 5000000, 0);
    uint32_t flows = 0;
    uint64_t whole = chart_rate_decode(chart_rate_encode(5000000)), before = held(&flows);
    uint16_t first = next_port;

    (void)state;
    as_origin(5000000, 0);
    leased(before + 8000000, 20000000);
    assert_int_equal(offered(first, SYN, 0, CHART_REQUEST), whole);
    assert_in_range(offered(++next_port, SYN, 0, CHART_REQUEST), 2990000, 8000000 - whole);
    assert_int_equal(offered(++next_port, SYN, 0, CHART_REQUEST), 0);
    received(server, client, PORT, first, &answer, DOWNSTREAM);
    assert_int_equal(offered(first, ACK, 0, CHART_CONFIRM), whole);
    /* Less is left to in-band flows now: who renews next is lowered. */
    leased(before + 4000000, 20000000);
    for (int i = 0; i < 127; i++)
        sent(client, server, first, PORT, ACK, 100);
    assert_in_range(offered(first, ACK, 100, CHART_RENEGOTIATE), 990000, 4000000 - 2990000 + 20000);
    /* It ends within the life of a commitment, or was never heard of: nothing is guaranteed. */
    leased(before + 50000000, 3000000);
    assert_int_equal(offered(++next_port, SYN, 0, CHART_REQUEST), 0);
    leased(before + 50000000, 0);
    assert_int_equal(offered(++next_port, SYN, 0, CHART_REQUEST), 0);
    leased(before + 50000000, 3500000);
    assert_int_equal(offered(++next_port, SYN, 0, CHART_REQUEST), whole);
    assert_int_equal(signal_tables_link(run.tables, &unleased), 0);
}

/* Nothing of what fails may change a flow; the packet goes on as it is. */
static void test_forged_replayed_broken(void **state) {
    struct chart_qos request = qos_of(CHART_REQUEST, 0, 20000000);
    struct frame good, frame;
    (void)state;
    make_frame(&good, client, server, next_port, PORT, 6, SYN, 0);
    put_signal(&good, &request, UPSTREAM, EPOCH, ++sequence, signal_run_key(UPSTREAM, OWN));
    uint64_t accepted = signal_run_count(&run, CHART_COUNT_ACCEPTED);
    /* Every bit of addresses, option and ports; each judged for itself. */
    for (uint32_t bit = 12 * 8; bit < 60 * 8; bit++) {
        frame = good;
        forget_failures(&run);
        frame.octets[ETHERNET + bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(run_frame(run.program->progs.signal_ingress, &frame, 1), 0);
        assert_int_equal(frame.verdict, TCX_NEXT_VERDICT);
        assert_int_equal(frame.mark, 0);
    }
    for (uint32_t length = ETHERNET + 40; length < good.length - 28; length++) {
        frame = good;
        frame.length = length;
        assert_int_equal(run_frame(run.program->progs.signal_ingress, &frame, 1), 0);
        assert_int_equal(frame.mark, 0);
    }
    forget_failures(&run);
    make_frame(&frame, client, server, next_port, PORT, 6, SYN, 0);
    put_signal(&frame, &request, UPSTREAM, EPOCH, ++sequence, signal_run_key(DOWNSTREAM, OWN));
    assert_int_equal(run_frame(run.program->progs.signal_ingress, &frame, 1), 0);
    assert_int_equal(frame.mark, 0);
    assert_int_equal(signal_run_count(&run, CHART_COUNT_ACCEPTED), accepted);

    frame = good;
    assert_int_equal(run_frame(run.program->progs.signal_ingress, &frame, 1), 0);
    assert_int_equal(frame.mark, CHART_MARK_SIGNAL);
    uint64_t replayed = signal_run_count(&run, CHART_QOS_REPLAYED);
    frame = good;
    assert_int_equal(run_frame(run.program->progs.signal_ingress, &frame, 1), 0);
    assert_int_equal(frame.mark, 0);
    assert_int_equal(signal_run_count(&run, CHART_QOS_REPLAYED), replayed + 1);
    assert_int_equal(signal_run_count(&run, CHART_COUNT_ACCEPTED), accepted + 1);
}

static void test_an_answer_nobody_waits_for(void **state) {
    struct chart_qos answer = qos_of(CHART_RESPONSE, 0, 40000000);
    uint64_t unexpected;
    (void)state;
    as_origin(0, LINK_BPS);
    sent(client, server, next_port, PORT, SYN, 0);
    sent(client, server, next_port, PORT, ACK | FIN, 0);
    unexpected = signal_run_count(&run, CHART_COUNT_UNEXPECTED);
    received(server, client, PORT, next_port, &answer, DOWNSTREAM);
    assert_int_equal(signal_run_count(&run, CHART_COUNT_UNEXPECTED), unexpected + 1);
    assert_int_equal(half_of(next_port).expires_ns, 0);
    /* A forward status that claims to travel backward. */
    answer = qos_of(CHART_REQUEST, 0, 40000000);
    answer.direction = CHART_BACKWARD;
    uint64_t bad = signal_run_count(&run, CHART_QOS_BAD_STATUS);
    struct frame frame = received(server, client, PORT, next_port, &answer, DOWNSTREAM);
    assert_int_equal(frame.verdict, DROP_VERDICT);
    assert_int_equal(signal_run_count(&run, CHART_QOS_BAD_STATUS), bad + 1);
}

/* Two epochs are accepted; the same keys again leave windows and sequences alone. */
static void test_epochs(void **state) {
    struct signal_key keys[3] = {{.sender = UPSTREAM, .receiver = OWN, .epoch = 20, .from_us = 10},
                                 {.sender = UPSTREAM, .receiver = OWN, .epoch = 21, .from_us = 20},
                                 {.sender = UPSTREAM, .receiver = OWN, .epoch = 22, .from_us = 30}};
    struct chart_qos request = qos_of(CHART_REQUEST, 0, 20000000);
    (void)state;
    for (int i = 0; i < 3; i++)
        memcpy(keys[i].key, signal_run_key(UPSTREAM, OWN), CHART_KEY_OCTETS);
    for (int64_t now_us = 15; now_us <= 35; now_us += 10) {
        struct frame frame;
        assert_int_equal(signal_tables_keys(run.tables, keys, 3, now_us), 0);
        assert_int_equal(signal_tables_keys(run.tables, keys, 3, now_us), 0);
        for (int i = 0; i < 3; i++) {
            bool accepted = keys[i].from_us <= now_us && !(now_us >= 30 && i == 0);
            uint64_t before = signal_run_count(&run, CHART_COUNT_ACCEPTED);
            make_frame(&frame, client, server, next_port, PORT, 6, ACK, 0);
            put_signal(&frame, &request, UPSTREAM, keys[i].epoch, (uint32_t)now_us, keys[i].key);
            assert_int_equal(run_frame(run.program->progs.signal_ingress, &frame, 1), 0);
            assert_int_equal(signal_run_count(&run, CHART_COUNT_ACCEPTED) - before, accepted);
        }
    }
    signal_run_keys(&run, EPOCH + 1);
    uint8_t epoch;
    uint32_t used;
    assert_int_equal(signal_tables_sequence(run.tables, DOWNSTREAM, &epoch, &used), 0);
    assert_int_equal(epoch, EPOCH + 1);
    assert_int_equal(used, 0);
    signal_run_keys(&run, EPOCH);
    sequence = 0;
}

/* A flow of datagrams may have none that way: the answer takes the place of what asked. */

static uint8_t role_with_dscp(uint8_t dscp) {
    struct frame frame;
    uint8_t *ip = frame.octets + ETHERNET;
    next_port++;
    make_frame(&frame, client, server, next_port, PORT, 6, SYN, 0);
    ip[1] = (uint8_t)(dscp << 2);
    chart_put16(ip + 10, 0);
    chart_put16(ip + 10, chart_ipv4_checksum(ip, CHART_IPV4_HEADER));
    assert_int_equal(run_frame(run.program->progs.signal_egress, &frame, 1), 0);
    return half_of(next_port).role;
}

/* The default rule of telephony: what carries its mark gets its rate, and no program asks. */
static void test_an_ask_by_the_code_point_of_the_first_packet(void **state) {
    struct signal_ask ask = {.guaranteed_bps = 82000, .service = CHART_GUARANTEED};
    struct chart_parsed parsed;
    (void)state;
    as_origin(0, LINK_BPS);
    ask.selector.dscp_plus_one = 46 + 1;
    assert_int_equal(signal_tables_asks(run.tables, &ask, 1), 0);
    assert_int_equal(role_with_dscp(0), CHART_ROLE_NONE);
    assert_int_equal(role_with_dscp(34), CHART_ROLE_NONE);
    assert_int_equal(role_with_dscp(46), CHART_ROLE_ORIGIN);
    cloned(client, server, next_port, PORT, SYN, 0, &parsed);
    assert_int_equal(parsed.signal.qos.guaranteed_rate, chart_rate_encode(82000));
    assert_int_equal(parsed.signal.qos.service, CHART_GUARANTEED);
    /* 0 is a code point like any other. */
    ask.selector.dscp_plus_one = 1;
    assert_int_equal(signal_tables_asks(run.tables, &ask, 1), 0);
    assert_int_equal(role_with_dscp(46), CHART_ROLE_NONE);
    assert_int_equal(role_with_dscp(0), CHART_ROLE_ORIGIN);
}

/* The class of a full packet of the client's flow. */
static uint32_t class_of_next(uint16_t port) {
    return sent(client, server, port, PORT, ACK, 1400).priority;
}

/* Guaranteed, with delay priority and a small bucket: expedited, but no more of it than is guaranteed. */
static void test_delay_priority_expedites_what_is_guaranteed(void **state) {
    struct chart_qos answer = qos_of(CHART_RESPONSE, 82000, 0);
    const struct {
        uint8_t delay_priority, burst_tolerance;
        uint32_t first;
    } cases[] = {{128, 3, HTB_MINOR_EXPEDITED},
                 {255, 0, HTB_MINOR_EXPEDITED},
                 {127, 3, HTB_MINOR_EXPLICIT_RATE},
                 {128, 4, HTB_MINOR_EXPLICIT_RATE}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint16_t port = ++next_port;

        as_origin(82000, 0);
        sent(client, server, port, PORT, SYN, 0);
        answer.delay_priority = cases[i].delay_priority;
        answer.burst_tolerance = cases[i].burst_tolerance;
        received(server, client, PORT, port, &answer, DOWNSTREAM);
        /* Two full packets fit, what comes at once behind them does not. */
        assert_int_equal(class_of_next(port), HTB_CLASS_ID(cases[i].first));
        assert_int_equal(class_of_next(port), HTB_CLASS_ID(cases[i].first));
        assert_int_equal(class_of_next(port), HTB_CLASS_ID(HTB_MINOR_EXPLICIT_RATE));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_a_request_rides_ahead_of_the_syn),
        TEST(test_response_confirm_renewal_close),
        TEST(test_a_reset_closes),
        TEST(test_transit_signs_anew_and_changes_nothing_else),
        TEST(test_the_last_element_answers_with_the_next_packet_back),
        TEST(test_a_guarantee_that_nothing_is_left_of_is_rejected),
        TEST(test_unauthorised_asks),
        TEST(test_an_ask_by_the_code_point_of_the_first_packet),
        TEST(test_delay_priority_expedites_what_is_guaranteed),
        TEST(test_authorisation_bounds_rates_and_priority),
        TEST(test_a_hold_ends_by_itself),
        TEST(test_guarantees_draw_on_the_links_lease),
        TEST(test_guarantees_end_at_the_links_limit),
        TEST(test_forged_replayed_broken),
        TEST(test_an_answer_nobody_waits_for),
        TEST(test_epochs),
    };

    return RUN(tests);
}
