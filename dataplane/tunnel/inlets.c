/* The destination's connections, see inlets.h. */
#define _GNU_SOURCE
#include "inlets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop.h"
#include "offload.h"

/* The same failure again and again is told once. */
__attribute__((format(printf, 2, 3))) static void note(struct inlets *inlets, const char *format, ...) {
    char sentence[sizeof(inlets->last_error)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof(sentence), format, arguments);
    va_end(arguments);
    if (strcmp(sentence, inlets->last_error) != 0)
        fprintf(stderr, "chart-tunnel: %s\n", sentence);
    memcpy(inlets->last_error, sentence, sizeof(sentence));
}

static void close_inlet(struct inlet *inlet) {
    channel_close(&inlet->channel);
    free(inlet->buffer);
    inlet->buffer = NULL;
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

int inlets_open(struct inlets *inlets, const struct options *options, struct tls *tls, int epoll, uint64_t listener_tag,
                uint64_t inlet_tag, const struct inlets_handler *handler) {
    *inlets = (struct inlets){.options = options,
                              .tls = tls,
                              .epoll = epoll,
                              .listener = -1,
                              .listener_tag = listener_tag,
                              .inlet_tag = inlet_tag,
                              .handler = *handler};
    inlets->slots = calloc(INLETS, sizeof(struct inlet));
    if (!inlets->slots)
        return -ENOMEM;
    for (size_t i = 0; i < INLETS; i++)
        inlets->slots[i].channel.descriptor = -1;
    inlets->listener = listen_on(options);
    return inlets->listener < 0 ? inlets->listener : loop_watch(epoll, inlets->listener, EPOLLIN, listener_tag);
}

void inlets_close(struct inlets *inlets) {
    for (size_t i = 0; inlets->slots && i < INLETS; i++)
        close_inlet(&inlets->slots[i]);
    free(inlets->slots);
    inlets->slots = NULL;
    if (inlets->listener >= 0)
        close(inlets->listener);
}

uint64_t inlets_count(const struct inlets *inlets) {
    uint64_t count = 0;
    for (size_t i = 0; i < INLETS; i++)
        count += inlets->slots[i].channel.descriptor >= 0 && inlets->slots[i].greeted;
    return count;
}

static bool let_in(const struct inlets *inlets, const union endpoint *peer) {
    const union endpoint *only = &inlets->options->peer;
    if (!inlets->options->has_peer)
        return true;
    if (peer->any.sa_family == AF_INET6)
        return memcmp(&peer->v6.sin6_addr, &only->v6.sin6_addr, sizeof(only->v6.sin6_addr)) == 0;
    return peer->v4.sin_addr.s_addr == only->v4.sin_addr.s_addr;
}

/* A session ends with its connections, so those of an origin that vanished must end too. */
static void notice_silence(int descriptor) {
    static const int ONE = 1, IDLE_S = 5, INTERVAL_S = 5;
    static const unsigned LIMIT_MS = INLET_SILENCE_MS;
    (void)setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &ONE, sizeof(ONE));
    (void)setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &IDLE_S, sizeof(IDLE_S));
    (void)setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, &INTERVAL_S, sizeof(INTERVAL_S));
    (void)setsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &LIMIT_MS, sizeof(LIMIT_MS));
}

static int take_in(struct inlets *inlets, struct inlet *inlet, int descriptor, const char *peer) {
    char fault[TLS_FAULT_BYTES];
    if (inlets->tls && tls_refresh(inlets->tls, fault) < 0)
        note(inlets, "%s; the one before it stays in use", fault);
    *inlet = (struct inlet){.channel.descriptor = -1, .opened_us = inlets->now_us};
    snprintf(inlet->peer, sizeof(inlet->peer), "%s", peer);
    inlet->buffer = malloc(INLET_BYTES);
    if (!inlet->buffer || channel_open(&inlet->channel, descriptor, inlets->tls, NULL) < 0) {
        if (!inlet->buffer)
            close(descriptor);
        close_inlet(inlet);
        return -ENOMEM;
    }
    notice_silence(descriptor);
    int error = loop_watch(inlets->epoll, descriptor, EPOLLIN | EPOLLRDHUP,
                           inlets->inlet_tag + (uint64_t)(inlet - inlets->slots));
    if (error < 0)
        close_inlet(inlet);
    return error;
}

