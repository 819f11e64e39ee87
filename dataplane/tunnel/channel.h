/* Bytes over one TCP connection, plain or TLS; never blocks. */
#ifndef ITM_CHANNEL_H
#define ITM_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "tls.h"

struct channel {
    int descriptor; /* -1: closed */
    SSL *ssl;       /* NULL: plain */
};

/* Takes the descriptor; tls NULL for plain, address as tls_connection. 0 or -ENOMEM (the descriptor is closed). */
int channel_open(struct channel *channel, int descriptor, struct tls *tls, const char *address);
void channel_close(struct channel *channel);
/* Takes the handshake on: 0 when it is done (plain: at once), -EAGAIN, or -EPROTO with a sentence in fault. */
int channel_handshake(struct channel *channel, char fault[TLS_FAULT_BYTES]);
/* Bytes taken (at least one), -EAGAIN when there is no room, or another negative errno: the connection is of no use any
 * more. After -EAGAIN the same bytes must come first again. */
ssize_t channel_send(struct channel *channel, const void *bytes, size_t count);
/* Bytes got, 0 at the end of the stream, -EAGAIN, or another negative errno; on -EPROTO a sentence stands in fault. */
ssize_t channel_receive(struct channel *channel, void *bytes, size_t count, char fault[TLS_FAULT_BYTES]);
/* Nothing will be sent any more. */
void channel_finish(struct channel *channel);

#endif
