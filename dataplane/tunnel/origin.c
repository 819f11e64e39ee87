/* The origin: user packets from the TUN device through the event API into the scheduler, and out over the connections
 * (Guirguis et al., section 2.2 and figure 2). */
#define _GNU_SOURCE
#include "origin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "application_control.h"
#include "ends.h"
#include "lib/notify/notify.h"
#include "loop.h"
#include "privileges.h"
#include "tun.h"

/* Packets read from the device before the connections are looked at again. */
#define READ_BURST 64
#define STREAMS_FLUSH_MS 500

/* Into the tunnel. */
static void take_packet(void *context, const uint8_t *packet, size_t bytes, const struct offload *offload) {
    struct origin *origin = context;
    const struct itm_event event = {
        .kind = ITM_ARRIVAL,
        .now_us = origin->now_us,
        .packet = packet,
        .packet_bytes = bytes,
        .offload = offload,
    };
    (void)itm_packet(&origin->dispatcher, &event);
}

/* Reads one packet, the device's header first: 1, 0 when there is none, -EBADMSG for one that is dropped alone because
 * the far end would refuse it. */
static int read_packet(struct origin *origin, uint8_t *buffer, size_t *ret_bytes, struct offload *ret_offload) {
    ssize_t got = read(origin->tun, buffer, OFFLOAD_DEVICE_BYTES + FRAME_PAYLOAD_MAX);
    if (got <= OFFLOAD_DEVICE_BYTES)
        return 0;
    *ret_bytes = (size_t)got - OFFLOAD_DEVICE_BYTES;
    offload_read_device(buffer, ret_offload);
    if (offload_check(ret_offload, *ret_bytes) == 0)
        return 1;
    origin->elastic.unclassified_packets++;
    return -EBADMSG;
}

static const struct offload *left_undone(const struct offload *offload) {
    return offload_none(offload) ? NULL : offload;
}

/* A burst into the memory that applications read. What one diverts waits in the queue of the customer it chose. */
static void read_batch(struct origin *origin) {
    struct applications *applications = &origin->applications;
    struct applications_batch *batch = &applications->batch;
    struct offload offload;
    size_t bytes;
    int got = 1;
    for (batch->count = 0; got && batch->count < EXCHANGE_PACKETS;) {
        got =
            read_packet(origin, applications_slot(applications, batch->count) - OFFLOAD_DEVICE_BYTES, &bytes, &offload);
        if (got > 0)
            applications_put(applications, bytes, &offload);
    }
    applications_decide(applications, ITM_ARRIVAL, origin->now_us);
    for (uint32_t i = 0; i < batch->count; i++) {
        const uint8_t *packet = applications_slot(applications, i);
        if (batch->actions[i].verdict == ITM_PASS)
            take_packet(origin, packet, batch->bytes[i], left_undone(&batch->offloads[i]));
        else if (batch->actions[i].verdict == ITM_DIVERT)
            elastic_divert(&origin->elastic, batch->actions[i].value, packet, batch->bytes[i],
                           left_undone(&batch->offloads[i]));
    }
}

static void read_packets(struct origin *origin) {
    static uint8_t buffer[OFFLOAD_DEVICE_BYTES + FRAME_PAYLOAD_MAX];
    struct offload offload;
    size_t bytes;
    int got = 1;
    if (applications_want(&origin->applications, ITM_ARRIVAL)) {
        read_batch(origin);
        return;
    }
    for (int i = 0; got && i < READ_BURST; i++) {
        got = read_packet(origin, buffer, &bytes, &offload);
        if (got > 0)
            take_packet(origin, buffer + OFFLOAD_DEVICE_BYTES, bytes, left_undone(&offload));
    }
}

static void serve(struct origin *origin, const struct epoll_event *event, uint64_t now_us) {
    uint64_t data = event->data.u64;
    if (TAG_OF(data) == TAG_CONNECTION)
        pool_event(&origin->pool, INDEX_OF(data), event->events, now_us);
    else if (TAG_OF(data) == TAG_TUN)
        read_packets(origin);
    else if (TAG_OF(data) == TAG_EXPORTER)
        exporter_run(origin->exporter);
    else if (TAG_OF(data) == TAG_STREAMS)
        streams_poll(origin->streams);
    else
        (void)loop_control(origin->epoll, &origin->control, data);
}

static uint64_t earlier(uint64_t one_us, uint64_t other_us) {
    return one_us < other_us ? one_us : other_us;
}

