/* The destination: frames from any connection through the resequencing buffer to the TUN device, and a report per
 * measurement period back to the origin (Guirguis et al., section 2.2, "Monitor"). One origin at a time: a new session
 * takes the place of the old one. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control.h"
#include "elasticity.h"
#include "ends.h"
#include "frame.h"
#include "loop.h"
#include "resequencer.h"
#include "tun.h"

#define INLETS (2 * TUNNEL_CONNECTIONS_MAX + 16)
#define INLET_BYTES 65536
#define SHORTEST_PERIOD_US 10000U
/* Whoever connects has this long to say HELLO. */
#define HELLO_TIMEOUT_US 5000000U

struct inlet {
    int descriptor; /* -1: free */
    bool greeted, bye;
    uint64_t session, opened_us;
    size_t used;
    uint8_t buffer[INLET_BYTES];
};

struct destination {
    const struct options *options;
    int epoll, tun, listener;
    uint64_t now_us, started_us;
    struct control control;
    struct resequencer resequencer;
    struct inlet *inlets;
    uint64_t session;
    bool has_session;
    uint64_t period_us, period_start_us, period_bytes;
    struct report report;
    uint64_t accepted, refused, broken, sessions, malformed, device_failures;
};

static void add(cJSON *object, const char *name, uint64_t value) {
    cJSON_AddNumberToObject(object, name, (double)value);
}

static uint64_t open_inlets(const struct destination *destination) {
    uint64_t count = 0;
    for (size_t i = 0; i < INLETS; i++)
        count += destination->inlets[i].descriptor >= 0 && destination->inlets[i].greeted;
    return count;
}

static void answer_get(const struct destination *destination, cJSON *answered) {
    const struct resequencer *resequencer = &destination->resequencer;
    cJSON_AddStringToObject(answered, "role", "destination");
    cJSON_AddStringToObject(answered, "tun", destination->options->tun);
    cJSON_AddStringToObject(answered, "listen", destination->options->endpoint_text);
    add(answered, "uptime_us", destination->now_us - destination->started_us);
    add(answered, "period_us", destination->period_us);
    cJSON *counters = cJSON_AddObjectToObject(answered, "counters");
    add(counters, "received_bytes", destination->report.received_bytes_total);
    add(counters, "received_packets", destination->report.received_packets_total);
    add(counters, "delivered_packets", resequencer->delivered);
    add(counters, "late_packets", resequencer->late);
    add(counters, "skipped_packets", resequencer->skipped);
    add(counters, "duplicate_packets", resequencer->duplicates);
    add(counters, "device_failures", destination->device_failures);
    add(counters, "connections_accepted", destination->accepted);
    add(counters, "connections_refused", destination->refused);
    add(counters, "connections_broken", destination->broken);
    add(counters, "malformed_streams", destination->malformed);
    add(counters, "sessions", destination->sessions);
    cJSON *gauges = cJSON_AddObjectToObject(answered, "gauges");
    add(gauges, "connections_established", open_inlets(destination));
    add(gauges, "held_packets", resequencer->held);
}

static void answer(void *context, const cJSON *command, cJSON *answered, const char **ret_error) {
    if (control_names(command, "command", "get"))
        answer_get(context, answered);
    else if (control_names(command, "command", "quit"))
        loop_end();
    else
        *ret_error = "command must be get or quit";
}

static void deliver(void *context, const uint8_t *packet, size_t bytes) {
    struct destination *destination = context;
    if (write(destination->tun, packet, bytes) != (ssize_t)bytes)
        destination->device_failures++;
}

static void close_inlet(struct inlet *inlet) {
    close(inlet->descriptor);
    inlet->descriptor = -1;
}

static void begin_session(struct destination *destination, const struct hello *hello) {
    for (size_t i = 0; i < INLETS; i++) {
        struct inlet *inlet = &destination->inlets[i];
        if (inlet->descriptor >= 0 && inlet->greeted && inlet->session != hello->session)
            close_inlet(inlet);
    }
    resequencer_restart(&destination->resequencer, hello->next_sequence);
    destination->session = hello->session;
    destination->has_session = true;
    destination->sessions++;
    destination->period_us = hello->period_us > SHORTEST_PERIOD_US ? hello->period_us : SHORTEST_PERIOD_US;
    destination->period_start_us = destination->now_us;
    destination->period_bytes = 0;
    memset(&destination->report, 0, sizeof(destination->report));
}

static int greet(struct destination *destination, struct inlet *inlet, const struct frame *frame) {
    struct hello hello;
    int error = frame_read_hello(frame, &hello);
    if (error < 0)
        return error;
    inlet->greeted = true;
    inlet->session = hello.session;
    if (!destination->has_session || destination->session != hello.session)
        begin_session(destination, &hello);
    return 0;
}

