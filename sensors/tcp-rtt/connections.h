/* What the kernel tells of TCP connections by sock_diag (inet_diag(7), struct tcp_info). Parsing and summing are pure.
 */
#ifndef CHART_SENSORS_CONNECTIONS_H
#define CHART_SENSORS_CONNECTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "address.h"
#include "failure.h"

/* More are counted but not looked at. */
#define CONNECTIONS_MAX 65536

struct connection {
    uint64_t cookie; /* the kernel's name for the socket */
    uint32_t rtt_us; /* smoothed; 0: not measured yet */
    uint32_t rtt_min_us;
    uint32_t segments; /* with data, sent so far, repeated ones included */
    uint32_t repeated;
    union address remote;
};

struct connections {
    size_t count;
    size_t capacity;
    size_t not_kept;
    struct connection *items;
};

/* Add what one netlink message of `length` bytes tells, if it is an established connection to `remote` (NULL: to
 * anybody). False when the message makes no sense. */
bool connections_add_message(struct connections *connections, const void *message, size_t length,
                             const union address *remote);
/* Read all established connections of this host (network namespace). */
int connections_read(const union address *remote, struct connections *ret_connections, struct failure *failure);
void connections_free(struct connections *connections);

struct connections_summary {
    size_t measured; /* connections with a round-trip time */
    double rtt_us;   /* mean, weighted by segments sent meanwhile (all alike when none were) */
    double rtt_min_us;
    uint64_t segments; /* sent meanwhile */
    uint64_t repeated;
};

/* What happened between two readings; a connection that is only in the later one counts from its beginning. */
struct connections_summary connections_summarise(const struct connections *before, const struct connections *after);

#endif
