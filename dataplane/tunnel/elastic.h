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
    uint64_t sent_bytes_seen[SCHEDULER_CLASSES];
    uint64_t rate_bps[SCHEDULER_CLASSES]; /* of user packets that left the scheduler, over the last period */
};

/* 0 or a negative errno. The options must outlive it. */
int elastic_init(struct elastic *elastic, const struct options *options);
void elastic_free(struct elastic *elastic);
struct itm_application elastic_application(struct elastic *elastic);

#endif
