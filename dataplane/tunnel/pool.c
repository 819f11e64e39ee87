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
#include <unistd.h>

int pool_init(struct pool *pool, const struct options *options, struct scheduler *scheduler, int epoll,
              uint64_t epoll_tag, uint64_t session) {
    memset(pool, 0, sizeof(*pool));
    pool->options = options;
    pool->scheduler = scheduler;
    pool->epoll = epoll;
    pool->epoll_tag = epoll_tag;
    pool->session = session;
    pool->slots = calloc(POOL_SLOTS, sizeof(struct connection));
    if (!pool->slots)
        return -ENOMEM;
    for (size_t i = 0; i < POOL_SLOTS; i++)
        pool->slots[i].descriptor = -1;
    return 0;
}

void pool_free(struct pool *pool) {
    for (size_t i = 0; pool->slots && i < POOL_SLOTS; i++)
        if (pool->slots[i].descriptor >= 0)
            close(pool->slots[i].descriptor);
    free(pool->slots);
    free(pool->carry);
}

uint32_t pool_count(const struct pool *pool, enum connection_state state) {
    uint32_t count = 0;
    for (size_t i = 0; i < POOL_SLOTS; i++)
        count += pool->slots[i].state == state;
    return count;
}

__attribute__((format(printf, 2, 3))) static void note(struct pool *pool, const char *format, ...) {
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

/* What the kernel has not taken whole goes to the carry buffer: frames of user packets only. */
static void carry_over(struct pool *pool, const struct connection *connection) {
    size_t at = 0;
    struct frame frame;
    ssize_t bytes;
    while (at < connection->out_used &&
           (bytes = frame_parse(connection->out + at, connection->out_used - at, &frame)) > 0) {
        size_t end = at + (size_t)bytes;
        if (end > connection->out_sent && frame.type == FRAME_DATA) {
            uint8_t *grown = realloc(pool->carry, pool->carry_used + (size_t)bytes);
            if (!grown)
                return;
            pool->carry = grown;
            memcpy(grown + pool->carry_used, connection->out + at, (size_t)bytes);
            pool->carry_used += (size_t)bytes;
            pool->counters.resent_packets++;
        }
        at = end;
    }
}

static void close_slot(struct connection *connection) {
    if (connection->descriptor >= 0)
        close(connection->descriptor);
    connection->descriptor = -1;
    connection->room = connection->said_bye = connection->finished = false;
    connection->out_used = connection->out_sent = connection->in_used = 0;
}

/* Waits with a pause that grows, or is free when it was leaving anyhow. */
static void lose(struct pool *pool, struct connection *connection, uint64_t now_us) {
    bool leaving = connection->state == CONNECTION_DRAINING;
    carry_over(pool, connection);
    close_slot(connection);
    connection->failures++;
    connection->state = leaving ? CONNECTION_FREE : CONNECTION_WAITING;
    connection->deadline_us = now_us + backoff_us(connection->failures, (uint32_t)random());
}

static int set_options(const struct pool *pool, int descriptor) {
    const struct options *options = pool->options;
    int one = 1, unsent = (int)options->batch_bytes, timeout = POOL_USER_TIMEOUT_MS, mss = (int)options->mss_bytes;
    if (setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0 ||
        setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)) < 0 ||
        setsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout)) < 0 ||
        /* Room is room in the window: what waits unsent in the kernel could have gone over another connection. */
        setsockopt(descriptor, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent)) < 0 ||
        (mss && setsockopt(descriptor, IPPROTO_TCP, TCP_MAXSEG, &mss, sizeof(mss)) < 0) ||
        setsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, options->congestion,
                   (socklen_t)strlen(options->congestion)) < 0)
        return -errno;
    if (options->has_bind && bind(descriptor, &options->bind.any, endpoint_bytes(&options->bind)) < 0)
        return -errno;
    return 0;
}

static void fail_to_connect(struct pool *pool, struct connection *connection, int error, uint64_t now_us) {
    note(pool, "connection to %s: %s; tried again", pool->options->endpoint_text, strerror(error));
    pool->counters.connect_failures++;
    lose(pool, connection, now_us);
}

static void open_slot(struct pool *pool, struct connection *connection, uint64_t now_us) {
    const union endpoint *endpoint = &pool->options->endpoint;
    size_t slot = (size_t)(connection - pool->slots);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.u64 = pool->epoll_tag + slot};
    connection->state = CONNECTION_CONNECTING;
    connection->deadline_us = now_us + POOL_CONNECT_TIMEOUT_US;
    connection->order = ++pool->opened_order;
    connection->descriptor = socket(endpoint->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    int error = connection->descriptor < 0 ? -errno : set_options(pool, connection->descriptor);
    if (!error && epoll_ctl(pool->epoll, EPOLL_CTL_ADD, connection->descriptor, &event) < 0)
        error = -errno;
    if (!error && connect(connection->descriptor, &endpoint->any, endpoint_bytes(endpoint)) < 0 && errno != EINPROGRESS)
        error = -errno;
    if (error)
        fail_to_connect(pool, connection, -error, now_us);
}

