/* Probes with a limited TTL: what is sent, what routers quote, what a path's memory says. */
#include "support.h"

#include "hop_packet.h"
#include "hop_trace.h"
#include "paths.h"
#include "trace.h"

static struct hop_flow flow_of(enum hop_protocol protocol) {
    struct hop_flow flow = {.protocol = protocol, .source_port = 40000, .destination_port = 33434};

    inet_pton(AF_INET, "10.0.0.1", &flow.source);
    inet_pton(AF_INET, "10.0.0.9", &flow.destination);
    return flow;
}

static uint32_t sum_words(const uint8_t *bytes, size_t length, uint32_t sum) {
    for (size_t i = 0; i < length; i++)
        sum += i % 2 ? bytes[i] : (uint32_t)bytes[i] << 8;
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

static void probes_differ_in_nothing_that_a_balancer_hashes(void **state) {
    struct hop_flow udp = flow_of(HOP_UDP), icmp = flow_of(HOP_ICMP);
    uint8_t first[61], other[61];
    (void)state;

    for (uint16_t tag = 1; tag < 1300; tag += 37) {
        hop_packet_make(&udp, 3, 1, first, sizeof(first));
        hop_packet_make(&udp, 9, tag, other, sizeof(other));
        assert_memory_equal(first + 12, other + 12, 12); /* addresses and ports */
        assert_int_equal(other[26] << 8 | other[27], tag);
        /* Checksum of pseudo header and datagram comes out right. */
        assert_int_equal(sum_words(other + 20, 41, sum_words(other + 12, 8, 17 + 41)), 0xffff);
        hop_packet_make(&icmp, 3, 1, first, sizeof(first));
        hop_packet_make(&icmp, 9, tag, other, sizeof(other));
        assert_memory_equal(first + 20, other + 20, 6); /* type, code, checksum, identifier */
        assert_int_equal(sum_words(other + 20, 41, 0), 0xffff);
        assert_int_equal(other[8], 9);
    }
}

/* An ICMP packet of `type` from 10.0.`third`.1 that quotes `quoted` bytes of a probe. */
static size_t answer(uint8_t *bytes, uint8_t third, uint8_t type, uint8_t code, const uint8_t *probe, size_t quoted) {
    memset(bytes, 0, 28);
    bytes[0] = 0x45;
    bytes[5] = 77;
    bytes[9] = IPPROTO_ICMP;
    bytes[12] = 10;
    bytes[14] = third;
    bytes[15] = third ? 1 : 9;
    bytes[20] = type;
    bytes[21] = code;
    memcpy(bytes + 28, probe, quoted);
    return 28 + quoted;
}

static void answers_are_known_by_what_they_quote(void **state) {
    struct hop_flow flow = flow_of(HOP_UDP), other = flow_of(HOP_UDP);
    uint8_t probe[60], bytes[128];
    struct hop_reply reply;
    (void)state;

    other.source_port++;
    hop_packet_make(&flow, 3, 515, probe, sizeof(probe));
    assert_true(hop_packet_read(&flow, bytes, answer(bytes, 7, 11, 0, probe, 28), &reply));
    assert_int_equal(reply.answer, HOP_EXPIRED);
    assert_int_equal(reply.tag, 515);
    assert_int_equal(reply.ip_id, 77);
    assert_true(hop_packet_read(&flow, bytes, answer(bytes, 0, 3, 3, probe, 28), &reply));
    assert_int_equal(reply.answer, HOP_REACHED);
    assert_true(hop_packet_read(&flow, bytes, answer(bytes, 7, 3, 1, probe, 28), &reply));
    assert_int_equal(reply.answer, HOP_UNREACHABLE);
    assert_int_equal(reply.code, 1);
    /* Somebody else's probe, a quote cut short, no quote, an echo reply although we sent none. */
    assert_false(hop_packet_read(&other, bytes, answer(bytes, 7, 11, 0, probe, 28), &reply));
    assert_false(hop_packet_read(&flow, bytes, answer(bytes, 7, 11, 0, probe, 27), &reply));
    assert_false(hop_packet_read(&flow, bytes, answer(bytes, 7, 11, 0, probe, 0), &reply));
    assert_false(hop_packet_read(&flow, bytes, answer(bytes, 0, 0, 0, probe, 28), &reply));
}

static struct hop_trace path(unsigned count, const uint8_t *last_bytes) {
    struct hop_trace trace = {.count = count, .reached = true, .unreachable = -1};

    for (unsigned i = 0; i < count; i++) {
        if (last_bytes[i])
            trace.hops[i].address.s_addr = htonl(0x0a000000u + last_bytes[i]);
        trace.hops[i].sent = 3;
        trace.hops[i].answered = last_bytes[i] ? 3 : 0;
    }
    return trace;
}

static void changes_of_the_path_are_told_once(void **state) {
    static const uint8_t FIRST[] = {1, 2, 3}, SILENT[] = {1, 0, 3}, OTHER[] = {1, 5, 3}, LONGER[] = {1, 5, 6, 3};
    struct hop_trace first = path(3, FIRST), silent = path(3, SILENT), other = path(3, OTHER), longer = path(4, LONGER);
    (void)state;

    assert_int_equal(paths_note("a", &first), PATH_UNKNOWN);
    assert_int_equal(paths_note("a", &first), PATH_SAME);
    assert_int_equal(paths_note("a", &silent), PATH_SAME);
    assert_int_equal(paths_note("b", &other), PATH_UNKNOWN);
    assert_int_equal(paths_note("a", &other), PATH_CHANGED);
    assert_int_equal(paths_note("a", &other), PATH_SAME);
    assert_int_equal(paths_note("a", &longer), PATH_CHANGED);
    assert_int_equal(paths_note("b", &other), PATH_SAME);
}

static void a_silent_end_is_a_failure_that_still_tells_the_hops(void **state) {
    static const uint8_t HOPS[] = {1, 2};
    struct hop_trace trace = path(2, HOPS);
    struct trace_parameters parameters;
    struct failure failure = {0};
    struct record record = {0};
    cJSON *details;
    (void)state;

    trace_defaults(&parameters);
    strcpy(parameters.common.destination, "10.0.0.9");
    trace.reached = false;
    assert_int_equal(trace_report(&parameters, &trace, &record, &details, &failure), -1);
    assert_int_equal(failure.kind, FAILURE_UNREACHABLE);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(details, "hops")), 2);
    assert_int_equal(record.metric_count, 0);
    cJSON_Delete(details);
    parameters.partial = true;
    assert_int_equal(trace_report(&parameters, &trace, &record, &details, &failure), 0);
    assert_string_equal(record.metrics[0].name, "hop_count");
    cJSON_Delete(details);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(probes_differ_in_nothing_that_a_balancer_hashes),
        cmocka_unit_test(answers_are_known_by_what_they_quote),
        cmocka_unit_test(changes_of_the_path_are_told_once),
        cmocka_unit_test(a_silent_end_is_a_failure_that_still_tells_the_hops),
    };

    return cmocka_run_group_tests_name("hops", tests, NULL, NULL);
}