void inlets_accept(struct inlets *inlets, uint64_t now_us) {
    union endpoint peer;
    socklen_t bytes = sizeof(peer);
    char text[OPTION_ADDRESS_BYTES] = "?";
    memset(&peer, 0, sizeof(peer));
    inlets->now_us = now_us;
    int descriptor = accept4(inlets->listener, &peer.any, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor < 0)
        return;
    const void *address = peer.any.sa_family == AF_INET6 ? (const void *)&peer.v6.sin6_addr : &peer.v4.sin_addr;
    (void)inet_ntop(peer.any.sa_family, address, text, sizeof(text));
    size_t slot = 0;
    while (slot < INLETS && inlets->slots[slot].channel.descriptor >= 0)
        slot++;
    bool admitted = let_in(inlets, &peer);
    if (admitted && slot < INLETS && take_in(inlets, &inlets->slots[slot], descriptor, text) == 0) {
        inlets->counters.accepted++;
        return;
    }
    inlets->counters.refused++;
    note(inlets, "a connection from %s was refused: %s", text,
         !admitted ? "it is not the --peer" : "there are too many");
    if (!admitted || slot == INLETS)
        close(descriptor);
}

static void begin_session(struct inlets *inlets, const struct hello *hello) {
    inlets->session = hello->session;
    inlets->has_session = true;
    inlets->counters.sessions++;
    inlets->handler.session(inlets->handler.context, hello);
}

/* 0, or a negative errno when the connection broke. */
static int flush(struct inlet *inlet) {
    while (inlet->out_sent < inlet->out_used) {
        ssize_t sent = channel_send(&inlet->channel, inlet->out + inlet->out_sent, inlet->out_used - inlet->out_sent);
        if (sent < 0)
            return sent == -EAGAIN ? 0 : (int)sent;
        inlet->out_sent += (size_t)sent;
    }
    inlet->out_used = inlet->out_sent = 0;
    return 0;
}

/* Says why, and waits for the other end to close: a close of ours could overtake the sentence. */
static int refuse(struct inlets *inlets, struct inlet *inlet, const char *sentence) {
    inlets->counters.refused++;
    inlet->refused = true;
    note(inlets, "a connection from %s was refused: %s", inlet->peer, sentence);
    inlet->out_used = frame_write_refusal(inlet->out, sentence);
    int error = flush(inlet);
    if (error == 0)
        channel_finish(&inlet->channel);
    return error;
}

static int greet(struct inlets *inlets, struct inlet *inlet, const struct frame *frame) {
    struct hello hello;
    int error = frame_read_hello(frame, &hello);
    if (error == -EPROTONOSUPPORT)
        return refuse(inlets, inlet, "this destination is of another version of chart-tunnel");
    if (error < 0)
        return error;
    if (inlets->session != hello.session && inlets_count(inlets))
        return refuse(inlets, inlet, "another origin is connected; the tunnel is free when its connections have ended");
    inlet->greeted = true;
    inlets->last_error[0] = '\0';
    if (!inlets->has_session || inlets->session != hello.session)
        begin_session(inlets, &hello);
    frame_header(inlet->out, FRAME_WELCOME, 0, 0);
    inlet->out_used = FRAME_HEADER_BYTES;
    return flush(inlet);
}

/* The frame lies in the inlet's buffer: the device's header is put in its place there, before the packet. */
static int take_packet(struct inlets *inlets, struct inlet *inlet, const struct frame *frame) {
    uint8_t *payload = inlet->buffer + (frame->payload - inlet->buffer), *packet = payload;
    size_t bytes = frame->payload_bytes;
    struct offload offload = {0};
    if (frame->type == FRAME_OFFLOADED) {
        offload_read_wire(payload, &offload);
        packet += OFFLOAD_WIRE_BYTES;
        bytes -= OFFLOAD_WIRE_BYTES;
        if (offload_check(&offload, bytes) < 0)
            return -EBADMSG;
    }
    offload_write_device(&offload, packet - OFFLOAD_DEVICE_BYTES);
    inlets->counters.received_packets++;
    inlets->handler.packet(inlets->handler.context, frame->sequence, packet - OFFLOAD_DEVICE_BYTES,
                           bytes + OFFLOAD_DEVICE_BYTES);
    return 0;
}

