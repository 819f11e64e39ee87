/* The paths that flows may choose where several lead to an owner: each is probed from end to end, and the kernel's
 * program is told what new flows take and which path flows leave. The decisions are path_choice.h's. */
#pragma once

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

#include "paths/overlay_events.h"
#include "paths/overlay_program.h"
#include "paths/overlay_table.h"
#include "paths/path_choice.h"
#include "paths/prober.h"

/* As many as there is room to probe. */
#define FLOW_PATHS_MAX (CHART_OVERLAY_PROBED_MAX - CHART_OVERLAY_NEIGHBOURS_MAX)

struct flow_owner {
    char node[OVERLAY_NAME_LEN];
    /* As the program numbers it. */
    uint32_t number;
    struct path_group group;
    /* Looks since flows took any of its paths; no more than makes it idle. */
    unsigned idle_looks;
    struct chart_overlay_choice told[CHART_OVERLAY_CLASSES];
};

/* One path as the node tells of it. */
struct flow_path_report {
    const char *owner;
    uint8_t colour;
    bool alive;
    uint32_t rtt_us;
    double exchange_loss;
    double load;
    uint64_t capacity_bps;
    /* Bits of enum chart_overlay_class: new flows take it, flows leave it. */
    uint8_t taken_by;
    uint8_t left_by;
    uint64_t forwarded_packets;
    uint64_t forwarded_bytes;
};

struct flow_paths {
    struct flow_owner *owners;
    size_t n_owners;
    /* Owners that there was no room for, or no address of one family at both ends: their flows take colour 0. */
    size_t left_out;
    /* Where paths that become worse are noted; may be NULL. */
    struct overlay_events *events;
};

/* Follow the table that the program was given last; what is known of a path stays while its owner and colour do. 0 or a
 * negative errno. */
int flow_paths_follow(struct flow_paths *paths, struct overlay_program *program, struct prober *prober,
                      const struct overlay_table *table, const char *self);
/* Every PATH_LOOK_US: look at all, judge, and tell the program what changed. */
void flow_paths_look(struct flow_paths *paths, struct overlay_program *program, struct prober *prober);
/* The owner that a path of this number leads to, and its colour; "?": nobody has it. */
const char *flow_paths_name(const struct flow_paths *paths, uint32_t number, unsigned *ret_colour);
/* All paths; at most FLOW_PATHS_MAX. Names live until the next call of flow_paths_follow. */
size_t flow_paths_report(const struct flow_paths *paths, const struct overlay_program *program,
                         struct flow_path_report *ret);
/* Adds an object for each path to an array. */
void flow_paths_tell(const struct flow_paths *paths, const struct overlay_program *program, cJSON *array);
void flow_paths_forget(struct flow_paths *paths, struct overlay_program *program, struct prober *prober);
