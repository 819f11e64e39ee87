/* SCONE packets through the classifier, once each in the kernel (BPF_PROG_TEST_RUN): what is lowered, to what, how
 * often, and the UDP checksum against one computed anew over the whole datagram. Needs root. */
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
#include "lib/advice/scone.h"

#define NODE 42
#define ETHERNET_BYTES 14
#define DATA_BYTES 65 /* odd: the checksum pads it */
#define FRAME_MAX 200
#define MBPS 1000000ull

struct packet {
    uint8_t frame[FRAME_MAX];
    uint32_t size, ip, udp;
};

/* A link that gives advice of 10 Mb/s, and a grant of 3 Mb/s for UDP to port 444. */
static void set_up(void) {
    struct chart_node_config config = {.node = NODE, .enforce = 1};
    struct chart_link_advice advice = {.scone = 1, .fair_bps = 10 * MBPS, .fair_expires_ns = in_ms(60000)};
    uint32_t ifindex = LOOPBACK;
    put_grant_and_link(config, IPPROTO_UDP);
    put(skeleton->maps.link_advice, &ifindex, &advice);
}

static void advise(uint64_t fair_bps, int64_t lease_ms) {
    struct chart_link_advice advice = {.scone = 1, .fair_bps = fair_bps, .fair_expires_ns = in_ms(lease_ms)};
    uint32_t ifindex = LOOPBACK;
    put(skeleton->maps.link_advice, &ifindex, &advice);
}

static uint32_t sum_words(uint32_t sum, const uint8_t *data, uint32_t size) {
    for (uint32_t i = 0; i < size; i++)
        sum += i % 2 ? data[i] : (uint32_t)data[i] << 8;
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

/* The checksum that UDP has to have (RFC 768): all of it but the field itself, and the pseudo-header. */
static uint16_t checksum(const struct packet *packet) {
    bool ipv6 = packet->frame[packet->ip] >> 4 == 6;
    const uint8_t *addresses = packet->frame + packet->ip + (ipv6 ? 8 : 12);
    uint8_t udp[FRAME_MAX];
    uint32_t size = packet->size - packet->udp, sum = IPPROTO_UDP + size;
    memcpy(udp, packet->frame + packet->udp, size);
    udp[6] = udp[7] = 0;
    sum = sum_words(sum_words(sum, addresses, ipv6 ? 32 : 8), udp, size);
    return sum == 0xffff ? 0xffff : (uint16_t)~sum;
}

static uint16_t carried(const struct packet *packet) {
    return (uint16_t)(packet->frame[packet->udp + 6] << 8 | packet->frame[packet->udp + 7]);
}

static uint8_t *data(struct packet *packet) {
    return packet->frame + packet->udp + 8;
}

static void seal(struct packet *packet) {
    uint16_t sum = checksum(packet);
    packet->frame[packet->udp + 6] = (uint8_t)(sum >> 8);
    packet->frame[packet->udp + 7] = (uint8_t)sum;
}

static void make_udp(struct packet *packet, uint16_t source_port, uint16_t port, uint32_t signal) {
    static const uint8_t connection[] = {8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0x41, 0x99};
    uint8_t *udp = packet->frame + packet->udp;
    packet->size = packet->udp + 8 + DATA_BYTES;
    udp[0] = (uint8_t)(source_port >> 8);
    udp[1] = (uint8_t)source_port;
    udp[2] = (uint8_t)(port >> 8);
    udp[3] = (uint8_t)port;
    udp[5] = 8 + DATA_BYTES;
    memcpy(data(packet), (const uint8_t[]){0xc0, 0x6f, 0x7d, 0xc0, 0xfd}, 5);
    chart_scone_write(data(packet), signal);
    memcpy(data(packet) + 5, connection, sizeof(connection));
    seal(packet);
}

/* Each call is another flow: what flows were told is kept. */
static struct packet ipv4(uint16_t port, uint32_t signal, uint32_t option_bytes) {
    static uint16_t source_port = 20000;
    struct packet packet = {.ip = ETHERNET_BYTES, .udp = ETHERNET_BYTES + 20 + option_bytes};
    uint8_t *ip = packet.frame + packet.ip;
    packet.frame[12] = 0x08;
    ip[0] = (uint8_t)(0x40 | (20 + option_bytes) / 4);
    ip[3] = (uint8_t)(20 + option_bytes + 8 + DATA_BYTES);
    ip[8] = 64;
    ip[9] = IPPROTO_UDP;
    inet_pton(AF_INET, "10.1.1.1", ip + 12);
    inet_pton(AF_INET, "192.0.2.1", ip + 16);
    memset(ip + 20, 1, option_bytes);
    make_udp(&packet, ++source_port, port, signal);
    return packet;
}

static struct packet ipv6(uint16_t port, uint32_t signal) {
    static uint16_t source_port = 30000;
    struct packet packet = {.ip = ETHERNET_BYTES, .udp = ETHERNET_BYTES + 40};
    uint8_t *ip = packet.frame + packet.ip;
    packet.frame[12] = 0x86;
    packet.frame[13] = 0xdd;
    ip[0] = 0x60;
    ip[5] = 8 + DATA_BYTES;
    ip[6] = IPPROTO_UDP;
    ip[7] = 64;
    inet_pton(AF_INET6, "2001:db8::1", ip + 8);
    inet_pton(AF_INET6, "2001:db8::2", ip + 24);
    make_udp(&packet, ++source_port, port, signal);
    return packet;
}

static struct packet run(const struct packet *packet) {
    struct packet out = *packet;
    struct __sk_buff context = {.ifindex = LOOPBACK};
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = packet->frame, .data_size_in = packet->size,
                .data_out = out.frame, .data_size_out = sizeof(out.frame), .ctx_in = &context,
                .ctx_size_in = sizeof(context), .repeat = 1);
    assert_int_equal(bpf_prog_test_run_opts(bpf_program__fd(skeleton->progs.classify), &options), 0);
    assert_int_equal(options.data_size_out, packet->size);
    return out;
}

