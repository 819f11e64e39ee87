/* Quick-Start at the ends of connections, once each in the kernel (BPF_PROG_TEST_RUN): what the classifier puts into
 * packets of this node's processes, and what it keeps of those that arrive. Needs root. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include "quick_start_maps.h"
#include "quick_start_run.h"

#define SYN 0x02
#define RST 0x04
#define ACK 0x10
#define TCP_BYTES 20
#define IPV6_OPTIONS_BYTES 16
#define HERE4 "127.0.0.1"
#define HERE6 "::1"

static bool is_ipv6(const struct packet *packet) {
    return packet->frame[12] == 0x86;
}

static uint32_t header_bytes(const struct packet *packet) {
    return is_ipv6(packet) ? 40 : 20;
}

/* TCP's checksum over what begins so many octets behind the IP header: 0 when it is right. */
static uint16_t tcp_checksum(const struct packet *packet, uint32_t transport) {
    const uint8_t *ip = packet->frame + ETHERNET_BYTES;
    uint32_t octets = packet->size - ETHERNET_BYTES - transport, n_addresses = is_ipv6(packet) ? 32 : 8;
    uint8_t all[FRAME_MAX] = {0};
    memcpy(all, ip + (is_ipv6(packet) ? 8 : 12), n_addresses);
    all[n_addresses] = (uint8_t)(octets >> 8);
    all[n_addresses + 1] = (uint8_t)octets;
    all[n_addresses + 3] = IPPROTO_TCP;
    memcpy(all + n_addresses + 4, ip + transport, octets);
    return checksum(all, n_addresses + 4 + octets);
}

static void seal_tcp(struct packet *packet) {
    uint8_t *tcp = packet->frame + ETHERNET_BYTES + header_bytes(packet);
    tcp[16] = tcp[17] = 0;
    uint16_t sum = tcp_checksum(packet, header_bytes(packet));
    tcp[16] = (uint8_t)(sum >> 8);
    tcp[17] = (uint8_t)sum;
    if (!is_ipv6(packet))
        seal(packet);
}

/* Of a process of this node; each call is another connection. `flags`: TCP's; `data`: octets behind its header. */
static struct packet own(const char *destination, uint16_t port, uint8_t flags, uint32_t data) {
    static uint16_t source_port = 40000;
    bool ipv6 = strchr(destination, ':');
    uint32_t header = ipv6 ? 40 : 20;
    struct packet packet = {.options = ETHERNET_BYTES + header, .option = ETHERNET_BYTES + header + (ipv6 ? 2 : 0)};
    uint8_t *ip = packet.frame + ETHERNET_BYTES, *tcp = ip + header;
    packet.size = ETHERNET_BYTES + header + TCP_BYTES + data;
    packet.frame[12] = ipv6 ? 0x86 : 0x08;
    packet.frame[13] = ipv6 ? 0xdd : 0x00;
    ip[0] = ipv6 ? 0x60 : 0x45;
    ip[ipv6 ? 5 : 3] = (uint8_t)(packet.size - ETHERNET_BYTES - (ipv6 ? header : 0));
    ip[ipv6 ? 7 : 8] = 64;
    ip[ipv6 ? 6 : 9] = IPPROTO_TCP;
    inet_pton(ipv6 ? AF_INET6 : AF_INET, ipv6 ? "2001:db8::1" : "10.1.1.1", ip + (ipv6 ? 8 : 12));
    inet_pton(ipv6 ? AF_INET6 : AF_INET, destination, ip + (ipv6 ? 24 : 16));
    source_port++;
    tcp[0] = (uint8_t)(source_port >> 8);
    tcp[1] = (uint8_t)source_port;
    tcp[2] = (uint8_t)(port >> 8);
    tcp[3] = (uint8_t)port;
    tcp[12] = 0x50;
    tcp[13] = flags;
    seal_tcp(&packet);
    return packet;
}

static struct qs_flow_key key_of(const struct packet *packet) {
    const uint8_t *ip = packet->frame + ETHERNET_BYTES, *tcp = ip + header_bytes(packet);
    struct qs_flow_key key = {.source_port = (uint16_t)(tcp[0] << 8 | tcp[1]),
                              .destination_port = (uint16_t)(tcp[2] << 8 | tcp[3])};
    if (is_ipv6(packet)) {
        memcpy(key.source, ip + 8, 16);
        memcpy(key.destination, ip + 24, 16);
        return key;
    }
    key.source[2] = key.destination[2] = htonl(0xffff);
    memcpy(&key.source[3], ip + 12, 4);
    memcpy(&key.destination[3], ip + 16, 4);
    return key;
}

static struct qs_flow flow_of(const struct qs_flow_key *key) {
    struct qs_flow flow = {0};
    assert_int_equal(bpf_map_lookup_elem(bpf_map__fd(skeleton->maps.qs_flows), key, &flow), 0);
    return flow;
}

