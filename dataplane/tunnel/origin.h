/* What the origin's parts share. */
#ifndef ITM_ORIGIN_H
#define ITM_ORIGIN_H

#include <cjson/cJSON.h>

#include "applications.h"
#include "control.h"
#include "elastic.h"
#include "event.h"
#include "exporter.h"
#include "orders.h"
#include "pool.h"
#include "streams.h"

/* What applications were told of already. */
struct origin_seen {
    uint64_t report_at_us, skipped_packets, dropped_packets, retransmitted_segments, sent_bytes;
};

struct origin {
    const struct options *options;
    int epoll, tun;
    uint64_t started_us, now_us;
    struct control control;
    struct exporter *exporter;
    struct tls *tls;
    struct streams *streams; /* NULL: without a broker */
    struct orders orders;
    struct applications applications; /* from files: asked before the tunnel */
    struct itm_dispatcher dispatcher; /* the tunnel */
    struct origin_seen seen;
    struct elastic elastic;
    struct pool pool;
    uint64_t reported_at_us, measured_at_us; /* of the last record, of the destination's report in it */
    char complaint[160];
};

/* origin_state.c: the answer to `get`. */
void origin_add_state(void *context, cJSON *answer);
/* origin_control.c: the control socket's commands, and the weights that hold. */
void origin_answer(void *context, const cJSON *command, cJSON *answered, const char **ret_error);
void origin_apply_weights(struct origin *origin);
/* m with its lease, and what the tunnel carries at most (bits of frames per second, 0: no limit). */
void origin_elastic(struct origin *origin, uint32_t connections, uint64_t lease_us, uint64_t limit_bps);
/* origin_inputs.c: keeps what applications learn of the system right, and raises feedback when the destination
 * reported. */
void origin_look(struct origin *origin, uint64_t now_us);
/* Share of segments that TCP had to send again, 0 to 1; 0 when nothing was sent. */
double origin_loss_ratio(uint64_t retransmitted_segments, uint64_t sent_bytes, uint32_t mss_bytes);
/* origin_report.c: a record per report of the destination; also when none comes. Returns when it wants to be called
 * again at the latest. */
uint64_t origin_report(struct origin *origin, uint64_t now_us);
/* A record that was read. */
void origin_take_record(void *context, enum streams_topic topic, const char *key, const uint8_t *value, size_t bytes);

#endif
