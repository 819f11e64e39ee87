/* Routes into the VXLAN device, one for each prefix of another owner, worse than any other: packets of this node have
 * one when the underlay's is gone, and packets that leave the overlay pass the kernel's check of their source (RFC
 * 3704, loose: some route to it). They go with the device. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/netlink.h"
#include "paths/overlay_table.h"

struct fallback_routes {
    /* Those that the kernel has, sorted. */
    struct chart_overlay_prefix *prefixes;
    size_t n;
};

/* Bring the kernel's routes into a device to those of a table; `self` is this node's name. What the kernel refuses is
 * counted in *ret_refused and tried again with the next table. 0 or -ENOMEM. */
int fallback_routes_follow(struct fallback_routes *routes, struct netlink *netlink, uint32_t ifindex,
                           const struct overlay_table *table, const char *self, size_t *ret_refused);
/* The device is gone, and they with it. */
void fallback_routes_forget(struct fallback_routes *routes);
