/* The overlay's program run in the kernel (BPF_PROG_TEST_RUN) where packets enter: which are taken, by which neighbour,
 * and what becomes of them. What comes out of the VXLAN device needs a device and is tested in a lab. Needs root. */
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
/* Numbers of the paths by colours 1 and 2. */
#define NORTH 64
#define SOUTH 65
#define EF (46 << 2)

static struct chart_overlay *skeleton;
static uint8_t packet[ROOM];
static size_t length;

static void put(struct bpf_map *map, const void *key, const void *value) {
    assert_int_equal(bpf_map_update_elem(bpf_map__fd(map), key, value, BPF_ANY), 0);
}

static void map_ipv4(uint32_t ret[4], const char *text) {
    uint8_t mapped[16] = {[10] = 0xff, [11] = 0xff};
    assert_int_equal(inet_pton(AF_INET, text, mapped + 12), 1);
    memcpy(ret, mapped, sizeof(mapped));
}

static struct chart_overlay_liveness liveness_of(uint32_t neighbour) {
    struct chart_overlay_liveness liveness;
    assert_int_equal(bpf_map_lookup_elem(bpf_map__fd(skeleton->maps.overlay_liveness), &neighbour, &liveness), 0);
    return liveness;
}

static struct chart_overlay_counters counters(void) {
    struct chart_overlay_counters counted;
    uint32_t zero = 0;
    assert_int_equal(bpf_map_lookup_elem(bpf_map__fd(skeleton->maps.overlay_counters), &zero, &counted), 0);
    return counted;
}