static uint64_t counted(enum chart_qs_count which) {
    uint32_t key = which;
    uint64_t count = 0;
    assert_int_equal(bpf_map_lookup_elem(bpf_map__fd(skeleton->maps.qs_counts), &key, &count), 0);
    return count;
}

/* The option was put behind the IP header, and nothing else differs but what has to. */
static struct packet assert_inserted(const struct packet *packet) {
    uint32_t grown = is_ipv6(packet) ? IPV6_OPTIONS_BYTES : CHART_QS_OCTETS, length = is_ipv6(packet) ? 5 : 3;
    struct packet out = run_to(packet, packet->size + grown), rest = out;
    uint8_t *ip = out.frame + ETHERNET_BYTES, *was = rest.frame + ETHERNET_BYTES;
    assert_int_equal(ip[length], packet->frame[ETHERNET_BYTES + length] + grown);
    assert_int_equal(tcp_checksum(&out, header_bytes(packet) + grown), 0);
    memmove(rest.frame + out.options, rest.frame + out.options + grown, packet->size - out.options);
    was[length] = packet->frame[ETHERNET_BYTES + length];
    if (is_ipv6(packet)) {
        const uint8_t padding[] = {1, 4, 0, 0, 0, 0};
        assert_int_equal(ip[6], 0);
        assert_int_equal(ip[40], IPPROTO_TCP);
        assert_int_equal(ip[41], 1);
        assert_memory_equal(ip + 50, padding, sizeof(padding));
        was[6] = IPPROTO_TCP;
    } else {
        assert_int_equal(ip[0], 0x47);
        assert_int_equal(checksum(ip, 28), 0);
        was[0] = 0x45;
        memcpy(was + 10, packet->frame + ETHERNET_BYTES + 10, 2);
    }
    assert_memory_equal(rest.frame, packet->frame, packet->size);
    return out;
}

/* The node's own link answers at once: 50 Mb/s are 40.96. */
static void assert_asks(const struct packet *packet) {
    struct qs_flow_key key = key_of(packet);
    struct packet out = assert_inserted(packet);
    const uint8_t *option = out.frame + out.option;
    struct qs_flow flow = flow_of(&key);
    assert_int_equal(chart_qs_kind(option, is_ipv6(packet)), CHART_QS_REQUEST);
    assert_int_equal(chart_qs_rate(option), 10);
    assert_int_equal(flow.state, QS_ASKED);
    assert_int_equal(flow.asked.rate, 11);
    assert_int_equal((uint8_t)(64 - option[3]), flow.asked.ttl_difference);
    assert_int_equal((chart_qs_nonce(option) ^ flow.asked.nonce) & ((1u << 20) - 1), 0);
}

static void a_syn_asks(void **state) {
    struct packet packets[] = {own("192.0.2.7", 80, SYN, 0), own("2001:db8::7", 80, SYN, 0)};
    uint64_t before = counted(CHART_QS_COUNT_ASKED);
    (void)state;
    set_up_host(11);
    for (size_t i = 0; i < sizeof(packets) / sizeof(packets[0]); i++) {
        /* Approvals of the last requests are over. */
        uint32_t ifindex = LOOPBACK;
        bpf_map_delete_elem(bpf_map__fd(skeleton->maps.qs_links), &ifindex);
        assert_asks(&packets[i]);
    }
    assert_int_equal(counted(CHART_QS_COUNT_ASKED), before + 2);
}

/* Something on the way may drop it: then without, also to the same address later. */
static void a_repeated_syn_does_not_ask(void **state) {
    struct packet packet = own("192.0.2.8", 80, SYN, 0), later = own("192.0.2.8", 80, SYN, 0);
    struct packet elsewhere = own("192.0.2.9", 80, SYN, 0);
    uint64_t before = counted(CHART_QS_COUNT_UNANSWERED);
    (void)state;
    set_up_host(11);
    assert_inserted(&packet);
    assert_unchanged(&packet);
    assert_unchanged(&packet);
    assert_unchanged(&later);
    assert_inserted(&elsewhere);
    assert_int_equal(counted(CHART_QS_COUNT_UNANSWERED), before + 1);
}

static void assert_reported(const char *destination) {
    struct packet packet = own(destination, 80, ACK, 0);
    struct qs_flow_key key = key_of(&packet);
    struct qs_flow flow = {.asked = {.nonce = NONCE & 0x3fffffff, .rate = 11}, .state = QS_ANSWERED, .approved = 9};
    set_up_host(11);
    assert_unchanged(&packet);
    put(skeleton->maps.qs_flows, &key, &flow);
    struct packet out = assert_inserted(&packet);
    assert_int_equal(out.frame[out.option + 2], CHART_QS_REPORT << 4 | 9);
    assert_int_equal(chart_qs_nonce(out.frame + out.option), flow.asked.nonce);
    assert_int_equal(flow_of(&key).state, QS_REPORTED);
    assert_unchanged(&packet);
    assert_int_equal(counters().quick_start_requests, 0);
}

