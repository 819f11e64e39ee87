/* Packets that an application paces: each waits until its time, then goes on. Bounded; what does not fit goes on at
 * once. Pure: times come in, packets go out through a function. */
#ifndef ITM_PACER_H
#define ITM_PACER_H

#include <stddef.h>
#include <stdint.h>

#include "offload.h"

#define PACER_PACKETS 2048
#define PACER_BYTES (4U << 20)
#define PACER_NEVER_US UINT64_MAX

struct paced_packet {
    uint64_t due_us, number;
    size_t bytes;
    struct offload offload;
    uint8_t data[];
};

typedef void pacer_go(void *context, const uint8_t *packet, size_t bytes, const struct offload *offload);

struct pacer {
    struct paced_packet *heap[PACER_PACKETS]; /* the next due first; of equal times the one that came first */
    size_t count, bytes;
    uint64_t number;
    uint64_t unpaced_packets; /* went on at once: there was no room */
};

/* Copies the packet in: 0, or -ENOSPC, -ENOMEM: it has to go on at once. offload NULL: nothing was left undone. */
int pacer_put(struct pacer *pacer, const uint8_t *packet, size_t bytes, const struct offload *offload, uint64_t due_us);
/* Lets out what is due. Returns when the next one is, PACER_NEVER_US for none. */
uint64_t pacer_run(struct pacer *pacer, uint64_t now_us, pacer_go *go, void *context);
void pacer_free(struct pacer *pacer);

#endif
