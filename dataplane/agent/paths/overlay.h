/* The overlay as a part of the agent: its table comes from --overlay-file or from the streams; the kernel's program
 * forwards, and goes on forwarding while this process is busy. When the agent ends, its programs and its device go, and
 * packets take the way that the kernel's routes say. */
#pragma once

#include "core/agent.h"
#include "paths/overlay_table.h"

extern const struct agent_module overlay_module;