static void assert_unchanged(const struct packet *packet) {
    struct packet out = run(packet);
    assert_memory_equal(out.frame, packet->frame, packet->size);
}

/* Its signal, and nothing but signal and checksum differs. */
static void assert_lowered(const struct packet *packet, uint32_t signal) {
    struct packet out = run(packet);
    assert_int_equal(chart_scone_signal(data(&out)), signal);
    assert_int_equal(carried(&out), checksum(&out));
    memcpy(data(&out), data((struct packet *)packet), 2);
    memcpy(out.frame + out.udp + 6, packet->frame + packet->udp + 6, 2);
    assert_memory_equal(out.frame, packet->frame, packet->size);
}

/* 10 Mb/s are signal 40; both versions, IPv4 with and without options, IPv6. */
static void lowered_to_the_fair_rate(void **state) {
    (void)state;
    set_up();
    for (uint32_t signal = 41; signal <= CHART_SCONE_UNKNOWN; signal++) {
        struct packet plain = ipv4(443, signal, 0), options = ipv4(443, signal, 8), six = ipv6(443, signal);
        assert_lowered(&plain, 40);
        assert_lowered(&options, 40);
        assert_lowered(&six, 40);
    }
    struct chart_link link = counters();
    assert_int_equal(link.scone_packets, 3 * 87);
    assert_int_equal(link.scone_lowered, 3 * 87);
}

static void never_raised(void **state) {
    (void)state;
    set_up();
    for (uint32_t signal = 0; signal <= 40; signal++) {
        struct packet packet = ipv4(443, signal, 0), six = ipv6(443, signal);
        assert_unchanged(&packet);
        assert_unchanged(&six);
    }
    assert_int_equal(counters().scone_packets, 2 * 41);
    assert_int_equal(counters().scone_lowered, 0);
}

