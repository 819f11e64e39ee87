/* Decisions of the sensor-responder: what to do with one datagram. No I/O, no clock of its own, so that tests and the
 * fuzzer drive it directly.
 *
 * It must be useless to anybody without the key, and of little use to a thief of packets:
 * - nothing happens before the code of the datagram, which covers the source address, is verified;
 * - HELLO opens a session; one of the same peer with a time that was seen, or older than all remembered, is a replay;
 * - any other datagram needs the session's token, which is random per responder run, and a sequence not seen before;
 * - a reply goes to the datagram's source only, is never longer than the datagram, and is taken from the peer's token
 *   bucket; when the bucket is empty there is none. */
#ifndef CHART_SENSORS_RESPONDER_H
#define CHART_SENSORS_RESPONDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "address.h"
#include "keyring.h"
#include "wire.h"

#define RESPONDER_SESSIONS 128
#define RESPONDER_PEERS 512
#define RESPONDER_TRAINS 32
#define RESPONDER_TRAIN_PACKETS 256

struct responder_limits {
    double replies_per_s; /* per peer host */
    double burst_replies;
};

struct responder_counters {
    uint64_t received;
    uint64_t received_bytes;
    uint64_t replies;
    uint64_t reply_bytes;
    uint64_t chirp_packets;
    uint64_t refused_malformed;
    uint64_t refused_unauthenticated;
    uint64_t refused_replayed;
    uint64_t refused_unknown_session;
    uint64_t refused_rate;
};

struct responder_datagram {
    const uint8_t *bytes;
    size_t length;
    union address source;
    union address destination;
    int64_t arrived_at_ns; /* CLOCK_REALTIME, kernel timestamp */
    int64_t now_ns;        /* CLOCK_REALTIME, when the reply is about to leave */
    int64_t monotonic_ns;  /* for the token buckets */
};

struct responder;

/* The keyring must outlive the responder. NULL when there is no memory or no random numbers. */
struct responder *responder_new(const struct keyring *keyring, const struct responder_limits *limits);
void responder_free(struct responder *responder);
/* Handle one datagram; returns the length of the reply in `ret_reply` (WIRE_DATAGRAM_MAX_BYTES), 0 for none. */
size_t responder_handle(struct responder *responder, const struct responder_datagram *datagram, uint8_t *ret_reply);
const struct responder_counters *responder_counters(const struct responder *responder);

#endif
