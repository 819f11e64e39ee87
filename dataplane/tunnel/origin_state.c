/* The origin's answer to `get`, see origin.h. */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "application_control.h"
#include "loop.h"
#include "origin.h"
#include "state.h"

/* Windows and round-trip times of the connections that are up. */
static cJSON *windows_of(const struct pool *pool) {
    cJSON *windows = cJSON_CreateArray();
    for (size_t i = 0; i < pool->bound; i++) {
        struct pool_window found;
        if (!pool_window(pool, i, &found))
            continue;
        cJSON *window = cJSON_CreateObject();
        state_add(window, "cwnd_segments", found.cwnd_segments);
        state_add(window, "rtt_us", found.rtt_us);
        state_add(window, "mss_bytes", found.mss_bytes);
        state_add(window, "retransmitted_segments", found.retransmitted_segments);
        cJSON_AddItemToArray(windows, window);
    }
    return windows;
}

static void add_connections(cJSON *answer, const struct origin *origin, uint64_t now_us) {
    const struct elasticity *elasticity = &origin->elastic.elasticity;
    const struct pool *pool = &origin->pool;
    cJSON *connections = cJSON_AddObjectToObject(answer, "connections");
    state_add(connections, "wanted", elasticity->connections);
    state_add(connections, "established", pool_count(pool, CONNECTION_UP));
    state_add(connections, "connecting",
              pool_count(pool, CONNECTION_CONNECTING) + pool_count(pool, CONNECTION_SECURING) +
                  pool_count(pool, CONNECTION_GREETING));
    state_add(connections, "waiting", pool_count(pool, CONNECTION_WAITING));
    state_add(connections, "draining", pool_count(pool, CONNECTION_DRAINING));
    cJSON_AddBoolToObject(connections, "decaying", elasticity->decaying);
    if (elasticity->lease_until_us)
        state_add(connections, "lease_left_us", elasticity_lease_left_us(elasticity, now_us));
    else
        cJSON_AddNullToObject(connections, "lease_left_us");
}

