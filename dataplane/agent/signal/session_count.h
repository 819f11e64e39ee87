/* A walk over the tables of flows and users of the program `signal`, in steps that keep the agent's loop free: how many
 * sessions run under each session rule, and what is over is taken out (signal_expiry.h). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct session_count {
    uint32_t sessions;  /* whose rate is agreed */
    uint32_t expedited; /* of them: whose packets go before others */
    uint64_t guaranteed_bps;
};

struct session_walk;
struct signal_tables;

/* `tables` stay the caller's. NULL: no memory. */
struct session_walk *session_walk_new(const struct signal_tables *tables);
void session_walk_free(struct session_walk *walk);
/* Go on, a few thousand entries; true: the walk has come to its end, the counts are those of now. 0 or a negative errno
 * in ret_error, then the next step begins anew. */
bool session_walk_step(struct session_walk *walk, uint64_t now_ns, int *ret_error);
/* Rule `rule` is no more: whoever gets its number begins at nothing. */
void session_walk_forget(struct session_walk *walk, uint16_t rule);
/* Of a rule by its number, as the last walk found them; zeros for numbers that there are not. */
struct session_count session_walk_count(const struct session_walk *walk, uint16_t rule);
/* Entries that the last walk left in the table of flows. */
uint32_t session_walk_kept(const struct session_walk *walk);
