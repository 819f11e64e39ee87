/* In-band signalling as a part of the agent; signal_source.h is what other parts ask it. */
#pragma once

struct agent_module;
extern const struct agent_module signal_module;