static int take_frame(struct inlets *inlets, struct inlet *inlet, const struct frame *frame) {
    if (inlet->refused)
        return 0;
    if (!inlet->greeted)
        return greet(inlets, inlet, frame);
    switch (frame->type) {
    case FRAME_DATA:
    case FRAME_OFFLOADED:
        return take_packet(inlets, inlet, frame);
    case FRAME_BYE:
        inlet->bye = true;
        return 0;
    default:
        return -EBADMSG;
    }
}

/* Takes all whole frames out of an inlet's buffer: 0 or a negative errno. */
static int take_frames(struct inlets *inlets, struct inlet *inlet) {
    size_t at = 0;
    struct frame frame;
    ssize_t used;
    while ((used = frame_parse(inlet->buffer + at, inlet->used - at, &frame)) > 0) {
        int error = take_frame(inlets, inlet, &frame);
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

static void end(struct inlets *inlets, struct inlet *inlet, int error, const char *fault) {
    if (error == -EPROTO) {
        note(inlets, "a connection from %s was closed: %s", inlet->peer, fault);
        inlets->counters.broken++;
    } else if (error == -EBADMSG) {
        note(inlets, "a connection from %s was closed: what came is not a tunnel's frame", inlet->peer);
        inlets->counters.malformed++;
    } else if (!inlet->bye && !inlet->refused) {
        inlets->counters.broken++;
    }
    close_inlet(inlet);
}

/* One read: 1 when more may lie in TLS's buffer, 0 when not, -1 when the inlet is closed. */
static int receive(struct inlets *inlets, struct inlet *inlet) {
    char fault[TLS_FAULT_BYTES] = "";
    ssize_t got = channel_receive(&inlet->channel, inlet->buffer + inlet->used, INLET_BYTES - inlet->used, fault);
    if (got == -EAGAIN)
        return 0;
    if (got <= 0) {
        end(inlets, inlet, (int)got, fault);
        return -1;
    }
    inlet->used += (size_t)got;
    int error = take_frames(inlets, inlet);
    if (error < 0) {
        end(inlets, inlet, error, "");
        return -1;
    }
    inlets->counters.received_bytes += (uint64_t)got;
    return inlet->channel.ssl && SSL_has_pending(inlet->channel.ssl);
}

/* The handshake failed. What TLS had to say to the other end is on its way: a close of ours could overtake it. */
static void turn_away(struct inlets *inlets, struct inlet *inlet, const char *fault) {
    note(inlets, "a connection from %s was refused: %s", inlet->peer, fault);
    inlets->counters.refused++;
    inlet->refused = true;
    shutdown(inlet->channel.descriptor, SHUT_WR);
}

void inlets_event(struct inlets *inlets, size_t slot, uint64_t now_us) {
    struct inlet *inlet = &inlets->slots[slot];
    char fault[TLS_FAULT_BYTES] = "";
    inlets->now_us = now_us;
    if (inlet->channel.descriptor < 0)
        return;
    if (inlet->refused && !inlet->secured) {
        ssize_t got = recv(inlet->channel.descriptor, inlet->buffer, INLET_BYTES, 0);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
            close_inlet(inlet);
        return;
    }
    if (!inlet->secured) {
        int error = channel_handshake(&inlet->channel, fault);
        if (error == -EAGAIN)
            return;
        if (error < 0) {
            turn_away(inlets, inlet, fault);
            return;
        }
        inlet->secured = true;
    }
    while (receive(inlets, inlet) > 0)
        ;
}

void inlets_send_report(struct inlets *inlets, const struct report *report) {
    for (size_t i = 0; i < INLETS; i++) {
        struct inlet *inlet = &inlets->slots[i];
        if (inlet->channel.descriptor < 0 || !inlet->greeted || inlet->bye)
            continue;
        /* What is left of an earlier one goes first. */
        if (inlet->out_used == 0)
            inlet->out_used = frame_write_report(inlet->out, report);
        int error = flush(inlet);
        if (error < 0)
            end(inlets, inlet, error, "");
        else if (inlet->out_used == 0)
            return;
    }
}

void inlets_expire(struct inlets *inlets, uint64_t now_us) {
    for (size_t i = 0; i < INLETS; i++) {
        struct inlet *inlet = &inlets->slots[i];
        if (inlet->channel.descriptor >= 0 && !inlet->greeted && now_us - inlet->opened_us > INLET_HELLO_TIMEOUT_US) {
            if (!inlet->refused) {
                inlets->counters.refused++;
                note(inlets, "a connection from %s said nothing and was closed", inlet->peer);
            }
            close_inlet(inlet);
        }
    }
}