/* 3 Mb/s: signal 29 (2.82 Mb/s). */
static void rate_of_a_grant(void **state) {
    struct packet packet = ipv4(444, CHART_SCONE_UNKNOWN, 0);
    (void)state;
    set_up();
    assert_lowered(&packet, 29);
}

static void checksums_at_their_ends(void **state) {
    uint8_t *word;
    (void)state;
    set_up();
    /* None in IPv4: none after. */
    struct packet none = ipv4(443, CHART_SCONE_UNKNOWN, 0);
    none.frame[none.udp + 6] = none.frame[none.udp + 7] = 0;
    struct packet out = run(&none);
    assert_int_equal(chart_scone_signal(data(&out)), 40);
    assert_int_equal(carried(&out), 0);
    /* Where the sum becomes 0 it is carried as 0xffff. */
    struct packet packet = ipv4(443, CHART_SCONE_UNKNOWN, 0);
    word = data(&packet) + 20;
    bool met = false;
    for (uint32_t value = 0; value <= 0xffff; value++) {
        struct packet lowered = packet;
        word[0] = (uint8_t)(value >> 8);
        word[1] = (uint8_t)value;
        seal(&packet);
        memcpy(lowered.frame, packet.frame, packet.size);
        chart_scone_write(data(&lowered), 40);
        if (checksum(&lowered) != 0xffff)
            continue;
        met = true;
        assert_lowered(&packet, 40);
    }
    assert_true(met);
}

static void no_advice_no_change(void **state) {
    struct packet packet = ipv4(443, CHART_SCONE_UNKNOWN, 0);
    struct chart_node_config observing = {.node = NODE, .enforce = 0, .generation = 1000000};
    uint32_t zero = 0, ifindex = LOOPBACK;
    (void)state;
    set_up();
    advise(10 * MBPS, -1);
    assert_unchanged(&packet);
    advise(0, 60000);
    assert_unchanged(&packet);
    assert_int_equal(counters().scone_packets, 2);
    set_up();
    assert_int_equal(bpf_map_delete_elem(bpf_map__fd(skeleton->maps.link_advice), &ifindex), 0);
    assert_unchanged(&packet);
    assert_int_equal(counters().scone_packets, 0);
    set_up();
    skeleton->bss->advising_links = 0;
    assert_unchanged(&packet);
    set_up();
    put(skeleton->maps.node_config, &zero, &observing);
    assert_unchanged(&packet);
    assert_int_equal(counters().scone_packets, 0);
}

static void other_packets_are_left_alone(void **state) {
    struct packet tcp = ipv4(443, CHART_SCONE_UNKNOWN, 0), version = ipv4(443, CHART_SCONE_UNKNOWN, 0);
    struct packet header = version, fragment = version, truncated = version;
    (void)state;
    set_up();
    tcp.frame[tcp.ip + 9] = IPPROTO_TCP;
    version.frame[version.udp + 8 + 4] = 1;
    header.frame[header.udp + 8] &= 0x7f;
    fragment.frame[fragment.ip + 7] = 1;
    truncated.size = truncated.udp + 8 + 4;
    assert_unchanged(&tcp);
    assert_unchanged(&version);
    assert_unchanged(&header);
    assert_unchanged(&fragment);
    assert_unchanged(&truncated);
    assert_int_equal(counters().scone_packets, 0);
}

/* A flow that carries the bytes in every datagram is changed a few times, and at once when the advice changes. */
static void few_packets_of_a_flow(void **state) {
    struct packet packet = ipv4(443, CHART_SCONE_UNKNOWN, 0), other = ipv4(443, CHART_SCONE_UNKNOWN, 0);
    (void)state;
    set_up();
    for (int i = 0; i < 100; i++)
        run(&packet);
    assert_int_equal(counters().scone_packets, 100);
    assert_int_equal(counters().scone_lowered, CHART_SCONE_UPDATES);
    assert_lowered(&other, 40);
    advise(5 * MBPS, 60000);
    assert_lowered(&packet, 33);
    assert_unchanged(&packet);
}

