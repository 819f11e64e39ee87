/* The origin's connections, see pool.h. */
#define _GNU_SOURCE
#include "pool.h"

#include <errno.h>
#include <linux/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

void pool_init(struct pool *pool, const struct options *options, struct scheduler *scheduler, struct tls *tls,
               int epoll, uint64_t epoll_tag, uint64_t session) {
    memset(pool, 0, sizeof(*pool));
    pool->options = options;
    pool->scheduler = scheduler;
    pool->tls = tls;
    pool->epoll = epoll;
    pool->epoll_tag = epoll_tag;
    pool->session = session;
}

static void free_slot(struct pool *pool, size_t slot) {
    transit_free(&pool->slots[slot]->transit);
    resend_forget(pool);
    connection_close(pool->slots[slot]);
    free(pool->slots[slot]);
    pool->slots[slot] = NULL;
    while (pool->bound && !pool->slots[pool->bound - 1])
        pool->bound--;
}

void pool_free(struct pool *pool) {
    for (size_t i = 0; i < POOL_SLOTS; i++)
        if (pool->slots[i])
            free_slot(pool, i);
    transit_free(&pool->again);
}

uint32_t pool_count(const struct pool *pool, enum connection_state state) {
    uint32_t count = 0;
    for (size_t i = 0; i < pool->bound; i++)
        count += pool->slots[i] && pool->slots[i]->state == state;
    return count;
}

bool pool_window(const struct pool *pool, size_t slot, struct pool_window *ret) {
    const struct connection *connection = pool->slots[slot];
    struct tcp_info info;
    socklen_t bytes = sizeof(info);
    memset(&info, 0, sizeof(info));
    if (!connection || connection->state != CONNECTION_UP ||
        getsockopt(connection->channel.descriptor, IPPROTO_TCP, TCP_INFO, &info, &bytes) < 0)
        return false;
    *ret = (struct pool_window){info.tcpi_snd_cwnd, info.tcpi_rtt, info.tcpi_snd_mss, info.tcpi_total_retrans};
    return true;
}

void pool_note(struct pool *pool, const char *format, ...) {
    char sentence[sizeof(pool->last_error)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof(sentence), format, arguments);
    va_end(arguments);
    /* The same failure again and again is told once. */
    if (strcmp(sentence, pool->last_error) != 0)
        fprintf(stderr, "chart-tunnel: %s\n", sentence);
    memcpy(pool->last_error, sentence, sizeof(sentence));
}

/* Waits with a pause that grows, or is gone when it was leaving anyhow. */
static void lose(struct pool *pool, size_t slot, uint64_t now_us) {
    struct connection *connection = pool->slots[slot];
    transit_merge(&pool->again, &connection->transit);
    resend_forget(pool);
    if (connection->state == CONNECTION_DRAINING) {
        free_slot(pool, slot);
        return;
    }
    /* One that held for a while starts over with a short pause. */
    if (connection->state == CONNECTION_UP && now_us - connection->up_since_us > BACKOFF_LONGEST_US)
        connection->failures = 0;
    connection_close(connection);
    connection->failures++;
    connection->state = CONNECTION_WAITING;
    connection->deadline_us = now_us + backoff_us(connection->failures, (uint32_t)random());
}

/* The connection is of no use any more: before its welcome it could not be opened, after it it broke. */
static void fail(struct pool *pool, size_t slot, int error, const char *fault, uint64_t now_us) {
    enum connection_state state = pool->slots[slot]->state;
    if (state == CONNECTION_UP || state == CONNECTION_DRAINING) {
        pool_note(pool, "a connection to %s broke: %s", pool->options->endpoint_text, connection_reason(error, fault));
        pool->counters.broken++;
    } else {
        /* A peer that closes with our first frame unread sends a reset: the same thing to whoever reads this. */
        bool closed = !error || error == -ECONNRESET;
        const char *what = closed ? "closed before its welcome" : connection_reason(error, fault);
        pool_note(pool, "connection to %s: %s; tried again", pool->options->endpoint_text, what);
        pool->counters.connect_failures++;
    }
    lose(pool, slot, now_us);
}

