/* Packets that are stuck, see resend.h. */
#include "resend.h"

#include <linux/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "pool.h"

#define LOOK_US 10000U
/* A fast retransmission is acknowledged after two round trips; after three it is a timeout that is waited for. */
#define PATIENCE_RTTS 3U
/* A receiver may delay its acknowledgements by 40 ms and more. */
#define PATIENCE_LEAST_US 100000U

uint64_t resend_patience_us(uint32_t rtt_us) {
    uint64_t patience_us = (uint64_t)PATIENCE_RTTS * rtt_us;
    return patience_us > PATIENCE_LEAST_US ? patience_us : PATIENCE_LEAST_US;
}

void resend_forget(struct pool *pool) {
    pool->resend.count = 0;
}

static uint32_t rtt_of(int descriptor) {
    struct tcp_info info;
    socklen_t bytes = sizeof(info);
    memset(&info, 0, sizeof(info));
    return getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &bytes) < 0 ? 0 : info.tcpi_rtt;
}

static void look_at(struct pool *pool, size_t slot, uint64_t now_us) {
    const struct connection *connection = pool->slots[slot];
    uint64_t silent_us = now_us - connection->progress_us;
    /* Most of the time there is progress, and nobody needs to be asked. */
    if (silent_us < PATIENCE_LEAST_US || silent_us < resend_patience_us(rtt_of(connection->channel.descriptor)))
        return;
    for (struct queued_packet *packet = connection->transit.first; packet; packet = packet->next) {
        if (packet->again)
            continue;
        if (pool->resend.count == RESEND_STUCK_MAX)
            return;
        pool->resend.stuck[pool->resend.count].packet = packet;
        pool->resend.stuck[pool->resend.count++].slot = slot;
    }
}

static void see_progress(struct connection *connection, uint64_t now_us) {
    uint64_t arrived_bytes = connection_acknowledged(connection);
    if (arrived_bytes == connection->arrived_bytes)
        return;
    connection->arrived_bytes = arrived_bytes;
    connection->progress_us = now_us;
    transit_arrived(&connection->transit, arrived_bytes);
}

uint64_t resend_update(struct pool *pool, uint64_t now_us) {
    bool any = false;
    if (now_us < pool->resend.look_at_us)
        return pool->resend.look_at_us;
    resend_forget(pool);
    for (size_t i = 0; i < pool->bound; i++) {
        struct connection *connection = pool->slots[i];
        if (!connection || !connection->transit.first)
            continue;
        see_progress(connection, now_us);
        look_at(pool, i, now_us);
        any |= connection->transit.first != NULL;
    }
    if (!any)
        return UINT64_MAX;
    pool->resend.look_at_us = now_us + LOOK_US;
    return pool->resend.look_at_us;
}

struct queued_packet *resend_next(struct pool *pool, size_t slot) {
    struct resend *resend = &pool->resend;
    size_t chosen = resend->count;
    for (size_t i = 0; i < resend->count; i++)
        if (resend->stuck[i].slot != slot &&
            (chosen == resend->count || resend->stuck[i].packet->sequence < resend->stuck[chosen].packet->sequence))
            chosen = i;
    if (chosen == resend->count)
        return NULL;
    struct queued_packet *packet = resend->stuck[chosen].packet;
    resend->stuck[chosen] = resend->stuck[--resend->count];
    packet->again = true;
    return packet;
}
