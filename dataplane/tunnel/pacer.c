/* Paced packets in a binary heap, see pacer.h. */
#include "pacer.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool before(const struct paced_packet *one, const struct paced_packet *other) {
    return one->due_us != other->due_us ? one->due_us < other->due_us : one->number < other->number;
}

static void swap(struct pacer *pacer, size_t one, size_t other) {
    struct paced_packet *packet = pacer->heap[one];
    pacer->heap[one] = pacer->heap[other];
    pacer->heap[other] = packet;
}

int pacer_put(struct pacer *pacer, const uint8_t *packet, size_t bytes, const struct offload *offload,
              uint64_t due_us) {
    struct paced_packet *paced = NULL;
    bool room = pacer->count < PACER_PACKETS && pacer->bytes + bytes <= PACER_BYTES;
    if (room)
        paced = malloc(sizeof(*paced) + bytes);
    if (!paced) {
        pacer->unpaced_packets++;
        return room ? -ENOMEM : -ENOSPC;
    }
    *paced = (struct paced_packet){.due_us = due_us, .number = pacer->number++, .bytes = bytes};
    if (offload)
        paced->offload = *offload;
    memcpy(paced->data, packet, bytes);
    pacer->bytes += bytes;
    size_t at = pacer->count++;
    pacer->heap[at] = paced;
    while (at && before(pacer->heap[at], pacer->heap[(at - 1) / 2])) {
        swap(pacer, at, (at - 1) / 2);
        at = (at - 1) / 2;
    }
    return 0;
}

static struct paced_packet *take_first(struct pacer *pacer) {
    struct paced_packet *first = pacer->heap[0];
    size_t at = 0, child;
    pacer->heap[0] = pacer->heap[--pacer->count];
    pacer->bytes -= first->bytes;
    while ((child = 2 * at + 1) < pacer->count) {
        if (child + 1 < pacer->count && before(pacer->heap[child + 1], pacer->heap[child]))
            child++;
        if (!before(pacer->heap[child], pacer->heap[at]))
            break;
        swap(pacer, at, child);
        at = child;
    }
    return first;
}

uint64_t pacer_run(struct pacer *pacer, uint64_t now_us, pacer_go *go, void *context) {
    while (pacer->count && pacer->heap[0]->due_us <= now_us) {
        struct paced_packet *packet = take_first(pacer);
        go(context, packet->data, packet->bytes, offload_none(&packet->offload) ? NULL : &packet->offload);
        free(packet);
    }
    return pacer->count ? pacer->heap[0]->due_us : PACER_NEVER_US;
}

void pacer_free(struct pacer *pacer) {
    while (pacer->count)
        free(pacer->heap[--pacer->count]);
}
