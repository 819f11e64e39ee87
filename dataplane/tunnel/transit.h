/* Packets that were given to a connection and have not arrived yet, as far as TCP has told; and those of broken
 * connections, which want another one. Pure: lists only. */
#ifndef ITM_TRANSIT_H
#define ITM_TRANSIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "scheduler.h"

struct transit {
    struct queued_packet *first, *last;
};

void transit_append(struct transit *transit, struct queued_packet *packet);
/* Takes out the first; NULL when there is none. */
struct queued_packet *transit_take(struct transit *transit);
/* Frees those at the front whose last byte is before this place in the connection's stream. */
void transit_arrived(struct transit *transit, uint64_t place);
/* All of `from` among those of `into`, by number where both are in order. */
void transit_merge(struct transit *into, struct transit *from);
void transit_free(struct transit *transit);

#endif
