/* See prober.h. */
#include "paths/prober.h"

#include <time.h>

/* A probe that is due within this time is sent with those of now. */
#define EARLY_US 2000

void prober_add(struct prober *prober, uint32_t number, uint64_t capacity_bps) {
    struct prober_peer *peer = &prober->peers[number];

    if (peer->used)
        peer->liveness.period_us = liveness_period_us(capacity_bps);
    else
        *peer = (struct prober_peer){.used = true, .liveness = liveness_new(capacity_bps)};
}

void prober_remove(struct prober *prober, uint32_t number) {
    prober->peers[number] = (struct prober_peer){0};
}

void prober_set_period(struct prober *prober, uint32_t number, uint32_t period_us) {
    struct prober_peer *peer = &prober->peers[number];

    /* One that waits for its slow turn does not wait on. */
    if (period_us < peer->liveness.period_us)
        peer->due_us = 0;
    peer->liveness.period_us = period_us;
}

static uint64_t monotonic_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static struct liveness_seen look(const volatile struct chart_overlay_liveness *now) {
    /* Answered before sent: of two numbers that move, the difference is not to be negative. */
    struct liveness_seen seen = {.answered = now->answered, .answers = now->answers};

    seen.sent = now->sent;
    seen.answered_ago_ns = monotonic_ns() - now->answered_sent_ns;
    seen.rtt_ns = now->rtt_ns;
    seen.rtt_variation_ns = now->rtt_variation_ns;
    seen.usable = now->usable;
    return seen;
}

static void note_failure(struct prober_peer *peer, int64_t now_us) {
    peer->failures++;
    peer->failed_at_us = now_us;
}

/* Whether the peer failed or returned. */
static bool judge(struct prober_peer *peer, volatile struct chart_overlay_liveness *shared, int64_t now_us) {
    struct liveness_seen seen = look(shared);
    enum liveness_change change = liveness_judge(&peer->liveness, &seen);

    shared->allowed = liveness_allowed(&peer->liveness);
    shared->patience_ns = liveness_patience_ns(&peer->liveness);
    if (change == LIVENESS_FAILED)
        note_failure(peer, now_us);
    if (change != LIVENESS_SAME)
        shared->usable = change == LIVENESS_RETURNED;
    return change != LIVENESS_SAME;
}

void prober_tick(struct prober *prober, const struct overlay_program *program, int64_t now_us,
                 void (*changed)(void *, uint32_t, bool), void *context) {
    for (uint32_t i = 1; i < CHART_OVERLAY_PROBED_MAX; i++) {
        struct prober_peer *peer = &prober->peers[i];

        if (!peer->used)
            continue;
        if (judge(peer, overlay_program_liveness(program, i), now_us))
            changed(context, i, peer->liveness.up);
        if (now_us + EARLY_US < peer->due_us)
            continue;
        peer->due_us += peer->liveness.period_us;
        if (peer->due_us < now_us)
            peer->due_us = now_us + peer->liveness.period_us;
        /* One that could not leave counts as unanswered: the link is no good either way. */
        (void)overlay_program_probe(program, i);
    }
}

bool prober_cut(struct prober *prober, const struct overlay_program *program, uint32_t neighbour, int64_t now_us) {
    struct prober_peer *peer = &prober->peers[neighbour];
    volatile struct chart_overlay_liveness *shared = overlay_program_liveness(program, neighbour);
    struct liveness_seen seen = look(shared);
    bool was_up = peer->liveness.up;

    shared->usable = false;
    liveness_cut(&peer->liveness, &seen);
    if (was_up)
        note_failure(peer, now_us);
    return was_up;
}
