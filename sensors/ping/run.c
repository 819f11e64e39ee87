/* One run of ping; see ping.h. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "icmp.h"
#include "pacing.h"
#include "ping.h"
#include "probe_socket.h"
#include "session.h"
#include "statistics.h"
#include "wire.h"

#define NS_PER_MS 1000000.0
/* HELLO is repeated this often while the timeout lasts. */
#define HELLO_TRIES 4

enum ping_state { PING_HELLO, PING_PROBING, PING_DRAINING, PING_FINISHED };

struct probe {
    int64_t sent_at_ns; /* CLOCK_REALTIME */
    int64_t rtt_ns;     /* -1 until the reply came */
    uint32_t sequence;  /* UDP only */
};

struct ping_run {
    struct ping_parameters parameters;
    enum ping_state state;
    int descriptor;
    bool udp;
    bool raw;
    int family;
    struct session session;
    struct icmp_echo echo;
    uint64_t sent;
    uint64_t hellos;
    uint64_t answered;
    uint64_t bytes;
    int64_t next_ns; /* CLOCK_MONOTONIC */
    int64_t started_at_us;
    int64_t ended_at_us;
    int network_error; /* the last ICMP error, as errno */
    struct probe probes[];
};

static size_t header_bytes(const struct ping_run *run) {
    size_t ip_bytes = run->family == AF_INET6 ? 40 : 20;

    return ip_bytes + 8;
}

void ping_declare(const struct ping_parameters *parameters, uint64_t *ret_bytes, uint64_t *ret_duration_ms) {
    double duration_ms = (double)(parameters->count - 1) * parameters->interval_ms + parameters->timeout_ms;

    *ret_bytes = parameters->count * parameters->packet_bytes;
    if (strcmp(parameters->protocol, "udp") == 0) {
        *ret_bytes += HELLO_TRIES * (WIRE_HEADER_BYTES + WIRE_IPV6_UDP_BYTES);
        duration_ms += parameters->timeout_ms;
    }
    *ret_duration_ms = (uint64_t)ceil(duration_ms);
}

static int open_socket(struct ping_run *run, const struct keyring *keyring, struct failure *failure) {
    union address remote;
    union address local;

    if (address_resolve(run->parameters.common.destination, run->udp ? (uint16_t)run->parameters.common.port : 0,
                        &remote, failure) < 0)
        return -1;
    run->family = remote.any.sa_family;
    if (!run->udp) {
        run->descriptor = probe_socket_icmp(&remote, &run->raw, failure);
        return run->descriptor < 0 ? -1 : 0;
    }
    run->descriptor = probe_socket_connect(&remote, &local, failure);
    if (run->descriptor < 0)
        return -1;
    return session_init(&run->session, keyring, &local, &remote, failure);
}

struct ping_run *ping_run_start(const struct ping_parameters *parameters, const struct keyring *keyring,
                                struct failure *failure) {
    struct ping_run *run = calloc(1, sizeof(*run) + parameters->count * sizeof(run->probes[0]));

    if (!run) {
        failure_set(failure, FAILURE_OTHER, "out of memory");
        return NULL;
    }
    run->parameters = *parameters;
    run->descriptor = -1;
    run->udp = strcmp(parameters->protocol, "udp") == 0;
    if (run->udp && !keyring) {
        failure_set(failure, FAILURE_USAGE, "--key-file is missing (udp probes are authenticated)");
        ping_run_free(run);
        return NULL;
    }
    if (open_socket(run, keyring, failure) < 0 || getrandom(&run->echo, sizeof(run->echo), 0) < 0) {
        ping_run_free(run);
        return NULL;
    }
    for (uint64_t i = 0; i < parameters->count; i++)
        run->probes[i].rtt_ns = -1;
    run->state = run->udp ? PING_HELLO : PING_PROBING;
    run->next_ns = pacing_now_ns();
    run->started_at_us = pacing_wall_ns() / 1000;
    return run;
}

void ping_run_free(struct ping_run *run) {
    if (run && run->descriptor >= 0)
        close(run->descriptor);
    free(run);
}

int ping_run_descriptor(const struct ping_run *run) {
    return run->descriptor;
}

int64_t ping_run_due_ns(const struct ping_run *run) {
    return run->next_ns;
}

