/* Agents of one kernel hand each other trinity: its link and its maps as descriptors over a Unix socket. Finding them
 * by their ids instead needs CAP_SYS_ADMIN, which an agent with BPF, PERFMON and NET_ADMIN alone does not have.
 *
 * Each agent listens on TRINITY_DIRECTORY/<network namespace>.sock; agents in containers share that directory. */
#pragma once

#include "grants/trinity.h"

#define TRINITY_DIRECTORY "/run/chart-trinity"

struct agent_module;
extern const struct agent_module trinity_share_module;

/* Ask the other agents, one after the other. 0, -ENOENT when none of them answers, or another negative errno. */
int trinity_share_take(struct trinity *ret);
/* Remove the sockets of agents that were killed; only for who has just registered trinity: then there is no other. */
void trinity_share_clear(void);
