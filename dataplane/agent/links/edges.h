/* The policer on the interfaces of --edge, a part of the agent. */
#pragma once

struct agent_module;
extern const struct agent_module edges_module;
