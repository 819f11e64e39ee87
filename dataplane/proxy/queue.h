/* First packets of connections, held in the kernel until the proxy has decided (NFQUEUE, over libmnl). */
#ifndef PROXY_QUEUE_H
#define PROXY_QUEUE_H

#include <stddef.h>
#include <stdint.h>

struct queue;

enum queue_verdict {
    QUEUE_PASS, /* it goes on as if nobody had looked */
    QUEUE_TAKE, /* it goes through the rules once more, with the proxy's mark */
    QUEUE_DROP
};

/* packet: from its IP header on, cut after QUEUE_COPY_BYTES. */
typedef void queue_packet(void *context, uint32_t id, const uint8_t *packet, size_t bytes);

/* The longest headers in front of ports and flags. */
#define QUEUE_COPY_BYTES 256

/* At most `held` packets wait; what comes above that passes. mark: of packets that are taken. 0, -EBUSY: somebody has
 * this queue, or another negative errno. */
int queue_open(uint16_t number, uint32_t held, uint32_t mark, struct queue **ret);
void queue_close(struct queue *queue);
int queue_fd(const struct queue *queue);
/* Calls take for every packet that waits. 0 or a negative errno. */
int queue_run(struct queue *queue, queue_packet *take, void *context);
/* 0 or a negative errno. */
int queue_decide(struct queue *queue, uint32_t id, enum queue_verdict verdict);

#endif
