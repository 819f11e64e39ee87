/* One direction of a connection: octets go from one socket to the other through a pipe, inside the kernel.
 *
 * A pipe is held only while octets wait in it, so a thousand idle connections hold none. Octets wait where the receiver
 * is slower: in the pipe, then in the source's receive buffer, whose window then closes. */
#ifndef PROXY_PUMP_H
#define PROXY_PUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PIPE_BYTES (256 * 1024)
#define PIPES_KEPT 64

/* Empty pipes for whoever has octets next. */
struct pipes {
    int kept[PIPES_KEPT][2];
    size_t count;
};

void pipes_close(struct pipes *pipes);

struct pump {
    int from, to;
    int pipe[2]; /* -1: none, nothing waits */
    size_t waiting;
    uint64_t bytes; /* passed on so far */
    bool ended;     /* from has said all */
    bool finished;  /* and to was told so */
    bool to_broke;  /* after PUMP_RESET: which end did */
};

enum pump_result {
    PUMP_IDLE, /* waits for from or to */
    PUMP_MORE, /* did its share, there is more to do at once */
    PUMP_DONE, /* everything was passed on, the end too */
    PUMP_RESET /* the connection broke at either end; errno says why */
};

void pump_init(struct pump *pump, int from, int to);
/* Gives its pipe back, and what waits in it up. */
void pump_close(struct pump *pump, struct pipes *pipes);
/* Passes on what there is, up to about a megabyte, so that no connection keeps the others waiting. */
enum pump_result pump_run(struct pump *pump, struct pipes *pipes);
/* After `from` broke: passes on what it had said before, never the end. Whether nothing is left to pass on. */
bool pump_rest(struct pump *pump, struct pipes *pipes);

#endif
