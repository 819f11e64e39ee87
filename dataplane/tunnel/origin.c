/* The origin: user packets from the TUN device through the event API into the scheduler, and out over the connections
 * (Guirguis et al., section 2.2 and figure 2). */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "control.h"
#include "elastic.h"
#include "ends.h"
#include "event.h"
#include "loop.h"
#include "pool.h"
#include "tun.h"

/* Packets read from the device before the connections are looked at again. */
#define READ_BURST 64

struct origin {
    const struct options *options;
    int epoll, tun;
    uint64_t started_us;
    struct control control;
    struct itm_dispatcher dispatcher;
    struct elastic elastic;
    struct pool pool;
    char complaint[96];
};

static void add(cJSON *object, const char *name, uint64_t value) {
    cJSON_AddNumberToObject(object, name, (double)value);
}

/* Windows and round-trip times of the connections that are up. */
static cJSON *windows_of(const struct pool *pool) {
    cJSON *windows = cJSON_CreateArray();
    for (size_t i = 0; i < POOL_SLOTS; i++) {
        struct tcp_info info;
        socklen_t bytes = sizeof(info);
        memset(&info, 0, sizeof(info));
        if (pool->slots[i].state != CONNECTION_UP ||
            getsockopt(pool->slots[i].descriptor, IPPROTO_TCP, TCP_INFO, &info, &bytes) < 0)
            continue;
        cJSON *window = cJSON_CreateObject();
        cJSON_AddNumberToObject(window, "cwnd_segments", info.tcpi_snd_cwnd);
        cJSON_AddNumberToObject(window, "rtt_us", info.tcpi_rtt);
        cJSON_AddNumberToObject(window, "mss_bytes", info.tcpi_snd_mss);
        cJSON_AddNumberToObject(window, "retransmitted_segments", info.tcpi_total_retrans);
        cJSON_AddItemToArray(windows, window);
    }
    return windows;
}

static void add_connections(cJSON *answer, const struct origin *origin, uint64_t now_us) {
    const struct elasticity *elasticity = &origin->elastic.elasticity;
    cJSON *connections = cJSON_AddObjectToObject(answer, "connections");
    add(connections, "wanted", elasticity->connections);
    add(connections, "established", pool_count(&origin->pool, CONNECTION_UP));
    add(connections, "connecting", pool_count(&origin->pool, CONNECTION_CONNECTING));
    add(connections, "waiting", pool_count(&origin->pool, CONNECTION_WAITING));
    add(connections, "draining", pool_count(&origin->pool, CONNECTION_DRAINING));
    cJSON_AddBoolToObject(connections, "decaying", elasticity->decaying);
    if (elasticity->lease_until_us)
        add(connections, "lease_left_us",
            elasticity->lease_until_us > now_us ? elasticity->lease_until_us - now_us : 0);
    else
        cJSON_AddNullToObject(connections, "lease_left_us");
}

static void add_classes(cJSON *answer, const struct origin *origin) {
    cJSON *classes = cJSON_AddArrayToObject(answer, "classes");
    for (uint32_t i = 0; i < origin->elastic.scheduler.count; i++) {
        const struct scheduler_class *class = &origin->elastic.scheduler.classes[i];
        cJSON *object = cJSON_CreateObject();
        cJSON_AddStringToObject(object, "name", origin->options->classes[i].name);
        add(object, "weight", class->weight);
        add(object, "rate_bps", origin->elastic.rate_bps[i]);
        add(object, "queue_packets", class->queue_packets);
        add(object, "queue_bytes", class->queue_bytes);
        add(object, "offered_packets", class->offered_packets);
        add(object, "sent_packets", class->sent_packets);
        add(object, "sent_bytes", class->sent_bytes);
        add(object, "dropped_packets", class->dropped_packets);
        cJSON_AddItemToArray(classes, object);
    }
}

static void add_report(cJSON *answer, const struct pool *pool, uint64_t now_us) {
    const struct report *report = &pool->report;
    if (!pool->report_at_us) {
        cJSON_AddNullToObject(answer, "report");
        return;
    }
    cJSON *object = cJSON_AddObjectToObject(answer, "report");
    add(object, "number", report->number);
    add(object, "age_us", now_us - pool->report_at_us);
    add(object, "interval_us", report->interval_us);
    add(object, "received_bytes", report->received_bytes);
    add(object, "received_bytes_total", report->received_bytes_total);
    add(object, "received_packets_total", report->received_packets_total);
    add(object, "delivered_packets_total", report->delivered_packets_total);
    add(object, "late_packets_total", report->late_packets_total);
    add(object, "skipped_packets_total", report->skipped_packets_total);
    add(object, "held_packets_maximum", report->held_packets_maximum);
    add(object, "connections", report->connections);
}

