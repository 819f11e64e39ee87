/* The control socket: one JSON object per line in, one per line out (unix stream socket, readable by its owner only).
 *
 *   {"command": "get"}                                      state, counters, windows, the destination's last report
 *   {"command": "set", "connections": M, "lease_ms": N}     origin; lease 0 or absent: for good
 *       "limit_bps": B                                      with connections; payload let out at most, absent: all
 *   {"command": "set", "weights": {"NAME": N, ...}}         origin; both forms may be joined
 *   {"command": "application", ...}                         see application_control.h
 *   {"command": "quit"}
 * Answers: {"ok": true, ...} or {"ok": false, "error": "sentence"}. */
#ifndef ITM_CONTROL_H
#define ITM_CONTROL_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONTROL_CLIENTS 8
#define CONTROL_LINE_BYTES 65536
#define CONTROL_ANSWER_BYTES (1 << 20)

struct control_client {
    int descriptor;
    size_t used;
    char line[CONTROL_LINE_BYTES];
};

/* Answers a command by adding members to answer; an error is a sentence in *ret_error (static or in the context). */
typedef void control_answer(void *context, const cJSON *command, cJSON *answer, const char **ret_error);

struct control {
    int listener;
    const char *path;
    control_answer *answer;
    void *context;
    struct control_client clients[CONTROL_CLIENTS];
};

/* Nothing is open: control_close may be called. */
void control_init(struct control *control);
/* Listens on a path: 0, or a negative errno after a sentence on standard error (-EADDRINUSE: somebody answers there).
 */
int control_open(struct control *control, const char *path, control_answer *answer, void *context);
void control_close(struct control *control);
/* A new client is waiting: returns its index, or -1 when there are too many. */
int control_accept(struct control *control);
/* Serves a client that is readable; false when it is gone. */
bool control_serve(struct control *control, int client);
#define CONTROL_GET "{\"command\":\"get\"}"

/* A client: sends a running tunnel a line and returns its answer, which the caller frees. NULL after a sentence on
 * standard error; a tunnel that does not answer is waited for two seconds. */
char *control_ask(const char *path, const char *line);
/* Whether the command's member of this name is this string. */
bool control_names(const cJSON *command, const char *member, const char *value);

#endif
