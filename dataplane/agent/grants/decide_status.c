/* What is told about grants: a status when something changed, the same again every DECIDE_REFRESH_US (decide.h). */
#include "grants/decide_state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct telling {
    struct decide *decide;
    int64_t now_us;
    int (*sink)(const struct decide_status *status, void *context);
    void *context;
    int taken;
};

/* Returns 1 when the grant's flows began or fell idle. */
static int note_observed(const struct decide *decide, struct grant_entry *grant, const struct decide_observed *observed,
                         int64_t now_us) {
    bool was_newcomer = decide_is_newcomer(grant, now_us);

    if (observed->packets || observed->matching_flows || observed->sent_bytes > grant->observed.sent_bytes)
        grant->seen_at_us = now_us;
    /* A handshake is traffic too: a link counts it, and its rate may be here before the first octets. */
    if (observed->sent_bytes != grant->observed.sent_bytes || (observed->packets && !grant->observed.packets)) {
        if (!grant->moved_at_us || now_us >= grant->moved_at_us + DECIDE_IDLE_US) {
            grant->active_since_us = now_us;
            was_newcomer = false; /* when it stops being one has to be planned */
        }
        grant->moved_at_us = now_us;
    } else if (decide_is_idle(grant, now_us)) {
        decide_note_flows(decide, grant, now_us);
    }
    grant->observed = *observed;
    return was_newcomer != decide_is_newcomer(grant, now_us);
}

int decide_set_result(struct decide *decide, const char *request_id, int error, const struct decide_observed *observed,
                      int64_t now_us) {
    struct grant_entry *grant = strmap_get(&decide->grants, request_id);

    if (!grant)
        return 0;
    if (error == 0 && (!grant->have_result || grant->result != 0))
        grant->applied_at_us = now_us;
    grant->have_result = true;
    grant->result = error;
    return observed ? note_observed(decide, grant, observed, now_us) : 0;
}

int decide_set_observed(struct decide *decide, const char *request_id, const struct decide_observed *observed,
                        int64_t now_us) {
    struct grant_entry *grant = strmap_get(&decide->grants, request_id);

    return grant ? note_observed(decide, grant, observed, now_us) : 0;
}

static bool is_committed(const struct grant_entry *grant, const char *link_id) {
    for (size_t i = 0; i < grant->n_link_ids; i++)
        if (strcmp(grant->link_ids[i], link_id) == 0)
            return true;
    return false;
}

/* What has to be told at once of where packets leave (FNV-1a of the links' ids); 0: they go where they are committed
 * and routed. */
static uint64_t egress_print(const struct grant_entry *grant) {
    bool notable = grant->egress.against_routes;
    uint64_t print = 14695981039346656037ull;

    for (uint8_t i = 0; i < grant->egress.n; i++) {
        notable = notable || !is_committed(grant, grant->egress.links[i].link_id);
        for (const char *at = grant->egress.links[i].link_id; *at; at++)
            print = (print ^ (uint8_t)*at) * 1099511628211ull;
    }
    return notable && grant->egress.n ? print + grant->egress.against_routes : 0;
}

const struct egress *decide_set_egress(struct decide *decide, const char *request_id, const struct egress_count *counts,
                                       size_t n, int64_t now_us) {
    struct grant_entry *grant = strmap_get(&decide->grants, request_id);

    return grant && egress_note(&grant->egress, counts, n, now_us) ? &grant->egress : NULL;
}

void decide_set_against_routes(struct decide *decide, const char *request_id, bool against) {
    struct grant_entry *grant = strmap_get(&decide->grants, request_id);

    if (grant)
        grant->egress.against_routes = against && grant->egress.n;
}

struct changed_tables {
    bool (*lead)(const struct decide_selector *selector, void *context);
    void *context;
};

static int routes_changed(const char *key, void *value, void *context) {
    struct grant_entry *grant = value;
    const struct changed_tables *tables = context;

    (void)key;
    if (tables->lead(&grant->selector, tables->context))
        egress_begin_anew(&grant->egress);
    return 0;
}

