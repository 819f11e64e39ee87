/* Flow records to the collector of --ipfix, a part of the agent. */
#pragma once

struct agent_module;
extern const struct agent_module ipfix_module;
