/* See session_count.h. */
#include "signal/session_count.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>

#include "lib/htb/htb_classes.h"
#include "signal/session_rules.h"
#include "signal_maps.h"
#include "signal_socket.h"

#define BATCH 512u
#define BATCHES_PER_STEP 8

struct session_walk {
    int fd;
    bool begun;
    uint64_t place; /* where the kernel goes on; opaque */
    struct chart_signal_key keys[BATCH];
    struct chart_signal_flow flows[BATCH];
    struct session_count now[SESSION_RULES_MAX + 1];
    struct session_count last[SESSION_RULES_MAX + 1];
};

struct session_walk *session_walk_new(int flows_fd) {
    struct session_walk *walk = calloc(1, sizeof(*walk));
    if (walk)
        walk->fd = flows_fd;
    return walk;
}

void session_walk_free(struct session_walk *walk) {
    free(walk);
}

static void count_half(struct session_walk *walk, const struct chart_signal_half *half, uint64_t now_ns) {
    struct session_count *count = &walk->now[half->rule <= SESSION_RULES_MAX ? half->rule : 0];
    if (half->role != CHART_ROLE_ORIGIN || half->state != CHART_SOCKET_AGREED || half->expires_ns <= now_ns)
        return;
    count->sessions++;
    count->guaranteed_bps += chart_rate_decode(half->agreed.guaranteed_rate);
    count->expedited += half->agreed.guaranteed_rate && half->agreed.delay_priority >= HTB_EXPEDITED_DELAY_PRIORITY &&
                        half->agreed.burst_tolerance <= HTB_EXPEDITED_BURST_TOLERANCE;
}

bool session_walk_step(struct session_walk *walk, uint64_t now_ns, int *ret_error) {
    *ret_error = 0;
    for (int i = 0; i < BATCHES_PER_STEP; i++) {
        uint32_t count = BATCH;
        int error = bpf_map_lookup_batch(walk->fd, walk->begun ? &walk->place : NULL, &walk->place, walk->keys,
                                         walk->flows, &count, NULL)
                        ? -errno
                        : 0;
        if (error && error != -ENOENT) {
            *ret_error = error;
            walk->begun = false;
            memset(walk->now, 0, sizeof(walk->now));
            return false;
        }
        for (uint32_t k = 0; k < count; k++)
            for (int half = 0; half < 2; half++)
                count_half(walk, &walk->flows[k].halves[half], now_ns);
        walk->begun = !error;
        if (error) {
            memcpy(walk->last, walk->now, sizeof(walk->last));
            memset(walk->now, 0, sizeof(walk->now));
            return true;
        }
    }
    return false;
}

void session_walk_forget(struct session_walk *walk, uint16_t rule) {
    if (rule > SESSION_RULES_MAX)
        return;
    walk->now[rule] = walk->last[rule] = (struct session_count){0};
}

struct session_count session_walk_count(const struct session_walk *walk, uint16_t rule) {
    return rule && rule <= SESSION_RULES_MAX ? walk->last[rule] : (struct session_count){0};
}
