/* The sensor's side of a session with a sensor-responder: who is spoken to, and how datagrams are made and checked
 * (wire.h). No I/O and no waiting; callers send, receive and time out as suits them. */
#ifndef CHART_SENSORS_SESSION_H
#define CHART_SENSORS_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "address.h"
#include "failure.h"
#include "keyring.h"
#include "wire.h"

struct session {
    const struct keyring *keyring;
    union address local;
    union address remote;
    uint64_t number;
    uint64_t token; /* 0 until WELCOME */
    uint32_t sequence;
};

int session_init(struct session *session, const struct keyring *keyring, const union address *local,
                 const union address *remote, struct failure *failure);
/* Sign a datagram of `length` bytes: header fields type, train, index, count are the caller's, the rest is set here.
 * `bytes` holds WIRE_DATAGRAM_MAX_BYTES; padding is zero. Returns the sequence used, or a negative errno. */
int64_t session_make(struct session *session, struct wire_header *header, size_t length, uint8_t *bytes);
int64_t session_make_hello(struct session *session, uint8_t *bytes);
/* Check an answer: authentic, of this session, in reply to us. -EBADMSG otherwise. Learns the token from WELCOME. */
int session_read(struct session *session, const uint8_t *bytes, size_t length, struct wire_header *ret_header);
/* Say what to do where no WELCOME came: `network_error` is the last errno of the socket or 0. Returns -1. */
int session_unanswered(const struct session *session, const char *destination, int network_error,
                       struct failure *failure);

#endif
