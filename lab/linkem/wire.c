/* Heap of packets in flight, see wire.h. */
#include "wire.h"

#include <errno.h>
#include <stdlib.h>

static bool earlier(const struct packet *a, const struct packet *b) {
    if (a->deliver_at_ns != b->deliver_at_ns)
        return a->deliver_at_ns < b->deliver_at_ns;
    return a->sequence < b->sequence;
}

int wire_push(struct direction *direction, struct packet *packet) {
    if (direction->wire_packets >= WIRE_CAPACITY_PACKETS)
        return -ENOBUFS;
    if (direction->wire_packets == direction->wire_capacity) {
        size_t capacity = direction->wire_capacity ? direction->wire_capacity * 2 : 1024;
        struct packet **grown = realloc(direction->wire, capacity * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        direction->wire = grown;
        direction->wire_capacity = capacity;
    }
    packet->sequence = direction->next_sequence++;
    size_t position = direction->wire_packets++;
    direction->wire_bytes += packet->length;
    while (position > 0) {
        size_t parent = (position - 1) / 2;
        if (!earlier(packet, direction->wire[parent]))
            break;
        direction->wire[position] = direction->wire[parent];
        position = parent;
    }
    direction->wire[position] = packet;
    return 0;
}

struct packet *wire_pop(struct direction *direction) {
    if (direction->wire_packets == 0)
        return NULL;
    struct packet *first = direction->wire[0];
    struct packet *last = direction->wire[--direction->wire_packets];
    direction->wire_bytes -= first->length;
    size_t position = 0;
    for (;;) {
        size_t child = 2 * position + 1;
        if (child >= direction->wire_packets)
            break;
        if (child + 1 < direction->wire_packets && earlier(direction->wire[child + 1], direction->wire[child]))
            child++;
        if (!earlier(direction->wire[child], last))
            break;
        direction->wire[position] = direction->wire[child];
        position = child;
    }
    if (direction->wire_packets > 0)
        direction->wire[position] = last;
    return first;
}
