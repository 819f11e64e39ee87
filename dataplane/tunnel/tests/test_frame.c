/* Frames, packets and selectors, leases and pauses. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "elasticity.h"
#include "frame.h"
#include "offload.h"
#include "packet.h"

static void test_frames_survive_the_wire(void **unused) {
    (void)unused;
    uint8_t buffer[256];
    struct frame frame;
    const struct hello hello = {0x0123456789abcdefULL, 77, 2000000};
    struct hello read_hello;
    size_t bytes = frame_write_hello(buffer, &hello);
    for (size_t have = 0; have < bytes; have++)
        assert_int_equal(frame_parse(buffer, have, &frame), 0);
    assert_int_equal(frame_parse(buffer, sizeof(buffer), &frame), bytes);
    assert_int_equal(frame_read_hello(&frame, &read_hello), 0);
    assert_true(read_hello.session == hello.session && read_hello.next_sequence == 77 &&
                read_hello.period_us == 2000000);
    const struct report report = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    struct report read_report;
    bytes = frame_write_report(buffer, &report);
    assert_int_equal(frame_parse(buffer, bytes, &frame), bytes);
    assert_int_equal(frame_read_hello(&frame, &read_hello), -EBADMSG);
    assert_int_equal(frame_read_report(&frame, &read_report), 0);
    assert_true(read_report.number == 1 && read_report.interval_us == 2 && read_report.received_bytes == 3 &&
                read_report.received_bytes_total == 4 && read_report.received_packets_total == 5 &&
                read_report.delivered_packets_total == 6 && read_report.late_packets_total == 7 &&
                read_report.skipped_packets_total == 8 && read_report.held_packets_maximum == 9 &&
                read_report.connections == 10);
}

static void test_other_versions_and_garbage_are_refused(void **unused) {
    (void)unused;
    uint8_t buffer[256];
    struct frame frame;
    struct hello hello = {1, 2, 3};
    frame_write_hello(buffer, &hello);
    buffer[FRAME_HEADER_BYTES + 5] = 9;
    assert_true(frame_parse(buffer, sizeof(buffer), &frame) > 0);
    assert_int_equal(frame_read_hello(&frame, &hello), -EPROTONOSUPPORT);
    buffer[FRAME_HEADER_BYTES] = 0;
    assert_int_equal(frame_read_hello(&frame, &hello), -EBADMSG);
    static const struct {
        uint16_t bytes;
        uint8_t type, zero;
    } BAD[] = {{1, 0, 0},           {1, 5, 0},         {0, FRAME_DATA, 0},  {FRAME_PAYLOAD_MAX + 1, FRAME_DATA, 0},
               {10, FRAME_DATA, 1}, {1, FRAME_BYE, 0}, {1, FRAME_HELLO, 0}, {1, FRAME_REPORT, 0}};
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        frame_header(buffer, BAD[i].type, BAD[i].bytes, 1);
        buffer[3] = BAD[i].zero;
        assert_int_equal(frame_parse(buffer, sizeof(buffer), &frame), -EBADMSG);
    }
}

static const uint8_t UDP4[28] = {0x45, 0xb8, 0,  28, 0, 0, 0,    0,    64,   17,   0, 0, 10, 0,
                                 0,    1,    10, 0,  0, 2, 0x13, 0x89, 0x13, 0x8a, 0, 8, 0,  0};

static void test_packets_are_read(void **unused) {
    (void)unused;
    struct packet_key key;
    uint8_t other[28], packet6[48] = {0x6b, 0x80, 0, 0, 0, 8, 6, 64, [8] = 0xfd, [24] = 0xfd, [40] = 0, 80, 1, 187};
    assert_int_equal(packet_parse(UDP4, 28, &key), 0);
    assert_int_equal(key.dscp, 46);
    assert_int_equal(key.source_port, 5001);
    assert_int_equal(key.destination_port, 5002);
    assert_int_equal(packet_parse(packet6, 48, &key), 0);
    assert_int_equal(key.version, 6);
    assert_int_equal(key.dscp, 46);
    assert_int_equal(key.destination_port, 443);
    assert_int_equal(packet_parse(UDP4, 27, &key), -EBADMSG);
    assert_int_equal(packet_parse(packet6, 47, &key), -EBADMSG);
    assert_int_equal(packet_parse(UDP4, 0, &key), -EBADMSG);
    memcpy(other, UDP4, 28);
    other[7] = 1; /* a later fragment */
    assert_int_equal(packet_parse(other, 28, &key), 0);
    assert_false(key.has_ports);
    other[0] = 0x44;
    assert_int_equal(packet_parse(other, 28, &key), -EBADMSG);
}

static void test_selectors_match(void **unused) {
    (void)unused;
    struct packet_key key;
    struct selector selector;
    assert_int_equal(packet_parse(UDP4, 28, &key), 0);
    static const char *const MATCHING[] = {"any",
                                           "from=10.0.0.0/24",
                                           "from=10.0.0.1,to=10.0.0.2",
                                           "dscp=46",
                                           "protocol=udp,dport=5002",
                                           "sport=5001",
                                           "to=10.0.0.2/31",
                                           "protocol=17",
                                           "to=0.0.0.0/0"};
    static const char *const OTHER[] = {"from=10.0.0.2", "to=::/0", "protocol=tcp", "dport=1", "from=10.0.0.2/31"};
    static const char *const BAD[] = {"",          "from",        "from=",       "from=10.0.0/8", "from=10.0.0.0/33",
                                      "dscp=64",   "protocol=xy", "sport=65536", "to=::/129",     "what=1",
                                      "any,dscp=1"};
    for (size_t i = 0; i < sizeof(MATCHING) / sizeof(MATCHING[0]); i++) {
        assert_int_equal(selector_parse(MATCHING[i], &selector), 0);
        assert_true(selector_matches(&selector, &key));
    }
    for (size_t i = 0; i < sizeof(OTHER) / sizeof(OTHER[0]); i++) {
        assert_int_equal(selector_parse(OTHER[i], &selector), 0);
        assert_false(selector_matches(&selector, &key));
    }
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++)
        assert_int_equal(selector_parse(BAD[i], &selector), -EINVAL);
}

