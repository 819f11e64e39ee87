/* How a new connection joins the others. Its slow start would take far more than a share for some round trips, and
 * everybody would lose packets over it, since what a bottleneck averages follows slowly: the tunnel's rate would swing
 * with every change of m. So a connection that joins others which have found their windows is given no more than their
 * mean, and a segment more per round trip, until its first loss; from then on it is like any other. */
#ifndef ITM_JOINING_H
#define ITM_JOINING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pool;

struct joining {
    uint64_t window_bytes; /* of the others when it began; 0: it does not join, there is no bound */
    uint64_t mean_bytes;   /* of the others since */
    uint64_t since_us;
    uint32_t rtt_us, mss_bytes;
};

/* Of the connections that have found their windows. */
struct joining_others {
    uint64_t looked_us, mean_bytes;
};

/* The connection in this slot has just come up. */
void joining_begin(struct pool *pool, size_t slot, uint64_t now_us);
/* Whether the connection may be given more; ends its joining after its first loss. */
bool joining_room(struct joining *joining, int descriptor, uint64_t now_us);
/* Looks at the others' windows again; returns when somebody who joins may have room, UINT64_MAX for never. */
uint64_t joining_update(struct pool *pool, uint64_t now_us);

/* Bytes that may be unacknowledged. Pure. */
uint64_t joining_bound(const struct joining *joining, uint64_t now_us);

#endif
