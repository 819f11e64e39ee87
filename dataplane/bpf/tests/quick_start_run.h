/* Packets with Quick-Start's options through the classifier in the kernel (BPF_PROG_TEST_RUN). Needs root. */
#pragma once

#include <arpa/inet.h>
#include <linux/bpf.h>
#include <string.h>

#include "classifier.h"
#include "lib/advice/quick_start_host.h"

#define NODE 42
#define ETHERNET_BYTES 14
#define FRAME_MAX 400
#define OPTIONS_MAX 40
#define MBPS 1000000ull
#define NONCE 0x2fedcba9u

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
                                       .begin_bps = spare_bps,
                                       .spare_expires_ns = in_ms(lease_ms)};
    uint32_t ifindex = LOOPBACK;
    put(skeleton->maps.link_advice, &ifindex, &advice);
}

/* A link with a fair rate of 50 Mb/s and a spare rate of 90, and a grant of 3 Mb/s for TCP to port 444. */
static void set_up_host(uint32_t quick_start_rate) {
    struct chart_node_config config = {.node = NODE, .enforce = 1, .quick_start_rate = quick_start_rate};
    uint32_t ifindex = LOOPBACK;
    put_grant_and_link(config, IPPROTO_TCP);
    bpf_map_delete_elem(bpf_map__fd(skeleton->maps.qs_links), &ifindex);
    advise(50 * MBPS, 90 * MBPS, 60000);
}

static __attribute__((unused)) void set_up(void) {
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

static __attribute__((unused)) void write_option(uint8_t *option, bool ipv6, uint32_t rate) {
    option[0] = ipv6 ? CHART_QS_IPV6 : CHART_QS_IPV4;
    option[1] = ipv6 ? CHART_QS_IPV6_LENGTH : CHART_QS_IPV4_LENGTH;
    option[2] = (uint8_t)rate;
    option[3] = 200;
    option[7] = 1;
    chart_qs_put_nonce(option, NONCE);
}

/* A SYN with so many NOPs in front of the option; `options`: octets of all options. */
static __attribute__((unused)) struct packet ipv4(uint32_t rate, uint32_t nops, uint32_t options) {
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
static __attribute__((unused)) struct packet ipv6(uint32_t rate) {
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

static __attribute__((unused)) struct packet run(const struct packet *packet) {
    return run_to(packet, packet->size);
}

static __attribute__((unused)) void assert_unchanged(const struct packet *packet) {
    struct packet out = run(packet);
    assert_memory_equal(out.frame, packet->frame, packet->size);
}