/* A neighbour with so many probes unanswered. */
static void set_neighbour(uint32_t number, const char *remote, uint64_t unanswered) {
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

static void own(const char *address, uint32_t bits, uint32_t owner) {
    struct chart_overlay_prefix prefix = {.bits = bits + 96};
    map_ipv4(prefix.address, address);
    put(skeleton->maps.overlay_owners, &prefix, &owner);
}

/* 10.3.0.0/16 is owner 5's, by neighbours 1, then 2; 10.2.0.0/16 is this node's. */
static int set_up(void **state) {
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

static void set_path(uint32_t number, uint64_t unanswered) {
    struct chart_overlay_liveness liveness = {
        .sent = 100, .answered = 100 - unanswered, .allowed = ALLOWED, .usable = 1};
    put(skeleton->maps.overlay_liveness, &number, &liveness);
}

/* Colours 1, by neighbour 1, and 2, by neighbour 2, lead to the owner; new flows of data take them in turn. `left`:
 * bits of colours. */
static void choose(uint32_t left) {
    struct chart_overlay_choice_key key = {.owner = OWNER, .class = CHART_OVERLAY_DATA};
    struct chart_overlay_choice choice = {
        .numbers = {[1] = NORTH, [2] = SOUTH}, .order = {1, 2}, .n_order = 2, .left = left};
    for (int i = 0; i < CHART_OVERLAY_SLOTS; i++)
        choice.slots[i] = (uint8_t)(1 + i % 2);
    put(skeleton->maps.overlay_choices, &key, &choice);
    for (uint32_t colour = 1; colour <= 2; colour++) {
        struct chart_overlay_path_key at = {.owner = OWNER, .colour = colour};
        struct chart_overlay_path path = {.hops = {colour, 3 - colour}};
        put(skeleton->maps.overlay_paths, &at, &path);
    }
}

static uint32_t sum_of(const uint8_t *octets, size_t n, uint32_t sum) {
    for (size_t i = 0; i + 1 < n; i += 2)
        sum += (uint32_t)(octets[i] << 8 | octets[i + 1]);
    if (n & 1)
        sum += (uint32_t)octets[n - 1] << 8;
    return sum;
}

static uint16_t fold(uint32_t sum) {
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

static void put_u16(size_t at, uint16_t value) {
    packet[at] = (uint8_t)(value >> 8);
    packet[at + 1] = (uint8_t)value;
}

static uint16_t get_u16(size_t at) {
    return (uint16_t)(packet[at] << 8 | packet[at + 1]);
}

/* An IPv4 packet of so many octets of IP from 10.2.0.1, with room for its transport's header. */
static void ipv4(const char *destination, uint8_t protocol, size_t bytes, bool dont_fragment) {
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
static uint16_t transport_sum(void) {
    size_t bytes = length - ETHERNET - 20;
    uint32_t sum = sum_of(packet + 26, 8, 0) + packet[23] + (uint32_t)bytes;
    return fold(sum_of(packet + 34, bytes, sum));
}

static int run(struct bpf_program *program) {
    struct __sk_buff context = {.ifindex = LOOPBACK};
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = packet, .data_size_in = (uint32_t)length, .data_out = packet,
                .data_size_out = sizeof(packet), .ctx_in = &context, .ctx_size_in = sizeof(context), .repeat = 1);
    assert_int_equal(bpf_prog_test_run_opts(bpf_program__fd(program), &options), 0);
    length = options.data_size_out;
    return (int)options.retval;
}

static int enter(void) {
    return run(skeleton->progs.overlay_enter);
}

static void a_packet_to_an_owner_goes_to_the_first_neighbour(void **state) {
    (void)state;
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(liveness_of(1).forwarded_packets, 1);
    assert_int_equal(liveness_of(1).forwarded_bytes, 100);
    assert_int_equal(packet[22], TTL - 1);
    assert_int_equal(fold(sum_of(packet + ETHERNET, 20, 0)), 0);
    assert_memory_equal(packet,
                        "\x02"
                        "CHAR\x02\x02"
                        "CHAR\x01",
                        12);
    assert_int_equal(counters().entered, 1);
}

static void what_the_node_sends_itself_keeps_its_hops(void **state) {
    (void)state;
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    assert_int_equal(run(skeleton->progs.overlay_originate), REDIRECT);
    assert_int_equal(packet[22], TTL);
}

static void others_packets_take_the_kernels_way(void **state) {
    static const char *const destinations[] = {"10.4.0.1", "10.2.0.9"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        uint8_t before[ROOM];
        ipv4(destinations[i], IPPROTO_UDP, 100, true);
        memcpy(before, packet, sizeof(before));
        assert_int_equal(enter(), NEXT);
        assert_memory_equal(before, packet, length);
    }
    assert_int_equal(counters().entered, 0);
}

static void the_last_hop_is_the_kernels_to_refuse(void **state) {
    (void)state;
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    packet[22] = 1;
    assert_int_equal(enter(), NEXT);
}

static void an_owner_without_next_hop_is_left_to_the_kernel(void **state) {
    (void)state;
    own("10.9.0.0", 16, OWNER + 1);
    ipv4("10.9.0.1", IPPROTO_UDP, 100, true);
    assert_int_equal(enter(), NEXT);
    assert_int_equal(counters().no_path, 1);
}

static void nothing_is_taken_when_it_is_off(void **state) {
    struct chart_overlay_config off = {0};
    uint32_t zero = 0;
    (void)state;
    put(skeleton->maps.overlay_config, &zero, &off);
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    assert_int_equal(enter(), NEXT);
}

static void as_many_unanswered_probes_as_allowed_are_no_failure(void **state) {
    (void)state;
    set_neighbour(1, "10.1.1.2", ALLOWED);
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(liveness_of(1).forwarded_packets, 1);
    assert_int_equal(counters().detours, 0);
}

static void one_more_moves_packets_to_the_next_and_they_stay_there(void **state) {
    (void)state;
    set_neighbour(1, "10.1.1.2", ALLOWED + 1);
    for (int i = 0; i < 2; i++) {
        ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
        assert_int_equal(enter(), REDIRECT);
        /* An answer alone does not bring it back. */
        struct chart_overlay_liveness answered = liveness_of(1);
        uint32_t number = 1;
        answered.answered = answered.sent;
        put(skeleton->maps.overlay_liveness, &number, &answered);
    }
    assert_int_equal(liveness_of(1).usable, 0);
    assert_int_equal(liveness_of(1).forwarded_packets, 0);
    assert_int_equal(liveness_of(2).forwarded_packets, 2);
    assert_int_equal(counters().detours, 2);
}

static void patience_is_kept_however_many_are_unanswered(void **state) {
    struct chart_overlay_liveness patient;
    uint32_t number = 1;
    (void)state;
    set_neighbour(1, "10.1.1.2", ALLOWED + 1);
    patient = liveness_of(1);
    patient.patience_ns = UINT64_MAX;
    put(skeleton->maps.overlay_liveness, &number, &patient);
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(liveness_of(1).forwarded_packets, 1);
}

static void the_first_stays_when_nobody_answers(void **state) {
    (void)state;
    set_neighbour(1, "10.1.1.2", ALLOWED + 1);
    set_neighbour(2, "10.1.2.2", ALLOWED + 9);
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(liveness_of(1).forwarded_packets, 1);
    assert_int_equal(counters().all_stale, 1);
}

/* A SYN whose options begin with so many octets of no operation, then the largest segment. */
static void opening(uint16_t segment, int before) {
    size_t options = 34 + 20;
    ipv4("10.3.7.7", IPPROTO_TCP, 20 + 20 + 12, true);
    packet[34 + 12] = 8 << 4;
    packet[34 + 13] = 2;
    memset(packet + options, 1, 12);
    packet[options + (size_t)before] = 2;
    packet[options + (size_t)before + 1] = 4;
    put_u16(options + (size_t)before + 2, segment);
    put_u16(34 + 16, 0);
    put_u16(34 + 16, transport_sum());
}

static void the_largest_segment_is_lowered_to_what_fits(void **state) {
    (void)state;
    for (int before = 0; before < 4; before++) {
        opening(1460, before);
        assert_int_equal(transport_sum(), 0);
        assert_int_equal(enter(), REDIRECT);
        assert_int_equal(get_u16((size_t)(34 + 20 + before + 2)), MTU - 40);
        assert_int_equal(transport_sum(), 0);
    }
    assert_int_equal(counters().clamped, 4);
    opening(1200, 0);
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(get_u16(34 + 20 + 2), 1200);
    assert_int_equal(counters().clamped, 4);
}

static void a_packet_that_does_not_fit_is_answered(void **state) {
    uint8_t quoted[28];
    (void)state;
    ipv4("10.3.7.7", IPPROTO_UDP, MTU + 1, true);
    put_u16(34, 4711);
    memcpy(quoted, packet + ETHERNET, sizeof(quoted));
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(length, ETHERNET + 20 + 8 + 28);
    assert_int_equal(packet[0], 0xbb);
    assert_int_equal(packet[6], 0xaa);
    assert_int_equal(fold(sum_of(packet + ETHERNET, 20, 0)), 0);
    assert_int_equal(packet[23], IPPROTO_ICMP);
    assert_memory_equal(packet + 30, "\x0a\x02\x00\x01", 4);
    assert_int_equal(packet[34], 3);
    assert_int_equal(packet[35], 4);
    assert_int_equal(get_u16(40), MTU);
    assert_int_equal(fold(sum_of(packet + 34, 8 + 28, 0)), 0);
    assert_memory_equal(packet + 42, quoted, sizeof(quoted));
    assert_int_equal(counters().too_big, 1);
    assert_int_equal(liveness_of(1).forwarded_packets, 0);
    /* As large as allowed, or one that may be fragmented, goes on. */
    ipv4("10.3.7.7", IPPROTO_UDP, MTU, true);
    assert_int_equal(enter(), REDIRECT);
    ipv4("10.3.7.7", IPPROTO_UDP, MTU + 1, false);
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(liveness_of(1).forwarded_packets, 2);
}

/* The packet as a neighbour sends it: with outer headers in front. */
static void wrap(const char *from, uint16_t port) {
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

static void what_passes_through_gets_new_outer_addresses(void **state) {
    (void)state;
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    wrap("10.1.2.2", PORT);
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(length, ETHERNET + OUTER + 100);
    assert_memory_equal(packet + 26, "\x0a\x01\x01\x01\x0a\x01\x01\x02", 8);
    assert_int_equal(fold(sum_of(packet + ETHERNET, 20, 0)), 0);
    assert_int_equal(packet[22], 1);
    assert_int_equal(packet[INNER + 8], TTL - 1);
    assert_int_equal(fold(sum_of(packet + INNER, 20, 0)), 0);
    assert_int_equal(counters().relayed, 1);
    assert_int_equal(liveness_of(1).forwarded_packets, 1);
    assert_int_equal(liveness_of(1).forwarded_bytes, 100);
}

static void it_goes_back_only_when_nobody_else_is_left(void **state) {
    (void)state;
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    wrap("10.1.1.2", PORT);
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(liveness_of(2).forwarded_packets, 1);
    set_neighbour(2, "10.1.2.2", ALLOWED + 1);
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    wrap("10.1.1.2", PORT);
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(liveness_of(1).forwarded_packets, 1);
    assert_int_equal(counters().detours, 2);
}

/* Everything that is not plainly a neighbour's packet to somebody else. */
static void the_rest_goes_to_the_device(void **state) {
    static const struct {
        const char *from, *to;
        uint16_t port;
        uint8_t hops;
        size_t bytes;
    } cases[] = {
        {"10.9.9.9", "10.3.7.7", PORT, TTL, 100}, /* a stranger */
        {"10.1.2.2", "10.2.0.1", PORT, TTL, 100}, /* for this node */
        {"10.1.2.2", "10.8.0.1", PORT, TTL, 100}, /* nobody's */
        {"10.1.2.2", "10.3.7.7", 4789, TTL, 100}, /* another's VXLAN */
        {"10.1.2.2", "10.3.7.7", PORT, 1, 100},   /* its last hop */
        {"10.1.2.2", "10.3.7.7", PORT, TTL, 1451} /* too large for the next link */
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t before[ROOM];
        ipv4(cases[i].to, IPPROTO_UDP, cases[i].bytes, true);
        packet[22] = cases[i].hops;
        wrap(cases[i].from, cases[i].port);
        memcpy(before, packet, sizeof(before));
        assert_int_equal(enter(), NEXT);
        assert_memory_equal(before, packet, length);
    }
    assert_int_equal(counters().relayed, 0);
}

static void sensors_signals_and_outer_packets_keep_the_kernels_routes(void **state) {
    (void)state;
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    put_u16(36, SENSOR_PORT);
    assert_int_equal(enter(), NEXT);
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    put_u16(34, SENSOR_PORT);
    assert_int_equal(run(skeleton->progs.overlay_originate), NEXT);
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    put_u16(34, CHART_SHIM_PORT);
    assert_int_equal(enter(), NEXT);
    ipv4("10.3.7.7", IPPROTO_TCP, 100, true);
    packet[14] = 0x47;
    assert_int_equal(enter(), NEXT);
    /* Somebody states a neighbour's address on the link as his own. */
    own("10.1.2.2", 32, OWNER);
    ipv4("10.1.2.2", IPPROTO_UDP, 100, true);
    assert_int_equal(run(skeleton->progs.overlay_originate), NEXT);
    assert_int_equal(counters().entered, 0);
}

static void ipv6(size_t bytes) {
    memset(packet, 0, sizeof(packet));
    length = ETHERNET + bytes;
    memset(packet, 0xaa, 6);
    memset(packet + 6, 0xbb, 6);
    put_u16(12, 0x86dd);
    packet[14] = 0x60;
    put_u16(18, (uint16_t)(bytes - 40));
    packet[20] = IPPROTO_UDP;
    packet[21] = TTL;
    inet_pton(AF_INET6, "2001:db8:ffff::1", packet + 22);
    inet_pton(AF_INET6, "2001:db8::7", packet + 38);
}

static void ipv6_enters_and_is_answered_too(void **state) {
    uint8_t quoted[48];
    uint32_t sum;
    (void)state;
    ipv6(MTU);
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(packet[21], TTL - 1);
    assert_int_equal(liveness_of(1).forwarded_packets, 1);
    ipv6(MTU + 1);
    memcpy(quoted, packet + ETHERNET, sizeof(quoted));
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(length, ETHERNET + 40 + 8 + 48);
    assert_int_equal(packet[20], IPPROTO_ICMPV6);
    assert_int_equal(packet[54], 2);
    assert_int_equal(get_u16(60), MTU);
    assert_memory_equal(packet + 62, quoted, sizeof(quoted));
    sum = sum_of(packet + 22, 32, 0) + IPPROTO_ICMPV6 + 56;
    assert_int_equal(fold(sum_of(packet + 54, 56, sum)), 0);
}

/* A packet of a flow of this port; the number of the path that it took, 0: none that was chosen. */
static uint32_t flow(uint16_t port, uint8_t traffic_class) {
    uint64_t north = liveness_of(NORTH).forwarded_packets, south = liveness_of(SOUTH).forwarded_packets;
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    packet[15] = traffic_class;
    put_u16(34, port);
    assert_int_equal(enter(), REDIRECT);
    return liveness_of(NORTH).forwarded_packets > north   ? NORTH
           : liveness_of(SOUTH).forwarded_packets > south ? SOUTH
                                                          : 0;
}

static void flows_take_turns_and_keep_their_path(void **state) {
    uint64_t north;
    (void)state;
    set_path(NORTH, 0);
    set_path(SOUTH, 0);
    choose(0);
    for (int turn = 0; turn < 3; turn++)
        for (uint16_t port = 100; port < 120; port++)
            assert_int_equal(flow(port, 0), port % 2 ? SOUTH : NORTH);
    assert_int_equal(counters().flows, 20);
    assert_int_equal(counters().flows_moved + counters().flows_failed_over, 0);
    assert_int_equal(liveness_of(1).forwarded_packets, 30);
    assert_int_equal(liveness_of(2).forwarded_packets, 30);
    /* A class that has no choice takes colour 0. */
    north = liveness_of(1).forwarded_packets;
    assert_int_equal(flow(100, EF), 0);
    assert_int_equal(liveness_of(1).forwarded_packets, north + 1);
}

static void only_flows_of_the_failed_path_move_and_stay_away(void **state) {
    (void)state;
    set_path(NORTH, 0);
    set_path(SOUTH, 0);
    choose(0);
    for (uint16_t port = 200; port < 210; port++)
        flow(port, 0);
    set_path(NORTH, ALLOWED + 1);
    for (uint16_t port = 200; port < 210; port++)
        assert_int_equal(flow(port, 0), SOUTH);
    assert_int_equal(counters().flows_failed_over, 5);
    set_path(NORTH, 0);
    for (uint16_t port = 200; port < 210; port++)
        assert_int_equal(flow(port, 0), SOUTH);
    assert_int_equal(counters().flows, 10);
    assert_int_equal(counters().flows_failed_over, 5);
    assert_int_equal(counters().flows_moved, 0);
}

static void flows_leave_a_path_that_the_agent_says_they_leave(void **state) {
    (void)state;
    set_path(NORTH, 0);
    set_path(SOUTH, 0);
    choose(0);
    for (uint16_t port = 300; port < 310; port++)
        flow(port, 0);
    choose(1 << 2);
    for (uint16_t port = 300; port < 310; port++)
        assert_int_equal(flow(port, 0), NORTH);
    assert_int_equal(counters().flows_moved, 5);
    /* When the other one fails, a bad path is better than none. */
    set_path(NORTH, ALLOWED + 1);
    assert_int_equal(flow(300, 0), SOUTH);
    /* And when all have failed, packets go all the same. */
    set_path(SOUTH, ALLOWED + 1);
    assert_true(flow(301, 0) != 0);
}

static void a_path_that_is_chosen_no_more_is_left(void **state) {
    struct chart_overlay_choice_key key = {.owner = OWNER, .class = CHART_OVERLAY_DATA};
    struct chart_overlay_choice choice = {.numbers = {[2] = SOUTH}, .order = {2}, .n_order = 1};
    (void)state;
    set_path(NORTH, 0);
    set_path(SOUTH, 0);
    choose(0);
    assert_int_equal(flow(400, 0), NORTH);
    memset(choice.slots, 2, sizeof(choice.slots));
    put(skeleton->maps.overlay_choices, &key, &choice);
    assert_int_equal(flow(400, 0), SOUTH);
}

/* Flows from this port are a grant's, whose path has this colour. */
static void grant(uint16_t port, uint32_t colour, uint32_t generation) {
    static struct chart_selector_table table;
    struct chart_node_config node = {.generation = generation};
    uint32_t zero = 0;
    uint64_t number = 7;
    table.count = 1;
    table.selectors[0] = (struct chart_selector){.source_port = port, .protocol = IPPROTO_UDP, .grant = number};
    put(skeleton->maps.selectors, &zero, &table);
    put(skeleton->maps.node_config, &zero, &node);
    put(skeleton->maps.overlay_grants, &number, &colour);
}

static void flows_of_a_grant_take_its_path(void **state) {
    (void)state;
    set_path(NORTH, 0);
    set_path(SOUTH, 0);
    choose(0);
    assert_int_equal(flow(500, 0), NORTH);
    assert_int_equal(flow(501, 0), SOUTH);
    /* A grant that comes while the flow is there moves it, and no other. */
    grant(500, 2, 1);
    assert_int_equal(flow(500, 0), SOUTH);
    assert_int_equal(flow(501, 0), SOUTH);
    /* Worse is no reason to leave what is guaranteed; failed is, until it is back. */
    choose(1 << 2);
    assert_int_equal(flow(500, 0), SOUTH);
    set_path(SOUTH, ALLOWED + 1);
    assert_int_equal(flow(500, 0), NORTH);
    set_path(SOUTH, 0);
    assert_int_equal(flow(500, 0), SOUTH);
    /* Colour 0 is what grants take that say nothing. */
    grant(500, 0, 2);
    assert_int_equal(flow(500, 0), 0);
    grant(9, 0, 3);
    assert_true(flow(500, 0) != 0);
}

static void flows_that_signal_take_the_first_path(void **state) {
    (void)state;
    set_path(NORTH, 0);
    set_path(SOUTH, 0);
    choose(0);
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    packet[14] = 0x46;
    put_u16(38, 600);
    assert_int_equal(enter(), NEXT);
    assert_int_equal(flow(600, 0), 0);
    assert_true(flow(601, 0) != 0);
    /* Also when grants of others come; its own counts more. */
    grant(9, 0, 11);
    assert_int_equal(flow(600, 0), 0);
    grant(600, 2, 12);
    assert_int_equal(flow(600, 0), SOUTH);
}

static void what_arrives_strict_goes_by_its_path_or_nowhere(void **state) {
    (void)state;
    choose(0);
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    wrap("10.1.1.2", PORT);
    packet[48] = CHART_OVERLAY_STRICT | 2;
    assert_int_equal(enter(), REDIRECT);
    assert_int_equal(liveness_of(2).forwarded_packets, 1);
    set_neighbour(2, "10.1.2.2", ALLOWED + 1);
    ipv4("10.3.7.7", IPPROTO_UDP, 100, true);
    wrap("10.1.1.2", PORT);
    packet[48] = CHART_OVERLAY_STRICT | 2;
    /* To the device, which drops it. */
    assert_int_equal(enter(), NEXT);
    assert_int_equal(counters().relayed, 1);
    assert_int_equal(counters().detours, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(flows_take_turns_and_keep_their_path, set_up),
        cmocka_unit_test_setup(only_flows_of_the_failed_path_move_and_stay_away, set_up),
        cmocka_unit_test_setup(flows_leave_a_path_that_the_agent_says_they_leave, set_up),
        cmocka_unit_test_setup(a_path_that_is_chosen_no_more_is_left, set_up),
        cmocka_unit_test_setup(flows_of_a_grant_take_its_path, set_up),
        cmocka_unit_test_setup(flows_that_signal_take_the_first_path, set_up),
        cmocka_unit_test_setup(what_arrives_strict_goes_by_its_path_or_nowhere, set_up),
        cmocka_unit_test_setup(a_packet_to_an_owner_goes_to_the_first_neighbour, set_up),
        cmocka_unit_test_setup(what_the_node_sends_itself_keeps_its_hops, set_up),
        cmocka_unit_test_setup(others_packets_take_the_kernels_way, set_up),
        cmocka_unit_test_setup(the_last_hop_is_the_kernels_to_refuse, set_up),
        cmocka_unit_test_setup(an_owner_without_next_hop_is_left_to_the_kernel, set_up),
        cmocka_unit_test_setup(nothing_is_taken_when_it_is_off, set_up),
        cmocka_unit_test_setup(as_many_unanswered_probes_as_allowed_are_no_failure, set_up),
        cmocka_unit_test_setup(one_more_moves_packets_to_the_next_and_they_stay_there, set_up),
        cmocka_unit_test_setup(patience_is_kept_however_many_are_unanswered, set_up),
        cmocka_unit_test_setup(the_first_stays_when_nobody_answers, set_up),
        cmocka_unit_test_setup(the_largest_segment_is_lowered_to_what_fits, set_up),
        cmocka_unit_test_setup(a_packet_that_does_not_fit_is_answered, set_up),
        cmocka_unit_test_setup(what_passes_through_gets_new_outer_addresses, set_up),
        cmocka_unit_test_setup(it_goes_back_only_when_nobody_else_is_left, set_up),
        cmocka_unit_test_setup(the_rest_goes_to_the_device, set_up),
        cmocka_unit_test_setup(sensors_signals_and_outer_packets_keep_the_kernels_routes, set_up),
        cmocka_unit_test_setup(ipv6_enters_and_is_answered_too, set_up),
    };
    skeleton = chart_overlay__open_and_load();
    if (!skeleton) {
        fprintf(stderr, "the program cannot be loaded: run as root\n");
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
