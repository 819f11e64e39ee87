/* A TUN device: each read or write is OFFLOAD_DEVICE_BYTES of struct offload in the device's form and one IP packet. */
#ifndef ITM_TUN_H
#define ITM_TUN_H

#include <stdbool.h>

/* The longest packet that the kernel hands over with its segmentation undone. */
#define TUN_LARGE_PACKET_BYTES 16000

/* Creates the device (it goes with the descriptor), sets its MTU and brings it up; offload: the kernel may leave
 * checksums and the segmentation of TCP undone. Returns a non-blocking descriptor, or a negative errno after a sentence
 * on standard error. */
int tun_open(const char *name, unsigned mtu_bytes, bool offload);

/* Whether it is a network, ADDRESS/LENGTH of IPv4 or IPv6 without host bits. */
bool tun_prefix_good(const char *prefix);
/* Leads a network into the device, before other routes to it, which hold again when the device is gone. 0, or a
 * negative errno after a sentence on standard error. */
int tun_route(const char *name, const char *prefix);

#endif
