/* The sensor's side of a session; see session.h. */
#include "session.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "pacing.h"

int session_init(struct session *session, const struct keyring *keyring, const union address *local,
                 const union address *remote, struct failure *failure) {
    memset(session, 0, sizeof(*session));
    session->keyring = keyring;
    session->local = *local;
    session->remote = *remote;
    if (getrandom(&session->number, sizeof(session->number), 0) != (ssize_t)sizeof(session->number))
        return failure_set(failure, FAILURE_OTHER, "no random numbers from the kernel");
    return 0;
}

int64_t session_make(struct session *session, struct wire_header *header, size_t length, uint8_t *bytes) {
    int error;

    if (length < WIRE_HEADER_BYTES || length > WIRE_DATAGRAM_MAX_BYTES)
        return -EINVAL;
    header->key_id = session->keyring->keys[0].id;
    header->length = (uint16_t)length;
    header->session = session->number;
    header->token = session->token;
    header->sequence = ++session->sequence;
    memset(bytes, 0, length);
    wire_encode(header, bytes);
    error = keyring_sign(session->keyring, &session->local, &session->remote, bytes, length);
    return error < 0 ? error : (int64_t)header->sequence;
}

int64_t session_make_hello(struct session *session, uint8_t *bytes) {
    struct wire_header header = {.type = WIRE_HELLO, .time_ns = (uint64_t)pacing_wall_ns()};

    return session_make(session, &header, WIRE_HEADER_BYTES, bytes);
}

int session_read(struct session *session, const uint8_t *bytes, size_t length, struct wire_header *ret_header) {
    struct wire_header header;

    if (wire_decode(bytes, length, &header) < 0 || header.session != session->number)
        return -EBADMSG;
    if (header.type != WIRE_WELCOME && header.type != WIRE_ECHO_REPLY && header.type != WIRE_TRAIN)
        return -EBADMSG;
    if (!keyring_verify(session->keyring, header.key_id, &session->remote, &session->local, bytes, length))
        return -EBADMSG;
    if (header.type == WIRE_WELCOME) {
        /* A WELCOME of an earlier life of the responder must not replace a token in use. */
        if (session->token == 0)
            session->token = header.token;
    } else if (header.token != session->token) {
        return -EBADMSG;
    }
    *ret_header = header;
    return 0;
}

int session_unanswered(const struct session *session, const char *destination, int network_error,
                       struct failure *failure) {
    unsigned port = address_port(&session->remote);

    if (network_error && network_error != ECONNREFUSED)
        return failure_set(failure, FAILURE_UNREACHABLE, "%.200s: %s", destination, strerror(network_error));
    if (network_error)
        return failure_set(
            failure, FAILURE_UNREACHABLE,
            "%.100s: nothing listens on UDP port %u: start sensor-responder there, or name its port by --port",
            destination, port);
    return failure_set(failure, FAILURE_UNREACHABLE,
                       "%.100s: no sensor-responder answers on UDP port %u: start it there, let the port through, "
                       "and use the same key file at both ends",
                       destination, port);
}