static int take_frame(struct destination *destination, struct inlet *inlet, const struct frame *frame) {
    if (!inlet->greeted)
        return greet(destination, inlet, frame);
    switch (frame->type) {
    case FRAME_DATA:
        destination->report.received_packets_total++;
        (void)resequencer_put(&destination->resequencer, frame->sequence, frame->payload, frame->payload_bytes,
                              destination->now_us);
        return 0;
    case FRAME_BYE:
        inlet->bye = true;
        return 0;
    default:
        return -EBADMSG;
    }
}

/* Takes all whole frames out of an inlet's buffer: 0 or a negative errno. */
static int take_frames(struct destination *destination, struct inlet *inlet) {
    size_t at = 0;
    struct frame frame;
    ssize_t used;
    while ((used = frame_parse(inlet->buffer + at, inlet->used - at, &frame)) > 0) {
        int error = take_frame(destination, inlet, &frame);
        if (error < 0)
            return error;
        at += (size_t)used;
    }
    if (used < 0)
        return (int)used;
    inlet->used -= at;
    memmove(inlet->buffer, inlet->buffer + at, inlet->used);
    return 0;
}

static void refuse_stream(struct destination *destination, struct inlet *inlet, int error) {
    fprintf(stderr, "chart-tunnel: a connection was closed: %s\n",
            error == -EPROTONOSUPPORT ? "its origin speaks another version" : "what came is not a tunnel's frame");
    destination->malformed++;
    close_inlet(inlet);
}

static void receive(struct destination *destination, struct inlet *inlet) {
    ssize_t got = recv(inlet->descriptor, inlet->buffer + inlet->used, INLET_BYTES - inlet->used, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        if (!inlet->bye)
            destination->broken++;
        close_inlet(inlet);
        return;
    }
    inlet->used += (size_t)got;
    int error = take_frames(destination, inlet);
    if (error < 0) {
        refuse_stream(destination, inlet, error);
        return;
    }
    destination->period_bytes += (uint64_t)got;
    destination->report.received_bytes_total += (uint64_t)got;
}

static bool let_in(const struct destination *destination, const union endpoint *peer) {
    const union endpoint *only = &destination->options->peer;
    if (!destination->options->has_peer)
        return true;
    if (peer->any.sa_family == AF_INET6)
        return memcmp(&peer->v6.sin6_addr, &only->v6.sin6_addr, sizeof(only->v6.sin6_addr)) == 0;
    return peer->v4.sin_addr.s_addr == only->v4.sin_addr.s_addr;
}

static void accept_one(struct destination *destination) {
    union endpoint peer;
    socklen_t bytes = sizeof(peer);
    memset(&peer, 0, sizeof(peer));
    int descriptor = accept4(destination->listener, &peer.any, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor < 0)
        return;
    for (size_t i = 0; let_in(destination, &peer) && i < INLETS; i++) {
        struct inlet *inlet = &destination->inlets[i];
        if (inlet->descriptor >= 0)
            continue;
        if (loop_watch(destination->epoll, descriptor, EPOLLIN | EPOLLRDHUP, TAG_CONNECTION + i) < 0)
            break;
        inlet->descriptor = descriptor;
        inlet->greeted = inlet->bye = false;
        inlet->used = 0;
        inlet->opened_us = destination->now_us;
        destination->accepted++;
        return;
    }
    destination->refused++;
    close(descriptor);
}

/* One connection carries the report; one that is full is passed over. */
static void send_report(struct destination *destination) {
    uint8_t buffer[FRAME_HEADER_BYTES + FRAME_REPORT_BYTES];
    size_t bytes = frame_write_report(buffer, &destination->report);
    for (size_t i = 0; i < INLETS; i++) {
        struct inlet *inlet = &destination->inlets[i];
        if (inlet->descriptor < 0 || !inlet->greeted || inlet->bye)
            continue;
        ssize_t sent = send(inlet->descriptor, buffer, bytes, MSG_NOSIGNAL);
        if (sent == (ssize_t)bytes)
            return;
        if (sent > 0) {
            /* Half a frame cannot be taken back. */
            destination->broken++;
            close_inlet(inlet);
        }
    }
}

static void end_period(struct destination *destination) {
    struct report *report = &destination->report;
    struct resequencer *resequencer = &destination->resequencer;
    report->number++;
    report->interval_us = (uint32_t)(destination->now_us - destination->period_start_us);
    report->received_bytes = destination->period_bytes;
    report->delivered_packets_total = resequencer->delivered;
    report->late_packets_total = resequencer->late;
    report->skipped_packets_total = resequencer->skipped;
    report->held_packets_maximum = resequencer->held_maximum;
    report->connections = open_inlets(destination);
    send_report(destination);
    destination->period_bytes = 0;
    destination->period_start_us = destination->now_us;
    resequencer->held_maximum = resequencer->held;
}

