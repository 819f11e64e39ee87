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

#include "ends.h"
#include "lib/notify/notify.h"
#include "loader.h"
#include "loop.h"
#include "privileges.h"
#include "tun.h"

/* Packets read from the device before the connections are looked at again. */
#define READ_BURST 64
#define STREAMS_FLUSH_MS 500

/* An application that diverts chooses the customer whose queue the packet waits in. */
static void take_packet(struct origin *origin, const uint8_t *packet, size_t bytes, const struct offload *offload,
                        uint64_t now_us) {
    struct itm_action action = itm_packet(&origin->dispatcher, ITM_HOOK_INGRESS, packet, bytes, offload, now_us);
    if (action.verdict == ITM_DIVERT)
        elastic_divert(&origin->elastic, action.path, packet, bytes, offload);
}

static void read_packets(struct origin *origin, uint64_t now_us) {
    static uint8_t buffer[OFFLOAD_DEVICE_BYTES + FRAME_PAYLOAD_MAX];
    for (int i = 0; i < READ_BURST; i++) {
        struct offload offload;
        ssize_t got = read(origin->tun, buffer, sizeof(buffer));
        if (got <= OFFLOAD_DEVICE_BYTES)
            return;
        size_t bytes = (size_t)got - OFFLOAD_DEVICE_BYTES;
        offload_read_device(buffer, &offload);
        /* What the far end would refuse is dropped here, alone. */
        if (offload_check(&offload, bytes) < 0) {
            origin->elastic.unclassified_packets++;
            continue;
        }
        take_packet(origin, buffer + OFFLOAD_DEVICE_BYTES, bytes, offload_none(&offload) ? NULL : &offload, now_us);
    }
}

static void serve(struct origin *origin, const struct epoll_event *event, uint64_t now_us) {
    uint64_t data = event->data.u64;
    if (TAG_OF(data) == TAG_CONNECTION)
        pool_event(&origin->pool, INDEX_OF(data), event->events, now_us);
    else if (TAG_OF(data) == TAG_TUN)
        read_packets(origin, now_us);
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
        uint64_t now_us = loop_now_us();
        uint64_t next_us = itm_tick(&origin->dispatcher, now_us);
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
        now_us = loop_now_us();
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

/* Applications from files come before the tunnel, which takes whatever is left. */
static int start_applications(struct origin *origin) {
    struct itm_application application = elastic_application(&origin->elastic);
    int error = loader_register(origin->options, &origin->dispatcher, origin->started_us);
    return error ? error : itm_register(&origin->dispatcher, &application, origin->started_us);
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
        error = start_applications(origin);
    if (!error)
        error = start_outside(origin);
    if (!error)
        error = start_device(origin);
    return error ? error : start_streams(origin);
}

int origin_run(const struct options *options) {
    struct origin *origin = calloc(1, sizeof(*origin));
    if (!origin)
        return 1;
    origin->options = options;
    origin->epoll = origin->tun = -1;
    control_init(&origin->control);
    origin->started_us = loop_now_us();
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
    loader_close();
    if (origin->tun >= 0)
        close(origin->tun);
    if (origin->epoll >= 0)
        close(origin->epoll);
    free(origin);
    return status;
}