void decide_routes_changed(struct decide *decide, bool (*lead)(const struct decide_selector *selector, void *context),
                           void *context) {
    struct changed_tables tables = {.lead = lead, .context = context};

    strmap_sweep(&decide->grants, routes_changed, &tables);
}

/* The state of a grant in force on a node that enforces, with the reason when it is FAILED, and whether that is the
 * link. */
static enum decide_state enforced_state(const struct telling *telling, const struct grant_entry *grant, char *reason,
                                        bool *link_down) {
    const struct decide_link *link = decide_find_link(telling->decide, grant->own_link_id);
    bool young = grant->told_state == DECIDE_NONE && telling->now_us < grant->first_seen_us + DECIDE_GRACE_US;
    const char *missing = NULL;
    uint64_t available;
    int64_t until;

    if (grant->selector_error[0]) {
        snprintf(reason, DECIDE_REASON_LEN, "%s", grant->selector_error);
        return DECIDE_FAILED;
    }
    if (decide_is_beyond_link(telling->decide, grant)) {
        snprintf(reason, DECIDE_REASON_LEN, "refused: %llu bit/s are guaranteed, link %.80s has less",
                 (unsigned long long)grant->guaranteed_bps, grant->own_link_id);
        return DECIDE_FAILED;
    }
    if (!link || !link->ifindex) {
        if (young)
            return DECIDE_NONE;
        snprintf(reason, DECIDE_REASON_LEN, "this node has no link %.80s", grant->own_link_id);
        return DECIDE_FAILED;
    }
    if (!link->up) {
        *link_down = true;
        snprintf(reason, DECIDE_REASON_LEN, "link %.80s is down", grant->own_link_id);
        return DECIDE_FAILED;
    }
    if (!grant->desired || !grant->have_result)
        return DECIDE_NONE;
    if (grant->result != 0) {
        if (grant->result == -ENOSPC)
            snprintf(reason, DECIDE_REASON_LEN, "this node has no room for another grant");
        else
            snprintf(reason, DECIDE_REASON_LEN, "the kernel refused it: %.100s", strerror(-grant->result));
        return DECIDE_FAILED;
    }
    if (grant->sending && grant->gr_bps + grant->ar_bps == 0) {
        if (young)
            return DECIDE_NONE;
        if (grant->with_available_rate &&
            !decide_path_rate(telling->decide, grant, telling->now_us, &available, &until, &missing))
            snprintf(reason, DECIDE_REASON_LEN, "link %.80s has no fresh rate", missing);
        else
            snprintf(reason, DECIDE_REASON_LEN, "the rate of the path is 0");
        return DECIDE_FAILED;
    }
    return DECIDE_APPLIED;
}

static enum decide_state present_state(const struct telling *telling, const struct grant_entry *grant, char *reason,
                                       bool *link_down) {
    enum decide_mode mode = decide_mode(telling->decide);

    reason[0] = '\0';
    *link_down = false;
    if (grant->released || telling->now_us >= grant->valid_until_us) {
        bool told = grant->told_state != DECIDE_NONE;

        /* Its rate drains until every node says that it is gone: told too when it was released before anything was told
         * of it, but not before decisions left it out, nor by the node that sends its flows when an agent before this
         * one may have left them at its rate; the other nodes hold no flows. When its validity is over nobody waits any
         * more. */
        bool may_flow = grant->sending && !grant->first_read_here;

        if (grant->desired || (!told && (may_flow || telling->now_us >= grant->valid_until_us)))
            return DECIDE_NONE;
        snprintf(reason, DECIDE_REASON_LEN, grant->released ? "released" : "its validity ended");
        return DECIDE_REMOVED;
    }
    if (telling->now_us < grant->valid_from_us)
        return DECIDE_NONE;
    if (mode != DECIDE_MODE_ENFORCE) {
        snprintf(reason, DECIDE_REASON_LEN, "enforcement is %s on this node%s",
                 mode == DECIDE_MODE_OFF ? "off" : "observe", telling->decide->local_off ? ", switched off there" : "");
        return DECIDE_OBSERVED;
    }
    return enforced_state(telling, grant, reason, link_down);
}