static void close_silent(struct destination *destination) {
    for (size_t i = 0; i < INLETS; i++) {
        struct inlet *inlet = &destination->inlets[i];
        if (inlet->descriptor >= 0 && !inlet->greeted && destination->now_us - inlet->opened_us > HELLO_TIMEOUT_US) {
            destination->refused++;
            close_inlet(inlet);
        }
    }
}

static uint64_t next_time_us(struct destination *destination) {
    uint64_t next_us = resequencer_tick(&destination->resequencer, destination->now_us);
    if (destination->has_session) {
        if (destination->now_us - destination->period_start_us >= destination->period_us) {
            end_period(destination);
            close_silent(destination);
        }
        uint64_t end_us = destination->period_start_us + destination->period_us;
        next_us = end_us < next_us ? end_us : next_us;
    }
    return next_us;
}

static int run(struct destination *destination) {
    static uint8_t discarded[FRAME_PAYLOAD_MAX];
    struct epoll_event events[LOOP_EVENTS];
    while (!loop_ended()) {
        destination->now_us = loop_now_us();
        uint64_t next_us = next_time_us(destination);
        int count = epoll_wait(destination->epoll, events, LOOP_EVENTS, loop_timeout_ms(next_us, destination->now_us));
        if (count < 0 && errno != EINTR) {
            perror("chart-tunnel: epoll_wait");
            return 1;
        }
        destination->now_us = loop_now_us();
        for (int i = 0; i < count; i++) {
            uint64_t data = events[i].data.u64;
            if (TAG_OF(data) == TAG_CONNECTION) {
                struct inlet *inlet = &destination->inlets[INDEX_OF(data)];
                if (inlet->descriptor >= 0)
                    receive(destination, inlet);
            } else if (TAG_OF(data) == TAG_LISTENER) {
                accept_one(destination);
            } else if (TAG_OF(data) == TAG_TUN) {
                /* This end only puts out: what the kernel routes here has no way back. */
                (void)!read(destination->tun, discarded, sizeof(discarded));
            } else {
                (void)loop_control(destination->epoll, &destination->control, data);
            }
        }
    }
    return 0;
}

static int listen_on(const struct options *options) {
    int one = 1;
    int descriptor = socket(options->endpoint.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    if (descriptor < 0)
        return -errno;
    if (setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
        bind(descriptor, &options->endpoint.any, endpoint_bytes(&options->endpoint)) < 0 ||
        listen(descriptor, TUNNEL_CONNECTIONS_MAX) < 0) {
        int error = -errno;
        fprintf(stderr, "chart-tunnel: listening on %s: %s\n", options->endpoint_text, strerror(-error));
        close(descriptor);
        return error;
    }
    return descriptor;
}

static int start(struct destination *destination) {
    const struct options *options = destination->options;
    destination->inlets = malloc(INLETS * sizeof(struct inlet));
    if (!destination->inlets)
        return -ENOMEM;
    for (size_t i = 0; i < INLETS; i++)
        destination->inlets[i].descriptor = -1;
    destination->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (destination->epoll < 0)
        return -errno;
    int error = resequencer_init(&destination->resequencer, options->resequence_packets, options->resequence_us,
                                 deliver, destination);
    if (!error) {
        destination->listener = listen_on(options);
        error = destination->listener < 0
                    ? destination->listener
                    : loop_watch(destination->epoll, destination->listener, EPOLLIN, TAG_LISTENER);
    }
    if (!error)
        error = control_open(&destination->control, options->control, answer, destination);
    if (!error)
        error = loop_watch(destination->epoll, destination->control.listener, EPOLLIN, TAG_CONTROL);
    if (error)
        return error;
    destination->tun = tun_open(options->tun, options->mtu_bytes);
    return destination->tun < 0 ? destination->tun : loop_watch(destination->epoll, destination->tun, EPOLLIN, TAG_TUN);
}

int destination_run(const struct options *options) {
    struct destination *destination = calloc(1, sizeof(*destination));
    if (!destination)
        return 1;
    destination->options = options;
    destination->epoll = destination->tun = destination->listener = destination->control.listener = -1;
    for (int i = 0; i < CONTROL_CLIENTS; i++)
        destination->control.clients[i].descriptor = -1;
    destination->started_us = loop_now_us();
    int error = start(destination);
    if (error < 0)
        fprintf(stderr, "chart-tunnel: the destination cannot start: %s\n", strerror(-error));
    int status = error < 0 ? 1 : run(destination);
    control_close(&destination->control);
    for (size_t i = 0; destination->inlets && i < INLETS; i++)
        if (destination->inlets[i].descriptor >= 0)
            close_inlet(&destination->inlets[i]);
    free(destination->inlets);
    resequencer_free(&destination->resequencer);
    if (destination->listener >= 0)
        close(destination->listener);
    if (destination->tun >= 0)
        close(destination->tun);
    if (destination->epoll >= 0)
        close(destination->epoll);
    free(destination);
    return status;
}
