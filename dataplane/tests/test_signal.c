/* The program `signal`, packet by packet in the kernel (BPF_PROG_TEST_RUN): what it sends, accepts, keeps and refuses.
 * Skipped without root. */
#define _GNU_SOURCE
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include "signal_run.h"

#include <unistd.h>

#define PORT 5201

static struct signal_run run;
static uint32_t sequence;
static uint16_t next_port = 40000;

static const struct chart_qos asked = {.version = CHART_QOS_VERSION, .flow_type = CHART_TCP, .service = CHART_VARIABLE};

static struct chart_qos qos_of(uint8_t status, uint64_t guaranteed_bps, uint64_t available_bps) {
    struct chart_qos qos = asked;
    qos.status = status;
    qos.direction = status == CHART_RESPONSE || status == CHART_RENEGOTIATE_RESPONSE || status == CHART_REJECT;
    qos.guaranteed_rate = chart_rate_encode(guaranteed_bps);
    qos.available_rate = chart_rate_encode(available_bps);
    return qos;
}

static struct frame sent(const uint8_t *from, const uint8_t *to, uint16_t from_port, uint16_t to_port, uint8_t flags,
                         uint32_t payload) {
    struct frame frame;
    make_frame(&frame, from, to, from_port, to_port, 6, flags, payload);
    assert_int_equal(run_frame(run.program->progs.signal_egress, &frame, 1), 0);
    assert_int_equal(frame.verdict, TCX_NEXT_VERDICT);
    return frame;
}

/* The signal that the last egress run ordered; the clone is `flags` and `payload` again. */
static struct frame cloned(const uint8_t *from, const uint8_t *to, uint16_t from_port, uint16_t to_port, uint8_t flags,
                           uint32_t payload, struct chart_parsed *ret) {
    struct frame frame;
    make_frame(&frame, from, to, from_port, to_port, 6, flags, payload);
    frame.mark = CHART_MARK_ORDER;
    assert_int_equal(run_frame(run.program->progs.signal_egress, &frame, 1), 0);
    assert_int_equal(frame.verdict, REDIRECT_VERDICT);
    assert_int_equal(frame.mark, CHART_MARK_SIGNAL);
    assert_int_equal(chart_ipv4_parse(ret, frame.octets + ETHERNET, frame.length - ETHERNET), CHART_QOS_OK);
    return frame;
}

static void assert_signed(const struct chart_parsed *parsed, uint16_t sender, uint16_t receiver) {
    struct chart_hmac_scratch scratch;
    struct chart_hmac_key key;
    uint8_t tag[CHART_TAG_OCTETS];
    chart_hmac_key_set(&key, signal_run_key(sender, receiver), &scratch);
    chart_signal_tag(tag, &parsed->signal, &parsed->flow, &key, &scratch);
    assert_int_equal(parsed->signal.sender, sender);
    assert_true(chart_tag_equal(tag, parsed->signal.tag));
}

/* A signal comes in from a neighbour. */
static struct frame received(const uint8_t *from, const uint8_t *to, uint16_t from_port, uint16_t to_port,
                             const struct chart_qos *qos, uint16_t sender) {
    struct frame frame;
    make_frame(&frame, from, to, from_port, to_port, 6, ACK, 0);
    put_signal(&frame, qos, sender, EPOCH, ++sequence, signal_run_key(sender, OWN));
    assert_int_equal(run_frame(run.program->progs.signal_ingress, &frame, 1), 0);
    return frame;
}

static struct chart_signal_flow flow_of(uint16_t client_port, bool *ret_client_low) {
    struct chart_signal_key key = {.protocol = 6};
    struct chart_signal_flow flow = {0};
    uint8_t mapped[2][16] = {{[10] = 0xff, [11] = 0xff}, {[10] = 0xff, [11] = 0xff}};
    memcpy(mapped[0] + 12, client, 4);
    memcpy(mapped[1] + 12, server, 4);
    for (int low = 0; low < 2; low++) {
        memcpy(key.low, mapped[!low], 16);
        memcpy(key.high, mapped[low], 16);
        key.low_port = htobe16(low ? client_port : PORT);
        key.high_port = htobe16(low ? PORT : client_port);
        if (bpf_map_lookup_elem(bpf_map__fd(run.program->maps.signal_flows), &key, &flow) == 0) {
            *ret_client_low = low;
            return flow;
        }
    }
    fail_msg("no flow of port %u", client_port);
    return flow;
}

