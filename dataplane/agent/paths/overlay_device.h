/* The VXLAN device of the overlay: in metadata mode, so that one device has all links. */
#pragma once

#include <stdint.h>

#include "core/netlink.h"

/* Make the device anew. 0, -EEXIST: an interface of that name is not ours, -EADDRINUSE: another VXLAN device takes
 * everything that comes to this port, or another negative errno. */
int overlay_device_make(struct netlink *netlink, uint16_t port, uint32_t mtu, uint32_t *ret_ifindex);
int overlay_device_set_mtu(struct netlink *netlink, uint32_t ifindex, uint32_t mtu);
/* 0, also when there is none, or a negative errno. */
int overlay_device_remove(struct netlink *netlink);
