/* Quick-Start through the classifier, once each in the kernel (BPF_PROG_TEST_RUN): requests that are approved, lowered
 * and refused, IPv4's checksum against one computed anew, what is left as it was, and what a host puts into packets of
 * its own. Needs root. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <arpa/inet.h>
#include <linux/bpf.h>
#include <string.h>

#include "classifier.h"
#include "grants/selectors.h"
#include "lib/advice/quick_start.h"

#define NODE 42
#define GRANT 7
#define ETHERNET_BYTES 14
#define FRAME_MAX 400
#define OPTIONS_MAX 40
#define MBPS 1000000ull
#define NONCE 0x2fedcba9u

/* As bpf/quick_start_host.bpf.h has them. */
struct qs_flow_key {
    uint32_t source[4], destination[4];
    uint16_t source_port, destination_port;
};

enum qs_flow_state { QS_ASKED, QS_ANSWERED, QS_REPORTED };

struct qs_flow {
    uint32_t nonce;
    uint8_t state, asked, approved, ttl_difference;
};

struct packet {
    uint8_t frame[FRAME_MAX];
    uint32_t size, options, option; /* octets to the first of the options, and to ours */
    bool forwarded;
};

static void advise(uint64_t fair_bps, uint64_t spare_bps, int64_t lease_ms) {
    struct chart_link_advice advice = {.quick_start = 1,
                                       .fair_bps = fair_bps,
                                       .fair_expires_ns = in_ms(60000),
                                       .spare_bps = spare_bps,
                                       .spare_expires_ns = in_ms(lease_ms)};
    uint32_t ifindex = LOOPBACK;
    put(skeleton->maps.link_advice, &ifindex, &advice);
}

/* A link with a fair rate of 50 Mb/s and a spare rate of 90, and a grant of 3 Mb/s for TCP to port 444. */
static void set_up_host(uint32_t quick_start_rate) {
    static uint32_t generation;
    struct decide_selector selector = {.protocol = IPPROTO_TCP, .destination_port = 444};
    struct chart_selector_table table = {.count = 1};
    struct chart_node_config config = {
        .node = NODE, .enforce = 1, .generation = ++generation, .quick_start_rate = quick_start_rate};
    struct chart_grant_key key = {.node = NODE, .grant = GRANT};
    struct chart_link link = {.link_header_bytes = ETHERNET_BYTES};
    struct chart_rate rate = {.gr_bps = 3 * MBPS, .enforce = 1, .gr_expires_ns = in_ms(60000)};
    uint32_t zero = 0, ifindex = LOOPBACK;
    assert_int_equal(selector_to_kernel(&selector, &table.selectors[0]), 0);
    table.selectors[0].grant = GRANT;
    put(skeleton->maps.selectors, &zero, &table);
    put(skeleton->maps.rates, &key, &rate);
    put(skeleton->maps.links, &ifindex, &link);
    put(skeleton->maps.node_config, &zero, &config);
    bpf_map_delete_elem(bpf_map__fd(skeleton->maps.qs_links), &ifindex);
    skeleton->bss->advising_links = 1;
    advise(50 * MBPS, 90 * MBPS, 60000);
}

static void set_up(void) {
    set_up_host(0);
}

/* RFC 1071, with the header's own field as it is: 0 when it is right. */
static uint16_t checksum(const uint8_t *data, uint32_t size) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < size; i++)
        sum += i % 2 ? data[i] : (uint32_t)data[i] << 8;
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

static void seal(struct packet *packet) {
    uint8_t *ip = packet->frame + ETHERNET_BYTES;
    ip[10] = ip[11] = 0;
    uint16_t sum = checksum(ip, (ip[0] & 0xfu) * 4);
    ip[10] = (uint8_t)(sum >> 8);
    ip[11] = (uint8_t)sum;
}

static void write_option(uint8_t *option, bool ipv6, uint32_t rate) {
    option[0] = ipv6 ? CHART_QS_IPV6 : CHART_QS_IPV4;
    option[1] = ipv6 ? CHART_QS_IPV6_LENGTH : CHART_QS_IPV4_LENGTH;
    option[2] = (uint8_t)rate;
    option[3] = 200;
    option[7] = 1;
    chart_qs_put_nonce(option, NONCE);
}

