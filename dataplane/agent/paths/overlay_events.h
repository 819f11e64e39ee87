/* What happened to the overlay of this node lately, for its state on the streams: a ring, pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paths/overlay_table.h"

#define OVERLAY_EVENTS_MAX 64
/* An event is told for so long: a reader that missed one state finds it in a later one. */
#define OVERLAY_EVENT_AGE_US 600000000ll

/* As chart.v1.OverlayEventKind numbers them. */
enum overlay_event_kind {
    OVERLAY_EVENT_STARTED = 1,
    OVERLAY_EVENT_LINK_FAILED,
    OVERLAY_EVENT_LINK_RETURNED,
    OVERLAY_EVENT_PATH_FAILED,
    OVERLAY_EVENT_PATH_RETURNED,
    OVERLAY_EVENT_PATH_LEFT,
    OVERLAY_EVENT_PATH_GOOD_AGAIN,
};

struct overlay_event {
    /* From 1; set by overlay_events_add. */
    uint64_t sequence;
    int64_t at_us;
    enum overlay_event_kind kind;
    /* Of the link, or the node that the path leads to. */
    char subject[OVERLAY_NAME_LEN];
    uint8_t colour;
    /* Bits of enum chart_overlay_class, of a path that is left or good again. */
    uint8_t classes;
    uint32_t rtt_us;
    double exchange_loss;
    bool interface_down;
};

struct overlay_events {
    struct overlay_event ring[OVERLAY_EVENTS_MAX];
    /* Since the agent's start. */
    uint64_t n;
};

/* The oldest goes where there is no room. */
void overlay_events_add(struct overlay_events *events, const struct overlay_event *event);
/* Those that are told now, the oldest first; at most OVERLAY_EVENTS_MAX. */
size_t overlay_events_recent(const struct overlay_events *events, int64_t now_us, struct overlay_event *ret);
