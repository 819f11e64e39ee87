/* Bounds on segmentation offload of the links of an agent that shapes no queue (a rate file, no streams), a part of the
 * agent: one packet of the sender's stack is at most a millisecond of the link's time, or flows with short RTTs send
 * bursts of 64 KB that stand in the bottleneck for 5 ms at 100 Mb/s. With streams htb.c sets the same bounds. */
#pragma once

struct agent_module;
extern const struct agent_module offload_module;
