/* Tests of ipfix_export.h: what a collector gets, octet by octet (RFC 7011, sections 3.1 to 3.4). */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "export/ipfix_export.h"

#define T0 1700000000000000ll
#define HEADER 16
#define TEMPLATE_SET 2
#define RECORD_IPV4 47
#define RECORD_IPV6 71

static int collector;
static char address[32];
static uint8_t message[2048];

static uint16_t get16(const uint8_t *at) {
    return (uint16_t)(at[0] << 8 | at[1]);
}

static uint64_t get64(const uint8_t *at) {
    uint64_t value = 0;

    for (int i = 0; i < 8; i++)
        value = value << 8 | at[i];
    return value;
}

static int open_collector(void **state) {
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {.tv_sec = 5};
    socklen_t length = sizeof(own);

    (void)state;
    collector = socket(AF_INET, SOCK_DGRAM, 0);
    setsockopt(collector, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (bind(collector, (struct sockaddr *)&own, sizeof(own)) ||
        getsockname(collector, (struct sockaddr *)&own, &length))
        return -1;
    snprintf(address, sizeof(address), "127.0.0.1:%u", ntohs(own.sin_port));
    return 0;
}

static int close_collector(void **state) {
    (void)state;
    return close(collector);
}

/* Length of the next message, whose header is checked. */
static size_t receive(void) {
    ssize_t length = recv(collector, message, sizeof(message), 0);

    assert_true(length > HEADER);
    assert_int_equal(get16(message), 10);
    assert_int_equal(get16(message + 2), length);
    return (size_t)length;
}

/* The set with this id, its contents' length in ret_length; NULL: there is none. */
static const uint8_t *set_of(size_t length, uint16_t id, size_t *ret_length) {
    for (size_t at = HEADER; at + 4 <= length; at += get16(message + at + 2)) {
        if (get16(message + at) == id) {
            *ret_length = get16(message + at + 2) - 4u;
            return message + at + 4;
        }
    }
    return NULL;
}

/* The set with this id in the next message that has one; counts the messages with templates before it. */
static const uint8_t *next_set(uint16_t id, size_t *ret_length, int *ret_templates) {
    *ret_templates = 0;
    for (;;) {
        size_t length = receive(), inner;
        const uint8_t *set = set_of(length, id, ret_length);

        *ret_templates += set_of(length, TEMPLATE_SET, &inner) != NULL;
        if (set)
            return set;
    }
}

static struct flow_record flow(const char *source, const char *destination) {
    return (struct flow_record){.node = "alpha",
                                .source_address = source,
                                .destination_address = destination,
                                .source_port = 40000,
                                .destination_port = 5201,
                                .since_us = T0,
                                .ended_at_us = T0 + 2500000,
                                .new_packets = 1000,
                                .dscp = 46,
                                .new_bytes = 1500000,
                                .final = true};
}

static struct ipfix_export *opened(void) {
    char why[IPFIX_ERROR_LEN] = "";
    struct ipfix_export *ipfix = NULL;

    assert_int_equal(ipfix_export_open(address, "alpha", why, &ipfix), 0);
    return ipfix;
}

static void templates_then_records(void **state) {
    struct flow_record ipv4 = flow("10.0.0.1", "10.0.0.2"), ipv6 = flow("fd00::1", "fd00::2");
    struct ipfix_export *ipfix = opened();
    char why[IPFIX_ERROR_LEN];
    const uint8_t *set;
    size_t length, inner;
    int templates;

    (void)state;
    ipv6.final = false;
    assert_int_equal(ipfix_export_add(ipfix, &ipv4, why), 0);
    assert_int_equal(ipfix_export_add(ipfix, &ipv6, why), 0);
    assert_int_equal(ipfix_export_flush(ipfix, T0, why), 0);
    set = next_set(TEMPLATE_SET, &inner, &templates);
    assert_int_equal(get16(set), 256);
    assert_int_equal(get16(set + 2), 11);
    /* flowStartMilliseconds, 8 octets. */
    assert_int_equal(get16(set + 4), 152);
    assert_int_equal(get16(set + 6), 8);
    length = receive();
    set = set_of(length, 256, &inner);
    assert_non_null(set);
    assert_int_equal(inner, RECORD_IPV4);
    assert_int_equal(get64(set), T0 / 1000);
    assert_int_equal(get64(set + 8), T0 / 1000 + 2500);
    assert_int_equal(get64(set + 16), 1500000);
    assert_int_equal(get64(set + 24), 1000);
    assert_memory_equal(set + 32, "\x0a\x00\x00\x01\x0a\x00\x00\x02", 8);
    assert_int_equal(get16(set + 40), 40000);
    assert_int_equal(get16(set + 42), 5201);
    assert_int_equal(set[44], 6);
    assert_int_equal(set[45], 3);
    assert_int_equal(set[46], 46 << 2);
    set = set_of(length, 257, &inner);
    assert_non_null(set);
    assert_int_equal(inner, RECORD_IPV6);
    assert_int_equal(set[32], 0xfd);
    assert_int_equal(set[47], 1);
    assert_int_equal(set[63], 2);
    assert_int_equal(set[69], 2);
    ipfix_export_close(ipfix);
}

static void templates_come_again(void **state) {
    struct flow_record record = flow("10.0.0.1", "10.0.0.2");
    struct ipfix_export *ipfix = opened();
    char why[IPFIX_ERROR_LEN];
    uint32_t sequence;
    size_t inner;
    int templates;

    (void)state;
    for (int second = 0; second <= 45; second += 15) {
        assert_int_equal(ipfix_export_add(ipfix, &record, why), 0);
        assert_int_equal(ipfix_export_flush(ipfix, T0 + second * 1000000ll, why), 0);
        next_set(256, &inner, &templates);
        /* With the first record, and after half a minute. */
        assert_int_equal(templates, second == 0 || second == 45);
        /* The records that were sent before (RFC 7011, section 3.1). */
        sequence = (uint32_t)get16(message + 8) << 16 | get16(message + 10);
        assert_int_equal(sequence, second / 15);
    }
    ipfix_export_close(ipfix);
}

static void nothing_to_say_is_not_said(void **state) {
    struct ipfix_export *ipfix = opened();
    char why[IPFIX_ERROR_LEN];

    (void)state;
    assert_int_equal(ipfix_export_flush(ipfix, T0, why), 0);
    recv(collector, message, sizeof(message), MSG_DONTWAIT);
    assert_int_equal(ipfix_export_flush(ipfix, T0 + 1000000, why), 0);
    assert_int_equal(recv(collector, message, sizeof(message), MSG_DONTWAIT), -1);
    ipfix_export_close(ipfix);
}

static void many_records_fill_several_messages(void **state) {
    struct flow_record record = flow("10.0.0.1", "10.0.0.2");
    struct ipfix_export *ipfix = opened();
    char why[IPFIX_ERROR_LEN];
    size_t records = 0, inner;
    int templates;

    (void)state;
    for (int i = 0; i < 100; i++)
        assert_int_equal(ipfix_export_add(ipfix, &record, why), 0);
    assert_int_equal(ipfix_export_flush(ipfix, T0, why), 0);
    while (records < 100) {
        next_set(256, &inner, &templates);
        assert_true(inner <= 1420);
        records += inner / RECORD_IPV4;
    }
    assert_int_equal(records, 100);
    ipfix_export_close(ipfix);
}

static void what_is_no_collector_is_refused(void **state) {
    static const char *const wrong[] = {"",           "10.0.0.1",       "collector:4739",
                                        "10.0.0.1:0", "10.0.0.1:70000", "fe80::1:4739x"};
    struct ipfix_export *ipfix = NULL;
    char why[IPFIX_ERROR_LEN];

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(ipfix_export_open(wrong[i], "alpha", why, &ipfix), -EINVAL);
        assert_non_null(strstr(why, "is not ADDR:PORT"));
    }
}

static void addresses_of_two_families_are_refused(void **state) {
    struct flow_record record = flow("10.0.0.1", "fd00::2");
    struct ipfix_export *ipfix = opened();
    char why[IPFIX_ERROR_LEN];

    (void)state;
    assert_int_equal(ipfix_export_add(ipfix, &record, why), -EINVAL);
    assert_non_null(strstr(why, "no two addresses of one family"));
    ipfix_export_close(ipfix);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(templates_then_records, open_collector, close_collector),
        cmocka_unit_test_setup_teardown(templates_come_again, open_collector, close_collector),
        cmocka_unit_test_setup_teardown(nothing_to_say_is_not_said, open_collector, close_collector),
        cmocka_unit_test_setup_teardown(many_records_fill_several_messages, open_collector, close_collector),
        cmocka_unit_test(what_is_no_collector_is_refused),
        cmocka_unit_test_setup_teardown(addresses_of_two_families_are_refused, open_collector, close_collector),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