static void open_slot(struct pool *pool, size_t slot, uint64_t now_us) {
    struct connection *connection = pool->slots[slot];
    char fault[CONNECTION_FAULT_BYTES] = "";
    connection->state = CONNECTION_CONNECTING;
    connection->deadline_us = now_us + CONNECTION_TIMEOUT_US;
    connection->order = ++pool->opened_order;
    if (pool->tls && tls_refresh(pool->tls, fault) < 0)
        pool_note(pool, "%s; the one before it stays in use", fault);
    int error = connection_open(connection, pool->options, pool->tls, pool->epoll, pool->epoll_tag + slot);
    if (error < 0)
        fail(pool, slot, error, "", now_us);
}

static void drain(struct pool *pool, size_t slot, uint64_t now_us) {
    struct connection *connection = pool->slots[slot];
    connection->state = CONNECTION_DRAINING;
    connection->deadline_us = now_us + CONNECTION_DRAIN_TIMEOUT_US;
    int error = connection_finish(connection);
    if (error < 0)
        fail(pool, slot, error, "", now_us);
}

/* One connection fewer: rather one that is not up, else the youngest. */
static void close_one(struct pool *pool, uint64_t now_us) {
    size_t chosen = POOL_SLOTS;
    for (size_t i = 0; i < pool->bound; i++) {
        const struct connection *connection = pool->slots[i];
        if (!connection || connection->state == CONNECTION_DRAINING)
            continue;
        bool up = connection->state == CONNECTION_UP;
        bool chosen_up = chosen < POOL_SLOTS && pool->slots[chosen]->state == CONNECTION_UP;
        if (chosen == POOL_SLOTS || (chosen_up && !up) ||
            (chosen_up == up && connection->order > pool->slots[chosen]->order))
            chosen = i;
    }
    if (chosen == POOL_SLOTS)
        return;
    pool->counters.closed++;
    if (pool->slots[chosen]->state == CONNECTION_UP)
        drain(pool, chosen, now_us);
    else
        free_slot(pool, chosen);
}

static void open_one(struct pool *pool, uint64_t now_us) {
    size_t slot = 0;
    while (slot < POOL_SLOTS && pool->slots[slot])
        slot++;
    struct connection *connection = slot < POOL_SLOTS ? malloc(sizeof(*connection)) : NULL;
    if (!connection)
        return;
    /* The buffers need no zeros. */
    memset(connection, 0, offsetof(struct connection, out));
    connection->channel.descriptor = -1;
    pool->slots[slot] = connection;
    if (slot >= pool->bound)
        pool->bound = slot + 1;
    pool->counters.opened++;
    open_slot(pool, slot, now_us);
}

static void expire(struct pool *pool, size_t slot, uint64_t now_us) {
    switch (pool->slots[slot]->state) {
    case CONNECTION_CONNECTING:
        fail(pool, slot, -ETIMEDOUT, "", now_us);
        break;
    case CONNECTION_SECURING:
        fail(pool, slot, -EPROTO, "no TLS handshake in time", now_us);
        break;
    case CONNECTION_GREETING:
        fail(pool, slot, -EPROTO, "no welcome in time", now_us);
        break;
    case CONNECTION_WAITING:
        open_slot(pool, slot, now_us);
        break;
    case CONNECTION_DRAINING:
        pool_note(pool, "a connection to %s did not end in time", pool->options->endpoint_text);
        pool->counters.drain_timeouts++;
        lose(pool, slot, now_us);
        break;
    default:
        break;
    }
}