bool ping_run_finished(const struct ping_run *run) {
    return run->state == PING_FINISHED;
}

double ping_run_rtt_us(const struct ping_run *run, uint64_t index) {
    int64_t rtt_ns = index < run->sent ? run->probes[index].rtt_ns : -1;

    return rtt_ns < 0 ? -1 : (double)rtt_ns / 1e3;
}

static void finish(struct ping_run *run) {
    run->state = PING_FINISHED;
    run->ended_at_us = pacing_wall_ns() / 1000;
}

/* Send bytes; the time of departure is the kernel's where it gives one. */
static int64_t send_stamped(struct ping_run *run, const uint8_t *bytes, size_t length) {
    int64_t before_ns = pacing_wall_ns();
    int64_t departure_ns;
    int64_t after_ns;

    if (send(run->descriptor, bytes, length, MSG_DONTWAIT) < 0 && errno != EAGAIN && errno != ENOBUFS)
        run->network_error = errno;
    after_ns = pacing_wall_ns();
    run->bytes += length + header_bytes(run) - (run->udp ? 0 : ICMP_ECHO_HEADER_BYTES);
    for (;;) {
        int error = probe_socket_departure(run->descriptor, &departure_ns);

        if (error == -EAGAIN)
            return before_ns;
        if (error < 0)
            run->network_error = -error;
        else if (departure_ns >= before_ns && departure_ns <= after_ns)
            return departure_ns;
    }
}

static void send_probe(struct ping_run *run) {
    uint8_t bytes[WIRE_DATAGRAM_MAX_BYTES];
    struct probe *probe = &run->probes[run->sent];
    size_t length = run->parameters.packet_bytes - header_bytes(run);

    if (run->udp) {
        struct wire_header header = {.type = WIRE_ECHO};

        if (length < WIRE_HEADER_BYTES)
            length = WIRE_HEADER_BYTES;
        if (length > WIRE_DATAGRAM_MAX_BYTES)
            length = WIRE_DATAGRAM_MAX_BYTES;
        probe->sequence = (uint32_t)session_make(&run->session, &header, length, bytes);
    } else {
        /* The ICMP header is part of header_bytes(). */
        length += ICMP_ECHO_HEADER_BYTES;
        if (length > sizeof(bytes))
            length = sizeof(bytes);
        if (length < ICMP_ECHO_MIN_BYTES)
            length = ICMP_ECHO_MIN_BYTES;
        run->echo.sequence = (uint16_t)run->sent;
        icmp_make_request(run->family, &run->echo, bytes, length);
    }
    run->sent++;
    probe->sent_at_ns = send_stamped(run, bytes, length);
}

static void advance_hello(struct ping_run *run) {
    uint8_t bytes[WIRE_DATAGRAM_MAX_BYTES];

    if (run->session.token) {
        run->state = PING_PROBING;
        return;
    }
    if (run->hellos == HELLO_TRIES) {
        finish(run);
        return;
    }
    if (session_make_hello(&run->session, bytes) > 0)
        (void)send_stamped(run, bytes, WIRE_HEADER_BYTES);
    run->hellos++;
    run->next_ns = pacing_now_ns() + (int64_t)(run->parameters.timeout_ms * NS_PER_MS) / HELLO_TRIES;
}

void ping_run_advance(struct ping_run *run) {
    if (run->state == PING_HELLO)
        advance_hello(run);
    if (run->state == PING_PROBING && pacing_now_ns() >= run->next_ns) {
        send_probe(run);
        run->next_ns += (int64_t)(run->parameters.interval_ms * NS_PER_MS);
        if (run->sent == run->parameters.count) {
            run->state = PING_DRAINING;
            run->next_ns = pacing_now_ns() + (int64_t)(run->parameters.timeout_ms * NS_PER_MS);
        }
    } else if (run->state == PING_DRAINING && pacing_now_ns() >= run->next_ns) {
        finish(run);
    }
}

static void note_reply(struct ping_run *run, struct probe *probe, int64_t rtt_ns) {
    if (probe->rtt_ns >= 0 || rtt_ns > (int64_t)(run->parameters.timeout_ms * NS_PER_MS))
        return;
    /* A clock that was set back while the probe travelled. */
    probe->rtt_ns = rtt_ns < 0 ? 0 : rtt_ns;
    run->answered++;
}

