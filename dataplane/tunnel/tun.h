/* A TUN device without packet information: each read or write is one IP packet. */
#ifndef ITM_TUN_H
#define ITM_TUN_H

/* Creates the device (it goes with the descriptor), sets its MTU and brings it up. Returns a non-blocking descriptor,
 * or a negative errno after a sentence on standard error. */
int tun_open(const char *name, unsigned mtu_bytes);

#endif