static void send_hello(struct pool *pool, struct connection *connection) {
    struct frame first;
    struct hello hello = {pool->session, pool->next_sequence, (uint32_t)pool->options->period_us};
    if (pool->carry_used > pool->carry_sent &&
        frame_parse(pool->carry + pool->carry_sent, pool->carry_used - pool->carry_sent, &first) > 0)
        hello.next_sequence = first.sequence;
    connection->out_used = frame_write_hello(connection->out, &hello);
    connection->out_sent = 0;
}

/* Hands the buffer to the kernel; false when the connection broke. */
static bool flush(struct connection *connection) {
    while (connection->out_sent < connection->out_used) {
        ssize_t sent = send(connection->descriptor, connection->out + connection->out_sent,
                            connection->out_used - connection->out_sent, MSG_NOSIGNAL);
        if (sent < 0) {
            connection->room = false;
            return errno == EAGAIN || errno == EINTR;
        }
        connection->out_sent += (size_t)sent;
    }
    connection->out_used = connection->out_sent = 0;
    return true;
}

static void break_off(struct pool *pool, struct connection *connection, int error, uint64_t now_us) {
    note(pool, "a connection to %s broke: %s", pool->options->endpoint_text,
         error ? strerror(error) : "closed by the destination");
    pool->counters.broken++;
    lose(pool, connection, now_us);
}

/* A draining connection whose buffer is out says so and closes its side. */
static void finish(struct pool *pool, struct connection *connection, uint64_t now_us) {
    if (connection->finished || connection->out_used)
        return;
    if (!connection->said_bye) {
        frame_header(connection->out, FRAME_BYE, 0, 0);
        connection->out_used = FRAME_HEADER_BYTES;
        connection->said_bye = true;
    }
    if (!flush(connection)) {
        break_off(pool, connection, errno, now_us);
        return;
    }
    if (connection->out_used)
        return;
    shutdown(connection->descriptor, SHUT_WR);
    connection->finished = true;
}

static void drain(struct pool *pool, struct connection *connection, uint64_t now_us) {
    connection->state = CONNECTION_DRAINING;
    connection->deadline_us = now_us + POOL_DRAIN_TIMEOUT_US;
    finish(pool, connection, now_us);
}

/* One connection fewer: rather one that is not up, else the youngest. */
static void close_one(struct pool *pool, uint64_t now_us) {
    struct connection *chosen = NULL;
    for (size_t i = 0; i < POOL_SLOTS; i++) {
        struct connection *connection = &pool->slots[i];
        if (connection->state == CONNECTION_FREE || connection->state == CONNECTION_DRAINING)
            continue;
        bool up = connection->state == CONNECTION_UP;
        bool chosen_up = chosen && chosen->state == CONNECTION_UP;
        if (!chosen || (chosen_up && !up) || (chosen_up == up && connection->order > chosen->order))
            chosen = connection;
    }
    if (!chosen)
        return;
    pool->counters.closed++;
    if (chosen->state == CONNECTION_UP) {
        drain(pool, chosen, now_us);
        return;
    }
    close_slot(chosen);
    chosen->state = CONNECTION_FREE;
}

static void open_one(struct pool *pool, uint64_t now_us) {
    for (size_t i = 0; i < POOL_SLOTS; i++) {
        if (pool->slots[i].state == CONNECTION_FREE) {
            pool->counters.opened++;
            pool->slots[i].failures = 0;
            open_slot(pool, &pool->slots[i], now_us);
            return;
        }
    }
}

static void expire(struct pool *pool, struct connection *connection, uint64_t now_us) {
    switch (connection->state) {
    case CONNECTION_CONNECTING:
        fail_to_connect(pool, connection, ETIMEDOUT, now_us);
        break;
    case CONNECTION_WAITING:
        open_slot(pool, connection, now_us);
        break;
    case CONNECTION_DRAINING:
        note(pool, "a connection to %s did not end in time", pool->options->endpoint_text);
        pool->counters.drain_timeouts++;
        lose(pool, connection, now_us);
        break;
    default:
        break;
    }
}

uint64_t pool_update(struct pool *pool, uint32_t wanted, uint64_t now_us) {
    uint64_t next_us = UINT64_MAX;
    uint32_t there = 0;
    for (size_t i = 0; i < POOL_SLOTS; i++) {
        const struct connection *connection = &pool->slots[i];
        there += connection->state != CONNECTION_FREE && connection->state != CONNECTION_DRAINING;
    }
    for (; there < wanted; there++)
        open_one(pool, now_us);
    for (; there > wanted; there--)
        close_one(pool, now_us);
    for (size_t i = 0; i < POOL_SLOTS; i++) {
        struct connection *connection = &pool->slots[i];
        if (connection->state == CONNECTION_FREE || connection->state == CONNECTION_UP)
            continue;
        if (connection->deadline_us <= now_us)
            expire(pool, connection, now_us);
        if (connection->state != CONNECTION_FREE && connection->deadline_us < next_us)
            next_us = connection->deadline_us;
    }
    return next_us;
}