static int run(struct origin *origin) {
    struct epoll_event events[LOOP_EVENTS];
    notify_ready();
    while (!loop_ended()) {
        uint64_t now_us = origin->now_us = loop_now_us();
        uint64_t next_us = itm_tick(&origin->dispatcher, now_us);
        origin_look(origin, now_us);
        next_us = earlier(next_us, applications_tick(&origin->applications, now_us, take_packet, origin));
        next_us = earlier(next_us, pool_update(&origin->pool, origin->elastic.elasticity.connections, now_us));
        pool_pump(&origin->pool, now_us);
        elastic_backlog(&origin->elastic, pool_backlogged(&origin->pool), now_us);
        next_us = earlier(next_us, pool_shaped_until_us(&origin->pool, now_us));
        if (origin->streams) {
            next_us = earlier(next_us, streams_tick(origin->streams, now_us));
            next_us = earlier(next_us, origin_report(origin, now_us));
        }
        int count = epoll_wait(origin->epoll, events, LOOP_EVENTS, loop_timeout_ms(next_us, now_us));
        if (count < 0 && errno != EINTR) {
            perror("chart-tunnel: epoll_wait");
            return 1;
        }
        now_us = origin->now_us = loop_now_us();
        notify_alive_at(now_us);
        for (int i = 0; i < count; i++)
            serve(origin, &events[i], now_us);
    }
    return 0;
}

static const char *not_ready(void *context) {
    const struct origin *origin = context;
    if (pool_count(&origin->pool, CONNECTION_UP))
        return NULL;
    return origin->pool.last_error[0] ? origin->pool.last_error : "no connection is up yet";
}

static int start_pool(struct origin *origin) {
    const struct options *options = origin->options;
    char fault[TLS_FAULT_BYTES];
    uint64_t session;
    if (getrandom(&session, sizeof(session), 0) != sizeof(session))
        return -EIO;
    srandom((unsigned)session);
    if (options->tls.certificate && tls_open(&options->tls, false, &origin->tls, fault) < 0) {
        fprintf(stderr, "chart-tunnel: %s\n", fault);
        return -EINVAL;
    }
    pool_init(&origin->pool, options, &origin->elastic.scheduler, origin->tls, origin->epoll, TAG_CONNECTION, session);
    return 0;
}

static int start_tunnel(struct origin *origin) {
    struct itm_application application = elastic_application(&origin->elastic);
    return itm_register(&origin->dispatcher, &application, origin->started_us);
}

static int start_outside(struct origin *origin) {
    const struct options *options = origin->options;
    const struct exporter_source source = {origin_add_state, not_ready, origin};
    int error = control_open(&origin->control, options->control, origin_answer, origin);
    if (!error)
        error = loop_watch(origin->epoll, origin->control.listener, EPOLLIN, TAG_CONTROL);
    if (!error && options->metrics)
        error = exporter_open(options, &source, origin->epoll, &origin->exporter);
    return error;
}

static int start_device(struct origin *origin) {
    const struct options *options = origin->options;
    origin->tun = tun_open(options->tun, options->mtu_bytes, options->offload);
    int error = origin->tun < 0 ? origin->tun : loop_watch(origin->epoll, origin->tun, EPOLLIN, TAG_TUN);
    for (size_t i = 0; !error && i < options->route_count; i++)
        error = tun_route(options->tun, options->routes[i]);
    return error;
}

/* The library's threads begin without the privileges that were dropped before, and change user with the process. */
static int start_streams(struct origin *origin) {
    const struct streams_handler handler = {origin_take_record, origin};
    bool net_admin = !privileges_free_congestion(origin->options->congestion);
    int error = privileges_drop(origin->options->user, net_admin);
    if (!error && origin->options->broker)
        error = streams_open(origin->options, &handler, &origin->streams);
    if (!error && origin->streams)
        error = loop_watch(origin->epoll, streams_fd(origin->streams), EPOLLIN, TAG_STREAMS);
    return error ? error : privileges_become(origin->options->user, net_admin);
}

static int start(struct origin *origin) {
    const struct options *options = origin->options;
    origin->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (origin->epoll < 0)
        return -errno;
    orders_init(&origin->orders, options);
    int error = elastic_init(&origin->elastic, options);
    if (!error)
        error = start_pool(origin);
    if (!error)
        error = start_tunnel(origin);
    if (!error)
        error = start_outside(origin);
    if (!error)
        error = start_device(origin);
    if (!error)
        error = start_streams(origin);
    return error ? error : application_load_options(&origin->applications, options, loop_now_us());
}

int origin_run(const struct options *options) {
    struct origin *origin = calloc(1, sizeof(*origin));
    if (!origin)
        return 1;
    origin->options = options;
    origin->epoll = origin->tun = -1;
    control_init(&origin->control);
    origin->started_us = loop_now_us();
    applications_init(&origin->applications);
    itm_dispatcher_init(&origin->dispatcher);
    int error = start(origin);
    if (error < 0)
        fprintf(stderr, "chart-tunnel: the origin cannot start: %s\n", strerror(-error));
    int status = error < 0 ? 1 : run(origin);
    streams_close(origin->streams, STREAMS_FLUSH_MS);
    exporter_close(origin->exporter);
    control_close(&origin->control);
    pool_free(&origin->pool);
    tls_close(origin->tls);
    elastic_free(&origin->elastic);
    applications_close(&origin->applications);
    if (origin->tun >= 0)
        close(origin->tun);
    if (origin->epoll >= 0)
        close(origin->epoll);
    free(origin);
    return status;
}