/* A SYN with so many NOPs in front of the option; `options`: octets of all options. */
static struct packet ipv4(uint32_t rate, uint32_t nops, uint32_t options) {
    struct packet packet = {.options = ETHERNET_BYTES + 20, .option = ETHERNET_BYTES + 20 + nops, .forwarded = true};
    uint8_t *ip = packet.frame + ETHERNET_BYTES;
    packet.size = ETHERNET_BYTES + 20 + options + 20;
    packet.frame[12] = 0x08;
    ip[0] = (uint8_t)(0x40 | (20 + options) / 4);
    ip[3] = (uint8_t)(20 + options + 20);
    ip[8] = 64;
    ip[9] = IPPROTO_TCP;
    inet_pton(AF_INET, "10.1.1.1", ip + 12);
    inet_pton(AF_INET, "192.0.2.1", ip + 16);
    memset(ip + 20, 1, options);
    write_option(packet.frame + packet.option, false, rate);
    ip[20 + options] = 0x9c;
    ip[20 + options + 3] = 80;
    seal(&packet);
    return packet;
}

/* A hop-by-hop header of 16 octets: PadN of two, then the option, then PadN. */
static struct packet ipv6(uint32_t rate) {
    struct packet packet = {.options = ETHERNET_BYTES + 42, .option = ETHERNET_BYTES + 44, .forwarded = true};
    uint8_t *ip = packet.frame + ETHERNET_BYTES;
    packet.size = ETHERNET_BYTES + 40 + 16 + 20;
    packet.frame[12] = 0x86;
    packet.frame[13] = 0xdd;
    ip[0] = 0x60;
    ip[5] = 16 + 20;
    ip[7] = 64;
    inet_pton(AF_INET6, "2001:db8::1", ip + 8);
    inet_pton(AF_INET6, "2001:db8::2", ip + 24);
    ip[40] = IPPROTO_TCP;
    ip[41] = 1;
    ip[42] = 1;
    write_option(packet.frame + packet.option, true, rate);
    ip[52] = 1;
    ip[53] = 2;
    return packet;
}

static struct packet run_to(const struct packet *packet, uint32_t size) {
    struct packet out = *packet;
    struct __sk_buff context = {.ifindex = LOOPBACK, .ingress_ifindex = packet->forwarded ? LOOPBACK : 0};
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = packet->frame, .data_size_in = packet->size,
                .data_out = out.frame, .data_size_out = sizeof(out.frame), .ctx_in = &context,
                .ctx_size_in = sizeof(context), .repeat = 1);
    assert_int_equal(bpf_prog_test_run_opts(bpf_program__fd(skeleton->progs.classify), &options), 0);
    assert_int_equal(options.data_size_out, size);
    out.size = size;
    return out;
}

static struct packet run(const struct packet *packet) {
    return run_to(packet, packet->size);
}

static void assert_unchanged(const struct packet *packet) {
    struct packet out = run(packet);
    assert_memory_equal(out.frame, packet->frame, packet->size);
}

/* It got a rate: nothing but the option and IPv4's checksum differs, and that one is right. */
static void assert_answered(const struct packet *packet, uint32_t rate) {
    struct packet out = run(packet);
    const uint8_t *was = packet->frame + packet->option, *is = out.frame + out.option, *ip = out.frame + ETHERNET_BYTES;
    uint32_t asked = chart_qs_rate(was);
    assert_int_equal(chart_qs_rate(is), rate);
    assert_int_equal(is[3], rate ? was[3] - packet->forwarded : 0);
    assert_int_equal(is[7] & 3, was[7] & 3);
    if (rate == asked)
        assert_int_equal(chart_qs_nonce(is), chart_qs_nonce(was));
    else if (rate)
        assert_int_equal(chart_qs_nonce(is) & ((1u << 2 * rate) - 1), NONCE & ((1u << 2 * rate) - 1));
    else
        assert_int_equal(chart_qs_nonce(is), 0);
    if (ip[0] >> 4 == 4)
        assert_int_equal(checksum(ip, (ip[0] & 0xfu) * 4), 0);
    memcpy(out.frame + out.option, was, CHART_QS_OCTETS);
    if (ip[0] >> 4 == 4)
        memcpy(out.frame + ETHERNET_BYTES + 10, packet->frame + ETHERNET_BYTES + 10, 2);
    assert_memory_equal(out.frame, packet->frame, packet->size);
}

