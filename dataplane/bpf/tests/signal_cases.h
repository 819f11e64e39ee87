/* What the tests of the program `signal` share: one element, a frame of a flow that comes or goes, what is kept of it.
 * The including file defines _GNU_SOURCE first. */
#pragma once

// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include "signal_run.h"

#include <unistd.h>

#include "lib/htb/htb_classes.h"

#define PORT 5201
/* The egress looks at a clock that moves with the kernel's ticks. */
#define TICK_US 20000

static struct signal_run run;
static uint32_t sequence;
static uint16_t next_port = 40000;

static const struct chart_qos asked = {.version = CHART_QOS_VERSION, .flow_type = CHART_TCP, .service = CHART_VARIABLE};

static inline struct chart_qos qos_of(uint8_t status, uint64_t guaranteed_bps, uint64_t available_bps) {
    struct chart_qos qos = asked;
    qos.status = status;
    qos.direction = status == CHART_RESPONSE || status == CHART_RENEGOTIATE_RESPONSE || status == CHART_REJECT;
    qos.guaranteed_rate = chart_rate_encode(guaranteed_bps);
    qos.available_rate = chart_rate_encode(available_bps);
    return qos;
}

static inline struct frame sent(const uint8_t *from, const uint8_t *to, uint16_t from_port, uint16_t to_port,
                                uint8_t flags, uint32_t payload) {
    struct frame frame;
    make_frame(&frame, from, to, from_port, to_port, 6, flags, payload);
    assert_int_equal(run_frame(run.program->progs.signal_egress, &frame, 1), 0);
    assert_int_equal(frame.verdict, TCX_NEXT_VERDICT);
    return frame;
}

/* The signal that the last egress run ordered; the clone is `flags` and `payload` again. */
static inline struct frame ordered(const uint8_t *from, const uint8_t *to, uint16_t from_port, uint16_t to_port,
                                   uint8_t protocol, uint8_t flags, uint32_t payload) {
    struct frame frame;
    make_frame(&frame, from, to, from_port, to_port, protocol, flags, payload);
    frame.mark = CHART_MARK_ORDER;
    assert_int_equal(run_frame(run.program->progs.signal_egress, &frame, 1), 0);
    assert_int_equal(frame.verdict, REDIRECT_VERDICT);
    return frame;
}

/* The same of TCP, and what is in it. */
static inline struct frame cloned(const uint8_t *from, const uint8_t *to, uint16_t from_port, uint16_t to_port,
                                  uint8_t flags, uint32_t payload, struct chart_parsed *ret) {
    struct frame frame = ordered(from, to, from_port, to_port, 6, flags, payload);
    assert_int_equal(frame.mark, CHART_MARK_SIGNAL);
    assert_int_equal(chart_ipv4_parse(ret, frame.octets + ETHERNET, frame.length - ETHERNET), CHART_QOS_OK);
    return frame;
}

static inline void assert_signed(const struct chart_parsed *parsed, uint16_t sender, uint16_t receiver) {
    struct chart_hmac_scratch scratch;
    struct chart_hmac_key key;
    uint8_t tag[CHART_TAG_OCTETS];
    chart_hmac_key_set(&key, signal_run_key(sender, receiver), &scratch);
    chart_signal_tag(tag, &parsed->signal, &parsed->flow, &key, &scratch);
    assert_int_equal(parsed->signal.sender, sender);
    assert_true(chart_tag_equal(tag, parsed->signal.tag));
}

/* A signal comes in from a neighbour. */
static inline struct frame received(const uint8_t *from, const uint8_t *to, uint16_t from_port, uint16_t to_port,
                                    const struct chart_qos *qos, uint16_t sender) {
    struct frame frame;
    make_frame(&frame, from, to, from_port, to_port, 6, ACK, 0);
    put_signal(&frame, qos, sender, EPOCH, ++sequence, signal_run_key(sender, OWN));
    assert_int_equal(run_frame(run.program->progs.signal_ingress, &frame, 1), 0);
    return frame;
}

/* Zeros: nothing is kept of it. */
static inline struct chart_signal_flow flow_of(uint16_t client_port, bool *ret_client_low) {
    struct chart_signal_key key = {.protocol = 6};
    struct chart_signal_flow flow = {0};
    uint8_t mapped[2][16] = {{[10] = 0xff, [11] = 0xff}, {[10] = 0xff, [11] = 0xff}};
    memcpy(mapped[0] + 12, client, 4);
    memcpy(mapped[1] + 12, server, 4);
    for (int low = 0; low < 2; low++) {
        memcpy(key.low, mapped[!low], 16);
        memcpy(key.high, mapped[low], 16);
        key.low_port = htobe16(low ? client_port : PORT);
        key.high_port = htobe16(low ? PORT : client_port);
        if (bpf_map_lookup_elem(bpf_map__fd(run.program->maps.signal_flows), &key, &flow) == 0) {
            *ret_client_low = low;
            return flow;
        }
    }
    return (struct chart_signal_flow){0};
}

/* What is kept of the data that the client sends. */
static inline struct chart_signal_half half_of(uint16_t client_port) {
    bool low = false;
    struct chart_signal_flow flow = flow_of(client_port, &low);
    return flow.halves[low ? 0 : 1];
}

static inline uint64_t held(uint32_t *ret_flows) {
    struct signal_load load = {0};
    assert_int_equal(signal_tables_load(run.tables, LOOPBACK, &load), 0);
    *ret_flows = load.flows;
    return load.held_bps;
}

static inline void as_origin(uint64_t guaranteed_bps, uint64_t available_bps) {
    struct signal_ask ask = {.guaranteed_bps = guaranteed_bps, .available_bps = available_bps, .service = 3};
    ask.selector.destination_port = PORT;
    signal_run_path(&run, false, true);
    assert_int_equal(signal_tables_asks(run.tables, &ask, 1), 0);
}

static inline void policy(bool drop_unauthorised, uint64_t hold_us, uint64_t commitment_us) {
    struct signal_policy changed = {.element = OWN,
                                    .mode = DECIDE_MODE_ENFORCE,
                                    .drop_unauthorised = drop_unauthorised,
                                    .hold_us = hold_us,
                                    .commitment_us = commitment_us,
                                    .idle_us = commitment_us};
    decide_parse_prefix("10.9.9.2", &changed.shim4);
    assert_int_equal(signal_tables_policy(run.tables, &changed), 0);
}

static inline int each(void **state) {
    (void)state;
    next_port++;
    signal_run_path(&run, false, false);
    signal_run_authorise(&run, LINK_BPS, LINK_BPS);
    signal_tables_asks(run.tables, NULL, 0);
    policy(false, 0, 0);
    forget_failures(&run);
    return 0;
}

static inline int open_run(void **state) {
    (void)state;
    return signal_run_open(&run);
}

static inline int close_run(void **state) {
    (void)state;
    signal_run_close(&run);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup(name, each)

/* Every test of a file, each from a clean state; skipped without root. */
#define RUN(tests) (geteuid() == 0 ? cmocka_run_group_tests(tests, open_run, close_run) : skipped())

static inline int skipped(void) {
    printf("skipped, needs root\n");
    return 0;
}
