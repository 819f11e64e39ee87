/* Packets are recycled: the emulator allocates only while its backlog grows. */
#include <stdlib.h>

#include "direction.h"

static struct packet *recycled;

struct packet *packet_new(void) {
    struct packet *packet = recycled;
    if (packet)
        recycled = packet->next;
    else
        packet = malloc(sizeof(*packet));
    if (packet)
        packet->next = NULL;
    return packet;
}

void packet_free(struct packet *packet) {
    packet->next = recycled;
    recycled = packet;
}
