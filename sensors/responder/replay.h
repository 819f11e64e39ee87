/* Replay protection: a sliding window of sequences per session (as RFC 4303 section 3.4.3) and a memory of HELLO times
 * per peer. */
#ifndef CHART_SENSORS_REPLAY_H
#define CHART_SENSORS_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REPLAY_WINDOW 1024u
#define REPLAY_HELLOS 32u

struct replay_window {
    uint32_t highest; /* 0: none seen; sequences start at 1 */
    uint64_t bits[REPLAY_WINDOW / 64];
};

/* Times of the latest HELLOs of a peer. Several sensors of one peer may say HELLO at once and out of order, so a single
 * "newer than the last" would refuse honest ones; a full memory raises the floor instead. */
struct replay_hellos {
    uint64_t floor_ns;
    size_t next;
    uint64_t times_ns[REPLAY_HELLOS];
};

/* True when the sequence is new, and remembers it. 0 is never new; what lies more than the window behind is not either.
 */
bool replay_window_accept(struct replay_window *window, uint32_t sequence);
/* True when this HELLO time is new for the peer, and remembers it. */
bool replay_hello_accept(struct replay_hellos *hellos, uint64_t time_ns);

#endif