/* At every place that it may have in the header, also where no word begins. */
static void approved_as_asked(void **state) {
    (void)state;
    for (uint32_t nops = 0; nops <= 16; nops++) {
        set_up();
        struct packet packet = ipv4(10, nops, 24), six = ipv6(9);
        assert_answered(&packet, 10);
        assert_answered(&six, 9);
    }
    assert_int_equal(counters().quick_start_requests, 2);
    assert_int_equal(counters().quick_start_lowered + counters().quick_start_refused, 0);
}

/* The host that asks is no hop of its own packet. */
static void its_own_host_decrements_nothing(void **state) {
    struct packet packet = ipv4(10, 0, 8);
    (void)state;
    set_up();
    packet.forwarded = false;
    assert_answered(&packet, 10);
}

/* A fair rate of 50 Mb/s is 40.96; a grant of 3 Mb/s is 2.56, and needs no spare rate. */
static void lowered(void **state) {
    struct packet packet = ipv4(15, 0, 8), granted = ipv4(15, 0, 8), six = ipv6(15);
    (void)state;
    set_up();
    assert_answered(&packet, 10);
    assert_answered(&six, 10);
    granted.frame[granted.size - 20 + 2] = 444 >> 8;
    granted.frame[granted.size - 20 + 3] = 444 & 0xff;
    assert_answered(&granted, 6);
    assert_int_equal(counters().quick_start_lowered, 3);
}

/* Of a hundred at once the link approves what is spare; those after it are refused, reports pass. */
static void no_more_than_is_spare(void **state) {
    uint64_t approved_bps = 0;
    struct packet packet = ipv4(9, 0, 8), report = ipv4(9, 0, 8);
    (void)state;
    set_up();
    for (int i = 0; i < 100; i++) {
        struct packet out = run(&packet);
        approved_bps += chart_qs_bps(chart_qs_rate(out.frame + out.option));
    }
    assert_true(approved_bps <= 90 * MBPS);
    assert_true(approved_bps > 89 * MBPS);
    assert_answered(&packet, 0);
    report.frame[report.option + 2] = CHART_QS_REPORT << 4 | 9;
    seal(&report);
    assert_unchanged(&report);
    assert_int_equal(counters().quick_start_requests, 101);
    assert_true(counters().quick_start_refused > 90);
}

static void refused(void **state) {
    struct packet packet = ipv4(9, 0, 8), six = ipv6(9);
    (void)state;
    set_up();
    advise(50 * MBPS, 90 * MBPS, -1);
    assert_answered(&packet, 0);
    advise(50 * MBPS, 0, 60000);
    assert_answered(&six, 0);
    advise(0, 90 * MBPS, 60000);
    assert_answered(&packet, 0);
    assert_int_equal(counters().quick_start_refused, 3);
}

static void no_answers_no_change(void **state) {
    struct packet packet = ipv4(9, 0, 8), six = ipv6(9);
    struct chart_link_advice scone_only = {.scone = 1, .fair_bps = 50 * MBPS, .fair_expires_ns = in_ms(60000)};
    struct chart_node_config observing = {.node = NODE, .enforce = 0, .generation = 1000000};
    uint32_t zero = 0, ifindex = LOOPBACK;
    (void)state;
    set_up();
    put(skeleton->maps.link_advice, &ifindex, &scone_only);
    assert_unchanged(&packet);
    assert_unchanged(&six);
    set_up();
    skeleton->bss->advising_links = 0;
    assert_unchanged(&packet);
    set_up();
    put(skeleton->maps.node_config, &zero, &observing);
    assert_unchanged(&packet);
    assert_unchanged(&six);
    assert_int_equal(counters().quick_start_requests, 0);
}

/* Options that cannot be read, cut off or of another kind, later fragments, no options at all. */
static void other_packets_are_left_alone(void **state) {
    struct packet odd = ipv4(9, 0, 8), ended = ipv4(9, 4, 12), cut = ipv4(9, 0, 8), nothing = ipv4(9, 0, 8);
    struct packet zero = ipv4(9, 4, 12), fragment = ipv4(9, 0, 8), wanted = ipv4(0, 0, 8), six = ipv6(9);
    struct packet far = ipv6(9), endless = ipv6(9);
    (void)state;
    set_up();
    odd.frame[odd.option + 1] = 6;
    ended.frame[ended.options] = 0;
    cut.frame[ETHERNET_BYTES] = 0x46;
    nothing.frame[ETHERNET_BYTES] = 0x45;
    zero.frame[zero.options] = 0x44;
    zero.frame[zero.options + 1] = 0;
    fragment.frame[ETHERNET_BYTES + 7] = 1;
    six.frame[six.option] = 0x06;
    far.frame[far.options + 1] = 200;
    endless.frame[ETHERNET_BYTES + 41] = 255;
    memset(endless.frame + endless.options, 0, 34);
    struct packet *packets[] = {&odd, &ended, &cut, &nothing, &zero, &fragment, &wanted, &six, &far, &endless};
    for (size_t i = 0; i < sizeof(packets) / sizeof(packets[0]); i++)
        assert_unchanged(packets[i]);
    assert_int_equal(counters().quick_start_requests, 0);
}

