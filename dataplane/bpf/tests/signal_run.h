/* The program `signal` in the kernel's test run (BPF_PROG_TEST_RUN), for its tests and for what its cost is: one
 * element with two neighbours, and packets as they would come and go on a link of Ethernet frames. Needs root. */
#pragma once

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <endian.h>
#include <errno.h>
#include <linux/bpf.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "maps.h"
#include "signal.skel.h"
#include "signal/signal_tables.h"
#include "signal_maps.h"
#include "signal_socket.h"

#define OWN 2
#define UPSTREAM 1
#define DOWNSTREAM 3
#define EPOCH 9
#define LOOPBACK 1
#define ETHERNET 14
#define FRAME_MAX 2048
#define TCX_NEXT_VERDICT ((uint32_t)-1)
#define DROP_VERDICT 2u
#define REDIRECT_VERDICT 7u
#define LINK_BPS 100000000ull

#define FIN 0x01
#define SYN 0x02
#define RST 0x04
#define PSH 0x08
#define ACK 0x10

struct signal_run {
    struct chart_signal_program *program;
    struct signal_tables *tables;
};

struct frame {
    uint8_t octets[FRAME_MAX];
    uint32_t length;
    uint32_t mark;
    uint32_t priority; /* after a run */
    uint32_t verdict;
    uint32_t duration_ns;
};

static const uint8_t client[4] = {192, 0, 2, 1}, server[4] = {198, 51, 100, 7};

static inline const uint8_t *signal_run_key(uint16_t sender, uint16_t receiver) {
    static uint8_t key[CHART_KEY_OCTETS];
    for (int i = 0; i < CHART_KEY_OCTETS; i++)
        key[i] = (uint8_t)(sender * 16 + receiver + i * 7);
    return key;
}

static inline void signal_run_keys(struct signal_run *run, uint8_t epoch) {
    struct signal_key keys[] = {{.sender = UPSTREAM, .receiver = OWN},
                                {.sender = DOWNSTREAM, .receiver = OWN},
                                {.sender = OWN, .receiver = UPSTREAM},
                                {.sender = OWN, .receiver = DOWNSTREAM}};
    for (int i = 0; i < 4; i++) {
        keys[i].epoch = epoch;
        memcpy(keys[i].key, signal_run_key(keys[i].sender, keys[i].receiver), CHART_KEY_OCTETS);
    }
    signal_tables_keys(run->tables, keys, 4, 1);
}

/* The element has the client behind UPSTREAM; the server behind DOWNSTREAM unless it is the last before it. */
static inline void signal_run_path(struct signal_run *run, bool last, bool first) {
    struct signal_hop hops[2] = {{.element = UPSTREAM}, {.element = DOWNSTREAM}};
    size_t from = first ? 1 : 0, to = last ? 1 : 2;
    decide_parse_prefix("192.0.2.0/24", &hops[0].prefix);
    decide_parse_prefix("198.51.100.0/24", &hops[1].prefix);
    decide_parse_prefix("10.9.9.1", &hops[0].shim);
    decide_parse_prefix("10.9.9.3", &hops[1].shim);
    signal_tables_next_hops(run->tables, hops + from, to > from ? to - from : 0);
}

static inline void signal_run_authorise(struct signal_run *run, uint64_t guaranteed_bps, uint64_t available_bps) {
    struct signal_authorisation all = {
        .guaranteed_bps = guaranteed_bps, .available_bps = available_bps, .preemption_priority = 7, .services = 0xf};
    decide_parse_prefix("192.0.2.0/24", &all.prefix);
    signal_tables_authorisations(run->tables, &all, guaranteed_bps || available_bps ? 1 : 0, 1);
}

/* With a table for so many flows. */
static inline int signal_run_open_with(struct signal_run *run, uint32_t flows) {
    const struct signal_link link = {
        .ifindex = LOOPBACK, .header_bytes = ETHERNET, .explicit_bps = LINK_BPS, .guaranteed_bps = LINK_BPS / 2};
    struct signal_policy policy = {.element = OWN, .mode = DECIDE_MODE_ENFORCE};
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    /* What an egress run leaves for its clone stands in memory of its processor. */
    if (sched_setaffinity(0, sizeof(one), &one))
        return -errno;
    run->program = chart_signal_program__open();
    if (!run->program)
        return -ENOMEM;
    bpf_map__set_max_entries(run->program->maps.signal_flows, flows);
    int error = chart_signal_program__load(run->program);
    if (error)
        return error;
    const struct signal_map_fds fds = {
        .config = bpf_map__fd(run->program->maps.signal_config),
        .in = bpf_map__fd(run->program->maps.signal_in),
        .out = bpf_map__fd(run->program->maps.signal_out),
        .next_hops = bpf_map__fd(run->program->maps.signal_next_hops),
        .authorisations = bpf_map__fd(run->program->maps.signal_auths),
        .asks = bpf_map__fd(run->program->maps.signal_asks),
        .links = bpf_map__fd(run->program->maps.signal_links),
        .loads = bpf_map__fd(run->program->maps.signal_loads),
        .counters = bpf_map__fd(run->program->maps.signal_counters),
        .flows = bpf_map__fd(run->program->maps.signal_flows),
        .users = bpf_map__fd(run->program->maps.signal_users),
    };
    run->tables = signal_tables_new(&fds, NULL);
    decide_parse_prefix("10.9.9.2", &policy.shim4);
    error = run->tables ? signal_tables_policy(run->tables, &policy) : -ENOMEM;
    error = error ? error : signal_tables_link(run->tables, &link);
    if (error)
        return error;
    signal_run_keys(run, EPOCH);
    signal_run_path(run, false, false);
    signal_run_authorise(run, LINK_BPS, LINK_BPS);
    return 0;
}

