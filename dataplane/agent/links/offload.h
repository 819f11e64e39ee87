/* Bounds on segmentation offload of the links of an agent that shapes no queue (a rate file, no streams): one packet of
 * the sender's stack is at most a millisecond of the link's time, or flows with short RTTs send bursts of 64 KB that
 * stand in the bottleneck for 5 ms at 100 Mb/s. With streams htb.c sets the same bounds. */
#pragma once

#include "core/agent.h"

struct offload;

/* Bound the links whose capacity is configured. One that cannot be bounded is logged and no error: flows work, in
 * longer bursts. 0 or a negative errno. */
int offload_bound(const struct agent_options *options, struct offload **ret);

/* Put the sizes back and free; NULL is taken. */
void offload_restore(struct offload *offload);
