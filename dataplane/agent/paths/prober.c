/* See prober.h. */
#define _GNU_SOURCE
#include "paths/prober.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* A probe that is due within this time is sent with those of now. */
#define EARLY_US 2000
/* As much as an answer: the other end reflects what it got. */
#define PADDING_BYTES 14

struct frame {
    struct ether_header ethernet;
    struct chart_overlay_probe probe;
    uint8_t padding[PADDING_BYTES];
} __attribute__((packed));

int prober_open(struct prober *ret) {
    *ret = (struct prober){.socket = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    if (ret->socket < 0)
        return -errno;
    if (getrandom(&ret->session, sizeof(ret->session), 0) != sizeof(ret->session)) {
        prober_close(ret);
        return -EIO;
    }
    return 0;
}

void prober_close(struct prober *prober) {
    if (prober->socket >= 0)
        close(prober->socket);
    prober->socket = -1;
}

void prober_add(struct prober *prober, uint32_t neighbour, uint64_t capacity_bps) {
    struct prober_peer *peer = &prober->peers[neighbour];

    if (peer->used) {
        peer->liveness.period_us = liveness_period_us(capacity_bps);
        return;
    }
    *peer = (struct prober_peer){.used = true, .liveness = liveness_new(capacity_bps)};
}

void prober_remove(struct prober *prober, uint32_t neighbour) {
    prober->peers[neighbour] = (struct prober_peer){0};
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

static void judge(struct prober_peer *peer, volatile struct chart_overlay_liveness *shared, int64_t now_us,
                  bool *ret_changed) {
    struct liveness_seen seen = look(shared);
    enum liveness_change change = liveness_judge(&peer->liveness, &seen);

    peer->allowed = liveness_allowed(&peer->liveness);
    shared->allowed = peer->allowed;
    shared->patience_ns = liveness_patience_ns(&peer->liveness);
    if (change == LIVENESS_FAILED) {
        peer->failures++;
        peer->failed_at_us = now_us;
    }
    if (change != LIVENESS_SAME)
        shared->usable = change == LIVENESS_RETURNED;
    *ret_changed = change != LIVENESS_SAME;
}

static void send_all(const struct prober *prober, uint32_t device, struct frame *frames, size_t n) {
    struct sockaddr_ll to = {
        .sll_family = AF_PACKET, .sll_protocol = htons(CHART_OVERLAY_PROBE_ETHERTYPE), .sll_ifindex = (int)device};
    struct mmsghdr messages[CHART_OVERLAY_NEIGHBOURS_MAX] = {0};
    struct iovec parts[CHART_OVERLAY_NEIGHBOURS_MAX];

    for (size_t i = 0; i < n; i++) {
        parts[i] = (struct iovec){.iov_base = &frames[i], .iov_len = sizeof(frames[i])};
        messages[i].msg_hdr =
            (struct msghdr){.msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = &parts[i], .msg_iovlen = 1};
    }
    /* What is not sent is not counted as sent either. */
    if (n)
        (void)sendmmsg(prober->socket, messages, (unsigned)n, 0);
}

void prober_tick(struct prober *prober, const struct overlay_program *program, uint32_t device, int64_t now_us,
                 void (*changed)(void *, uint32_t, bool), void *context) {
    struct frame frames[CHART_OVERLAY_NEIGHBOURS_MAX];
    size_t n = 0;

    for (uint32_t i = 1; i < CHART_OVERLAY_NEIGHBOURS_MAX; i++) {
        struct prober_peer *peer = &prober->peers[i];
        bool is_changed;

        if (!peer->used)
            continue;
        judge(peer, overlay_program_liveness(program, i), now_us, &is_changed);
        if (is_changed)
            changed(context, i, peer->liveness.up);
        if (now_us + EARLY_US < peer->due_us)
            continue;
        peer->due_us = peer->due_us + peer->liveness.period_us < now_us ? now_us + peer->liveness.period_us
                                                                        : peer->due_us + peer->liveness.period_us;
        frames[n] = (struct frame){.ethernet.ether_type = htons(CHART_OVERLAY_PROBE_ETHERTYPE),
                                   .ethernet.ether_dhost = {0x02, 'C', 'H', 'A', 'R', 0x02},
                                   .ethernet.ether_shost = {0x02, 'C', 'H', 'A', 'R', 0x01},
                                   .probe = {.version = CHART_OVERLAY_PROBE_VERSION,
                                             .kind = CHART_OVERLAY_PROBE,
                                             .neighbour = htons((uint16_t)i),
                                             .session = htobe64(prober->session)}};
        n++;
    }
    send_all(prober, device, frames, n);
}

bool prober_cut(struct prober *prober, const struct overlay_program *program, uint32_t neighbour, int64_t now_us) {
    struct prober_peer *peer = &prober->peers[neighbour];
    volatile struct chart_overlay_liveness *shared = overlay_program_liveness(program, neighbour);
    struct liveness_seen seen = look(shared);
    bool was_up = peer->liveness.up;

    shared->usable = false;
    liveness_cut(&peer->liveness, &seen);
    if (was_up) {
        peer->failures++;
        peer->failed_at_us = now_us;
    }
    return was_up;
}
