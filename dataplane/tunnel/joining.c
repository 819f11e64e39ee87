/* New connections, see joining.h. */
#include "joining.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "pool.h"

/* What the kernel says before the first loss. */
#define THRESHOLD_NONE 0x7fffffffU
#define LOOK_AGAIN_US 100000
/* Nobody is told when packets are acknowledged: so often in a round trip is looked. */
#define LOOKS_PER_RTT 8
#define LOOK_EARLIEST_US 2000

static bool window_of(int descriptor, struct tcp_info *ret) {
    socklen_t bytes = sizeof(*ret);
    memset(ret, 0, sizeof(*ret));
    return getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, ret, &bytes) == 0;
}

/* Looks again at those that have lost a packet, and so are no longer joining, when it is time. */
static void look(struct pool *pool, uint64_t now_us) {
    uint64_t sum = 0, count = 0;
    if (pool->others.looked_us && now_us - pool->others.looked_us < LOOK_AGAIN_US)
        return;
    for (size_t i = 0; i < pool->bound; i++) {
        const struct connection *other = pool->slots[i];
        struct tcp_info info;
        if (!other || other->state != CONNECTION_UP || !window_of(other->channel.descriptor, &info) ||
            info.tcpi_snd_ssthresh >= THRESHOLD_NONE)
            continue;
        sum += (uint64_t)info.tcpi_snd_cwnd * info.tcpi_snd_mss;
        count++;
    }
    pool->others = (struct joining_others){now_us, count ? sum / count : 0};
}

void joining_begin(struct pool *pool, size_t slot, uint64_t now_us) {
    struct connection *connection = pool->slots[slot];
    struct tcp_info info;
    connection->joining = (struct joining){0};
    look(pool, now_us);
    uint64_t mean_bytes = pool->others.mean_bytes;
    if (!mean_bytes || !window_of(connection->channel.descriptor, &info) || !info.tcpi_rtt)
        return;
    connection->joining = (struct joining){mean_bytes, mean_bytes, now_us, info.tcpi_rtt, info.tcpi_snd_mss};
}

uint64_t joining_bound(const struct joining *joining, uint64_t now_us) {
    uint64_t grown = joining->window_bytes + joining->mss_bytes * ((now_us - joining->since_us) / joining->rtt_us);
    return grown > joining->mean_bytes ? grown : joining->mean_bytes;
}

bool joining_room(struct joining *joining, int descriptor, uint64_t now_us) {
    struct tcp_info info;
    int queued_bytes = 0;
    if (!joining->window_bytes)
        return true;
    if (!window_of(descriptor, &info) || info.tcpi_snd_ssthresh < THRESHOLD_NONE ||
        ioctl(descriptor, SIOCOUTQ, &queued_bytes) < 0) {
        joining->window_bytes = 0;
        return true;
    }
    return (uint64_t)queued_bytes < joining_bound(joining, now_us);
}

uint64_t joining_update(struct pool *pool, uint64_t now_us) {
    uint64_t next_us = UINT64_MAX;
    for (size_t i = 0; i < pool->bound; i++) {
        struct connection *connection = pool->slots[i];
        if (!connection || connection->state != CONNECTION_UP || !connection->joining.window_bytes)
            continue;
        struct joining *joining = &connection->joining;
        look(pool, now_us);
        joining->mean_bytes = pool->others.mean_bytes;
        /* Who has nobody to go by is on its own. */
        if (!joining->mean_bytes)
            joining->window_bytes = 0;
        uint64_t wait_us = joining->rtt_us / LOOKS_PER_RTT;
        uint64_t at_us = now_us + (wait_us > LOOK_EARLIEST_US ? wait_us : LOOK_EARLIEST_US);
        if (at_us < next_us)
            next_us = at_us;
    }
    return pool_backlogged(pool) ? next_us : UINT64_MAX;
}