/* Packets of a flow that pass one after the other, up to so many. */
static uint32_t passing(const struct packet *packet, uint32_t most) {
    struct __sk_buff context = {.ifindex = LOOPBACK};
    uint8_t out[FRAME_MAX];
    for (uint32_t passed = 0; passed < most; passed++) {
        LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = packet->frame, .data_size_in = packet->size, .data_out = out,
                    .data_size_out = sizeof(out), .ctx_in = &context, .ctx_size_in = sizeof(context), .repeat = 1);
        assert_int_equal(bpf_prog_test_run_opts(bpf_program__fd(skeleton->progs.classify), &options), 0);
        if (options.retval == 2)
            return passed;
    }
    return most;
}

/* What 100 kb/s are in a monitoring period passes at once, in any order, and little more. */
static void who_exceeds_its_advice_is_policed(void **state) {
    struct packet packet = ipv4(443, CHART_SCONE_UNKNOWN, 0), other = ipv4(443, CHART_SCONE_UNKNOWN, 0), data = packet;
    struct chart_link_advice advice = {
        .scone = 1, .scone_police = 1, .fair_bps = MBPS / 10, .fair_expires_ns = in_ms(60000)};
    uint32_t ifindex = LOOPBACK, most = (uint32_t)(MBPS / 10 / 8 * 67 / (packet.size - packet.ip));
    (void)state;
    set_up();
    put(skeleton->maps.link_advice, &ifindex, &advice);
    skeleton->bss->policing_links = 1;
    *(data.frame + data.udp + 8) = 0x41;
    seal(&data);
    /* Nobody told it anything yet. */
    assert_int_equal(passing(&data, 2 * most), 2 * most);
    assert_lowered(&packet, 0);
    assert_in_range(passing(&data, 2 * most), most - 2, most + most / 10);
    assert_true(counters().scone_policed >= 1);
    assert_lowered(&other, 0);
    skeleton->bss->policing_links = 0;
    assert_int_equal(passing(&data, 100), 100);
    skeleton->bss->policing_links = 1;
    advice.scone_police = 0;
    put(skeleton->maps.link_advice, &ifindex, &advice);
    assert_int_equal(passing(&data, 100), 100);
    skeleton->bss->policing_links = 0;
}

/* Flows from or to the link's prefixes, when it has any. */
static void only_its_prefixes_are_served(void **state) {
    struct packet packet = ipv4(443, CHART_SCONE_UNKNOWN, 0), six = ipv6(443, CHART_SCONE_UNKNOWN);
    struct chart_link_advice advice = {
        .scone = 1, .prefixes = 1, .fair_bps = 10 * MBPS, .fair_expires_ns = in_ms(60000)};
    struct chart_advice_prefix prefix = {.bits = 32 + 64, .ifindex = LOOPBACK};
    uint32_t ifindex = LOOPBACK;
    uint8_t known = 1;
    (void)state;
    set_up();
    put(skeleton->maps.link_advice, &ifindex, &advice);
    inet_pton(AF_INET6, "2001:db8::", prefix.address);
    put(skeleton->maps.advice_prefixes, &prefix, &known);
    assert_unchanged(&packet);
    assert_lowered(&six, 40);
    bpf_map_delete_elem(bpf_map__fd(skeleton->maps.advice_prefixes), &prefix);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lowered_to_the_fair_rate),
        cmocka_unit_test(never_raised),
        cmocka_unit_test(rate_of_a_grant),
        cmocka_unit_test(checksums_at_their_ends),
        cmocka_unit_test(no_advice_no_change),
        cmocka_unit_test(other_packets_are_left_alone),
        cmocka_unit_test(few_packets_of_a_flow),
        cmocka_unit_test(who_exceeds_its_advice_is_policed),
        cmocka_unit_test(only_its_prefixes_are_served),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
