/* What the origin's applications learn of the system: groups, feedback of the destination, losses; see origin.h. */
#include <string.h>

#include "origin.h"

/* Mean and least RTT of the connections, and what TCP sent again and sent in all since they opened. */
struct paths {
    uint64_t rtt_sum_us, retransmitted_segments;
    uint32_t rtt_minimum_us, count, mss_bytes;
};

static struct paths look(const struct pool *pool) {
    struct paths paths = {0};
    for (size_t i = 0; i < pool->bound; i++) {
        struct pool_window found;
        if (!pool_window(pool, i, &found))
            continue;
        paths.count++;
        paths.rtt_sum_us += found.rtt_us;
        paths.retransmitted_segments += found.retransmitted_segments;
        paths.mss_bytes = found.mss_bytes;
        if (found.rtt_us && (!paths.rtt_minimum_us || found.rtt_us < paths.rtt_minimum_us))
            paths.rtt_minimum_us = found.rtt_us;
    }
    return paths;
}

double origin_loss_ratio(uint64_t retransmitted_segments, uint64_t sent_bytes, uint32_t mss_bytes) {
    if (!sent_bytes || !mss_bytes)
        return 0;
    double sent = (double)sent_bytes / mss_bytes + (double)retransmitted_segments;
    return (double)retransmitted_segments / sent;
}

/* Called after a report: returns segments that TCP sent again since the last one. */
static uint64_t take_paths(struct origin *origin) {
    struct itm_inputs *inputs = &origin->applications.inputs;
    struct origin_seen *seen = &origin->seen;
    struct paths paths = look(&origin->pool);
    /* A connection that closed takes its count with it. */
    uint64_t again = paths.retransmitted_segments > seen->retransmitted_segments
                         ? paths.retransmitted_segments - seen->retransmitted_segments
                         : 0;
    uint64_t sent_bytes = origin->pool.counters.sent_bytes - seen->sent_bytes;
    seen->retransmitted_segments = paths.retransmitted_segments;
    seen->sent_bytes = origin->pool.counters.sent_bytes;
    inputs->rtt_us = paths.count ? (uint32_t)(paths.rtt_sum_us / paths.count) : 0;
    if (paths.rtt_minimum_us && (!inputs->rtt_minimum_us || paths.rtt_minimum_us < inputs->rtt_minimum_us))
        inputs->rtt_minimum_us = paths.rtt_minimum_us;
    inputs->loss_ratio = origin_loss_ratio(again, sent_bytes, paths.mss_bytes);
    return again;
}

static void take_report(struct origin *origin, uint64_t now_us) {
    const struct report *report = &origin->pool.report;
    struct origin_seen *seen = &origin->seen;
    struct itm_inputs *inputs = &origin->applications.inputs;
    seen->report_at_us = origin->pool.report_at_us;
    inputs->rate_bps = report->interval_us ? report->received_bytes * 8000000 / report->interval_us : 0;
    uint64_t lost = take_paths(origin);
    if (report->skipped_packets_total > seen->skipped_packets)
        lost += report->skipped_packets_total - seen->skipped_packets;
    seen->skipped_packets = report->skipped_packets_total;
    applications_lost(&origin->applications, lost);
    applications_feedback(&origin->applications, now_us);
}

void origin_look(struct origin *origin, uint64_t now_us) {
    struct itm_inputs *inputs = &origin->applications.inputs;
    const struct elastic *elastic = &origin->elastic;
    if (!origin->applications.count)
        return;
    inputs->connections = pool_count(&origin->pool, CONNECTION_UP);
    inputs->group_count = elastic->scheduler.count;
    for (uint32_t i = 0; i < inputs->group_count; i++)
        inputs->groups[i] = (struct itm_group){
            .rate_bps = elastic->rate_bps[i],
            .queue_bytes = elastic->scheduler.classes[i].queue_bytes,
            .dropped_packets_total = elastic->scheduler.classes[i].dropped_packets,
        };
    uint64_t dropped = elastic_dropped(elastic);
    applications_lost(&origin->applications, dropped - origin->seen.dropped_packets);
    origin->seen.dropped_packets = dropped;
    if (origin->pool.report_at_us != origin->seen.report_at_us)
        take_report(origin, now_us);
}
