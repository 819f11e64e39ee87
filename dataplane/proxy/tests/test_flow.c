/* First packets, cut at every octet, and the table of flows. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "flow.h"

static const struct tcphdr first = {.source = 0x3930 /* 12345 */, .dest = 0x5000 /* 80 */, .syn = 1, .doff = 5};

/* With `options` octets of options in the IP header. */
static size_t ipv4_packet(uint8_t *packet, size_t options, const struct tcphdr *tcp) {
    struct iphdr ip = {.version = 4, .protocol = IPPROTO_TCP, .tos = 0xb8};
    ip.ihl = (5 + options / 4) & 0xf;
    inet_pton(AF_INET, "10.0.0.1", &ip.saddr);
    inet_pton(AF_INET, "10.0.0.4", &ip.daddr);
    memset(packet, 1, sizeof(ip) + options);
    memcpy(packet, &ip, sizeof(ip));
    memcpy(packet + sizeof(ip) + options, tcp, sizeof(*tcp));
    return sizeof(ip) + options + sizeof(*tcp);
}

static size_t ipv6_packet(uint8_t *packet, uint8_t hop_octets) {
    struct ip6_hdr ip = {.ip6_flow = htonl(6u << 28 | 46u << 22),
                         .ip6_nxt = hop_octets ? IPPROTO_HOPOPTS : IPPROTO_TCP};
    inet_pton(AF_INET6, "fd00::1", &ip.ip6_src);
    inet_pton(AF_INET6, "fd00::4", &ip.ip6_dst);
    memcpy(packet, &ip, sizeof(ip));
    memset(packet + sizeof(ip), 0, hop_octets);
    if (hop_octets) {
        packet[sizeof(ip)] = IPPROTO_TCP;
        packet[sizeof(ip) + 1] = (uint8_t)(hop_octets / 8 - 1);
    }
    memcpy(packet + sizeof(ip) + hop_octets, &first, sizeof(first));
    return sizeof(ip) + hop_octets + sizeof(first);
}

/* Reads a packet from memory of just its size, so that the sanitizer sees every octet too far. */
static int read_cut(const uint8_t *packet, size_t bytes, struct flow *flow, uint8_t *dscp) {
    uint8_t *copy = malloc(bytes ? bytes : 1);
    assert_non_null(copy);
    memcpy(copy, packet, bytes);
    int error = flow_of_packet(copy, bytes, flow, dscp);
    free(copy);
    return error;
}

static void expect_flow(const uint8_t *packet, size_t bytes, int family, const char *client, const char *server) {
    struct flow flow;
    uint8_t dscp;
    char text[INET6_ADDRSTRLEN];
    struct sockaddr_storage address;
    for (size_t cut = 0; cut < bytes; cut++)
        assert_int_equal(read_cut(packet, cut, &flow, &dscp), -EINVAL);
    assert_int_equal(read_cut(packet, bytes, &flow, &dscp), 0);
    assert_int_equal(dscp, 46);
    assert_int_equal(flow.family, family);
    assert_int_equal(flow.client_port, 12345);
    assert_int_equal(flow.server_port, 80);
    for (int of_server = 0; of_server < 2; of_server++) {
        flow_address(&flow, of_server, &address);
        const void *octets = family == AF_INET ? (const void *)&((struct sockaddr_in *)&address)->sin_addr
                                               : (const void *)&((struct sockaddr_in6 *)&address)->sin6_addr;
        inet_ntop(family, octets, text, sizeof(text));
        assert_string_equal(text, of_server ? server : client);
    }
}

static void test_first_packets_are_read(void **unused) {
    (void)unused;
    uint8_t packet[256];
    expect_flow(packet, ipv4_packet(packet, 0, &first), AF_INET, "10.0.0.1", "10.0.0.4");
    /* As the clone that carries a signal. */
    expect_flow(packet, ipv4_packet(packet, 36, &first), AF_INET, "10.0.0.1", "10.0.0.4");
    expect_flow(packet, ipv6_packet(packet, 0), AF_INET6, "fd00::1", "fd00::4");
    expect_flow(packet, ipv6_packet(packet, 40), AF_INET6, "fd00::1", "fd00::4");
}

static void test_other_packets_are_none(void **unused) {
    (void)unused;
    uint8_t packet[256], dscp = 9;
    struct flow flow = {.family = 99};
    struct tcphdr answer = first, reset = first;
    answer.ack = 1;
    reset.rst = 1;
    assert_int_equal(read_cut(packet, ipv4_packet(packet, 0, &answer), &flow, &dscp), -EINVAL);
    assert_int_equal(read_cut(packet, ipv4_packet(packet, 0, &reset), &flow, &dscp), -EINVAL);
    size_t bytes = ipv4_packet(packet, 0, &first);
    packet[9] = IPPROTO_UDP;
    assert_int_equal(read_cut(packet, bytes, &flow, &dscp), -EINVAL);
    bytes = ipv4_packet(packet, 0, &first);
    packet[7] = 1; /* a later fragment */
    assert_int_equal(read_cut(packet, bytes, &flow, &dscp), -EINVAL);
    bytes = ipv4_packet(packet, 0, &first);
    packet[0] = 0x44; /* a header shorter than a header */
    assert_int_equal(read_cut(packet, bytes, &flow, &dscp), -EINVAL);
    assert_int_equal(flow.family, 99);
    assert_int_equal(dscp, 9);
}

static void test_sockets_name_the_same_flow(void **unused) {
    (void)unused;
    uint8_t packet[256], dscp;
    struct flow flow, again;
    struct sockaddr_storage client, server;
    for (int i = 0; i < 2; i++) {
        size_t bytes = i ? ipv6_packet(packet, 0) : ipv4_packet(packet, 0, &first);
        assert_int_equal(flow_of_packet(packet, bytes, &flow, &dscp), 0);
        flow_address(&flow, 0, &client);
        flow_address(&flow, 1, &server);
        assert_int_equal(flow_of_sockets(&client, &server, &again), 0);
        assert_memory_equal(&flow, &again, sizeof(flow));
    }
    server.ss_family = AF_INET;
    assert_int_equal(flow_of_sockets(&client, &server, &again), -EAFNOSUPPORT);
}

#define FLOWS 200u

static void test_the_table_finds_what_is_in_it(void **unused) {
    (void)unused;
    static struct flow flows[FLOWS];
    struct table table;
    assert_int_equal(table_init(&table, FLOWS, 0x9e3779b97f4a7c15ull), 0);
    for (uint32_t i = 0; i < FLOWS; i++) {
        flows[i].client_port = (uint16_t)(i % 50);
        flows[i].server_port = (uint16_t)(i / 50);
        assert_int_equal(table_find(&table, &flows[i]), TABLE_NONE);
        table_put(&table, i, &flows[i]);
    }
    for (uint32_t i = 0; i < FLOWS; i += 2)
        table_remove(&table, i);
    for (uint32_t i = 0; i < FLOWS; i++)
        assert_int_equal(table_find(&table, &flows[i]), i % 2 ? i : TABLE_NONE);
    table_free(&table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_packets_are_read),
        cmocka_unit_test(test_other_packets_are_none),
        cmocka_unit_test(test_sockets_name_the_same_flow),
        cmocka_unit_test(test_the_table_finds_what_is_in_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
