/* See connection.h. */
#include "connection.h"

enum connection_due connection_due(const struct connection *connection, const struct connection_limits *limits,
                                   uint64_t now_us) {
    uint64_t waited_us = now_us > connection->since_us ? now_us - connection->since_us : 0;
    switch (connection->state) {
    case CONNECTION_HELD:
        return waited_us >= limits->connect_us ? DUE_UNANSWERED : DUE_NOTHING;
    case CONNECTION_ACCEPTING:
        return waited_us >= limits->accept_us ? DUE_UNACCEPTED : DUE_NOTHING;
    case CONNECTION_OPEN:
        return waited_us >= limits->idle_us ? DUE_IDLE : DUE_NOTHING;
    case CONNECTION_BREAKING:
        return waited_us >= limits->break_us ? DUE_BROKEN : DUE_NOTHING;
    case CONNECTION_CLOSING:
        return waited_us >= limits->close_us ? DUE_CLOSED : DUE_NOTHING;
    case CONNECTION_FREE:
        break;
    }
    return DUE_NOTHING;
}