static void add_metrics(cJSON *answer, const struct origin *origin) {
    const struct pool_counters *counted = &origin->pool.counters;
    const struct elastic *elastic = &origin->elastic;
    uint64_t dropped = 0;
    for (uint32_t i = 0; i < elastic->scheduler.count; i++)
        dropped += elastic->scheduler.classes[i].dropped_packets;
    cJSON *counters = cJSON_AddObjectToObject(answer, "counters");
    add(counters, "offered_packets", elastic->offered_packets);
    add(counters, "unclassified_packets", elastic->unclassified_packets);
    add(counters, "dropped_packets", dropped);
    add(counters, "sent_packets", counted->sent_packets);
    add(counters, "sent_bytes", counted->sent_bytes);
    add(counters, "resent_packets", counted->resent_packets);
    add(counters, "connections_opened", counted->opened);
    add(counters, "connections_closed", counted->closed);
    add(counters, "connections_broken", counted->broken);
    add(counters, "connect_failures", counted->connect_failures);
    add(counters, "drain_timeouts", counted->drain_timeouts);
    add(counters, "connection_changes", elastic->elasticity.changes);
    add(counters, "leases_lost", elastic->elasticity.leases_lost);
    cJSON *gauges = cJSON_AddObjectToObject(answer, "gauges");
    add(gauges, "connections_wanted", elastic->elasticity.connections);
    add(gauges, "connections_established", pool_count(&origin->pool, CONNECTION_UP));
    add(gauges, "queue_packets", elastic->scheduler.queue_packets);
    add(gauges, "queue_bytes", elastic->scheduler.queue_bytes);
}

static void answer_get(struct origin *origin, cJSON *answer) {
    char session[20];
    uint64_t now_us = loop_now_us();
    snprintf(session, sizeof(session), "%016llx", (unsigned long long)origin->pool.session);
    cJSON_AddStringToObject(answer, "role", "origin");
    cJSON_AddStringToObject(answer, "tun", origin->options->tun);
    cJSON_AddStringToObject(answer, "destination", origin->options->endpoint_text);
    cJSON_AddStringToObject(answer, "session", session);
    cJSON_AddStringToObject(answer, "congestion", origin->options->congestion);
    add(answer, "period_us", origin->options->period_us);
    add(answer, "uptime_us", now_us - origin->started_us);
    add(answer, "now_us", now_us);
    add_connections(answer, origin, now_us);
    add_classes(answer, origin);
    cJSON_AddItemToObject(answer, "windows", windows_of(&origin->pool));
    add_report(answer, &origin->pool, now_us);
    add_metrics(answer, origin);
    cJSON_AddStringToObject(answer, "last_error", origin->pool.last_error);
}

/* Index of a class by name, -1 when there is none. */
static int class_named(const struct origin *origin, const char *name) {
    for (uint32_t i = 0; i < origin->options->class_count; i++)
        if (strcmp(origin->options->classes[i].name, name) == 0)
            return (int)i;
    return -1;
}

static bool whole_between(const cJSON *item, double minimum, double maximum) {
    return cJSON_IsNumber(item) && item->valuedouble >= minimum && item->valuedouble <= maximum &&
           item->valuedouble == (double)(uint64_t)item->valuedouble;
}

/* All is checked before anything is changed. */
static void answer_set(struct origin *origin, const cJSON *command, const char **ret_error) {
    const cJSON *connections = cJSON_GetObjectItemCaseSensitive(command, "connections");
    const cJSON *lease = cJSON_GetObjectItemCaseSensitive(command, "lease_ms");
    const cJSON *weights = cJSON_GetObjectItemCaseSensitive(command, "weights"), *weight;
    if (!connections && !weights)
        *ret_error = "set wants connections or weights";
    else if (connections && !whole_between(connections, 1, TUNNEL_CONNECTIONS_MAX))
        *ret_error = "connections must be a whole number from 1 to 256";
    else if (lease && !whole_between(lease, 0, 1e9))
        *ret_error = "lease_ms must be a whole number of milliseconds, 0 for no lease";
    else if (weights && !cJSON_IsObject(weights))
        *ret_error = "weights must be an object of class names and weights";
    cJSON_ArrayForEach(weight, weights) {
        if (class_named(origin, weight->string) < 0 || !whole_between(weight, 1, SCHEDULER_WEIGHT_MAX)) {
            snprintf(origin->complaint, sizeof(origin->complaint), "no such class, or no weight from 1 to %d: %.30s",
                     SCHEDULER_WEIGHT_MAX, weight->string);
            *ret_error = origin->complaint;
        }
    }
    if (*ret_error)
        return;
    cJSON_ArrayForEach(weight, weights) {
        (void)scheduler_set_weight(&origin->elastic.scheduler, (uint32_t)class_named(origin, weight->string),
                                   (uint32_t)weight->valuedouble);
    }
    if (connections)
        (void)elasticity_set(&origin->elastic.elasticity, (uint32_t)connections->valuedouble,
                             lease ? (uint64_t)lease->valuedouble * 1000 : 0, loop_now_us());
}