/* Any octets as options: whatever they are, only the option of a request and the checksum change. */
static void any_octets(void **state) {
    uint32_t seed = 7;
    (void)state;
    set_up();
    for (int i = 0; i < 20000; i++) {
        struct packet packet = ipv4(9, 0, OPTIONS_MAX);
        for (uint32_t at = 0; at < OPTIONS_MAX; at++) {
            seed = seed * 1664525u + 1013904223u;
            /* Small numbers are kinds and lengths that lead somewhere. */
            packet.frame[packet.options + at] = seed >> 31 ? (uint8_t)(seed >> 16) % 27 : (uint8_t)(seed >> 8);
        }
        seal(&packet);
        struct packet out = run(&packet);
        uint32_t differ = 0;
        for (uint32_t at = 0; at < packet.size; at++)
            differ += out.frame[at] != packet.frame[at];
        assert_true(differ <= CHART_QS_OCTETS - 2 + 2);
        assert_int_equal(checksum(out.frame + ETHERNET_BYTES, 60), 0);
    }
}

/* Of a process of this node; each call is another connection. `flags`: TCP's; `data`: octets behind its header. */
static struct packet own(const char *destination, uint16_t port, uint8_t flags, uint32_t data) {
    static uint16_t source_port = 40000;
    struct packet packet = {.options = ETHERNET_BYTES + 20, .option = ETHERNET_BYTES + 20};
    uint8_t *ip = packet.frame + ETHERNET_BYTES, *tcp = ip + 20;
    packet.size = ETHERNET_BYTES + 20 + 20 + data;
    packet.frame[12] = 0x08;
    ip[0] = 0x45;
    ip[3] = (uint8_t)(40 + data);
    ip[8] = 64;
    ip[9] = IPPROTO_TCP;
    inet_pton(AF_INET, "10.1.1.1", ip + 12);
    inet_pton(AF_INET, destination, ip + 16);
    source_port++;
    tcp[0] = (uint8_t)(source_port >> 8);
    tcp[1] = (uint8_t)source_port;
    tcp[2] = (uint8_t)(port >> 8);
    tcp[3] = (uint8_t)port;
    tcp[12] = 0x50;
    tcp[13] = flags;
    seal(&packet);
    return packet;
}

static struct qs_flow_key key_of(const struct packet *packet) {
    const uint8_t *ip = packet->frame + ETHERNET_BYTES;
    struct qs_flow_key key = {.source_port = (uint16_t)(ip[20] << 8 | ip[21]),
                              .destination_port = (uint16_t)(ip[22] << 8 | ip[23])};
    key.source[2] = key.destination[2] = htonl(0xffff);
    memcpy(&key.source[3], ip + 12, 4);
    memcpy(&key.destination[3], ip + 16, 4);
    return key;
}

/* An option of eight octets was put behind the header, and nothing else differs but what has to. */
static struct packet assert_inserted(const struct packet *packet) {
    struct packet out = run_to(packet, packet->size + CHART_QS_OCTETS), rest = out;
    const uint8_t *ip = out.frame + ETHERNET_BYTES;
    assert_int_equal(ip[0], 0x47);
    assert_int_equal(ip[3], packet->frame[ETHERNET_BYTES + 3] + CHART_QS_OCTETS);
    assert_int_equal(checksum(ip, 28), 0);
    memmove(rest.frame + out.option, rest.frame + out.option + CHART_QS_OCTETS, packet->size - out.option);
    rest.frame[ETHERNET_BYTES] = 0x45;
    rest.frame[ETHERNET_BYTES + 3] = packet->frame[ETHERNET_BYTES + 3];
    memcpy(rest.frame + ETHERNET_BYTES + 10, packet->frame + ETHERNET_BYTES + 10, 2);
    assert_memory_equal(rest.frame, packet->frame, packet->size);
    return out;
}

