/* Weighted-fair queueing, see scheduler.h. */
#include "scheduler.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int scheduler_init(struct scheduler *scheduler, uint32_t classes, uint64_t limit_bytes) {
    if (classes < 1 || classes > SCHEDULER_CLASSES || limit_bytes < SCHEDULER_PACKET_MAX)
        return -EINVAL;
    memset(scheduler, 0, sizeof(*scheduler));
    scheduler->count = classes;
    scheduler->limit_bytes = limit_bytes;
    for (uint32_t i = 0; i < classes; i++)
        scheduler->classes[i].weight = 1;
    return 0;
}

void scheduler_free(struct scheduler *scheduler) {
    for (uint32_t i = 0; i < scheduler->count; i++) {
        struct queued_packet *packet = scheduler->classes[i].first;
        while (packet) {
            struct queued_packet *next = packet->next;
            free(packet);
            packet = next;
        }
    }
    memset(scheduler, 0, sizeof(*scheduler));
}

int scheduler_set_weight(struct scheduler *scheduler, uint32_t class_id, uint32_t weight) {
    if (class_id >= scheduler->count || weight < 1 || weight > SCHEDULER_WEIGHT_MAX)
        return -EINVAL;
    scheduler->classes[class_id].weight = weight;
    return 0;
}

static void account(struct scheduler *scheduler, struct scheduler_class *class, const struct queued_packet *packet,
                    int sign) {
    uint64_t bytes = packet->bytes;
    if (sign > 0) {
        class->queue_packets++;
        class->queue_bytes += bytes;
        scheduler->queue_packets++;
        scheduler->queue_bytes += bytes;
        if (scheduler->queue_bytes > scheduler->maximum_bytes)
            scheduler->maximum_bytes = scheduler->queue_bytes;
    } else {
        class->queue_packets--;
        class->queue_bytes -= bytes;
        scheduler->queue_packets--;
        scheduler->queue_bytes -= bytes;
    }
}

/* The longest queue loses its last packet, and the virtual time that it had been promised. */
static void drop_tail_of_longest(struct scheduler *scheduler) {
    struct scheduler_class *longest = &scheduler->classes[0];
    for (uint32_t i = 1; i < scheduler->count; i++)
        if (scheduler->classes[i].queue_bytes > longest->queue_bytes)
            longest = &scheduler->classes[i];
    struct queued_packet *packet = longest->last;
    if (!packet)
        return;
    longest->last = packet->previous;
    if (longest->last)
        longest->last->next = NULL;
    else
        longest->first = NULL;
    longest->finish = packet->start;
    account(scheduler, longest, packet, -1);
    longest->dropped_packets++;
    longest->dropped_bytes += packet->bytes;
    free(packet);
}

int scheduler_put(struct scheduler *scheduler, uint32_t class_id, const uint8_t *packet, size_t bytes,
                  const struct offload *offload) {
    if (class_id >= scheduler->count || bytes < 1 || bytes > SCHEDULER_PACKET_MAX)
        return -EINVAL;
    struct scheduler_class *class = &scheduler->classes[class_id];
    class->offered_packets++;
    class->offered_bytes += bytes;
    struct queued_packet *queued = malloc(sizeof(*queued) + bytes);
    if (!queued) {
        class->dropped_packets++;
        class->dropped_bytes += bytes;
        return -ENOMEM;
    }
    memcpy(queued->data, packet, bytes);
    queued->bytes = (uint32_t)bytes;
    queued->offload = offload ? *offload : (struct offload){0};
    queued->class_id = class_id;
    queued->next = NULL;
    queued->previous = class->last;
    queued->start = class->finish > scheduler->virtual_time ? class->finish : scheduler->virtual_time;
    queued->finish = queued->start + (double)bytes / class->weight;
    class->finish = queued->finish;
    if (class->last)
        class->last->next = queued;
    else
        class->first = queued;
    class->last = queued;
    account(scheduler, class, queued, 1);
    int dropped = 0;
    while (scheduler->queue_bytes > scheduler->limit_bytes) {
        drop_tail_of_longest(scheduler);
        dropped = 1;
    }
    return dropped;
}

static uint32_t next_class(const struct scheduler *scheduler) {
    uint32_t chosen = scheduler->count;
    for (uint32_t i = 0; i < scheduler->count; i++) {
        const struct queued_packet *first = scheduler->classes[i].first;
        if (first && (chosen == scheduler->count || first->start < scheduler->classes[chosen].first->start))
            chosen = i;
    }
    return chosen;
}

struct queued_packet *scheduler_take(struct scheduler *scheduler) {
    uint32_t chosen = next_class(scheduler);
    if (chosen == scheduler->count)
        return NULL;
    struct scheduler_class *class = &scheduler->classes[chosen];
    struct queued_packet *packet = class->first;
    class->first = packet->next;
    if (class->first)
        class->first->previous = NULL;
    else
        class->last = NULL;
    scheduler->virtual_time = packet->start;
    account(scheduler, class, packet, -1);
    class->sent_packets++;
    class->sent_bytes += packet->bytes;
    packet->next = packet->previous = NULL;
    if (!scheduler->queue_packets) {
        /* Nobody waits: virtual time starts again, so that doubles never grow coarse. */
        scheduler->virtual_time = 0;
        for (uint32_t i = 0; i < scheduler->count; i++)
            scheduler->classes[i].finish = 0;
    }
    return packet;
}