static void reported_with_the_next_packet_without_data(void **state) {
    (void)state;
    assert_reported("192.0.2.10");
    assert_reported("2001:db8::10");
}

static void who_does_not_ask(void **state) {
    struct packet granted = own("192.0.2.11", 444, SYN, 0);
    struct packet forwarded = own("192.0.2.11", 80, SYN, 0), data = own("192.0.2.11", 80, ACK, 20), off = forwarded;
    struct packet options = ipv4(0, 0, 8), udp = own("192.0.2.11", 80, SYN, 0), six = ipv6(0);
    (void)state;
    forwarded.forwarded = true;
    options.forwarded = six.forwarded = false;
    options.frame[options.size - 20 + 12] = 0x50;
    options.frame[options.size - 20 + 13] = SYN;
    udp.frame[ETHERNET_BYTES + 9] = IPPROTO_UDP;
    set_up_host(11);
    struct packet *packets[] = {&granted, &forwarded, &data, &options, &udp, &six};
    for (size_t i = 0; i < sizeof(packets) / sizeof(packets[0]); i++)
        assert_unchanged(packets[i]);
    set_up_host(0);
    assert_unchanged(&off);
}

/* A response waits for a flow, since so many milliseconds. */
static void let_wait(const struct packet *packet, int64_t ms) {
    struct qs_flow_key key = key_of(packet);
    struct qs_arrived arrived = {.at_ns = in_ms(-ms),
                                 .response = {CHART_QS_TCP_KIND, CHART_QS_TCP_OCTETS, 9, 55, 1, 2, 3, 4}};
    put(skeleton->maps.qs_arrived, &key, &arrived);
    skeleton->bss->qs_arrived_until_ns = in_ms(1000 - ms);
}

/* `asks`: octets that a request in the same packet takes. */
static void assert_responds(const struct packet *packet, uint32_t asks) {
    const uint8_t response[] = {CHART_QS_TCP_KIND, CHART_QS_TCP_OCTETS, 9, 55, 1, 2, 3, 4};
    uint32_t size = packet->size + CHART_QS_TCP_OCTETS + asks, transport = header_bytes(packet) + asks;
    let_wait(packet, 0);
    struct packet out = run_to(packet, size);
    const uint8_t *tcp = out.frame + ETHERNET_BYTES + transport,
                  *was = packet->frame + ETHERNET_BYTES + header_bytes(packet);
    assert_memory_equal(out.frame + size - sizeof(response), response, sizeof(response));
    assert_int_equal(tcp[12], was[12] + 0x20);
    assert_int_equal(tcp[13], was[13]);
    assert_int_equal(tcp_checksum(&out, transport), 0);
    if (is_ipv6(packet))
        assert_int_equal(out.frame[ETHERNET_BYTES + 5], size - ETHERNET_BYTES - 40);
    else
        assert_int_equal(checksum(out.frame + ETHERNET_BYTES, 20 + asks), 0);
}

static void a_response_goes_with_the_next_packet_without_data(void **state) {
    struct packet ack = own("192.0.2.12", 80, ACK, 0), six = own("2001:db8::12", 80, ACK, 0);
    struct packet syn_ack = own("192.0.2.12", 80, SYN | ACK, 0), data = own("192.0.2.12", 80, ACK, 20);
    struct packet syn_ack6 = own("2001:db8::12", 80, SYN | ACK, 0), unasked = own("192.0.2.12", 80, SYN | ACK, 0);
    struct packet reset = own("192.0.2.12", 80, ACK | RST, 0), late = own("192.0.2.12", 80, ACK, 0);
    uint64_t before = counted(CHART_QS_COUNT_RESPONDED);
    (void)state;
    set_up_host(11);
    assert_responds(&ack, 0);
    assert_unchanged(&ack); /* once */
    assert_responds(&six, 0);
    /* Who is asked by one that understands it asks as well. */
    assert_responds(&syn_ack, CHART_QS_OCTETS);
    struct qs_flow_key key = key_of(&syn_ack);
    assert_int_equal(flow_of(&key).state, QS_ASKED);
    assert_responds(&syn_ack6, IPV6_OPTIONS_BYTES);
    assert_unchanged(&syn_ack); /* without, when it is repeated */
    assert_unchanged(&unasked);
    let_wait(&data, 0);
    assert_unchanged(&data);
    let_wait(&reset, 0);
    assert_unchanged(&reset);
    let_wait(&late, 1001);
    skeleton->bss->qs_arrived_until_ns = in_ms(1000);
    assert_unchanged(&late);
    assert_int_equal(counted(CHART_QS_COUNT_RESPONDED), before + 4);
}

