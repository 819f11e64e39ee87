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

#include "htb_classes.h"

#define PORT 5201
/* The egress looks at a clock that moves with the kernel's ticks. */
#define TICK_US 20000

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
    decide_parse_prefix("10.9.9.2", &changed.shim4);
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

/* A flow of datagrams may have none that way: the answer takes the place of what asked. */
static void test_udp_is_answered_at_once(void **state) {
    struct chart_qos request = qos_of(CHART_REQUEST, 0, 20000000);
    struct chart_parsed parsed;
    struct frame frame;
    (void)state;
    request.flow_type = CHART_UDP;
    signal_run_path(&run, true, false);
    make_frame(&frame, client, server, next_port, PORT, 17, 0, 0);
    put_signal(&frame, &request, UPSTREAM, EPOCH, ++sequence, signal_run_key(UPSTREAM, OWN));
    assert_int_equal(run_frame(run.program->progs.signal_ingress, &frame, 1), 0);
    assert_int_equal(frame.verdict, REDIRECT_VERDICT);
    assert_int_equal(chart_ipv4_parse(&parsed, frame.octets + ETHERNET, frame.length - ETHERNET), CHART_QOS_OK);
    assert_signed(&parsed, OWN, UPSTREAM);
    assert_int_equal(parsed.signal.qos.status, CHART_RESPONSE);
    assert_memory_equal(parsed.flow.source, server, 4);
    assert_memory_equal(parsed.flow.destination, client, 4);
    assert_int_equal(chart_get16(parsed.flow.selector), PORT);
    assert_int_equal(transport_sum(frame.octets + ETHERNET), 0xffff);
    assert_int_equal(chart_get16(frame.octets + ETHERNET + 10), chart_ipv4_checksum(frame.octets + ETHERNET, 56));
}

static void test_udp_of_this_element(void **state) {
    struct chart_parsed parsed;
    struct frame frame;
    (void)state;
    as_origin(0, 50000000);
    make_frame(&frame, client, server, next_port, PORT, 17, 0, 700);
    assert_int_equal(run_frame(run.program->progs.signal_egress, &frame, 1), 0);
    make_frame(&frame, client, server, next_port, PORT, 17, 0, 700);
    frame.mark = CHART_MARK_ORDER;
    assert_int_equal(run_frame(run.program->progs.signal_egress, &frame, 1), 0);
    assert_int_equal(frame.verdict, REDIRECT_VERDICT);
    assert_int_equal(frame.length, ETHERNET + 56 + 8);
    assert_int_equal(chart_ipv4_parse(&parsed, frame.octets + ETHERNET, frame.length - ETHERNET), CHART_QOS_OK);
    assert_signed(&parsed, OWN, DOWNSTREAM);
    assert_int_equal(parsed.signal.qos.flow_type, CHART_UDP);
    assert_int_equal(transport_sum(frame.octets + ETHERNET), 0xffff);
}

static const uint8_t shim_of[4][4] = {{0}, {10, 9, 9, 1}, {10, 9, 9, 2}, {10, 9, 9, 3}};

static void make_shim(struct frame *frame, uint16_t sender, const struct chart_qos *qos, const uint8_t *to) {
    struct chart_signal signal = {.qos = *qos, .sender = sender, .epoch = EPOCH, .sequence = ++sequence};
    struct chart_flow flow = {.family = 4, .protocol = 6};
    struct chart_hmac_scratch scratch;
    struct chart_hmac_key key;
    uint8_t *udp = frame->octets + ETHERNET + CHART_IPV4_HEADER;
    make_frame(frame, shim_of[sender], to, CHART_SHIM_PORT, CHART_SHIM_PORT, 17, 0, CHART_SHIM_IPV4_OCTETS);
    memcpy(flow.source, client, 4);
    memcpy(flow.destination, server, 4);
    chart_put16(flow.selector, next_port);
    chart_put16(flow.selector + 2, PORT);
    chart_hmac_key_set(&key, signal_run_key(sender, OWN), &scratch);
    chart_signal_tag(signal.tag, &signal, &flow, &key, &scratch);
    chart_shim_build(udp + 8, &signal, &flow);
    chart_put16(udp + 6, 0);
    chart_put16(udp + 6, (uint16_t)~transport_sum(frame->octets + ETHERNET));
}

static void assert_shim(const struct frame *frame, uint16_t to, uint8_t status) {
    const uint8_t *ip = frame->octets + ETHERNET;
    struct chart_parsed parsed = {0};
    assert_int_equal(frame->length, ETHERNET + CHART_IPV4_HEADER + 8 + CHART_SHIM_IPV4_OCTETS);
    assert_int_equal(chart_get16(ip + 2), frame->length - ETHERNET);
    assert_memory_equal(ip + 16, shim_of[to], 4);
    assert_int_equal(chart_get16(ip + 10), chart_ipv4_checksum(ip, CHART_IPV4_HEADER));
    assert_int_equal(transport_sum(ip), 0xffff);
    assert_int_equal(chart_shim_parse(&parsed, ip + 28, CHART_SHIM_IPV4_OCTETS), CHART_QOS_OK);
    assert_signed(&parsed, OWN, to);
    assert_int_equal(parsed.signal.qos.status, status);
}