static bool rate_moved(uint64_t told_bps, uint64_t now_bps) {
    uint64_t difference = told_bps > now_bps ? told_bps - now_bps : now_bps - told_bps;

    return difference * 10 > told_bps;
}

static bool due(const struct telling *telling, const struct grant_entry *grant, enum decide_state state,
                const char *reason) {
    int64_t age_us = telling->now_us - grant->told_at_us;

    if (state == DECIDE_NONE)
        return false;
    if (grant->resend || state != grant->told_state)
        return true;
    if (state == DECIDE_REMOVED)
        return false;
    if (grant->generation != grant->told_generation || strcmp(reason, grant->told_reason) != 0)
        return true;
    if (age_us >= DECIDE_REFRESH_US)
        return true;
    if (egress_print(grant) != grant->told_egress)
        return true;
    if (age_us < DECIDE_RATE_CHANGE_US)
        return false;
    /* The first packets, or the first after long: who was told that no flow matches is told so too. */
    if (grant->seen_at_us > grant->told_seen_at_us + DECIDE_REFRESH_US)
        return true;
    return grant->observed.sent_bytes != grant->told_sent_bytes ||
           rate_moved(grant->told_rate_bps, grant->observed.kernel_rate_bps);
}

static int tell_one(const char *key, void *value, void *context) {
    struct telling *telling = context;
    struct grant_entry *grant = value;
    char reason[DECIDE_REASON_LEN];
    bool link_down;
    enum decide_state state = present_state(telling, grant, reason, &link_down);
    struct decide_status status = {.request_id = key,
                                   .generation = grant->generation,
                                   .state = state,
                                   .reason = reason,
                                   .link_down = link_down,
                                   .traceparent = grant->traceparent,
                                   .applied_at_us = state == DECIDE_APPLIED ? grant->applied_at_us : 0};

    if (!grant->desired) {
        grant->have_result = false;
        grant->observed.kernel_rate_bps = 0;
        grant->observed.matching_flows = 0;
    }
    status.observed = grant->observed;
    status.seen_at_us = grant->seen_at_us;
    status.egress = &grant->egress;
    if (due(telling, grant, state, reason) && telling->sink(&status, telling->context) >= 0) {
        telling->taken++;
        grant->told_state = state;
        grant->told_generation = grant->generation;
        grant->told_rate_bps = grant->observed.kernel_rate_bps;
        grant->told_sent_bytes = grant->observed.sent_bytes;
        grant->told_seen_at_us = grant->seen_at_us;
        grant->told_egress = egress_print(grant);
        memcpy(grant->told_reason, reason, sizeof(reason));
        grant->told_at_us = telling->now_us;
        grant->resend = false;
    }
    if (!grant->released && telling->now_us < grant->valid_until_us)
        return 0;
    if (!grant->removed_at_us)
        grant->removed_at_us = telling->now_us;
    /* Until it would have ended anyway it is remembered which generation was released. */
    if (telling->now_us < grant->valid_until_us)
        return 0;
    /* An end that could not be told yet is kept until it is. */
    if (grant->told_state != DECIDE_NONE &&
        (grant->told_state != DECIDE_REMOVED || telling->now_us < grant->removed_at_us + DECIDE_FORGET_US))
        return 0;
    decide_free_grant(grant);
    return 1;
}

int decide_statuses(struct decide *decide, int64_t now_us,
                    int (*sink)(const struct decide_status *status, void *context), void *context) {
    struct telling telling = {.decide = decide, .now_us = now_us, .sink = sink, .context = context};

    strmap_sweep(&decide->grants, tell_one, &telling);
    return telling.taken;
}

void decide_undelivered(struct decide *decide, const char *request_id) {
    struct grant_entry *grant = strmap_get(&decide->grants, request_id);

    if (grant)
        grant->resend = true;
}
