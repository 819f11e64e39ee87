/* Marking a user's packet: its DS field (RFC 2474) and, where the sender takes part, congestion experienced (RFC 3168).
 * Pure. */
#ifndef ITM_MARK_H
#define ITM_MARK_H

#include <stddef.h>
#include <stdint.h>

/* Writes the DSCP of `value` (DSCP << 2 | ITM_MARK_CE or 0) into an IPv4 or IPv6 packet and keeps IPv4's checksum
 * right. CE is written into packets that are ECN-capable only: for others it would be a lie. 0, or -EBADMSG: no IP
 * packet. */
int mark_packet(uint8_t *packet, size_t bytes, uint32_t value);

#endif
