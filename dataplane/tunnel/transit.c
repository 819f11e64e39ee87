/* Packets on their way, see transit.h. */
#include "transit.h"

#include <stdlib.h>

void transit_append(struct transit *transit, struct queued_packet *packet) {
    packet->next = NULL;
    if (transit->last)
        transit->last->next = packet;
    else
        transit->first = packet;
    transit->last = packet;
}

struct queued_packet *transit_take(struct transit *transit) {
    struct queued_packet *packet = transit->first;
    if (!packet)
        return NULL;
    transit->first = packet->next;
    if (!transit->first)
        transit->last = NULL;
    packet->next = NULL;
    return packet;
}

void transit_arrived(struct transit *transit, uint64_t place) {
    while (transit->first && transit->first->place <= place)
        free(transit_take(transit));
}

void transit_merge(struct transit *into, struct transit *from) {
    struct transit merged = {0};
    while (into->first || from->first) {
        bool of_into = into->first && (!from->first || into->first->sequence <= from->first->sequence);
        transit_append(&merged, transit_take(of_into ? into : from));
    }
    *into = merged;
}

void transit_free(struct transit *transit) {
    struct queued_packet *packet;
    while ((packet = transit_take(transit)))
        free(packet);
}