/* Behind a full header of TCP there is no room. */
static void a_full_header_takes_no_response(void **state) {
    struct packet packet = own("192.0.2.13", 80, ACK, 40);
    (void)state;
    set_up_host(11);
    memset(packet.frame + packet.size - 40, 1, 40);
    packet.frame[ETHERNET_BYTES + 20 + 12] = 0xf0;
    seal_tcp(&packet);
    let_wait(&packet, 0);
    assert_unchanged(&packet);
}

static void arrive(const struct packet *packet) {
    struct packet out = *packet;
    struct __sk_buff context = {.ifindex = LOOPBACK, .ingress_ifindex = LOOPBACK};
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = packet->frame, .data_size_in = packet->size,
                .data_out = out.frame, .data_size_out = sizeof(out.frame), .ctx_in = &context,
                .ctx_size_in = sizeof(context), .repeat = 1);
    assert_int_equal(bpf_prog_test_run_opts(bpf_program__fd(skeleton->progs.quick_start_arrive), &options), 0);
    assert_int_equal(options.data_size_out, packet->size);
    assert_memory_equal(out.frame, packet->frame, packet->size);
}

/* The other direction's flow of a request that arrived, as `ipv4` and `ipv6` of quick_start_run.h make them. */
static bool kept(const struct packet *packet, uint32_t transport, struct qs_arrived *ret) {
    const uint8_t *ip = packet->frame + ETHERNET_BYTES, *tcp = ip + transport;
    struct qs_flow_key key = {.source_port = (uint16_t)(tcp[2] << 8 | tcp[3]),
                              .destination_port = (uint16_t)(tcp[0] << 8 | tcp[1])};
    if (is_ipv6(packet)) {
        memcpy(key.source, ip + 24, 16);
        memcpy(key.destination, ip + 8, 16);
    } else {
        key.source[2] = key.destination[2] = htonl(0xffff);
        memcpy(&key.source[3], ip + 16, 4);
        memcpy(&key.destination[3], ip + 12, 4);
    }
    int error = bpf_map_lookup_elem(bpf_map__fd(skeleton->maps.qs_arrived), &key, ret);
    bpf_map_delete_elem(bpf_map__fd(skeleton->maps.qs_arrived), &key);
    return !error;
}

static void requests_to_this_node_are_kept(void **state) {
    struct packet packet = ipv4(9, 4, 12), six = ipv6(9), report = ipv4(9, 0, 8), elsewhere = ipv4(9, 0, 8);
    struct qs_arrived arrived;
    (void)state;
    set_up_host(11);
    inet_pton(AF_INET, HERE4, packet.frame + ETHERNET_BYTES + 16);
    inet_pton(AF_INET, HERE4, report.frame + ETHERNET_BYTES + 16);
    inet_pton(AF_INET6, HERE6, six.frame + ETHERNET_BYTES + 24);
    arrive(&packet);
    assert_true(kept(&packet, 32, &arrived));
    assert_int_equal(arrived.response[0], CHART_QS_TCP_KIND);
    assert_int_equal(chart_qs_rate(arrived.response), 9);
    assert_int_equal(arrived.response[3], (uint8_t)(64 - 200));
    assert_int_equal(chart_qs_nonce(arrived.response), NONCE & 0x3fffffff);
    arrive(&six);
    assert_true(kept(&six, 56, &arrived));
    assert_int_equal(chart_qs_rate(arrived.response), 9);
    report.frame[report.option + 2] = CHART_QS_REPORT << 4 | 9;
    arrive(&report);
    assert_false(kept(&report, 28, &arrived));
    arrive(&elsewhere);
    (void)kept(&elsewhere, 28, &arrived);
}

/* Any octets behind an IP header that has room for options. */
static void any_octets_arrive(void **state) {
    uint32_t seed = 11;
    (void)state;
    set_up_host(11);
    for (int i = 0; i < 20000; i++) {
        struct packet packet = i % 2 ? ipv4(9, 0, OPTIONS_MAX) : ipv6(9);
        for (uint32_t at = packet.options - (i % 2 ? 0 : 2); at < packet.size; at++) {
            seed = seed * 1664525u + 1013904223u;
            packet.frame[at] = seed >> 31 ? (uint8_t)(seed >> 16) % 39 : (uint8_t)(seed >> 8);
        }
        arrive(&packet);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_syn_asks),
        cmocka_unit_test(a_repeated_syn_does_not_ask),
        cmocka_unit_test(reported_with_the_next_packet_without_data),
        cmocka_unit_test(who_does_not_ask),
        cmocka_unit_test(a_response_goes_with_the_next_packet_without_data),
        cmocka_unit_test(a_full_header_takes_no_response),
        cmocka_unit_test(requests_to_this_node_are_kept),
        cmocka_unit_test(any_octets_arrive),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
