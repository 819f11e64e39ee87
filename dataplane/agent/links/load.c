/* Counters to loads; see load.h. */
#include "links/load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t grown(uint64_t before, uint64_t now) {
    return now >= before ? now - before : now;
}

static uint64_t without_headers(uint64_t bytes, uint64_t packets, uint32_t link_header_bytes) {
    uint64_t headers = packets * link_header_bytes;

    return bytes > headers ? bytes - headers : 0;
}

static uint64_t class_bytes(const struct load_sample *before, const struct load_sample *now, int class) {
    const struct htb_class_stats *was = &before->htb.classes[class], *is = &now->htb.classes[class];

    if (is->bytes < was->bytes || is->packets < was->packets)
        return without_headers(is->bytes, is->packets, now->link_header_bytes);
    return without_headers(is->bytes - was->bytes, is->packets - was->packets, now->link_header_bytes);
}

static void from_htb(const struct load_sample *before, const struct load_sample *now, struct link_load *ret) {
    ret->explicit_rate_bytes = class_bytes(before, now, HTB_EXPEDITED) + class_bytes(before, now, HTB_EXPLICIT_RATE);
    ret->legacy_bytes = class_bytes(before, now, HTB_LEGACY) + class_bytes(before, now, HTB_BACKGROUND);
    ret->sent_bytes = ret->explicit_rate_bytes + ret->legacy_bytes;
    for (int i = 0; i < HTB_CLASSES; i++) {
        ret->queue_bytes += now->htb.classes[i].queue_bytes;
        ret->dropped_packets += grown(before->htb.classes[i].dropped_packets, now->htb.classes[i].dropped_packets);
    }
    ret->explicit_rate_queue_bytes =
        now->htb.classes[HTB_EXPEDITED].queue_bytes + now->htb.classes[HTB_EXPLICIT_RATE].queue_bytes;
}

static void from_interface(const struct load_sample *before, const struct load_sample *now, struct link_load *ret) {
    uint64_t explicit_rate = 0;

    ret->sent_bytes = without_headers(grown(before->interface_bytes, now->interface_bytes),
                                      grown(before->interface_packets, now->interface_packets), now->link_header_bytes);
    ret->dropped_packets = grown(before->interface_dropped, now->interface_dropped);
    if (now->have_classifier)
        explicit_rate = grown(before->classifier.expedited_bytes, now->classifier.expedited_bytes) +
                        grown(before->classifier.explicit_rate_bytes, now->classifier.explicit_rate_bytes);
    /* The classifier counts before the interface does; a packet between the two must not make the rest negative. */
    ret->explicit_rate_bytes = explicit_rate < ret->sent_bytes ? explicit_rate : ret->sent_bytes;
    ret->legacy_bytes = ret->sent_bytes - ret->explicit_rate_bytes;
}

void load_peak_note(struct load_peaks *peaks, uint64_t bytes, int64_t interval_us) {
    if (interval_us <= 0)
        return;
    peaks->bps[peaks->at] = (uint64_t)((double)bytes * 8e6 / (double)interval_us);
    peaks->at = (peaks->at + 1) % LOAD_PEAKS;
    if (peaks->count < LOAD_PEAKS)
        peaks->count++;
}

int load_peak(const struct load_peaks *peaks, uint64_t *ret_bps) {
    uint64_t most = 0;

    if (peaks->count < 3)
        return -EAGAIN;
    for (uint32_t i = 0; i < peaks->count; i++)
        most = peaks->bps[i] > most ? peaks->bps[i] : most;
    *ret_bps = most;
    return 0;
}

void load_difference(const struct load_sample *before, const struct load_sample *now, struct link_load *ret) {
    ret->sent_bytes = ret->explicit_rate_bytes = ret->legacy_bytes = 0;
    ret->dropped_packets = ret->queue_bytes = ret->explicit_rate_queue_bytes = 0;
    if (now->have_htb)
        from_htb(before, now, ret);
    else
        from_interface(before, now, ret);
}

struct grant_activity {
    uint64_t sent_bytes;
    int64_t moved_at_us;
    bool ever_moved;
    uint64_t round;
};

void load_begin(struct load_activity *activity) {
    activity->round++;
}

int load_note(struct load_activity *activity, const char *request_id, uint64_t sent_bytes, int64_t now_us) {
    struct grant_activity *grant = strmap_get(&activity->grants, request_id);
    bool moved;

    if (!grant) {
        grant = calloc(1, sizeof(*grant));
        if (!grant || strmap_put(&activity->grants, request_id, grant, NULL)) {
            free(grant);
            return -ENOMEM;
        }
        grant->sent_bytes = sent_bytes;
        grant->round = activity->round;
        return LOAD_IDLE;
    }
    grant->round = activity->round;
    moved = grant->sent_bytes != sent_bytes;
    grant->sent_bytes = sent_bytes;
    if (moved) {
        grant->moved_at_us = now_us;
        grant->ever_moved = true;
        return LOAD_ACTIVE;
    }
    return grant->ever_moved && now_us < grant->moved_at_us + LOAD_IN_USE_US ? LOAD_IN_USE : LOAD_IDLE;
}

static int by_link_and_user(const void *a, const void *b) {
    const struct load_sender *one = a, *other = b;

    if (one->link != other->link)
        return one->link < other->link ? -1 : 1;
    return strcmp(one->user, other->user);
}

size_t load_count_users(struct load_sender *senders, size_t n, uint32_t *users, struct load_user_flows *ret,
                        size_t most) {
    size_t listed = 0, end;

    if (n > 1)
        qsort(senders, n, sizeof(*senders), by_link_and_user);
    for (size_t i = 0; i < n; i = end) {
        bool active = senders[i].active;

        end = i + 1;
        while (senders[i].user[0] && end < n && by_link_and_user(&senders[i], &senders[end]) == 0)
            active |= senders[end++].active;
        users[senders[i].link] += active;
        if (end - i > 1 && listed < most)
            ret[listed++] = (struct load_user_flows){
                .user = senders[i].user, .link = senders[i].link, .flows = (uint32_t)(end - i)};
    }
    return listed;
}

uint32_t load_unnamed_users(uint32_t flows, uint32_t in_band_flows, uint32_t in_band_users) {
    uint32_t in_band = flows < in_band_flows ? flows : in_band_flows;

    return flows - in_band + (in_band < in_band_users ? in_band : in_band_users);
}

static int forget_old(const char *key, void *value, void *context) {
    struct grant_activity *grant = value;

    (void)key;
    if (grant->round == *(const uint64_t *)context)
        return 0;
    free(grant);
    return 1;
}

void load_end(struct load_activity *activity) {
    strmap_sweep(&activity->grants, forget_old, &activity->round);
}

void load_free(struct load_activity *activity) {
    strmap_free(&activity->grants, free);
}
