/* Packets on the wire, a binary heap ordered by delivery time and then by sequence. */
#ifndef LINKEM_WIRE_H
#define LINKEM_WIRE_H

#include "direction.h"

/* 0, -ENOBUFS when the wire holds WIRE_CAPACITY_PACKETS, or -ENOMEM; the packet stays the caller's on failure. */
int wire_push(struct direction *direction, struct packet *packet);
/* The earliest packet, taken off the wire; NULL when empty. */
struct packet *wire_pop(struct direction *direction);

#endif
