/* The overlay as a part of the agent: its table comes from --overlay-file, else from the streams; the kernel's program
 * forwards, and goes on forwarding while this process is busy. When the agent ends, its programs and its device go, and
 * packets take the way that the kernel's routes say. */
#pragma once

#include "core/agent.h"
#include "overlay_maps.h"
#include "paths/flow_paths.h"
#include "paths/grant_paths.h"
#include "paths/overlay_table.h"

extern const struct agent_module overlay_module;

/* One link as the node tells of it. */
struct overlay_link_report {
    const char *name;
    bool alive;
    uint32_t rtt_us;
    double exchange_loss;
    uint64_t failures;
    uint64_t forwarded_packets;
    uint64_t forwarded_bytes;
};

struct overlay_report {
    /* False: nothing else is said. */
    bool running;
    uint64_t generation;
    struct overlay_link_report links[OVERLAY_LINKS_MAX];
    size_t n_links;
    struct flow_path_report paths[FLOW_PATHS_MAX];
    size_t n_paths;
    struct overlay_event events[OVERLAY_EVENTS_MAX];
    size_t n_events;
    /* Events since the agent's start: another number than before is a reason to tell at once. */
    uint64_t all_events;
    /* Other nodes that none of this one's links which answer probes leads to. */
    size_t unreachable_owners;
    struct chart_overlay_counters counted;
};

/* Follow this table of the streams from now on, and keep it for the next start; it is taken over. Of no effect beside
 * --overlay-file. */
void overlay_follow(const struct agent *agent, struct overlay_table *table, uint64_t generation);

/* Have the flows of these grants, and of no others, take the paths that their links make. */
void overlay_follow_grants(const struct agent *agent, const struct overlay_grant *grants, size_t n);

/* What the overlay does; names live until the next call of overlay_follow or of the loop. */
void overlay_report(const struct agent *agent, struct overlay_report *ret);
/* Events since the agent's start: another number than before is a reason to tell. */
uint64_t overlay_changes(const struct agent *agent);

/* Why the overlay does not run although it shall, a sentence; "": nothing is wrong. */
const char *overlay_fault(const struct agent *agent);