static void test_the_shim_through_and_back(void **state) {
    static const uint8_t elsewhere[4] = {10, 9, 9, 77};
    struct chart_qos request = qos_of(CHART_REQUEST, 0, 20000000);
    struct frame frame;
    (void)state;
    make_shim(&frame, UPSTREAM, &request, shim_of[OWN]);
    assert_int_equal(run_frame(run.program->progs.signal_ingress, &frame, 1), 0);
    assert_int_equal(frame.verdict, TCX_NEXT_VERDICT);
    assert_shim(&frame, DOWNSTREAM, CHART_REQUEST);
    signal_run_path(&run, true, false);
    make_shim(&frame, UPSTREAM, &request, shim_of[OWN]);
    assert_int_equal(run_frame(run.program->progs.signal_ingress, &frame, 1), 0);
    assert_int_equal(frame.verdict, REDIRECT_VERDICT);
    assert_shim(&frame, UPSTREAM, CHART_RESPONSE);
    assert_memory_equal(frame.octets + ETHERNET + 12, shim_of[OWN], 4);
    /* Not for this element: left alone. */
    uint64_t accepted = signal_run_count(&run, CHART_COUNT_ACCEPTED);
    make_shim(&frame, UPSTREAM, &request, elsewhere);
    assert_int_equal(run_frame(run.program->progs.signal_ingress, &frame, 1), 0);
    assert_int_equal(signal_run_count(&run, CHART_COUNT_ACCEPTED), accepted);
}

static void test_no_answer_to_options_takes_the_shim_then_gives_up(void **state) {
    struct signal_policy impatient = {.element = OWN, .enabled = true, .retry_us = 1, .tries = 2};
    struct frame frame;
    (void)state;
    decide_parse_prefix("10.9.9.2", &impatient.shim4);
    assert_int_equal(signal_tables_policy(run.tables, &impatient), 0);
    as_origin(0, 50000000);
    sent(client, server, next_port, PORT, SYN, 0);
    usleep(TICK_US);
    sent(client, server, next_port, PORT, ACK, 0);
    make_frame(&frame, client, server, next_port, PORT, 6, ACK, 500);
    frame.mark = CHART_MARK_ORDER;
    assert_int_equal(run_frame(run.program->progs.signal_egress, &frame, 1), 0);
    assert_int_equal(frame.verdict, REDIRECT_VERDICT);
    assert_shim(&frame, DOWNSTREAM, CHART_REQUEST);
    usleep(TICK_US);
    sent(client, server, next_port, PORT, ACK, 0);
    assert_int_equal(half_of(next_port).state, CHART_SOCKET_LEGACY);
}

/* The request of this element's flow from next_port, ahead of a packet with these flags. True: through the shim. */
static bool asked_by_shim(uint8_t flags) {
    struct frame frame;
    usleep(TICK_US);
    sent(client, server, next_port, PORT, flags, 0);
    make_frame(&frame, client, server, next_port, PORT, 6, flags, 0);
    frame.mark = CHART_MARK_ORDER;
    assert_int_equal(run_frame(run.program->progs.signal_egress, &frame, 1), 0);
    assert_int_equal(frame.verdict, REDIRECT_VERDICT);
    return frame.octets[ETHERNET + 9] == 17;
}

static void test_a_hop_that_answers_no_options_is_asked_once_per_flow(void **state) {
    struct signal_policy impatient = {.element = OWN, .enabled = true, .retry_us = 1, .tries = 8};
    struct chart_qos answer = qos_of(CHART_RESPONSE, 0, 40000000);
    (void)state;
    decide_parse_prefix("10.9.9.2", &impatient.shim4);
    assert_int_equal(signal_tables_policy(run.tables, &impatient), 0);
    as_origin(0, 50000000);
    assert_false(asked_by_shim(SYN));
    received(server, client, PORT, next_port, &answer, DOWNSTREAM); /* the option is answered: nothing is counted */
    for (int flow = 0; flow < 2; flow++) {
        next_port++;
        for (int i = 0; i < 4; i++)
            assert_false(asked_by_shim(i ? ACK : SYN));
        assert_true(asked_by_shim(ACK));
    }
    next_port++;
    assert_false(asked_by_shim(SYN));
    assert_true(asked_by_shim(ACK));
}

