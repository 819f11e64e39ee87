/* Running the overlay's program in the kernel: a table, packets, and what came of them. Needs root. */
#pragma once

// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "maps.h"
#include "overlay.skel.h"
#include "overlay_maps.h"
#include "qos_types.h"

#define LOOPBACK 1
#define DEVICE 77
#define MTU 1450
#define ETHERNET 14
#define NEXT (-1)
#define REDIRECT 7
#define OWNER 5
#define ALLOWED 3
#define TTL 64
#define PORT 18480
#define SENSOR_PORT 18300
#define OUTER 50
#define INNER (ETHERNET + OUTER)
#define ROOM 2048

static struct chart_overlay *skeleton;
static uint8_t packet[ROOM];
static size_t length;

static inline void put(struct bpf_map *map, const void *key, const void *value) {
    assert_int_equal(bpf_map_update_elem(bpf_map__fd(map), key, value, BPF_ANY), 0);
}

static inline void map_ipv4(uint32_t ret[4], const char *text) {
    uint8_t mapped[16] = {[10] = 0xff, [11] = 0xff};
    assert_int_equal(inet_pton(AF_INET, text, mapped + 12), 1);
    memcpy(ret, mapped, sizeof(mapped));
}

static inline struct chart_overlay_liveness liveness_of(uint32_t neighbour) {
    struct chart_overlay_liveness liveness;
    assert_int_equal(bpf_map_lookup_elem(bpf_map__fd(skeleton->maps.overlay_liveness), &neighbour, &liveness), 0);
    return liveness;
}

static inline struct chart_overlay_counters counters(void) {
    struct chart_overlay_counters counted;
    uint32_t zero = 0;
    assert_int_equal(bpf_map_lookup_elem(bpf_map__fd(skeleton->maps.overlay_counters), &zero, &counted), 0);
    return counted;
}

/* A neighbour with so many probes unanswered. */
static inline void set_neighbour(uint32_t number, const char *remote, uint64_t unanswered) {
    struct chart_overlay_neighbour neighbour = {
        .family = AF_INET, .direct = 1, .used = 1, .ifindex = LOOPBACK, .mtu = 1500};
    struct chart_overlay_liveness liveness = {
        .sent = 100, .answered = 100 - unanswered, .allowed = ALLOWED, .usable = 1};
    struct chart_overlay_remote key;
    map_ipv4(neighbour.remote, remote);
    map_ipv4(neighbour.local, "10.1.1.1");
    put(skeleton->maps.overlay_neighbours, &number, &neighbour);
    put(skeleton->maps.overlay_liveness, &number, &liveness);
    memcpy(key.address, neighbour.remote, sizeof(key.address));
    put(skeleton->maps.overlay_remotes, &key, &number);
}

static inline void own(const char *address, uint32_t bits, uint32_t owner) {
    struct chart_overlay_prefix prefix = {.bits = bits + 96};
    map_ipv4(prefix.address, address);
    put(skeleton->maps.overlay_owners, &prefix, &owner);
}

/* 10.3.0.0/16 is owner 5's, by neighbours 1, then 2; 10.2.0.0/16 is this node's. */
static inline int set_up(void **state) {
    struct chart_overlay_config config = {.ifindex = DEVICE, .mtu = MTU, .port = PORT, .sensor_port = SENSOR_PORT};
    struct chart_overlay_path_key key = {.owner = OWNER};
    struct chart_overlay_path path = {.hops = {1, 2}};
    struct chart_overlay_counters none = {0};
    uint32_t zero = 0, ifindex = LOOPBACK, header_bytes = ETHERNET, owner = OWNER;
    struct chart_overlay_prefix ipv6 = {.bits = 32};
    (void)state;
    set_neighbour(1, "10.1.1.2", 0);
    set_neighbour(2, "10.1.2.2", 0);
    own("10.3.0.0", 16, OWNER);
    own("10.2.0.0", 16, CHART_OVERLAY_SELF);
    inet_pton(AF_INET6, "2001:db8::", ipv6.address);
    put(skeleton->maps.overlay_owners, &ipv6, &owner);
    put(skeleton->maps.overlay_paths, &key, &path);
    put(skeleton->maps.overlay_interfaces, &ifindex, &header_bytes);
    put(skeleton->maps.overlay_counters, &zero, &none);
    put(skeleton->maps.overlay_config, &zero, &config);
    for (uint32_t class = 0; class < CHART_OVERLAY_CLASSES; class ++) {
        struct chart_overlay_choice_key choice = {.owner = OWNER, .class = class};
        bpf_map_delete_elem(bpf_map__fd(skeleton->maps.overlay_choices), &choice);
    }
    return 0;
}

