/* See egress.h. */
#include "grants/egress.h"

#include <stdlib.h>
#include <string.h>

static struct egress_counter *counter_of(struct egress *egress, uint32_t ifindex) {
    for (uint8_t i = 0; i < egress->n_begin; i++)
        if (egress->begin[i].ifindex == ifindex)
            return &egress->begin[i];
    return NULL;
}

static uint64_t counted_before(struct egress *egress, uint32_t ifindex) {
    const struct egress_counter *counter = counter_of(egress, ifindex);

    return counter ? counter->bytes : 0;
}

static bool is_counted(const struct egress_count *counts, size_t n, uint32_t ifindex) {
    for (size_t i = 0; i < n; i++)
        if (counts[i].ifindex == ifindex)
            return true;
    return false;
}

/* A place for another counter: a free one, else that of an interface that is not counted any more; NULL: none. */
static struct egress_counter *place(struct egress *egress, const struct egress_count *counts, size_t n) {
    if (egress->n_begin < EGRESS_COUNTERS_MAX)
        return &egress->begin[egress->n_begin++];
    for (uint8_t i = 0; i < egress->n_begin; i++)
        if (!is_counted(counts, n, egress->begin[i].ifindex))
            return &egress->begin[i];
    return NULL;
}

static void begin_interval(struct egress *egress, const struct egress_count *counts, size_t n, int64_t now_us) {
    for (size_t i = 0; i < n; i++) {
        struct egress_counter *counter = counter_of(egress, counts[i].ifindex);

        if (!counter && counts[i].bytes)
            counter = place(egress, counts, n);
        if (counter)
            *counter = (struct egress_counter){.ifindex = counts[i].ifindex, .bytes = counts[i].bytes};
    }
    egress->begin_us = now_us;
}

static int most_first(const void *one, const void *other) {
    const struct egress_link *a = one, *b = other;

    if (a->recent_bytes != b->recent_bytes)
        return a->recent_bytes > b->recent_bytes ? -1 : 1;
    return a->sent_bytes > b->sent_bytes ? -1 : a->sent_bytes < b->sent_bytes;
}

/* Keeps the EGRESS_LINKS_MAX links with the most octets. */
static void put(struct egress_link *links, uint8_t *n, const struct egress_link *link) {
    if (*n < EGRESS_LINKS_MAX)
        links[(*n)++] = *link;
    else if (most_first(link, &links[*n - 1]) < 0)
        links[*n - 1] = *link;
    qsort(links, *n, sizeof(*links), most_first);
}

static bool has(const struct egress *egress, const char *link_id) {
    for (uint8_t i = 0; i < egress->n; i++)
        if (strcmp(egress->links[i].link_id, link_id) == 0)
            return true;
    return false;
}

static bool take(struct egress *egress, const struct egress_link *seen, uint8_t n_seen, uint64_t total) {
    struct egress_link links[EGRESS_LINKS_MAX] = {0};
    uint8_t n = 0;
    bool other = false;

    for (uint8_t i = 0; i < n_seen; i++) {
        if (seen[i].recent_bytes * EGRESS_LEAST_PART < total || !seen[i].recent_bytes)
            continue;
        other = other || !has(egress, seen[i].link_id);
        links[n++] = seen[i];
    }
    other = other || n != egress->n;
    memcpy(egress->links, links, n * sizeof(*links));
    egress->n = n;
    return other;
}

bool egress_note(struct egress *egress, const struct egress_count *counts, size_t n, int64_t now_us) {
    struct egress_link seen[EGRESS_LINKS_MAX] = {0};
    uint8_t n_seen = 0;
    uint64_t total = 0;
    bool other;

    if (egress->anew) {
        egress->anew = false;
        begin_interval(egress, counts, n, now_us);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t before = counted_before(egress, counts[i].ifindex);
        struct egress_link link = {.sent_bytes = counts[i].bytes};

        if (!counts[i].bytes)
            continue;
        strncpy(link.link_id, counts[i].link_id, sizeof(link.link_id) - 1);
        /* Counters that went back were reset: they count from 0. */
        link.recent_bytes = counts[i].bytes >= before ? counts[i].bytes - before : counts[i].bytes;
        total += link.recent_bytes;
        put(seen, &n_seen, &link);
    }
    if (!total) {
        egress->begin_us = now_us;
        return false;
    }
    if (total < EGRESS_ENOUGH_BYTES && now_us < egress->begin_us + EGRESS_PATIENCE_US)
        return false;
    other = take(egress, seen, n_seen, total) || egress->unjudged || egress->against_routes;
    egress->unjudged = false;
    begin_interval(egress, counts, n, now_us);
    return other;
}

void egress_begin_anew(struct egress *egress) {
    egress->n = 0;
    egress->against_routes = false;
    egress->anew = true;
}
