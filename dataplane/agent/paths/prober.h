/* Probes to neighbours and along paths: has the program send them, and judges what it says of their answers. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paths/liveness.h"
#include "paths/overlay_program.h"

struct prober_peer {
    bool used;
    struct liveness liveness;
    int64_t due_us;
    /* Failures since the peer is known, and when the last was seen (microseconds since the epoch). */
    uint64_t failures;
    int64_t failed_at_us;
};

struct prober {
    /* By the number of a neighbour or path. */
    struct prober_peer peers[CHART_OVERLAY_PROBED_MAX];
};

/* Probe a neighbour or path from now on; one that is probed already goes on, with the period that its capacity gives.
 */
void prober_add(struct prober *prober, uint32_t number, uint64_t capacity_bps);
void prober_remove(struct prober *prober, uint32_t number);
/* How far the probes of a number that was added lie apart. */
void prober_set_period(struct prober *prober, uint32_t number, uint32_t period_us);

/* Judge all, and send what is due. `changed` is called with each number that failed (false) or returned (true). */
void prober_tick(struct prober *prober, const struct overlay_program *program, int64_t now_us,
                 void (*changed)(void *context, uint32_t number, bool up), void *context);

/* The neighbour's link is down: it is taken out now. Whether it was in. */
bool prober_cut(struct prober *prober, const struct overlay_program *program, uint32_t neighbour, int64_t now_us);