static inline uint32_t sum_of(const uint8_t *octets, size_t n, uint32_t sum) {
    for (size_t i = 0; i + 1 < n; i += 2)
        sum += (uint32_t)(octets[i] << 8 | octets[i + 1]);
    if (n & 1)
        sum += (uint32_t)octets[n - 1] << 8;
    return sum;
}

static inline uint16_t fold(uint32_t sum) {
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

static inline void put_u16(size_t at, uint16_t value) {
    packet[at] = (uint8_t)(value >> 8);
    packet[at + 1] = (uint8_t)value;
}

static inline uint16_t get_u16(size_t at) {
    return (uint16_t)(packet[at] << 8 | packet[at + 1]);
}

/* An IPv4 packet of so many octets of IP from 10.2.0.1, with room for its transport's header. */
static inline void ipv4(const char *destination, uint8_t protocol, size_t bytes, bool dont_fragment) {
    memset(packet, 0, sizeof(packet));
    length = ETHERNET + bytes;
    memset(packet, 0xaa, 6);
    memset(packet + 6, 0xbb, 6);
    packet[12] = 0x08;
    packet[14] = 0x45;
    put_u16(16, (uint16_t)bytes);
    packet[20] = dont_fragment ? 0x40 : 0;
    packet[22] = TTL;
    packet[23] = protocol;
    inet_pton(AF_INET, "10.2.0.1", packet + 26);
    inet_pton(AF_INET, destination, packet + 30);
    put_u16(24, fold(sum_of(packet + ETHERNET, 20, 0)));
}

/* Checksum over the pseudo header and everything behind a header of 20 octets; 0 when it is right. */
static inline uint16_t transport_sum(void) {
    size_t bytes = length - ETHERNET - 20;
    uint32_t sum = sum_of(packet + 26, 8, 0) + packet[23] + (uint32_t)bytes;
    return fold(sum_of(packet + 34, bytes, sum));
}

static inline int run(struct bpf_program *program) {
    struct __sk_buff context = {.ifindex = LOOPBACK};
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = packet, .data_size_in = (uint32_t)length, .data_out = packet,
                .data_size_out = sizeof(packet), .ctx_in = &context, .ctx_size_in = sizeof(context), .repeat = 1);
    assert_int_equal(bpf_prog_test_run_opts(bpf_program__fd(program), &options), 0);
    length = options.data_size_out;
    return (int)options.retval;
}

static inline int enter(void) {
    return run(skeleton->progs.overlay_enter);
}

/* The packet as a neighbour sends it: with outer headers in front. */
static inline void wrap(const char *from, uint16_t port) {
    size_t bytes = length - ETHERNET + OUTER;
    memmove(packet + INNER, packet + ETHERNET, length - ETHERNET);
    memset(packet + ETHERNET, 0, OUTER);
    packet[14] = 0x45;
    put_u16(16, (uint16_t)bytes);
    packet[22] = 1;
    packet[23] = IPPROTO_UDP;
    inet_pton(AF_INET, from, packet + 26);
    inet_pton(AF_INET, "10.1.1.1", packet + 30);
    put_u16(24, fold(sum_of(packet + ETHERNET, 20, 0)));
    put_u16(34, 50000);
    put_u16(36, port);
    put_u16(38, (uint16_t)(bytes - 20));
    packet[42] = 0x08;
    put_u16(62, 0x0800);
    length += OUTER;
}
