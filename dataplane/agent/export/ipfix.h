/* Flow records to the collector of --ipfix or of the policy, a part of the agent. */
#pragma once

struct agent;
struct agent_module;
extern const struct agent_module ipfix_module;

/* Send them to this collector from now on, "ADDR:PORT" or "[ADDR]:PORT"; "": to nobody. An address that is none is
 * logged and shown, and nobody gets them. */
void ipfix_send_to(const struct agent *agent, const char *collector);