uint64_t pool_update(struct pool *pool, uint32_t wanted, uint64_t now_us) {
    uint64_t next_us = UINT64_MAX;
    uint32_t there = 0;
    for (size_t i = 0; i < pool->bound; i++)
        there += pool->slots[i] && pool->slots[i]->state != CONNECTION_DRAINING;
    for (; there < wanted; there++)
        open_one(pool, now_us);
    for (; there > wanted; there--)
        close_one(pool, now_us);
    for (size_t i = 0; i < pool->bound; i++) {
        struct connection *connection = pool->slots[i];
        if (!connection || connection->state == CONNECTION_UP)
            continue;
        if (connection->deadline_us <= now_us)
            expire(pool, i, now_us);
        if (pool->slots[i] && connection->deadline_us < next_us)
            next_us = connection->deadline_us;
    }
    uint64_t joined_us = joining_update(pool, now_us), look_us = resend_update(pool, now_us);
    next_us = joined_us < next_us ? joined_us : next_us;
    return look_us < next_us ? look_us : next_us;
}

struct arrival {
    struct pool *pool;
    struct connection *connection;
    size_t slot;
    uint64_t now_us;
    char *fault;
};

static int take_frame(void *context, const struct frame *frame) {
    struct arrival *arrival = context;
    struct report report;
    switch (frame->type) {
    case FRAME_WELCOME:
        if (arrival->connection->state != CONNECTION_GREETING)
            return -EBADMSG;
        arrival->connection->state = CONNECTION_UP;
        arrival->connection->up_since_us = arrival->now_us;
        arrival->connection->room = true;
        joining_begin(arrival->pool, arrival->slot, arrival->now_us);
        arrival->pool->last_error[0] = '\0';
        return 0;
    case FRAME_REFUSAL:
        return frame_read_refusal(frame, arrival->fault) < 0 ? -EBADMSG : -ECONNREFUSED;
    case FRAME_REPORT:
        if (frame_read_report(frame, &report) < 0)
            return -EBADMSG;
        arrival->pool->report = report;
        arrival->pool->report_at_us = arrival->now_us;
        return 0;
    default:
        return -EBADMSG;
    }
}

/* On the way up: 0 when there is nothing more to do now, 1 when the connection can be read, or a negative errno. */
static int climb(struct pool *pool, struct connection *connection, uint32_t events, char *fault) {
    struct hello hello = {pool->session, pool->next_sequence, (uint32_t)pool->options->period_us};
    if (connection->state == CONNECTION_CONNECTING) {
        if (!(events & EPOLLOUT))
            return 0;
        connection->state = CONNECTION_SECURING;
    }
    if (connection->state != CONNECTION_SECURING)
        return 1;
    int error = channel_handshake(&connection->channel, fault);
    if (error < 0)
        return error == -EAGAIN ? 0 : error;
    if (pool->again.first)
        hello.next_sequence = pool->again.first->sequence;
    connection_hello(connection, &hello);
    connection->state = CONNECTION_GREETING;
    error = connection_flush(connection);
    return error < 0 ? error : 1;
}

void pool_event(struct pool *pool, size_t slot, uint32_t events, uint64_t now_us) {
    struct connection *connection = pool->slots[slot];
    char fault[CONNECTION_FAULT_BYTES] = "";
    if (!connection || connection->channel.descriptor < 0)
        return;
    /* What came before an error is read first: it may say why. */
    int error = events & (EPOLLERR | EPOLLHUP) ? -connection_pending_error(connection) : 0;
    int result = error && connection->state == CONNECTION_CONNECTING ? error : climb(pool, connection, events, fault);
    if (result == 1) {
        struct arrival arrival = {pool, connection, slot, now_us, fault};
        result = connection_receive(connection, take_frame, &arrival, fault);
        if (result == 0 && connection->finished) {
            free_slot(pool, slot);
            return;
        }
        if (result <= 0 || error) {
            fail(pool, slot, result < 0 ? result : error, fault, now_us);
            return;
        }
    } else if (result < 0) {
        fail(pool, slot, result, fault, now_us);
        return;
    }
    if (events & EPOLLOUT && connection->state > CONNECTION_SECURING) {
        connection->room = true;
        result = connection_flush(connection);
        if (result == 0 && connection->state == CONNECTION_DRAINING)
            result = connection_finish(connection);
        if (result < 0)
            fail(pool, slot, result, fault, now_us);
    }
}

