/* The program `signal`, packet by packet in the kernel: UDP, the second carrier, IPv6. Skipped without root. */
#define _GNU_SOURCE
#include "signal_cases.h"

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
    frame = ordered(client, server, next_port, PORT, 17, 0, 700);
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
    struct signal_policy impatient = {.element = OWN, .mode = DECIDE_MODE_ENFORCE, .retry_us = 1, .tries = 2};
    struct frame frame;
    (void)state;
    decide_parse_prefix("10.9.9.2", &impatient.shim4);
    assert_int_equal(signal_tables_policy(run.tables, &impatient), 0);
    as_origin(0, 50000000);
    sent(client, server, next_port, PORT, SYN, 0);
    usleep(TICK_US);
    sent(client, server, next_port, PORT, ACK, 0);
    frame = ordered(client, server, next_port, PORT, 6, ACK, 500);
    assert_shim(&frame, DOWNSTREAM, CHART_REQUEST);
    usleep(TICK_US);
    sent(client, server, next_port, PORT, ACK, 0);
    assert_int_equal(half_of(next_port).state, CHART_SOCKET_LEGACY);
}

/* The request of this element's flow from next_port, ahead of a packet with these flags. True: through the shim. */
static bool asked_by_shim(uint8_t flags) {
    usleep(TICK_US);
    sent(client, server, next_port, PORT, flags, 0);
    return ordered(client, server, next_port, PORT, 6, flags, 0).octets[ETHERNET + 9] == 17;
}

static void test_a_hop_that_answers_no_options_is_asked_once_per_flow(void **state) {
    struct signal_policy impatient = {.element = OWN, .mode = DECIDE_MODE_ENFORCE, .retry_us = 1, .tries = 8};
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

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_udp_is_answered_at_once),
        TEST(test_udp_of_this_element),
        TEST(test_the_shim_through_and_back),
        TEST(test_no_answer_to_options_takes_the_shim_then_gives_up),
        TEST(test_a_hop_that_answers_no_options_is_asked_once_per_flow),
        TEST(test_ipv6),
    };

    return RUN(tests);
}
