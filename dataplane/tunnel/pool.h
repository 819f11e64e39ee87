/* The origin's TCP connections: ordinary kernel TCP, opened and closed as the wanted number changes, each with a buffer
 * of one batch. A connection that closes is drained first: its buffer goes out, BYE, then the destination's end of
 * stream. One that breaks gives back the frames the kernel had not taken whole; they go out over another one under
 * their old number. */
#ifndef ITM_POOL_H
#define ITM_POOL_H

#include <stdbool.h>

#include "elasticity.h"
#include "frame.h"
#include "options.h"
#include "scheduler.h"

/* Draining ones are beside those wanted. */
#define POOL_SLOTS (2 * TUNNEL_CONNECTIONS_MAX)
/* A batch, the frame that ends it, a HELLO and a BYE. */
#define POOL_OUT_BYTES (65536 + 2 * (FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX))
#define POOL_IN_BYTES 512
#define POOL_CONNECT_TIMEOUT_US 5000000
#define POOL_DRAIN_TIMEOUT_US 30000000
/* The kernel gives a connection up when nothing is acknowledged for this long. */
#define POOL_USER_TIMEOUT_MS 20000

enum connection_state {
    CONNECTION_FREE,
    CONNECTION_CONNECTING,
    CONNECTION_UP,
    CONNECTION_DRAINING,
    CONNECTION_WAITING /* for another attempt */
};

struct connection {
    enum connection_state state;
    int descriptor;
    bool room, said_bye, finished; /* finished: BYE is out and our side closed */
    uint64_t deadline_us;          /* of connecting, draining or waiting */
    uint64_t order;                /* of opening, to close the youngest first */
    uint32_t failures;             /* in a row */
    size_t out_used, out_sent, in_used;
    uint8_t out[POOL_OUT_BYTES], in[POOL_IN_BYTES];
};

struct pool_counters {
    uint64_t opened, closed, broken, connect_failures, drain_timeouts, resent_packets, sent_packets, sent_bytes;
};

struct pool {
    const struct options *options;
    struct scheduler *scheduler;
    int epoll;
    uint64_t epoll_tag; /* added to a slot's number in the event's data */
    uint64_t session, next_sequence, opened_order;
    struct connection *slots; /* POOL_SLOTS */
    size_t round;             /* where the next search for room begins */
    uint8_t *carry;           /* whole frames of broken connections */
    size_t carry_used, carry_sent;
    struct report report;
    uint64_t report_at_us; /* 0: none yet */
    struct pool_counters counters;
    char last_error[192];
};

/* 0 or -ENOMEM. */
int pool_init(struct pool *pool, const struct options *options, struct scheduler *scheduler, int epoll,
              uint64_t epoll_tag, uint64_t session);
void pool_free(struct pool *pool);
/* Opens, closes, times out and tries again so that `wanted` connections are there or on their way. Returns when it
 * wants to be called again at the latest. */
uint64_t pool_update(struct pool *pool, uint32_t wanted, uint64_t now_us);
/* Events of a slot. */
void pool_event(struct pool *pool, size_t slot, uint32_t events, uint64_t now_us);
/* Gives packets to connections with room. */
void pool_pump(struct pool *pool, uint64_t now_us);
uint32_t pool_count(const struct pool *pool, enum connection_state state);

#endif