/* IPv6: TCP with 12 octets of options and no data. */
static void make_frame6(struct frame *frame, const uint8_t *from, const uint8_t *to, uint16_t from_port,
                        uint16_t to_port, uint8_t flags) {
    uint8_t *ip = frame->octets + ETHERNET, *tcp = ip + CHART_IPV6_HEADER;
    memset(frame, 0, sizeof(*frame));
    chart_put16(frame->octets + 12, 0x86dd);
    ip[0] = 0x60;
    chart_put16(ip + 4, 32);
    ip[6] = 6;
    ip[7] = 64;
    memcpy(ip + 8, from, 16);
    memcpy(ip + 24, to, 16);
    chart_put16(tcp, from_port);
    chart_put16(tcp + 2, to_port);
    tcp[12] = 8 << 4;
    tcp[13] = flags;
    memset(tcp + 20, 1, 12);
    frame->length = ETHERNET + CHART_IPV6_HEADER + 32;
}

static uint16_t sum6(const uint8_t *ip, uint32_t header) {
    uint32_t length = chart_get16(ip + 4) + CHART_IPV6_HEADER - header;
    uint32_t sum = add_octets(add_octets(0, ip + 8, 32) + 6 + length, ip + header, length);
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

static void test_ipv6(void **state) {
    static const uint8_t from[16] = {0xfd, [15] = 1}, to[16] = {0xfd, 0, 1, [15] = 2};
    struct signal_hop hop = {.element = DOWNSTREAM};
    struct signal_authorisation all = {.guaranteed_bps = LINK_BPS, .available_bps = LINK_BPS, .services = 0xf};
    struct chart_parsed parsed;
    struct frame frame;
    (void)state;
    as_origin(0, 50000000);
    decide_parse_prefix("fd00:100::/32", &hop.prefix);
    decide_parse_prefix("fd00::/16", &all.prefix);
    assert_int_equal(signal_tables_next_hops(run.tables, &hop, 1), 0);
    assert_int_equal(signal_tables_authorisations(run.tables, &all, 1, 1), 0);
    make_frame6(&frame, from, to, next_port, PORT, SYN);
    assert_int_equal(run_frame(run.program->progs.signal_egress, &frame, 1), 0);
    make_frame6(&frame, from, to, next_port, PORT, SYN | PSH);
    frame.mark = CHART_MARK_ORDER;
    assert_int_equal(run_frame(run.program->progs.signal_egress, &frame, 1), 0);
    assert_int_equal(frame.verdict, REDIRECT_VERDICT);
    assert_int_equal(frame.length, ETHERNET + CHART_IPV6_HEADER + CHART_IPV6_HOP_OCTETS + 32);
    assert_int_equal(chart_ipv6_parse(&parsed, frame.octets + ETHERNET, frame.length - ETHERNET), CHART_QOS_OK);
    assert_signed(&parsed, OWN, DOWNSTREAM);
    assert_int_equal(parsed.transport_offset, 80);
    assert_int_equal(frame.octets[ETHERNET + 80 + 13], SYN);
    assert_int_equal(sum6(frame.octets + ETHERNET, 80), 0xffff);
    /* What left for DOWNSTREAM comes to it: signed for this element now, so that it may be the receiver. */
    signal_run_path(&run, false, false);
    assert_int_equal(signal_tables_next_hops(run.tables, &hop, 1), 0);
    struct chart_signal signal = parsed.signal;
    struct chart_hmac_scratch scratch;
    struct chart_hmac_key key;
    signal.sender = UPSTREAM;
    signal.epoch = EPOCH;
    signal.sequence = ++sequence;
    chart_hmac_key_set(&key, signal_run_key(UPSTREAM, OWN), &scratch);
    chart_signal_tag(signal.tag, &signal, &parsed.flow, &key, &scratch);
    chart_ipv6_rewrite(frame.octets + ETHERNET, parsed.signal_offset, &signal);
    frame.mark = 0;
    assert_int_equal(run_frame(run.program->progs.signal_ingress, &frame, 1), 0);
    assert_int_equal(frame.verdict, TCX_NEXT_VERDICT);
    assert_int_equal(chart_ipv6_parse(&parsed, frame.octets + ETHERNET, frame.length - ETHERNET), CHART_QOS_OK);
    assert_signed(&parsed, OWN, DOWNSTREAM);
}

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
        TEST(test_udp_is_answered_at_once),
        TEST(test_udp_of_this_element),
        TEST(test_the_shim_through_and_back),
        TEST(test_no_answer_to_options_takes_the_shim_then_gives_up),
        TEST(test_a_hop_that_answers_no_options_is_asked_once_per_flow),
        TEST(test_ipv6),
        TEST(test_a_hundred_thousand_flows),
        TEST(test_a_hundred_thousand_forgeries),
        TEST(test_epochs),
    };
    if (geteuid() != 0) {
        printf("test_signal: skipped, needs root\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, open_run, close_run);
}
