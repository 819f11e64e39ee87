/* Weighted-fair queueing between the tunnel's customers (Guirguis et al., section 2.2, "Scheduler"): start-time fair
 * queueing (Goyal, Vin, Cheng, SIGCOMM 1996), which needs no rate of the link, since nobody knows the tunnel's. Within
 * a customer packets stay in order. When the common buffer is full the longest queue loses its last packet, so a
 * customer who floods loses his own. Pure: no clock, no descriptors. */
#ifndef ITM_SCHEDULER_H
#define ITM_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload.h"

#define SCHEDULER_CLASSES 32
#define SCHEDULER_WEIGHT_MAX 10000
#define SCHEDULER_PACKET_MAX 16384

struct queued_packet {
    struct queued_packet *next, *previous;
    double start;      /* virtual time, weighted bytes */
    double finish;     /* the class's finish tag after this packet */
    uint32_t class_id; /* whose it is */
    uint32_t bytes;
    bool again; /* it went out over a second connection, too */
    /* Once taken out: its number in the tunnel, where its frame ends in the connection's stream, and when it went. */
    uint64_t sequence, place, given_us;
    struct offload offload;
    uint8_t data[];
};

struct scheduler_class {
    uint32_t weight; /* 1 to SCHEDULER_WEIGHT_MAX, share against the others that have packets */
    struct queued_packet *first, *last;
    uint64_t queue_packets, queue_bytes;
    double finish; /* virtual */
    uint64_t offered_packets, offered_bytes, sent_packets, sent_bytes, dropped_packets, dropped_bytes;
};

struct scheduler {
    struct scheduler_class classes[SCHEDULER_CLASSES];
    uint32_t count;
    uint64_t limit_bytes; /* of all queues together */
    uint64_t queue_packets, queue_bytes, maximum_bytes;
    double virtual_time;
};

/* All weights 1. Returns 0, or -EINVAL for no or too many classes or a limit below one packet. */
int scheduler_init(struct scheduler *scheduler, uint32_t classes, uint64_t limit_bytes);
void scheduler_free(struct scheduler *scheduler);
/* Counts for packets that come from now on. 0 or -EINVAL. */
int scheduler_set_weight(struct scheduler *scheduler, uint32_t class_id, uint32_t weight);
/* Copies the packet in; offload NULL: nothing was left undone. Returns 0, 1 when some packet (perhaps this one) was
 * dropped for it, or -EINVAL for a class or size that there is not, -ENOMEM. */
int scheduler_put(struct scheduler *scheduler, uint32_t class_id, const uint8_t *packet, size_t bytes,
                  const struct offload *offload);
/* Takes out the packet whose turn it is, NULL when all is empty; the caller frees it. */
struct queued_packet *scheduler_take(struct scheduler *scheduler);

#endif
