/* The origin's connections, opened and closed as the wanted number changes. A connection that closes is drained first:
 * its buffer goes out, BYE, then the destination's end of stream. One that breaks gives back the packets
 * that were not acknowledged; they go out over another one under their old number. */
#ifndef ITM_POOL_H
#define ITM_POOL_H

#include <stdbool.h>

#include "connection.h"
#include "elasticity.h"
#include "resend.h"
#include "scheduler.h"
#include "shaper.h"

/* Draining ones are beside those wanted. */
#define POOL_SLOTS (2 * TUNNEL_CONNECTIONS_MAX)

struct pool_counters {
    uint64_t opened, closed, broken, connect_failures, drain_timeouts, resent_packets, repeated_packets, sent_packets,
        sent_bytes;
};

struct pool {
    const struct options *options;
    struct scheduler *scheduler;
    struct tls *tls; /* NULL: plain */
    int epoll;
    uint64_t epoll_tag; /* added to a slot's number in the event's data */
    uint64_t session, next_sequence, opened_order;
    struct connection *slots[POOL_SLOTS]; /* NULL: free */
    size_t bound;                         /* all from here on are free */
    size_t round;                         /* where the next search for room begins */
    struct transit again;                 /* packets of broken connections */
    struct resend resend;
    struct shaper shaper;
    struct report report;
    uint64_t report_at_us; /* 0: none yet */
    struct joining_others others;
    struct pool_counters counters;
    char last_error[CONNECTION_FAULT_BYTES + 96];
};

void pool_init(struct pool *pool, const struct options *options, struct scheduler *scheduler, struct tls *tls,
               int epoll, uint64_t epoll_tag, uint64_t session);
void pool_free(struct pool *pool);
/* Opens, closes, times out and tries again so that `wanted` connections are there or on their way. Returns when it
 * wants to be called again at the latest. */
uint64_t pool_update(struct pool *pool, uint32_t wanted, uint64_t now_us);
/* Events of a slot. */
void pool_event(struct pool *pool, size_t slot, uint32_t events, uint64_t now_us);
/* Gives packets to connections with room. */
void pool_pump(struct pool *pool, uint64_t now_us);
/* Users' packets wait, here or in the scheduler. */
bool pool_backlogged(const struct pool *pool);
/* When packets that wait for the shaper may go, UINT64_MAX when none do. */
uint64_t pool_shaped_until_us(const struct pool *pool, uint64_t now_us);
/* TCP_INFO of one connection. */
struct pool_window {
    uint32_t cwnd_segments, rtt_us, mss_bytes;
    uint64_t retransmitted_segments;
};

/* False when there is no connection in this slot that is up. */
bool pool_window(const struct pool *pool, size_t slot, struct pool_window *ret);
uint32_t pool_count(const struct pool *pool, enum connection_state state);
/* Remembers a sentence as the last error and tells it, unless it is the same again. */
void pool_note(struct pool *pool, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