/* What is kept of the data that the client sends. */
static struct chart_signal_half half_of(uint16_t client_port) {
    bool low = false;
    struct chart_signal_flow flow = flow_of(client_port, &low);
    return flow.halves[low ? 0 : 1];
}

static uint64_t held(uint32_t *ret_flows) {
    uint64_t held_bps = 0;
    assert_int_equal(signal_tables_load(run.tables, LOOPBACK, &held_bps, ret_flows), 0);
    return held_bps;
}

static void as_origin(uint64_t guaranteed_bps, uint64_t available_bps) {
    struct signal_ask ask = {.guaranteed_bps = guaranteed_bps, .available_bps = available_bps, .service = 3};
    ask.selector.destination_port = PORT;
    signal_run_path(&run, false, true);
    assert_int_equal(signal_tables_asks(run.tables, &ask, 1), 0);
}

static void policy(bool drop_unauthorised, uint64_t hold_us, uint64_t commitment_us) {
    struct signal_policy changed = {.element = OWN,
                                    .enabled = true,
                                    .drop_unauthorised = drop_unauthorised,
                                    .hold_us = hold_us,
                                    .commitment_us = commitment_us,
                                    .idle_us = commitment_us};
    assert_int_equal(signal_tables_policy(run.tables, &changed), 0);
}

static int each(void **state) {
    (void)state;
    next_port++;
    signal_run_path(&run, false, false);
    signal_run_authorise(&run, LINK_BPS, LINK_BPS);
    signal_tables_asks(run.tables, NULL, 0);
    policy(false, 0, 0);
    return 0;
}

static void test_a_request_rides_ahead_of_the_syn(void **state) {
    struct chart_parsed parsed;
    uint16_t port = next_port;
    (void)state;
    as_origin(10000000, LINK_BPS * 10);
    struct frame plain = sent(client, server, port, PORT, SYN, 0);
    assert_int_equal(plain.length, ETHERNET + 52);
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
        sent(client, server, port, PORT, ACK, 100);
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

static void test_transit_signs_anew_and_changes_nothing_else(void **state) {
    struct chart_parsed parsed;
    struct chart_qos request = qos_of(CHART_REQUEST, 5000000, 20000000);
    (void)state;
    struct frame frame = received(client, server, next_port, PORT, &request, UPSTREAM);
    assert_int_equal(frame.verdict, TCX_NEXT_VERDICT);
    assert_int_equal(frame.mark, CHART_MARK_SIGNAL);
    assert_int_equal(chart_ipv4_parse(&parsed, frame.octets + ETHERNET, frame.length - ETHERNET), CHART_QOS_OK);
    assert_signed(&parsed, OWN, DOWNSTREAM);
    assert_memory_equal(&parsed.signal.qos, &request, sizeof(request));
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

/* Nothing of what fails may change a flow; the packet goes on as it is. */
static void test_forged_replayed_broken(void **state) {
    struct chart_qos request = qos_of(CHART_REQUEST, 0, 20000000);
    struct frame good, frame;
    (void)state;
    make_frame(&good, client, server, next_port, PORT, 6, SYN, 0);
    put_signal(&good, &request, UPSTREAM, EPOCH, ++sequence, signal_run_key(UPSTREAM, OWN));
    uint64_t accepted = signal_run_count(&run, CHART_COUNT_ACCEPTED);
    /* Every bit of addresses, option and ports. */
    for (uint32_t bit = 12 * 8; bit < 60 * 8; bit++) {
        frame = good;
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
    frame = good;
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

static int open_run(void **state) {
    (void)state;
    return signal_run_open(&run);
}

static int close_run(void **state) {
    (void)state;
    signal_run_close(&run);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup(name, each)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_a_request_rides_ahead_of_the_syn),
        TEST(test_response_confirm_renewal_close),
        TEST(test_transit_signs_anew_and_changes_nothing_else),
        TEST(test_the_last_element_answers_with_the_next_packet_back),
        TEST(test_a_guarantee_that_nothing_is_left_of_is_rejected),
        TEST(test_unauthorised_asks),
        TEST(test_authorisation_bounds_rates_and_priority),
        TEST(test_a_hold_ends_by_itself),
        TEST(test_guarantees_end_at_the_links_limit),
        TEST(test_forged_replayed_broken),
        TEST(test_an_answer_nobody_waits_for),
        TEST(test_epochs),
    };
    if (geteuid() != 0) {
        printf("test_signal: skipped, needs root\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, open_run, close_run);
}
