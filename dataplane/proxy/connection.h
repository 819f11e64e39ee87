/* One connection of a host: its two sockets, two pumps, and where it stands. */
#ifndef PROXY_CONNECTION_H
#define PROXY_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "flow.h"
#include "pump.h"

#define CONNECTION_NONE UINT32_MAX

enum connection_state {
    CONNECTION_FREE,
    CONNECTION_HELD,
    CONNECTION_ACCEPTING,
    CONNECTION_OPEN,
    CONNECTION_BREAKING,
    CONNECTION_CLOSING
};

struct connection {
    struct flow flow;
    enum connection_state state;
    uint16_t
        generation;    /* of this place in the table: an event of the connection that was here before is none of ours */
    bool host_broke;   /* breaking: which end did */
    bool again;        /* in the list of those with more to do */
    int host, onward;  /* sockets; -1: none */
    uint32_t packet;   /* held: its number in the queue */
    uint32_t next;     /* in the list of free ones, or of those with more to do */
    uint64_t since_us; /* open: when octets passed last; else: since when */
    struct pump onwards, back;
};

/* What is to be done about a connection as time passes. Pure. */
enum connection_due { DUE_NOTHING, DUE_UNANSWERED, DUE_UNACCEPTED, DUE_IDLE, DUE_BROKEN, DUE_CLOSED };

struct connection_limits {
    uint64_t connect_us, accept_us, idle_us, break_us, close_us;
};

enum connection_due connection_due(const struct connection *connection, const struct connection_limits *limits,
                                   uint64_t now_us);

#endif
