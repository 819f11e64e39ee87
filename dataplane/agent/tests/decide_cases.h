/* What the tests of decide.h share: a path of three links, grants and rates on it. Times count from T0. */
#pragma once

// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "grants/decide.h"

#define T0 1700000000000000ll
#define SECOND 1000000ll
#define MBPS 1000000ull
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *const PATH[] = {"alpha:to-bravo", "bravo:to-charlie", "charlie:to-delta"};

struct told {
    int n;
    int refuse;
    struct decide_status last;
    char reason[DECIDE_REASON_LEN];
    char traceparent[DECIDE_TRACEPARENT_LEN];
};

static inline int take(const struct decide_status *status, void *context) {
    struct told *told = context;

    if (told->refuse)
        return -EAGAIN;
    told->n++;
    told->last = *status;
    snprintf(told->reason, sizeof(told->reason), "%s", status->reason);
    snprintf(told->traceparent, sizeof(told->traceparent), "%s", status->traceparent);
    return 0;
}

static inline struct decide *node(const char *name, const char *link_id) {
    struct decide *decide = decide_new(name);
    /* Any rate of these tests is one that the link can have. */
    struct decide_link link = {.ifindex = 7, .up = true, .capacity_bps = 100000 * MBPS};

    assert_non_null(decide);
    snprintf(link.id, sizeof(link.id), "%s", link_id);
    assert_int_equal(decide_set_links(decide, &link, 1), 1);
    decide_set_untold_mode(decide, DECIDE_MODE_ENFORCE);
    return decide;
}

static inline struct decide *alpha(void) {
    return node("alpha", "alpha:to-bravo");
}

static inline struct decide_grant grant(const char *id) {
    return (struct decide_grant){.request_id = id,
                                 .generation = 1,
                                 .link_ids = PATH,
                                 .n_link_ids = COUNT(PATH),
                                 .guaranteed_bps = 10 * MBPS,
                                 .valid_from_us = T0,
                                 .valid_until_us = T0 + 60 * SECOND,
                                 .with_available_rate = true};
}

static inline void rate(struct decide *decide, const char *from, const char *link_id, uint64_t bps, uint64_t generation,
                        int64_t until_us) {
    /* Far more than R, so that a newcomer gets R. */
    struct decide_link_rate rate = {
        .available_bps = bps, .explicit_rate_capacity_bps = 100 * bps + 1000 * MBPS, .legacy_share_bps = 5 * MBPS};

    snprintf(rate.link_id, sizeof(rate.link_id), "%s", link_id);
    assert_true(decide_put_link_rates(decide, from, generation, until_us, &rate, 1, NULL, 0, T0) >= 0);
}

static inline void rates(struct decide *decide, uint64_t a, uint64_t b, uint64_t c) {
    rate(decide, "alpha", PATH[0], a, 1, T0 + 10 * SECOND);
    rate(decide, "bravo", PATH[1], b, 1, T0 + 10 * SECOND);
    rate(decide, "charlie", PATH[2], c, 1, T0 + 10 * SECOND);
}

static inline const struct decide_applied *only(struct decide *decide, int64_t now_us) {
    const struct decide_applied *table = NULL;
    int64_t next;

    assert_int_equal(decide_desired(decide, now_us, &table, &next), 1);
    return table;
}

static inline int desired(struct decide *decide, int64_t now_us, int64_t *next_us) {
    const struct decide_applied *table;

    return decide_desired(decide, now_us, &table, next_us);
}

static inline void apply(struct decide *decide, const char *id, int64_t now_us, uint64_t kernel_rate_bps) {
    struct decide_observed observed = {.kernel_rate_bps = kernel_rate_bps, .matching_flows = 1};
    int64_t next;

    desired(decide, now_us, &next);
    decide_set_result(decide, id, 0, &observed, now_us);
}

static inline void put(struct decide *decide, struct decide_grant grant) {
    assert_int_equal(decide_put_grant(decide, &grant, "00-aa-bb-01", T0), 1);
}

/* The grant r1 is applied at its guaranteed rate, and that was told. */
static inline void put_and_tell(struct decide *decide, struct decide_grant r1, struct told *told) {
    put(decide, r1);
    apply(decide, "r1", T0, r1.guaranteed_bps);
    assert_int_equal(decide_statuses(decide, T0, take, told), 1);
}
