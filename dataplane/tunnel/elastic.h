/* The elastic tunnel as an application of the event API (Guirguis et al., section 4.2): packets are classified by
 * customer and put into the scheduler; per measurement period the customers' rates and the number of connections
 * follow. */
#ifndef ITM_ELASTIC_H
#define ITM_ELASTIC_H

#include "elasticity.h"
#include "event.h"
#include "options.h"
#include "scheduler.h"

#define ELASTIC_NAME "elastic-tunnel"

struct elastic {
    const struct options *options;
    struct scheduler scheduler;
    struct elasticity elasticity;
    uint64_t unclassified_packets; /* no customer's: dropped */
    uint64_t offered_packets;
    /* Of the last period: what customers offered, and how long packets waited for room. */
    uint64_t offered_bytes, backlogged_us;
    uint64_t offered_bytes_now, backlogged_us_now, looked_at_us;
    bool backlogged;
    uint64_t sent_bytes_seen[SCHEDULER_CLASSES];
    uint64_t rate_bps[SCHEDULER_CLASSES]; /* of user packets that left the scheduler, over the last period */
};

/* 0 or a negative errno. The options must outlive it. */
int elastic_init(struct elastic *elastic, const struct options *options);
void elastic_free(struct elastic *elastic);
/* What an application diverted: into the queue of customer number `path`; dropped and counted when there is none. */
void elastic_divert(struct elastic *elastic, uint32_t path, const uint8_t *packet, size_t bytes,
                    const struct offload *offload);
/* Whether packets wait for room from now on. */
void elastic_backlog(struct elastic *elastic, bool backlogged, uint64_t now_us);
/* Packets of all customers that were dropped. */
uint64_t elastic_dropped(const struct elastic *elastic);
struct itm_application elastic_application(struct elastic *elastic);

#endif
