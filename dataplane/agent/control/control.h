/* The local control socket <state-dir>/agent.sock: one JSON object in, one out, then closed.
 *
 *   {"command": "status"}   {"command": "off"}   {"command": "on"}   {"command": "explain", "flow": "10.0.0.1:5001"}
 * Answers: {"ok": true, ...} or {"ok": false, "error": "sentence"}. */
#pragma once

#include <stdbool.h>

#include "core/options.h"
#include "grants/decide.h"

const char *control_mode_name(enum decide_mode mode);

/* The other end: `chart-agent --off` and its like. Returns the exit status. */
int control_client(const struct options *options, const char *command);
/* `chart-agent --cleanup`; works without an agent. Returns the exit status. */
int control_cleanup(const struct options *options);

/* main.c: throw the off switch; let every part add to the status. */
int control_switch(struct agent *agent, bool off);
void control_statuses(struct agent *agent, struct cJSON *object);
