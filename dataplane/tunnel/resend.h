/* Packets that are stuck. When a connection loses a retransmission, or most of a small window, it waits for a timeout
 * that doubles, and everything that the others carry meanwhile is held at the destination for the packets it still has.
 * So the packets of a connection where nothing was acknowledged for several round trips go out over another one as
 * well, under their numbers; the destination drops whichever comes second. */
#ifndef ITM_RESEND_H
#define ITM_RESEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pool;
struct queued_packet;

/* Found at once; the rest at the next look. */
#define RESEND_STUCK_MAX 64

struct resend {
    struct {
        struct queued_packet *packet;
        size_t slot;
    } stuck[RESEND_STUCK_MAX];
    size_t count;
    uint64_t look_at_us;
};

/* Forgets what has arrived and looks for what is stuck, when it is time; returns when it will be time again. */
uint64_t resend_update(struct pool *pool, uint64_t now_us);
/* A stuck packet of another connection, for this one to carry, too; NULL when there is none. It stays where it is. */
struct queued_packet *resend_next(struct pool *pool, size_t slot);
/* Packets have moved: what was found no longer holds. */
void resend_forget(struct pool *pool);

/* After how long without an acknowledgement a connection is stuck. Pure. */
uint64_t resend_patience_us(uint32_t rtt_us);

#endif
