/* The overlay's program and what it reads: loads it, puts a table into its maps, attaches it to interfaces. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/strmap.h"
#include "paths/overlay_table.h"

struct overlay_program;

struct datapath;

/* Load the program, which knows grants by the datapath's selectors. 0 or a negative errno. */
int overlay_program_open(const struct datapath *datapath, struct overlay_program **ret);
void overlay_program_close(struct overlay_program *program);

/* Neighbours' numbers stay while their name and addresses do. `table` is borrowed until the next call; `self` is this
 * node's name. 0 or a negative errno: then parts of both tables hold, and the next call mends it. */
int overlay_program_apply(struct overlay_program *program, const struct overlay_table *table, const char *self);

/* The number of the link at a place of the table that was applied last; 0: none. */
uint32_t overlay_program_neighbour(const struct overlay_program *program, size_t link);

/* What the program reads before everything else; without a device it is off. */
int overlay_program_configure(struct overlay_program *program, const struct chart_overlay_config *config);

/* Interfaces may have come, gone or changed their index since `table` was applied. */
void overlay_program_renew(struct overlay_program *program, const struct overlay_table *table);

/* Attach to the VXLAN device. 0 or a negative errno. */
int overlay_program_attach_device(struct overlay_program *program, uint32_t ifindex);
/* Bring the other hooks to these interfaces; those of interfaces that are gone go too. How many it is attached to. */
size_t overlay_program_attach(struct overlay_program *program, const uint32_t *ifindexes, size_t n);
void overlay_program_detach(struct overlay_program *program);

/* The number of an owner of the table that was applied last; 0: none. */
uint32_t overlay_program_owner(const struct overlay_program *program, const char *node);

/* Between which addresses, one of this node's own and one of the owner's, the probes of a path go; numbers of paths are
 * the caller's, from CHART_OVERLAY_NEIGHBOURS_MAX on. 0 or a negative errno. */
int overlay_program_set_path(struct overlay_program *program, uint32_t number, const struct decide_prefix *local,
                             const struct decide_prefix *remote, uint8_t colour);
void overlay_program_forget_path(struct overlay_program *program, uint32_t number);
/* The colour that the flows of a grant take, by the number that its selectors have; 0 is the same as none. 0 or a
 * negative errno. */
int overlay_program_set_grant(struct overlay_program *program, uint64_t grant, uint8_t colour);
/* What flows of a class to an owner take; NULL: colour 0. 0 or a negative errno. */
int overlay_program_set_choice(struct overlay_program *program, uint32_t owner, enum chart_overlay_class class,
                               const struct chart_overlay_choice *choice);

/* Of a neighbour or path, in memory that is shared with the program. */
struct chart_overlay_liveness *overlay_program_liveness(const struct overlay_program *program, uint32_t number);
/* Send a probe to a neighbour or along a path. 0, -ENETUNREACH: it cannot be sent, or another negative errno. */
int overlay_program_probe(const struct overlay_program *program, uint32_t number);

/* Since the program was loaded. */
struct chart_overlay_counters overlay_program_counters(const struct overlay_program *program);
