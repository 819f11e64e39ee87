/* What decide.c, decide_rates.c and decide_status.c share: the state behind decide.h. */
#pragma once

#include "core/strmap.h"
#include "grants/decide.h"

/* Users that a link's rate counts, and flows of the grant's user among them (0: one or none). */
struct counted {
    uint32_t users;
    uint32_t flows;
};

struct grant_entry {
    char request_id[DECIDE_ID_LEN];
    char traceparent[DECIDE_TRACEPARENT_LEN];
    uint64_t generation;
    struct decide_selector selector;
    /* Why the grant cannot be followed; empty: it can. */
    char selector_error[DECIDE_REASON_LEN];
    char (*link_ids)[DECIDE_ID_LEN];
    /* Per link of the path: what its rate counted when this grant was last seen without traffic. */
    struct counted *before;
    size_t n_link_ids;
    /* First link of the path that this node transmits on. */
    char own_link_id[DECIDE_ID_LEN];
    bool sending;
    uint64_t guaranteed_bps;
    uint64_t maximum_bps;
    enum decide_class class;
    int64_t valid_from_us;
    int64_t valid_until_us;
    bool with_available_rate;
    char user[DECIDE_USER_LEN];
    bool released;
    /* Read after decisions had begun: no process before this one can have applied it. */
    bool first_read_here;
    int64_t first_seen_us;
    int64_t removed_at_us;

    /* Outcome of the last decide_desired. */
    bool desired;
    uint64_t gr_bps;
    uint64_t ar_bps;
    /* Feedback of the datapath. */
    bool have_result;
    int result;
    struct decide_observed observed;
    int64_t applied_at_us;
    /* When octets of the grant were last seen, and when they began after an idle time; 0: never. */
    int64_t moved_at_us;
    int64_t active_since_us;
    /* When packets or flows of the grant were last seen; 0: never. */
    int64_t seen_at_us;
    struct egress egress;

    /* What was told last. */
    enum decide_state told_state;
    uint64_t told_generation;
    uint64_t told_rate_bps;
    uint64_t told_sent_bytes;
    int64_t told_seen_at_us;
    uint64_t told_egress;
    char told_reason[DECIDE_REASON_LEN];
    int64_t told_at_us;
    bool resend;
};

struct rate_entry {
    uint64_t generation;
    int64_t valid_until_us;
    int64_t put_at_us;
    /* Ordered by rate and user; the texts stand in `names`. */
    struct decide_user_flows *users;
    size_t n_users;
    char *names;
    size_t n_rates;
    struct decide_link_rate rates[];
};

int decide_keep_users(struct rate_entry *entry, const struct decide_user_flows *users, size_t n_users);
void decide_free_rates(void *value);

struct decide {
    char node[DECIDE_ID_LEN];
    bool local_off;
    /* Decisions have begun: what streams held at the start was read. */
    bool decides;
    /* While no policy was heard of. */
    enum decide_mode untold_mode;
    struct strmap grants;
    struct strmap rates;
    /* Policy id -> enum decide_mode as a pointer-sized number. */
    struct strmap policies;
    struct decide_link *links;
    size_t n_links;
    uint64_t refused[BOUNDS_KINDS];
    struct decide_applied *table;
    size_t table_size;
};

/* Free a grant that no map holds any more. */
void decide_free_grant(void *value);
const struct decide_link *decide_find_link(const struct decide *decide, const char *link_id);
/* Whether the grant guarantees more than this node's link has. */
bool decide_is_beyond_link(const struct decide *decide, const struct grant_entry *grant);
/* Least available rate over the path at now_us; false when a link of it has no fresh rate (its id in *ret_missing). */
bool decide_path_rate(const struct decide *decide, const struct grant_entry *grant, int64_t now_us, uint64_t *ret_bps,
                      int64_t *ret_until_us, const char **ret_missing);
static inline bool decide_is_idle(const struct grant_entry *grant, int64_t now_us) {
    return !grant->moved_at_us || now_us >= grant->moved_at_us + DECIDE_IDLE_US;
}

/* The grant's flows are new to the links: until a link rate that counts them arrives they take a newcomer's share. */
static inline bool decide_is_newcomer(const struct grant_entry *grant, int64_t now_us) {
    return decide_is_idle(grant, now_us) || now_us < grant->active_since_us + DECIDE_NEWCOMER_US;
}

/* Remember what the links' rates count now, without this grant. */
void decide_note_flows(const struct decide *decide, struct grant_entry *grant, int64_t now_us);

static inline bool decide_in_force(const struct grant_entry *grant, int64_t now_us) {
    return !grant->released && grant->valid_from_us <= now_us && now_us < grant->valid_until_us;
}
