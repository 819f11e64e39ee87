/* The control socket of a link: one JSON object per line in, one per line out (unix stream socket).
 *
 *   {"command": "set", "direction": "forward" | "reverse" | "both", "parameters": {...}}    see json.h
 *   {"command": "outage", "direction": ..., "duration_us": N}     0 or absent: until told otherwise
 *   {"command": "link", "spin_us": N}                             parameters of the whole link
 *   {"command": "get"}  {"command": "counters"}  {"command": "reset"}  {"command": "quit"}
 * Answers: {"ok": true, ...} or {"ok": false, "error": "sentence"}. */
#ifndef LINKEM_CONTROL_H
#define LINKEM_CONTROL_H

#include <poll.h>
#include <stdbool.h>

#include "direction.h"

#define CONTROL_CLIENTS 8
#define CONTROL_LINE_BYTES 65536

struct link {
    struct direction forward; /* left to right */
    struct direction reverse;
    uint64_t spin_ns;
    bool stop;
};

struct control_client {
    int descriptor;
    size_t used;
    char line[CONTROL_LINE_BYTES];
};

struct control {
    int listener;
    struct control_client clients[CONTROL_CLIENTS];
};

/* Listens on a path (an old socket file is replaced); 0 or a negative errno. */
int control_open(struct control *control, const char *path);
void control_close(struct control *control);
/* Fills in up to 1 + CONTROL_CLIENTS entries and returns how many. */
size_t control_poll_entries(const struct control *control, struct pollfd *entries);
/* Serves whoever is readable according to entries of the call before. */
void control_serve(struct control *control, const struct pollfd *entries, size_t count, struct link *link,
                   uint64_t now_ns);
/* Answers one line; the string is the caller's to free(). */
char *control_answer(struct link *link, const char *line, uint64_t now_ns);

#endif
