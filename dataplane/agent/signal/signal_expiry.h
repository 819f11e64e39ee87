/* When an entry of the tables `signal_flows` and `signal_users` is over, so that the agent takes it out: nothing else
 * does, since a table that evicts by itself would let a flood of new flows push out those that hold a rate. Pure. */
#pragma once

#include <linux/bpf.h>
#include <stdbool.h>
#include <stdint.h>

#include "signal_maps.h"

/* A flow is over when no link keeps anything for it, no rate of it is in force, it has nothing to wait for, and its
 * last request is config->idle_ns ago; only config->commitment_ns when the table is `pressed` for room. */
bool signal_flow_over(const struct chart_signal_flow *flow, const struct chart_signal_config *config, uint64_t now_ns,
                      bool pressed);
/* A user is over when the last of its flows is, and nothing was written to it for a second. */
bool signal_user_over(const struct chart_signal_user *user, uint64_t now_ns);
