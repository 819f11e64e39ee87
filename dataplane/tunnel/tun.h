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

#endif
