/* The origin's records, see origin.h: chart.tunnel-report.v1 out, chart.tunnel-command.v1 and chart.policy.v1 in. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "chart/v1/tunnel_report.pb-c.h"
#include "loop.h"
#include "origin.h"

/* The destination may be late by a period before its silence is told. */
#define SILENT_PERIODS 2

static int64_t wall_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

struct windows {
    Chart__V1__TunnelWindow all[POOL_SLOTS], *pointers[POOL_SLOTS];
    size_t count;
};

static void fill_windows(const struct pool *pool, struct windows *windows) {
    windows->count = 0;
    for (size_t i = 0; i < pool->bound; i++) {
        struct pool_window found;
        if (!pool_window(pool, i, &found))
            continue;
        Chart__V1__TunnelWindow *window = &windows->all[windows->count];
        chart__v1__tunnel_window__init(window);
        window->cwnd_segments = found.cwnd_segments;
        window->rtt_us = found.rtt_us;
        window->mss_bytes = found.mss_bytes;
        window->retransmitted_segments = found.retransmitted_segments;
        windows->pointers[windows->count++] = window;
    }
}

struct classes {
    Chart__V1__TunnelClass all[SCHEDULER_CLASSES], *pointers[SCHEDULER_CLASSES];
};

static void fill_classes(const struct origin *origin, struct classes *classes) {
    for (uint32_t i = 0; i < origin->elastic.scheduler.count; i++) {
        const struct scheduler_class *from = &origin->elastic.scheduler.classes[i];
        Chart__V1__TunnelClass *class = &classes->all[i];
        chart__v1__tunnel_class__init(class);
        class->name = (char *)origin->options->classes[i].name;
        class->weight = from->weight;
        class->rate_bps = origin->elastic.rate_bps[i];
        class->queue_packets = from->queue_packets;
        class->queue_bytes = from->queue_bytes;
        class->sent_packets_total = from->sent_packets;
        class->sent_bytes_total = from->sent_bytes;
        class->dropped_packets_total = from->dropped_packets;
        classes->pointers[i] = class;
    }
}

static void fill_measurement(const struct origin *origin, uint64_t now_us, Chart__V1__TunnelReport *record) {
    const struct report *report = &origin->pool.report;
    record->period_number = report->number;
    /* Half a round trip ago; nobody needs it finer than the origin's clock. */
    record->period_end_us = wall_us() - (int64_t)(now_us - origin->pool.report_at_us);
    record->period_us = report->interval_us;
    record->received_bytes = report->received_bytes;
}

static void fill(const struct origin *origin, uint64_t now_us, Chart__V1__TunnelReport *record) {
    const struct elastic *elastic = &origin->elastic;
    const struct report *report = &origin->pool.report;
    record->tunnel = (char *)origin->options->tunnel;
    record->origin_node = (char *)origin->options->node;
    if (origin->options->peer_node)
        record->destination_node = (char *)origin->options->peer_node;
    record->session = origin->pool.session;
    record->period_number = report->number;
    record->period_end_us = wall_us();
    record->connections_wanted = elastic->elasticity.connections;
    record->connections_established = pool_count(&origin->pool, CONNECTION_UP);
    record->queue_packets = elastic->scheduler.queue_packets;
    record->queue_bytes = elastic->scheduler.queue_bytes;
    record->delivered_packets_total = report->delivered_packets_total;
    record->dropped_packets_total = elastic_dropped(elastic);
    record->late_packets_total = report->late_packets_total;
    record->skipped_packets_total = report->skipped_packets_total;
    record->command_generation = origin->orders.generation;
    record->lease_left_us = elasticity_lease_left_us(&elastic->elasticity, now_us);
    record->decaying = elastic->elasticity.decaying;
    record->backlogged_us = (uint32_t)elastic->backlogged_us;
    record->offered_bytes = elastic->offered_bytes;
    record->last_error = (char *)origin->pool.last_error;
    record->congestion = (char *)origin->options->congestion;
    record->tls = origin->tls != NULL;
    record->connection_changes_total = elastic->elasticity.changes;
    record->connections_maximum = TUNNEL_CONNECTIONS_MAX;
    record->limit_bps = origin->pool.shaper.rate_bps;
}

static void publish(struct origin *origin, bool measured, uint64_t now_us) {
    static struct windows windows;
    struct classes classes;
    Chart__V1__TunnelReport record = CHART__V1__TUNNEL_REPORT__INIT;
    fill(origin, now_us, &record);
    if (measured)
        fill_measurement(origin, now_us, &record);
    fill_windows(&origin->pool, &windows);
    record.n_windows = windows.count;
    record.windows = windows.pointers;
    fill_classes(origin, &classes);
    record.n_classes = origin->elastic.scheduler.count;
    record.classes = classes.pointers;
    uint8_t *bytes = malloc(chart__v1__tunnel_report__get_packed_size(&record));
    if (!bytes)
        return;
    size_t count = chart__v1__tunnel_report__pack(&record, bytes);
    (void)streams_report(origin->streams, origin->options->tunnel, bytes, count);
    free(bytes);
}

uint64_t origin_report(struct origin *origin, uint64_t now_us) {
    uint64_t period_us = origin->options->period_us;
    if (origin->measured_at_us != origin->pool.report_at_us) {
        origin->measured_at_us = origin->pool.report_at_us;
        origin->reported_at_us = now_us;
        publish(origin, true, now_us);
    }
    if (!origin->reported_at_us)
        origin->reported_at_us = now_us;
    if (now_us - origin->reported_at_us >= SILENT_PERIODS * period_us) {
        origin->reported_at_us = now_us - (SILENT_PERIODS - 1) * period_us;
        publish(origin, false, now_us);
    }
    return origin->reported_at_us + SILENT_PERIODS * period_us;
}

void origin_take_record(void *context, enum streams_topic topic, const char *key, const uint8_t *value, size_t bytes) {
    struct origin *origin = context;
    struct order order;
    if (topic == STREAMS_POLICY) {
        if (orders_policy(&origin->orders, key, value, bytes) == -EBADMSG)
            fprintf(stderr, "chart-tunnel: policy %s cannot be read and is ignored\n", key);
        origin_apply_weights(origin);
        return;
    }
    if (strcmp(key, origin->options->tunnel) != 0 || !value)
        return;
    int error = orders_command(&origin->orders, value, bytes, wall_us(), &order);
    if (error == -EBADMSG)
        fprintf(stderr, "chart-tunnel: a command for %s cannot be read and is ignored\n", key);
    if (error < 0)
        return;
    origin_apply_weights(origin);
    if (order.connections)
        origin_elastic(origin, order.connections, order.lease_us, order.limit_bps);
}