static void answer(void *context, const cJSON *command, cJSON *answered, const char **ret_error) {
    if (control_names(command, "command", "get"))
        answer_get(context, answered);
    else if (control_names(command, "command", "set"))
        answer_set(context, command, ret_error);
    else if (control_names(command, "command", "quit"))
        loop_end();
    else
        *ret_error = "command must be get, set or quit";
}

static void read_packets(struct origin *origin, uint64_t now_us) {
    static uint8_t packet[FRAME_PAYLOAD_MAX];
    for (int i = 0; i < READ_BURST; i++) {
        ssize_t bytes = read(origin->tun, packet, sizeof(packet));
        if (bytes <= 0)
            return;
        (void)itm_packet(&origin->dispatcher, ITM_HOOK_INGRESS, packet, (size_t)bytes, now_us);
    }
}

static int run(struct origin *origin) {
    struct epoll_event events[LOOP_EVENTS];
    while (!loop_ended()) {
        uint64_t now_us = loop_now_us();
        uint64_t tick_us = itm_tick(&origin->dispatcher, now_us);
        uint64_t next_us = pool_update(&origin->pool, origin->elastic.elasticity.connections, now_us);
        pool_pump(&origin->pool, now_us);
        int count = epoll_wait(origin->epoll, events, LOOP_EVENTS,
                               loop_timeout_ms(tick_us < next_us ? tick_us : next_us, now_us));
        if (count < 0 && errno != EINTR) {
            perror("chart-tunnel: epoll_wait");
            return 1;
        }
        now_us = loop_now_us();
        for (int i = 0; i < count; i++) {
            uint64_t data = events[i].data.u64;
            if (TAG_OF(data) == TAG_CONNECTION)
                pool_event(&origin->pool, INDEX_OF(data), events[i].events, now_us);
            else if (TAG_OF(data) == TAG_TUN)
                read_packets(origin, now_us);
            else
                (void)loop_control(origin->epoll, &origin->control, data);
        }
    }
    return 0;
}

static int start(struct origin *origin) {
    uint64_t session;
    if (getrandom(&session, sizeof(session), 0) != sizeof(session))
        return -EIO;
    srandom((unsigned)session);
    origin->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (origin->epoll < 0)
        return -errno;
    int error = elastic_init(&origin->elastic, origin->options);
    struct itm_application application = elastic_application(&origin->elastic);
    if (!error)
        error = itm_register(&origin->dispatcher, &application, origin->started_us);
    if (!error)
        error = pool_init(&origin->pool, origin->options, &origin->elastic.scheduler, origin->epoll, TAG_CONNECTION,
                          session);
    if (!error)
        error = control_open(&origin->control, origin->options->control, answer, origin);
    if (!error)
        error = loop_watch(origin->epoll, origin->control.listener, EPOLLIN, TAG_CONTROL);
    if (error)
        return error;
    origin->tun = tun_open(origin->options->tun, origin->options->mtu_bytes);
    return origin->tun < 0 ? origin->tun : loop_watch(origin->epoll, origin->tun, EPOLLIN, TAG_TUN);
}

int origin_run(const struct options *options) {
    struct origin *origin = calloc(1, sizeof(*origin));
    if (!origin)
        return 1;
    origin->options = options;
    origin->epoll = origin->tun = origin->control.listener = -1;
    for (int i = 0; i < CONTROL_CLIENTS; i++)
        origin->control.clients[i].descriptor = -1;
    origin->started_us = loop_now_us();
    itm_dispatcher_init(&origin->dispatcher);
    int error = start(origin);
    if (error < 0)
        fprintf(stderr, "chart-tunnel: the origin cannot start: %s\n", strerror(-error));
    int status = error < 0 ? 1 : run(origin);
    control_close(&origin->control);
    pool_free(&origin->pool);
    elastic_free(&origin->elastic);
    if (origin->tun >= 0)
        close(origin->tun);
    if (origin->epoll >= 0)
        close(origin->epoll);
    free(origin);
    return status;
}