static void put_frame(struct pool *pool, struct connection *connection, const struct queued_packet *packet) {
    uint8_t *at = connection->out + connection->out_used;
    bool plain = offload_none(&packet->offload);
    size_t prefix = plain ? 0 : OFFLOAD_WIRE_BYTES, bytes = FRAME_HEADER_BYTES + prefix + packet->bytes;
    frame_header(at, plain ? FRAME_DATA : FRAME_OFFLOADED, prefix + packet->bytes, packet->sequence);
    if (!plain)
        offload_write_wire(&packet->offload, at + FRAME_HEADER_BYTES);
    memcpy(at + FRAME_HEADER_BYTES + prefix, packet->data, packet->bytes);
    connection->out_used += bytes;
    connection->loaded_bytes += bytes;
    shaper_spend(&pool->shaper, bytes);
}

/* One frame into the connection's buffer: what is stuck elsewhere, of a broken connection, or the scheduler's next. */
static bool load_frame(struct pool *pool, size_t slot, uint64_t now_us) {
    struct connection *connection = pool->slots[slot];
    struct queued_packet *packet = resend_next(pool, slot);
    if (packet) {
        put_frame(pool, connection, packet);
        pool->counters.repeated_packets++;
        return true;
    }
    packet = transit_take(&pool->again);
    if (packet) {
        pool->counters.resent_packets++;
    } else {
        packet = shaper_open(&pool->shaper, now_us) ? scheduler_take(pool->scheduler) : NULL;
        if (!packet)
            return false;
        packet->sequence = pool->next_sequence++;
        pool->counters.sent_packets++;
        pool->counters.sent_bytes += packet->bytes;
    }
    put_frame(pool, connection, packet);
    packet->place = connection->loaded_bytes;
    packet->given_us = now_us;
    packet->again = false;
    if (!connection->transit.first)
        connection->progress_us = now_us;
    transit_append(&connection->transit, packet);
    return true;
}

bool pool_backlogged(const struct pool *pool) {
    return pool->scheduler->queue_packets || pool->again.first;
}

uint64_t pool_shaped_until_us(const struct pool *pool, uint64_t now_us) {
    uint64_t open_us = shaper_open_at_us(&pool->shaper, now_us);
    return pool->scheduler->queue_packets && open_us > now_us ? open_us : UINT64_MAX;
}

/* Something waits that could go if a connection had room. */
static bool ready(struct pool *pool, uint64_t now_us) {
    return pool->again.first || pool->resend.count ||
           (pool->scheduler->queue_packets && shaper_open(&pool->shaper, now_us));
}

void pool_pump(struct pool *pool, uint64_t now_us) {
    size_t without_room = 0;
    while (ready(pool, now_us) && without_room < pool->bound) {
        if (pool->round >= pool->bound)
            pool->round = 0;
        size_t slot = pool->round++;
        struct connection *connection = pool->slots[slot];
        if (!connection || connection->state != CONNECTION_UP || !connection->room ||
            !joining_room(&connection->joining, connection->channel.descriptor, now_us)) {
            without_room++;
            continue;
        }
        size_t before = connection->out_used;
        while (connection->out_used < pool->options->batch_bytes && load_frame(pool, slot, now_us))
            ;
        /* What is stuck in a connection is of no use to it. */
        if (connection->out_used == before) {
            without_room++;
            continue;
        }
        without_room = 0;
        int error = connection_flush(connection);
        if (error < 0)
            fail(pool, slot, error, "", now_us);
    }
}
