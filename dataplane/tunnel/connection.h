/* One of the origin's TCP connections: ordinary kernel TCP with a buffer of one batch. It is connected, secured where
 * the tunnel has TLS, greeted, and carries users' packets only after the destination's welcome, so that a destination
 * which refuses it costs none. */
#ifndef ITM_CONNECTION_H
#define ITM_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "channel.h"
#include "frame.h"
#include "joining.h"
#include "options.h"
#include "transit.h"

/* A batch, the frame that ends it, a HELLO and a BYE. */
#define CONNECTION_OUT_BYTES (65536 + 2 * (FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX))
#define CONNECTION_IN_BYTES 512
#define CONNECTION_TIMEOUT_US 5000000
#define CONNECTION_DRAIN_TIMEOUT_US 30000000
/* The kernel gives a connection up when nothing is acknowledged for this long. */
#define CONNECTION_USER_TIMEOUT_MS 20000
#define CONNECTION_FAULT_BYTES TLS_FAULT_BYTES

enum connection_state {
    CONNECTION_CONNECTING,
    CONNECTION_SECURING,
    CONNECTION_GREETING, /* HELLO is sent, the welcome has not come */
    CONNECTION_UP,
    CONNECTION_DRAINING,
    CONNECTION_WAITING /* for another attempt */
};

struct connection {
    enum connection_state state;
    struct channel channel;
    bool room, said_bye, finished; /* finished: BYE is out and our side closed */
    uint64_t deadline_us;          /* of connecting, draining or waiting */
    uint64_t up_since_us;
    struct joining joining;
    uint64_t order;                      /* of opening, to close the youngest first */
    uint32_t failures;                   /* in a row */
    struct transit transit;              /* packets that the other end has not acknowledged */
    uint64_t loaded_bytes;               /* ever put into the buffer */
    uint64_t arrived_bytes, progress_us; /* of those acknowledged, as last seen, and when there were more */
    size_t out_used, out_sent, in_used;
    uint8_t out[CONNECTION_OUT_BYTES], in[CONNECTION_IN_BYTES];
};

/* A frame that came from the destination, HELLO and the like included. 0 or a negative errno. */
typedef int connection_frame(void *context, const struct frame *frame);

/* Begins to connect, and watches the connection under this tag: 0 or a negative errno. */
int connection_open(struct connection *connection, const struct options *options, struct tls *tls, int epoll,
                    uint64_t tag);
/* Forgets what is buffered. */
void connection_close(struct connection *connection);
/* The error that the kernel noted, 0 for none. */
int connection_pending_error(const struct connection *connection);
/* Puts HELLO first into the empty buffer. */
void connection_hello(struct connection *connection, const struct hello *hello);
/* Hands the buffer to the kernel: 0 (some may be left; room says), or a negative errno when the connection broke. */
int connection_flush(struct connection *connection);
/* Reads all that is there: 1 while more may come, 0 at the end of the stream, or a negative errno (-EPROTO: fault). */
int connection_receive(struct connection *connection, connection_frame *take, void *context,
                       char fault[CONNECTION_FAULT_BYTES]);
/* Up to where in its stream the other end has what was put into the buffer; with TLS a little less. */
uint64_t connection_acknowledged(const struct connection *connection);
/* A draining connection whose buffer is out says so and closes its side: 0 or a negative errno. */
int connection_finish(struct connection *connection);
/* A sentence for an errno of these functions; the fault where it says more. */
const char *connection_reason(int error, const char *fault);

#endif
