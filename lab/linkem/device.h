/* TUN devices: one end of a link in each network namespace. */
#ifndef LINKEM_DEVICE_H
#define LINKEM_DEVICE_H

/* Creates a TUN device (plain IP packets, no offloads, so that every packet read is one packet of the wire) in a named
 * network namespace (/run/netns/NAME; "-" is the caller's own) and returns its non-blocking descriptor, or a negative
 * errno after logging. The device disappears with the descriptor. */
int device_open(const char *namespace_name, const char *interface_name, int mtu, int queue_packets);

#endif