static void test_a_lost_lease_decays_to_one(void **unused) {
    (void)unused;
    struct elasticity elasticity = {.connections = 1};
    assert_int_equal(elasticity_set(&elasticity, 0, 0, 0), -EINVAL);
    assert_int_equal(elasticity_set(&elasticity, TUNNEL_CONNECTIONS_MAX + 1, 0, 0), -EINVAL);
    assert_int_equal(elasticity_set(&elasticity, 20, 5000, 100), 0);
    elasticity_period(&elasticity, 5099);
    assert_int_equal(elasticity.connections, 20);
    static const uint32_t EXPECTED[] = {10, 5, 2, 1, 1};
    for (size_t i = 0; i < 5; i++) {
        elasticity_period(&elasticity, 5100 + i);
        assert_int_equal(elasticity.connections, EXPECTED[i]);
    }
    assert_int_equal(elasticity.leases_lost, 1);
    assert_int_equal(elasticity_set(&elasticity, 7, 0, 9000), 0);
    elasticity_period(&elasticity, 900000);
    assert_int_equal(elasticity.connections, 7);
    assert_int_equal(elasticity.changes, 19 + 19 + 6);
}

static void test_pauses_double_to_a_limit(void **unused) {
    (void)unused;
    for (uint32_t failures = 1; failures < 40; failures++) {
        uint64_t shortest = backoff_us(failures, 0), longest = backoff_us(failures, 1023);
        uint64_t middle = failures < 8 ? (uint64_t)BACKOFF_FIRST_US << (failures - 1) : BACKOFF_LONGEST_US;
        assert_in_range(shortest, middle * 3 / 4, middle);
        assert_in_range(longest, middle, middle * 5 / 4);
    }
}

static void test_refusals_are_printable(void **unused) {
    (void)unused;
    uint8_t buffer[FRAME_HEADER_BYTES + FRAME_REFUSAL_MAX];
    char sentence[FRAME_REFUSAL_MAX + 1], large[400];
    struct frame frame;
    memset(large, 'x', sizeof(large) - 1);
    large[sizeof(large) - 1] = '\0';
    large[3] = '\n';
    size_t bytes = frame_write_refusal(buffer, large);
    assert_int_equal(bytes, sizeof(buffer));
    assert_int_equal(frame_parse(buffer, bytes, &frame), bytes);
    assert_int_equal(frame_read_refusal(&frame, sentence), 0);
    assert_int_equal(strlen(sentence), FRAME_REFUSAL_MAX);
    assert_memory_equal(sentence, "xxx?xx", 6);
}

static void test_offloads_stay_in_the_packet(void **unused) {
    (void)unused;
    uint8_t wire[OFFLOAD_WIRE_BYTES], device[OFFLOAD_DEVICE_BYTES];
    struct offload back;
    const struct offload large = {1, 1, 40, 1448, 20, 16}, ecn6 = {1, 0x84, 60, 1428, 40, 16};
    offload_write_wire(&large, wire);
    offload_read_wire(wire, &back);
    assert_memory_equal(&back, &large, sizeof(back));
    offload_write_device(&large, device);
    offload_read_device(device, &back);
    assert_memory_equal(&back, &large, sizeof(back));
    assert_int_equal(offload_check(&large, 3000), 0);
    assert_int_equal(offload_check(&ecn6, 3000), 0);
    assert_int_equal(offload_check(&(struct offload){0}, 1), 0);
    assert_true(offload_none(&(struct offload){0}));
    assert_false(offload_none(&large));
    /* The checksum outside, segments of nothing, headers longer than the packet, unknown kinds and flags. */
    assert_int_equal(offload_check(&large, 37), -EBADMSG);
    assert_int_equal(offload_check(&(struct offload){1, 1, 40, 0, 20, 16}, 3000), -EBADMSG);
    assert_int_equal(offload_check(&(struct offload){1, 1, 4000, 1448, 20, 16}, 3000), -EBADMSG);
    assert_int_equal(offload_check(&(struct offload){0, 1, 40, 1448, 20, 16}, 3000), -EBADMSG);
    assert_int_equal(offload_check(&(struct offload){1, 3, 40, 1448, 20, 16}, 3000), -EBADMSG);
    assert_int_equal(offload_check(&(struct offload){2, 0, 0, 0, 0, 0}, 3000), -EBADMSG);
    assert_int_equal(offload_check(&(struct offload){1, 0, 0, 0, 65535, 65535}, 3000), -EBADMSG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames_survive_the_wire),
        cmocka_unit_test(test_other_versions_and_garbage_are_refused),
        cmocka_unit_test(test_packets_are_read),
        cmocka_unit_test(test_selectors_match),
        cmocka_unit_test(test_a_lost_lease_decays_to_one),
        cmocka_unit_test(test_pauses_double_to_a_limit),
        cmocka_unit_test(test_refusals_are_printable),
        cmocka_unit_test(test_offloads_stay_in_the_packet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
