/* The local control socket <state-dir>/agent.sock: one JSON object in, one out, then closed.
 *
 *   {"command": "status"}   {"command": "off"}   {"command": "on"}   {"command": "explain", "flow": "10.0.0.1:5001"}
 * Answers: {"ok": true, ...} or {"ok": false, "error": "sentence"}. */
#pragma once

#include "core/options.h"

struct agent_module;
extern const struct agent_module control_module;

/* The other end: `chart-agent --off` and its like. Returns the exit status. */
int control_client(const struct options *options, const char *command);
/* `chart-agent --cleanup`; works without an agent. Returns the exit status. */
int control_cleanup(const struct options *options);
