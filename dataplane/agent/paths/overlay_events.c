/* See overlay_events.h. */
#include "paths/overlay_events.h"

void overlay_events_add(struct overlay_events *events, const struct overlay_event *event) {
    struct overlay_event *place = &events->ring[events->n++ % OVERLAY_EVENTS_MAX];

    *place = *event;
    place->sequence = events->n;
}

size_t overlay_events_recent(const struct overlay_events *events, int64_t now_us, struct overlay_event *ret) {
    uint64_t first = events->n > OVERLAY_EVENTS_MAX ? events->n - OVERLAY_EVENTS_MAX : 0;
    size_t n = 0;

    for (uint64_t i = first; i < events->n; i++) {
        const struct overlay_event *event = &events->ring[i % OVERLAY_EVENTS_MAX];

        if (event->at_us > now_us - OVERLAY_EVENT_AGE_US)
            ret[n++] = *event;
    }
    return n;
}