#define SYN 0x02
#define ACK 0x10

/* The node's own link answers at once: 50 Mb/s are 40.96. */
static void a_syn_asks(void **state) {
    struct packet packet = own("192.0.2.7", 80, SYN, 0);
    struct qs_flow_key key = key_of(&packet);
    struct qs_flow flow;
    (void)state;
    set_up_host(11);
    struct packet out = assert_inserted(&packet);
    const uint8_t *option = out.frame + out.option;
    assert_int_equal(chart_qs_kind(option, 0), CHART_QS_REQUEST);
    assert_int_equal(chart_qs_rate(option), 10);
    assert_int_equal(bpf_map_lookup_elem(bpf_map__fd(skeleton->maps.qs_flows), &key, &flow), 0);
    assert_int_equal(flow.state, QS_ASKED);
    assert_int_equal(flow.asked, 11);
    assert_int_equal((uint8_t)(64 - option[3]), flow.ttl_difference);
    assert_int_equal((chart_qs_nonce(option) ^ flow.nonce) & ((1u << 20) - 1), 0);
}

/* Something on the way may drop it: then without, also to the same address later. */
static void a_repeated_syn_does_not_ask(void **state) {
    struct packet packet = own("192.0.2.8", 80, SYN, 0), later = own("192.0.2.8", 80, SYN, 0);
    struct packet elsewhere = own("192.0.2.9", 80, SYN, 0);
    (void)state;
    set_up_host(11);
    assert_inserted(&packet);
    assert_unchanged(&packet);
    assert_unchanged(&packet);
    assert_unchanged(&later);
    assert_inserted(&elsewhere);
}

static void reported_with_the_first_acknowledgement(void **state) {
    struct packet packet = own("192.0.2.10", 80, ACK, 0), data = packet;
    struct qs_flow_key key = key_of(&packet);
    struct qs_flow flow = {.nonce = NONCE & 0x3fffffff, .state = QS_ANSWERED, .asked = 11, .approved = 9};
    (void)state;
    set_up_host(11);
    assert_unchanged(&packet);
    put(skeleton->maps.qs_flows, &key, &flow);
    data.size += 10;
    assert_unchanged(&data);
    struct packet out = assert_inserted(&packet);
    assert_int_equal(out.frame[out.option + 2], CHART_QS_REPORT << 4 | 9);
    assert_int_equal(chart_qs_nonce(out.frame + out.option), flow.nonce);
    assert_unchanged(&packet);
    assert_int_equal(counters().quick_start_requests, 0);
}

static void who_does_not_ask(void **state) {
    struct packet granted = own("192.0.2.11", 444, SYN, 0), answer = own("192.0.2.11", 80, SYN | ACK, 0);
    struct packet forwarded = own("192.0.2.11", 80, SYN, 0), data = own("192.0.2.11", 80, ACK, 20), off = forwarded;
    struct packet options = ipv4(0, 0, 8), udp = own("192.0.2.11", 80, SYN, 0), six = ipv6(0);
    (void)state;
    forwarded.forwarded = true;
    options.forwarded = six.forwarded = false;
    options.frame[options.size - 20 + 12] = 0x50;
    options.frame[options.size - 20 + 13] = SYN;
    udp.frame[ETHERNET_BYTES + 9] = IPPROTO_UDP;
    set_up_host(11);
    struct packet *packets[] = {&granted, &answer, &forwarded, &data, &options, &udp, &six};
    for (size_t i = 0; i < sizeof(packets) / sizeof(packets[0]); i++)
        assert_unchanged(packets[i]);
    set_up_host(0);
    assert_unchanged(&off);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(approved_as_asked), cmocka_unit_test(its_own_host_decrements_nothing),
        cmocka_unit_test(lowered),           cmocka_unit_test(no_more_than_is_spare),
        cmocka_unit_test(refused),           cmocka_unit_test(no_answers_no_change),
        cmocka_unit_test(any_octets),        cmocka_unit_test(other_packets_are_left_alone),
        cmocka_unit_test(a_syn_asks),        cmocka_unit_test(a_repeated_syn_does_not_ask),
        cmocka_unit_test(who_does_not_ask),  cmocka_unit_test(reported_with_the_first_acknowledgement),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
