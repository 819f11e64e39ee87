/* What `signal` costs, in the kernel's test run: one packet of data of a flow with a rate on its way out, one that no
 * rate was asked for, and one signal that an element on the way verifies, looks up and signs anew. JSON on stdout,
 * times in nanoseconds; medians. Needs root. Usage: signal-cost [--json] */
#define _GNU_SOURCE
#include "signal_run.h"

#include <stdlib.h>
#include <unistd.h>

#define PORT 5201
#define REPEAT 200000
#define ROUNDS 9
#define SIGNALS 4000
#define STRETCH 200

static struct signal_run run;

static int smaller_first(const void *first, const void *second) {
    uint32_t a = *(const uint32_t *)first, b = *(const uint32_t *)second;
    return a < b ? -1 : a > b;
}

static uint32_t median(uint32_t *values, size_t n) {
    qsort(values, n, sizeof(*values), smaller_first);
    return values[n / 2];
}

/* Machines change their speed: the least of several stretches, each with its median, tells of the fast ones. */
struct cost {
    uint32_t median_ns, least_ns;
};

static struct cost data_ns(const struct bpf_program *program, const uint8_t *from, const uint8_t *to,
                           uint16_t from_port, uint16_t to_port) {
    uint32_t times[ROUNDS], middle;
    for (int i = 0; i < ROUNDS; i++) {
        struct frame frame;
        make_frame(&frame, from, to, from_port, to_port, 6, ACK, 1400);
        if (run_frame(program, &frame, REPEAT))
            exit(1);
        times[i] = frame.duration_ns;
    }
    middle = median(times, ROUNDS);
    return (struct cost){middle, times[0]};
}

/* A flow with an agreed rate and renewals so far away that none falls into the measurement. */
static void agree(uint16_t port) {
    struct signal_policy policy = {.element = OWN,
                                   .mode = DECIDE_MODE_ENFORCE,
                                   .renew_us = 3600000000ull,
                                   .commitment_us = 3600000000ull,
                                   .renew_packets = 1u << 31};
    struct chart_qos answer = {.version = CHART_QOS_VERSION,
                               .status = CHART_RESPONSE,
                               .direction = CHART_BACKWARD,
                               .available_rate = chart_rate_encode(LINK_BPS / 2)};
    struct signal_ask ask = {.available_bps = LINK_BPS};
    struct frame frame;
    ask.selector.destination_port = PORT;
    signal_tables_policy(run.tables, &policy);
    signal_tables_asks(run.tables, &ask, 1);
    signal_run_path(&run, false, true);
    make_frame(&frame, client, server, port, PORT, 6, SYN, 0);
    run_frame(run.program->progs.signal_egress, &frame, 1);
    make_frame(&frame, server, client, PORT, port, 6, ACK, 0);
    put_signal(&frame, &answer, DOWNSTREAM, EPOCH, 1, signal_run_key(DOWNSTREAM, OWN));
    run_frame(run.program->progs.signal_ingress, &frame, 1);
    make_frame(&frame, client, server, port, PORT, 6, ACK, 0); /* the confirm */
    run_frame(run.program->progs.signal_egress, &frame, 1);
}

/* Renewals of one flow, each with its own sequence; the time of a single run. */
static struct cost signal_ns(void) {
    static uint32_t times[SIGNALS];
    struct cost cost = {.least_ns = UINT32_MAX};
    struct chart_qos request = {
        .version = CHART_QOS_VERSION, .status = CHART_RENEGOTIATE, .available_rate = chart_rate_encode(LINK_BPS)};
    signal_run_path(&run, false, false);
    for (uint32_t i = 0; i < SIGNALS; i++) {
        struct frame frame;
        make_frame(&frame, client, server, 40002, PORT, 6, ACK, 0);
        put_signal(&frame, &request, UPSTREAM, EPOCH, i + 1, signal_run_key(UPSTREAM, OWN));
        if (run_frame(run.program->progs.signal_ingress, &frame, 1) || frame.mark != CHART_MARK_SIGNAL) {
            fprintf(stderr, "signal-cost: signal %u was not accepted\n", i);
            exit(1);
        }
        times[i] = frame.duration_ns;
    }
    for (uint32_t first = 0; first + STRETCH <= SIGNALS; first += STRETCH) {
        uint32_t middle = median(times + first, STRETCH);
        cost.least_ns = middle < cost.least_ns ? middle : cost.least_ns;
    }
    cost.median_ns = median(times, SIGNALS);
    return cost;
}

/* A signal that an element sends ahead of a packet of its own: trimming, the option, the tag. */
static uint32_t origin_ns(void) {
    static uint32_t times[SIGNALS];
    for (uint32_t i = 0; i < SIGNALS; i++) {
        struct frame frame;
        make_frame(&frame, client, server, 40000, PORT, 6, ACK, 1400);
        frame.mark = CHART_MARK_ORDER;
        if (run_frame(run.program->progs.signal_egress, &frame, 1) || frame.verdict != REDIRECT_VERDICT)
            exit(1);
        times[i] = frame.duration_ns;
    }
    return median(times, SIGNALS);
}

/* The two tags of a signal, in this program instead of the kernel: tells how fast the machine is today. */
static uint32_t two_tags_ns(void) {
    const struct chart_flow flow = {.family = 4, .protocol = 6};
    struct chart_signal signal = {.sender = UPSTREAM, .epoch = EPOCH};
    struct chart_hmac_scratch scratch;
    struct chart_hmac_key key;
    struct timespec from, to;
    uint32_t times[ROUNDS];
    chart_hmac_key_set(&key, signal_run_key(UPSTREAM, OWN), &scratch);
    for (int i = 0; i < ROUNDS; i++) {
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (uint32_t k = 0; k < 2 * SIGNALS; k++) {
            signal.sequence = (signal.tag[0] + k) & CHART_SEQUENCE_MAX;
            chart_signal_tag(signal.tag, &signal, &flow, &key, &scratch);
        }
        clock_gettime(CLOCK_MONOTONIC, &to);
        int64_t ns = (to.tv_sec - from.tv_sec) * 1000000000ll + (to.tv_nsec - from.tv_nsec);
        times[i] = (uint32_t)(ns / SIGNALS);
    }
    return median(times, ROUNDS);
}

int main(void) {
    if (geteuid() != 0) {
        fprintf(stderr, "signal-cost: needs root\n");
        return 77;
    }
    if (signal_run_open(&run)) {
        fprintf(stderr, "signal-cost: the kernel refused the program\n");
        return 1;
    }
    agree(40000);
    struct cost own = data_ns(run.program->progs.signal_egress, client, server, 40000, PORT);
    struct cost other = data_ns(run.program->progs.signal_egress, client, server, 40001, PORT + 1);
    struct cost incoming = data_ns(run.program->progs.signal_ingress, server, client, PORT, 40000);
    uint32_t origin = origin_ns();
    struct cost forwarded = signal_ns();
    printf("{\"data_packet_ns\": %u, \"data_packet_least_ns\": %u, \"data_packet_without_rate_ns\": %u, "
           "\"data_packet_in_ns\": %u, \"signal_packet_ns\": %u, \"signal_packet_least_ns\": %u, "
           "\"signal_origin_ns\": %u, \"two_tags_in_c_ns\": %u}\n",
           own.median_ns, own.least_ns, other.median_ns, incoming.median_ns, forwarded.median_ns, forwarded.least_ns,
           origin, two_tags_ns());
    signal_run_close(&run);
    return 0;
}