static void add_classes(cJSON *answer, const struct origin *origin) {
    cJSON *classes = cJSON_AddArrayToObject(answer, "classes");
    for (uint32_t i = 0; i < origin->elastic.scheduler.count; i++) {
        const struct scheduler_class *class = &origin->elastic.scheduler.classes[i];
        cJSON *object = cJSON_CreateObject();
        cJSON_AddStringToObject(object, "name", origin->options->classes[i].name);
        state_add(object, "weight", class->weight);
        state_add(object, "rate_bps", origin->elastic.rate_bps[i]);
        state_add(object, "queue_packets", class->queue_packets);
        state_add(object, "queue_bytes", class->queue_bytes);
        state_add(object, "offered_packets", class->offered_packets);
        state_add(object, "sent_packets", class->sent_packets);
        state_add(object, "sent_bytes", class->sent_bytes);
        state_add(object, "dropped_packets", class->dropped_packets);
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
    state_add(object, "number", report->number);
    state_add(object, "age_us", now_us - pool->report_at_us);
    state_add(object, "interval_us", report->interval_us);
    state_add(object, "received_bytes", report->received_bytes);
    state_add(object, "received_bytes_total", report->received_bytes_total);
    state_add(object, "received_packets_total", report->received_packets_total);
    state_add(object, "delivered_packets_total", report->delivered_packets_total);
    state_add(object, "late_packets_total", report->late_packets_total);
    state_add(object, "skipped_packets_total", report->skipped_packets_total);
    state_add(object, "held_packets_maximum", report->held_packets_maximum);
    state_add(object, "connections", report->connections);
}

static void add_counters(cJSON *answer, const struct origin *origin) {
    const struct pool_counters *counted = &origin->pool.counters;
    const struct elastic *elastic = &origin->elastic;
    cJSON *counters = cJSON_AddObjectToObject(answer, "counters");
    state_add(counters, "offered_packets", elastic->offered_packets);
    state_add(counters, "unclassified_packets", elastic->unclassified_packets);
    state_add(counters, "dropped_packets", elastic_dropped(elastic));
    state_add(counters, "sent_packets", counted->sent_packets);
    state_add(counters, "sent_bytes", counted->sent_bytes);
    state_add(counters, "resent_packets", counted->resent_packets);
    state_add(counters, "repeated_packets", counted->repeated_packets);
    state_add(counters, "connections_opened", counted->opened);
    state_add(counters, "connections_closed", counted->closed);
    state_add(counters, "connections_broken", counted->broken);
    state_add(counters, "connect_failures", counted->connect_failures);
    state_add(counters, "drain_timeouts", counted->drain_timeouts);
    state_add(counters, "connection_changes", elastic->elasticity.changes);
    state_add(counters, "leases_lost", elastic->elasticity.leases_lost);
    state_add(counters, "commands_taken", origin->orders.taken);
    state_add(counters, "commands_ignored", origin->orders.ignored);
    if (origin->streams) {
        struct streams_counters streams = streams_counters(origin->streams);
        state_add(counters, "records_read", streams.read);
        state_add(counters, "records_unreadable", streams.unreadable + origin->orders.unreadable);
        state_add(counters, "reports_delivered", streams.delivered);
        state_add(counters, "reports_dropped", streams.dropped);
        state_add(counters, "reports_unsigned", streams.unsigned_reports);
        state_add(counters, "broker_disconnects", streams.disconnects);
    }
    if (origin->pool.report_at_us) {
        state_add(counters, "received_bytes", origin->pool.report.received_bytes_total);
        state_add(counters, "late_packets", origin->pool.report.late_packets_total);
        state_add(counters, "skipped_packets", origin->pool.report.skipped_packets_total);
    }
}

static void add_gauges(cJSON *answer, const struct origin *origin, uint64_t now_us) {
    const struct elasticity *elasticity = &origin->elastic.elasticity;
    cJSON *gauges = cJSON_AddObjectToObject(answer, "gauges");
    state_add(gauges, "connections_wanted", elasticity->connections);
    state_add(gauges, "connections_established", pool_count(&origin->pool, CONNECTION_UP));
    state_add(gauges, "connections_draining", pool_count(&origin->pool, CONNECTION_DRAINING));
    state_add(gauges, "lease_decaying", elasticity->decaying);
    state_add(gauges, "queue_packets", origin->elastic.scheduler.queue_packets);
    state_add(gauges, "queue_bytes", origin->elastic.scheduler.queue_bytes);
    if (origin->streams)
        state_add(gauges, "broker_connected", streams_connected(origin->streams));
    if (origin->options->authority)
        state_add(gauges, "reports_signed", streams_signing(origin->streams));
    if (origin->pool.report_at_us)
        state_add(gauges, "report_age_us", now_us - origin->pool.report_at_us);
}

void origin_add_state(void *context, cJSON *answer) {
    const struct origin *origin = context;
    const struct options *options = origin->options;
    char session[20];
    uint64_t now_us = loop_now_us();
    snprintf(session, sizeof(session), "%016llx", (unsigned long long)origin->pool.session);
    cJSON_AddStringToObject(answer, "role", "origin");
    if (options->tunnel)
        cJSON_AddStringToObject(answer, "tunnel", options->tunnel);
    cJSON_AddStringToObject(answer, "tun", options->tun);
    cJSON_AddStringToObject(answer, "destination", options->endpoint_text);
    cJSON_AddStringToObject(answer, "session", session);
    cJSON_AddStringToObject(answer, "congestion", options->congestion);
    cJSON_AddBoolToObject(answer, "tls", origin->tls != NULL);
    state_add(answer, "period_us", options->period_us);
    state_add(answer, "uptime_us", now_us - origin->started_us);
    state_add(answer, "now_us", now_us);
    state_add(answer, "command_generation", origin->orders.generation);
    state_add(answer, "backlogged_us", origin->elastic.backlogged_us);
    state_add(answer, "offered_bytes", origin->elastic.offered_bytes);
    state_add(answer, "limit_bps", origin->pool.shaper.rate_bps);
    add_connections(answer, origin, now_us);
    add_classes(answer, origin);
    state_add_verdicts(cJSON_AddObjectToObject(answer, "arrivals"), itm_counters(&origin->dispatcher, ELASTIC_NAME));
    application_add_state(answer, &origin->applications);
    cJSON_AddItemToObject(answer, "windows", windows_of(&origin->pool));
    add_report(answer, &origin->pool, now_us);
    add_counters(answer, origin);
    add_gauges(answer, origin, now_us);
    cJSON_AddStringToObject(answer, "last_error", origin->pool.last_error);
    if (origin->options->authority)
        cJSON_AddStringToObject(answer, "signing_error", streams_fault(origin->streams));
}
