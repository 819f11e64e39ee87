/* How many sessions run under each session rule: a walk over the flow table of the program `signal`, in steps that
 * keep the agent's loop free. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct session_count {
    uint32_t sessions;  /* whose rate is agreed */
    uint32_t expedited; /* of them: whose packets go before others */
    uint64_t guaranteed_bps;
};

struct session_walk;

/* `flows_fd`: map signal_flows, stays the caller's. NULL: no memory. */
struct session_walk *session_walk_new(int flows_fd);
void session_walk_free(struct session_walk *walk);
/* Go on, a few thousand flows; true: the walk has come to its end, the counts are those of now. 0 or a negative errno
 * in ret_error, then the next step begins anew. */
bool session_walk_step(struct session_walk *walk, uint64_t now_ns, int *ret_error);
/* Rule `rule` is no more: whoever gets its number begins at nothing. */
void session_walk_forget(struct session_walk *walk, uint16_t rule);
/* Of a rule by its number, as the last walk found them; zeros for numbers that there are not. */
struct session_count session_walk_count(const struct session_walk *walk, uint16_t rule);