static void take_report(struct pool *pool, const struct frame *frame, uint64_t now_us) {
    struct report report;
    if (frame_read_report(frame, &report) < 0)
        return;
    pool->report = report;
    pool->report_at_us = now_us;
}

/* Reads what the destination sends: its reports, at last its end of stream. Returns 1 while there may be more, 0 at the
 * end of the stream or a negative errno. */
static int receive(struct pool *pool, struct connection *connection, uint64_t now_us) {
    for (;;) {
        struct frame frame;
        ssize_t used;
        ssize_t got =
            recv(connection->descriptor, connection->in + connection->in_used, POOL_IN_BYTES - connection->in_used, 0);
        if (got < 0)
            return errno == EAGAIN || errno == EINTR ? 1 : -errno;
        if (got == 0)
            return 0;
        connection->in_used += (size_t)got;
        size_t at = 0;
        while ((used = frame_parse(connection->in + at, connection->in_used - at, &frame)) > 0) {
            take_report(pool, &frame, now_us);
            at += (size_t)used;
        }
        if (used < 0 || (at == 0 && connection->in_used == POOL_IN_BYTES))
            return -EBADMSG;
        connection->in_used -= at;
        memmove(connection->in, connection->in + at, connection->in_used);
    }
}

static int pending_error(const struct connection *connection) {
    int error = 0;
    socklen_t bytes = sizeof(error);
    return getsockopt(connection->descriptor, SOL_SOCKET, SO_ERROR, &error, &bytes) < 0 ? errno : error;
}

void pool_event(struct pool *pool, size_t slot, uint32_t events, uint64_t now_us) {
    struct connection *connection = &pool->slots[slot];
    if (connection->descriptor < 0)
        return;
    int error = events & (EPOLLERR | EPOLLHUP) ? pending_error(connection) : 0;
    if (connection->state == CONNECTION_CONNECTING) {
        if (error || !(events & EPOLLOUT)) {
            if (error)
                fail_to_connect(pool, connection, error, now_us);
            return;
        }
        connection->state = CONNECTION_UP;
        pool->last_error[0] = '\0';
        send_hello(pool, connection);
    }
    if (error) {
        break_off(pool, connection, error, now_us);
        return;
    }
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP)) {
        int result = receive(pool, connection, now_us);
        if (result == 0 && connection->finished) {
            close_slot(connection);
            connection->state = CONNECTION_FREE;
            return;
        }
        if (result <= 0) {
            break_off(pool, connection, -result, now_us);
            return;
        }
    }
    if (events & EPOLLOUT) {
        connection->room = true;
        if (!flush(connection))
            break_off(pool, connection, errno, now_us);
        else if (connection->state == CONNECTION_DRAINING)
            finish(pool, connection, now_us);
    }
}

/* One frame into the connection's buffer: one that was carried over, else the scheduler's next. */
static bool load_frame(struct pool *pool, struct connection *connection) {
    struct frame frame;
    uint8_t *at = connection->out + connection->out_used;
    if (pool->carry_sent < pool->carry_used) {
        ssize_t bytes = frame_parse(pool->carry + pool->carry_sent, pool->carry_used - pool->carry_sent, &frame);
        memcpy(at, pool->carry + pool->carry_sent, (size_t)bytes);
        connection->out_used += (size_t)bytes;
        pool->carry_sent += (size_t)bytes;
        if (pool->carry_sent == pool->carry_used)
            pool->carry_sent = pool->carry_used = 0;
        return true;
    }
    struct queued_packet *packet = scheduler_take(pool->scheduler);
    if (!packet)
        return false;
    frame_header(at, FRAME_DATA, packet->bytes, pool->next_sequence++);
    memcpy(at + FRAME_HEADER_BYTES, packet->data, packet->bytes);
    connection->out_used += FRAME_HEADER_BYTES + packet->bytes;
    pool->counters.sent_packets++;
    pool->counters.sent_bytes += packet->bytes;
    free(packet);
    /* The first packet is as good as a failure-free time. */
    connection->failures = 0;
    return true;
}

static bool has_work(const struct pool *pool) {
    return pool->scheduler->queue_packets || pool->carry_sent < pool->carry_used;
}

void pool_pump(struct pool *pool, uint64_t now_us) {
    size_t without_room = 0;
    while (has_work(pool) && without_room < POOL_SLOTS) {
        struct connection *connection = &pool->slots[pool->round];
        pool->round = (pool->round + 1) % POOL_SLOTS;
        if (connection->state != CONNECTION_UP || !connection->room) {
            without_room++;
            continue;
        }
        without_room = 0;
        while (connection->out_used < pool->options->batch_bytes && load_frame(pool, connection))
            ;
        if (!flush(connection))
            break_off(pool, connection, errno, now_us);
    }
}
