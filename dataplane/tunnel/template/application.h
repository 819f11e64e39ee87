/* A first application of the event API to start from: isolation of long from short flows by a threshold (Matta and
 * Bestavros, QoS Controllers for the Internet, section II.B). Packets of a flow go over path 0 until it has sent
 * threshold_bytes, then over path 1. */
#ifndef ITM_TEMPLATE_APPLICATION_H
#define ITM_TEMPLATE_APPLICATION_H

#include <stdint.h>

#include "event.h"

#define TEMPLATE_CLASSES 64
#define TEMPLATE_PERIOD_US 1000000

struct template_class {
    uint64_t bytes;      /* since the flow was last quiet for a period */
    uint64_t bytes_seen; /* at the end of the last period */
    uint32_t path;
};

struct template_state {
    uint64_t threshold_bytes;
    struct template_class classes[TEMPLATE_CLASSES]; /* flows by a hash of their addresses */
    uint32_t long_flows;                             /* at the end of the last period */
};

/* The registration of an application over this state, which must outlive it. */
struct itm_application template_application(struct template_state *state, uint64_t threshold_bytes, uint64_t period_us);
/* The same as a file of its own: argument is threshold_bytes, the period TEMPLATE_PERIOD_US. 0, or -EINVAL. */
int itm_application_open(const char *argument, struct itm_application *ret);

#endif
