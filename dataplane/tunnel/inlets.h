/* The destination's side of the connections: taking them in, securing and greeting them, and handing out what comes
 * over them. One origin at a time: while one has a connection, a HELLO of another session is refused. */
#ifndef ITM_INLETS_H
#define ITM_INLETS_H

#include <stdbool.h>
#include <stdint.h>

#include "channel.h"
#include "elasticity.h"
#include "frame.h"
#include "options.h"

/* Those that are refused or do not speak, beside the origin's. */
#define INLETS (2 * TUNNEL_CONNECTIONS_MAX + 16)
#define INLET_BYTES 131072
/* Whoever connects has this long to say HELLO. */
#define INLET_HELLO_TIMEOUT_US 5000000U
/* Connections whose other end has not answered for so long are over. */
#define INLET_SILENCE_MS 20000U

struct inlet {
    struct channel channel; /* descriptor -1: free */
    bool secured, greeted, refused, bye;
    uint64_t opened_us;
    size_t out_used, out_sent, used;
    uint8_t out[2 * (FRAME_HEADER_BYTES + FRAME_REFUSAL_MAX)];
    char peer[OPTION_ADDRESS_BYTES];
    uint8_t *buffer; /* INLET_BYTES while open */
};

struct inlets_handler {
    /* A new origin, or the same one after a restart. */
    void (*session)(void *context, const struct hello *hello);
    /* A user's packet, OFFLOAD_DEVICE_BYTES before it included. */
    void (*packet)(void *context, uint64_t sequence, const uint8_t *bytes, size_t count);
    void *context;
};

struct inlets_counters {
    uint64_t accepted, refused, broken, malformed, sessions, received_bytes, received_packets;
};

struct inlets {
    const struct options *options;
    struct tls *tls; /* NULL: plain */
    int epoll, listener;
    uint64_t listener_tag, inlet_tag;
    struct inlets_handler handler;
    struct inlet *slots; /* INLETS */
    uint64_t session, now_us;
    bool has_session;
    struct inlets_counters counters;
    char last_error[TLS_FAULT_BYTES + 96];
};

/* Listens: 0, or a negative errno after a sentence on standard error. */
int inlets_open(struct inlets *inlets, const struct options *options, struct tls *tls, int epoll, uint64_t listener_tag,
                uint64_t inlet_tag, const struct inlets_handler *handler);
void inlets_close(struct inlets *inlets);
/* Somebody connects. */
void inlets_accept(struct inlets *inlets, uint64_t now_us);
/* A slot can be read. */
void inlets_event(struct inlets *inlets, size_t slot, uint64_t now_us);
/* Over one connection of the session; one that is full is passed over. */
void inlets_send_report(struct inlets *inlets, const struct report *report);
/* Closes those that have not said HELLO in time. */
void inlets_expire(struct inlets *inlets, uint64_t now_us);
/* Connections of the session that are open. */
uint64_t inlets_count(const struct inlets *inlets);

#endif