static inline int signal_run_open(struct signal_run *run) {
    return signal_run_open_with(run, CHART_SIGNAL_FLOWS_MAX);
}

static inline void signal_run_close(struct signal_run *run) {
    signal_tables_free(run->tables);
    chart_signal_program__destroy(run->program);
}

/* All budgets are whole again. */
static inline void forget_failures(struct signal_run *run) {
    int fd = bpf_map__fd(run->program->maps.signal_failing);
    struct chart_signal_sender key;

    while (!bpf_map_get_next_key(fd, NULL, &key))
        bpf_map_delete_elem(fd, &key);
}

static inline uint64_t signal_run_count(const struct signal_run *run, uint32_t counter) {
    return signal_tables_count(run->tables, counter);
}

/* Sum for internet checksums over octets in network order. */
static inline uint32_t add_octets(uint32_t sum, const uint8_t *octets, uint32_t length) {
    for (uint32_t i = 0; i < length; i++)
        sum += i & 1 ? octets[i] : (uint32_t)octets[i] << 8;
    return sum;
}

/* 0xffff when the checksum of TCP or UDP over IPv4 is right. */
static inline uint16_t transport_sum(const uint8_t *ip) {
    uint32_t header = (ip[0] & 15) * 4u, length = chart_get16(ip + 2) - header;
    uint32_t sum = add_octets(0, ip + 12, 8) + ip[9] + length;
    sum = add_octets(sum, ip + header, length);
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

/* A bare packet of IPv4: TCP with 12 octets of options (time stamps) or UDP, and payload; checksums right. */
static inline void make_frame(struct frame *frame, const uint8_t *from, const uint8_t *to, uint16_t from_port,
                              uint16_t to_port, uint8_t protocol, uint8_t flags, uint32_t payload) {
    uint8_t *ip = frame->octets + ETHERNET, *transport = ip + CHART_IPV4_HEADER;
    uint32_t header = protocol == 6 ? 32 : 8, field = protocol == 6 ? 16 : 6;
    memset(frame, 0, sizeof(*frame));
    chart_put16(frame->octets + 12, 0x0800);
    ip[0] = 0x45;
    chart_put16(ip + 2, CHART_IPV4_HEADER + header + payload);
    ip[8] = 64;
    ip[9] = protocol;
    memcpy(ip + 12, from, 4);
    memcpy(ip + 16, to, 4);
    chart_put16(ip + 10, chart_ipv4_checksum(ip, CHART_IPV4_HEADER));
    chart_put16(transport, from_port);
    chart_put16(transport + 2, to_port);
    if (protocol == 6) {
        transport[12] = 8 << 4;
        transport[13] = flags;
        memcpy(transport + 20, "\x01\x01\x08\x0a\x00\x00\x00\x07\x00\x00\x00\x09", 12);
    } else {
        chart_put16(transport + 4, header + payload);
    }
    memset(transport + header, 0x5a, payload);
    chart_put16(transport + field, (uint16_t)~transport_sum(ip));
    frame->length = ETHERNET + CHART_IPV4_HEADER + header + payload;
}

/* Put a signed signal into the frame's packet; its sequence is the caller's. */
static inline void put_signal(struct frame *frame, const struct chart_qos *qos, uint16_t sender, uint8_t epoch,
                              uint32_t sequence, const uint8_t *key) {
    uint8_t *ip = frame->octets + ETHERNET;
    struct chart_signal signal = {.qos = *qos, .sender = sender, .epoch = epoch, .sequence = sequence};
    struct chart_hmac_scratch scratch;
    struct chart_hmac_key prepared;
    struct chart_flow flow = {.family = 4, .protocol = ip[9]};
    memcpy(flow.source, ip + 12, 4);
    memcpy(flow.destination, ip + 16, 4);
    memcpy(flow.selector, ip + CHART_IPV4_HEADER, 4);
    chart_hmac_key_set(&prepared, key, &scratch);
    chart_signal_tag(signal.tag, &signal, &flow, &prepared, &scratch);
    memmove(ip + CHART_IPV4_HEADER + CHART_IPV4_OPTION_OCTETS, ip + CHART_IPV4_HEADER,
            frame->length - ETHERNET - CHART_IPV4_HEADER);
    frame->length += CHART_IPV4_OPTION_OCTETS;
    chart_ipv4_insert(ip, &signal);
}

/* Run a program over the frame; the frame becomes what the program made of it. */
static inline int run_frame(const struct bpf_program *program, struct frame *frame, int repeat) {
    struct frame in = *frame;
    struct __sk_buff context = {.mark = frame->mark};
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = in.octets, .data_size_in = in.length, .data_out = frame->octets,
                .data_size_out = sizeof(frame->octets), .ctx_in = &context, .ctx_size_in = sizeof(context),
                .ctx_out = &context, .ctx_size_out = sizeof(context), .repeat = repeat);
    if (bpf_prog_test_run_opts(bpf_program__fd(program), &options))
        return -errno;
    frame->length = options.data_size_out;
    frame->mark = context.mark;
    frame->priority = context.priority;
    frame->verdict = options.retval;
    frame->duration_ns = options.duration;
    return 0;
}
