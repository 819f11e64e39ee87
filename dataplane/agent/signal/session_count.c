/* See session_count.h. */
#include "signal/session_count.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>

#include "lib/htb/htb_classes.h"
#include "signal/session_rules.h"
#include "signal/signal_expiry.h"
#include "signal/signal_keys.h"
#include "signal_maps.h"
#include "signal_socket.h"

#define BATCH 512u
#define BATCHES_PER_STEP 8
/* From so many on the table of flows is pressed for room. */
#define PRESSED (CHART_SIGNAL_FLOWS_MAX / 2)

struct session_walk {
    const struct signal_tables *tables;
    bool begun;
    bool users_turn; /* the flows are done */
    uint64_t place;  /* where the kernel goes on; opaque */
    struct chart_signal_key keys[BATCH];
    struct chart_signal_flow flows[BATCH];
    struct chart_signal_user_key user_keys[BATCH];
    struct chart_signal_user users[BATCH];
    uint32_t kept, kept_last;
    struct session_count now[SESSION_RULES_MAX + 1];
    struct session_count last[SESSION_RULES_MAX + 1];
};

struct session_walk *session_walk_new(const struct signal_tables *tables) {
    struct session_walk *walk = calloc(1, sizeof(*walk));
    if (walk)
        walk->tables = tables;
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

/* A signal may have come since the batch was read: an entry is looked at once more before it goes. */
static void look_at_flow(struct session_walk *walk, uint32_t k, uint64_t now_ns) {
    const struct chart_signal_config *config = &walk->tables->config;
    bool pressed = walk->kept_last >= PRESSED || walk->kept >= PRESSED;
    int fd = walk->tables->fds.flows;
    struct chart_signal_flow again;

    walk->kept++;
    for (int half = 0; half < 2; half++)
        count_half(walk, &walk->flows[k].halves[half], now_ns);
    if (signal_flow_over(&walk->flows[k], config, now_ns, pressed) &&
        bpf_map_lookup_elem(fd, &walk->keys[k], &again) == 0 && signal_flow_over(&again, config, now_ns, pressed) &&
        bpf_map_delete_elem(fd, &walk->keys[k]) == 0)
        walk->kept--;
}

static void look_at_user(struct session_walk *walk, uint32_t k, uint64_t now_ns) {
    int fd = walk->tables->fds.users;
    struct chart_signal_user again;

    if (signal_user_over(&walk->users[k], now_ns) && bpf_map_lookup_elem(fd, &walk->user_keys[k], &again) == 0 &&
        signal_user_over(&again, now_ns))
        bpf_map_delete_elem(fd, &walk->user_keys[k]);
}

/* One batch of the table whose turn it is. 0, -ENOENT when it was the last, or another negative errno. */
static int look_at_batch(struct session_walk *walk, uint64_t now_ns) {
    uint32_t count = BATCH;
    bool users = walk->users_turn;
    int fd = users ? walk->tables->fds.users : walk->tables->fds.flows, error = 0;

    if (bpf_map_lookup_batch(fd, walk->begun ? &walk->place : NULL, &walk->place,
                             users ? (void *)walk->user_keys : (void *)walk->keys,
                             users ? (void *)walk->users : (void *)walk->flows, &count, NULL))
        error = -errno;
    if (error && error != -ENOENT)
        return error;
    for (uint32_t k = 0; k < count; k++) {
        if (users)
            look_at_user(walk, k, now_ns);
        else
            look_at_flow(walk, k, now_ns);
    }
    walk->begun = !error;
    return error;
}

bool session_walk_step(struct session_walk *walk, uint64_t now_ns, int *ret_error) {
    *ret_error = 0;
    for (int i = 0; i < BATCHES_PER_STEP; i++) {
        int error = look_at_batch(walk, now_ns);

        if (!error)
            continue;
        if (error == -ENOENT && !walk->users_turn) {
            walk->users_turn = true;
            continue;
        }
        if (error == -ENOENT) {
            memcpy(walk->last, walk->now, sizeof(walk->last));
            walk->kept_last = walk->kept;
        } else {
            *ret_error = error;
        }
        memset(walk->now, 0, sizeof(walk->now));
        walk->kept = 0;
        walk->begun = walk->users_turn = false;
        return error == -ENOENT;
    }
    return false;
}

uint32_t session_walk_kept(const struct session_walk *walk) {
    return walk->kept_last;
}

void session_walk_forget(struct session_walk *walk, uint16_t rule) {
    if (rule > SESSION_RULES_MAX)
        return;
    walk->now[rule] = walk->last[rule] = (struct session_count){0};
}

struct session_count session_walk_count(const struct session_walk *walk, uint16_t rule) {
    return rule && rule <= SESSION_RULES_MAX ? walk->last[rule] : (struct session_count){0};
}