static void take_udp(struct ping_run *run, const uint8_t *bytes, size_t length, int64_t at_ns) {
    struct wire_header header;

    if (session_read(&run->session, bytes, length, &header) < 0)
        return;
    if (header.type == WIRE_WELCOME && run->state == PING_HELLO) {
        run->state = PING_PROBING;
        run->next_ns = pacing_now_ns();
        return;
    }
    if (header.type != WIRE_ECHO_REPLY || run->sent == 0)
        return;
    /* Probes are sent with consecutive sequences. */
    if (header.sequence >= run->probes[0].sequence && header.sequence - run->probes[0].sequence < run->sent) {
        struct probe *probe = &run->probes[header.sequence - run->probes[0].sequence];

        /* What the responder needed to answer is no part of the path. */
        note_reply(run, probe, at_ns - probe->sent_at_ns - (int64_t)header.train);
    }
}

static void take_icmp(struct ping_run *run, const uint8_t *bytes, size_t length, int64_t at_ns) {
    struct icmp_echo echo;

    if (!icmp_read_reply(run->family, run->raw, bytes, length, &echo))
        return;
    /* The kernel replaces the identifier on datagram sockets; the mark is ours on both kinds. */
    if (echo.mark != run->echo.mark || echo.sequence >= run->sent)
        return;
    note_reply(run, &run->probes[echo.sequence], at_ns - run->probes[echo.sequence].sent_at_ns);
}

void ping_run_receive(struct ping_run *run) {
    uint8_t bytes[2048];
    int64_t departure_ns;

    for (;;) {
        struct probe_arrival arrival;
        int length = probe_socket_receive(run->descriptor, bytes, sizeof(bytes), &arrival);

        if (length == -EAGAIN)
            break;
        if (length < 0)
            run->network_error = -length;
        else if (run->udp)
            take_udp(run, bytes, (size_t)length, arrival.at_ns);
        else
            take_icmp(run, bytes, (size_t)length, arrival.at_ns);
    }
    for (;;) {
        int error = probe_socket_departure(run->descriptor, &departure_ns);

        if (error == -EAGAIN)
            break;
        if (error < 0)
            run->network_error = -error;
    }
    if (run->state == PING_DRAINING && run->answered == run->sent)
        finish(run);
}

int ping_run_summary(const struct ping_run *run, struct record *record, struct failure *failure) {
    double *rtts_us;
    size_t count = 0;

    record->probes_sent = run->sent;
    record->probes_lost = run->sent - run->answered;
    record->probe_bytes = run->bytes;
    record->started_at_us = run->started_at_us;
    record->ended_at_us = run->ended_at_us;
    if (run->answered == 0) {
        if (run->network_error == EPERM || run->network_error == EACCES)
            return failure_from_errno(failure, run->network_error, run->parameters.common.destination);
        if (run->udp && !run->session.token)
            return session_unanswered(&run->session, run->parameters.common.destination, run->network_error, failure);
        return failure_set(failure, FAILURE_UNREACHABLE, "%.200s: %s", run->parameters.common.destination,
                           run->network_error ? strerror(run->network_error) : "no reply to any probe");
    }
    rtts_us = calloc(run->sent, sizeof(*rtts_us));
    if (!rtts_us)
        return failure_set(failure, FAILURE_OTHER, "out of memory");
    for (uint64_t i = 0; i < run->sent; i++)
        if (run->probes[i].rtt_ns >= 0)
            rtts_us[count++] = (double)run->probes[i].rtt_ns / 1e3;
    record_add(record, "rtt_us", statistics_mean(rtts_us, count), "us");
    record_add(record, "rtt_min_us", statistics_minimum(rtts_us, count), "us");
    record_add(record, "jitter_us", statistics_jitter(rtts_us, count), "us");
    /* Sorts, so it comes last. */
    record_add(record, "rtt_p95_us", statistics_percentile(rtts_us, count, 0.95), "us");
    record_add(record, "loss_ratio", (double)record->probes_lost / (double)run->sent, "ratio");
    free(rtts_us);
    return 0;
}
