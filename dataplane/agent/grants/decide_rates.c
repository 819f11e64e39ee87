/* From grants and link rates to what this node shall apply now (decide.h). */
#include "grants/decide_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What was told of the link and has not ended. */
static const struct decide_link_rate *find_told(const struct decide *decide, const char *link_id, int64_t now_us,
                                                const struct rate_entry **ret_entry) {
    char node[DECIDE_ID_LEN];
    const char *colon = strchr(link_id, ':');
    const struct rate_entry *entry;

    if (!colon || (size_t)(colon - link_id) >= sizeof(node))
        return NULL;
    memcpy(node, link_id, colon - link_id);
    node[colon - link_id] = '\0';
    entry = strmap_get(&decide->rates, node);
    if (!entry || entry->valid_until_us <= now_us)
        return NULL;
    for (size_t i = 0; i < entry->n_rates; i++) {
        if (strcmp(entry->rates[i].link_id, link_id) == 0) {
            *ret_entry = entry;
            return &entry->rates[i];
        }
    }
    return NULL;
}

bool decide_rate_is_refused(const struct decide *decide, const char *link_id, int64_t now_us) {
    const struct decide_link *link = decide_find_link(decide, link_id);
    const struct rate_entry *entry;
    const struct decide_link_rate *rate = link ? find_told(decide, link_id, now_us, &entry) : NULL;

    return rate && !bounds_link_rate(rate, link->capacity_bps);
}

/* The rate of the link that holds: told, not ended, and none that a link of this node cannot have. */
static const struct decide_link_rate *find_rate(const struct decide *decide, const char *link_id, int64_t now_us,
                                                const struct rate_entry **ret_entry) {
    const struct decide_link_rate *rate = find_told(decide, link_id, now_us, ret_entry);
    const struct decide_link *link = rate ? decide_find_link(decide, link_id) : NULL;

    return link && !bounds_link_rate(rate, link->capacity_bps) ? NULL : rate;
}

const struct decide_link_rate *decide_link_rate(const struct decide *decide, const char *link_id, int64_t now_us) {
    const struct rate_entry *entry;

    return find_rate(decide, link_id, now_us, &entry);
}

uint64_t decide_in_band_lease(const struct decide *decide, const char *link_id, int64_t now_us, int64_t *ret_until_us) {
    const struct decide_link_rate *rate = decide_link_rate(decide, link_id, now_us);

    if (!rate || !rate->gr_lease_bps || rate->gr_lease_until_us <= now_us)
        return 0;
    *ret_until_us = rate->gr_lease_until_us;
    return rate->gr_lease_bps;
}

bool decide_in_band_rate(const struct decide *decide, const char *link_id, int64_t now_us, uint64_t *ret_bps,
                         int64_t *ret_until_us) {
    const struct rate_entry *entry;
    const struct decide_link_rate *rate = find_rate(decide, link_id, now_us, &entry);

    if (!rate)
        return false;
    *ret_bps = rate->available_bps;
    *ret_until_us = entry->valid_until_us;
    return true;
}

static int by_rate_and_user(const void *a, const void *b) {
    const struct decide_user_flows *one = a, *other = b;

    if (one->rate != other->rate)
        return one->rate < other->rate ? -1 : 1;
    return strcmp(one->user, other->user);
}

int decide_keep_users(struct rate_entry *entry, const struct decide_user_flows *users, size_t n_users) {
    size_t octets = 0;
    char *name;

    if (n_users > DECIDE_USERS_MAX)
        n_users = DECIDE_USERS_MAX;
    for (size_t i = 0; i < n_users; i++)
        octets += strlen(users[i].user) + 1;
    entry->users = NULL;
    entry->names = NULL;
    entry->n_users = n_users;
    if (!n_users)
        return 0;
    entry->users = calloc(n_users, sizeof(*entry->users));
    entry->names = name = malloc(octets);
    if (!entry->users || !entry->names) {
        free(entry->users);
        free(entry->names);
        return -ENOMEM;
    }
    for (size_t i = 0; i < n_users; i++) {
        entry->users[i] = users[i];
        entry->users[i].user = name;
        name = stpcpy(name, users[i].user) + 1;
    }
    qsort(entry->users, n_users, sizeof(*entry->users), by_rate_and_user);
    return 0;
}

void decide_free_rates(void *value) {
    struct rate_entry *entry = value;

    if (!entry)
        return;
    free(entry->users);
    free(entry->names);
    free(entry);
}

/* Users that the rate counts, and how many flows it counts of the grant's user: 0 when it says nothing of them, which
 * is one or none. */
static struct counted counted_of(const struct rate_entry *entry, const struct decide_link_rate *rate,
                                 const struct grant_entry *grant) {
    const struct decide_user_flows key = {.user = grant->user, .rate = (uint32_t)(rate - entry->rates)};
    const struct decide_user_flows *found = NULL;

    if (grant->user[0] && entry->n_users)
        found = bsearch(&key, entry->users, entry->n_users, sizeof(key), by_rate_and_user);
    return (struct counted){.users = rate->active_users, .flows = found ? found->flows : 0};
}

void decide_note_flows(const struct decide *decide, struct grant_entry *grant, int64_t now_us) {
    for (size_t i = 0; i < grant->n_link_ids; i++) {
        const struct rate_entry *entry;
        const struct decide_link_rate *rate = find_rate(decide, grant->link_ids[i], now_us, &entry);

        grant->before[i] = rate ? counted_of(entry, rate, grant) : (struct counted){0};
    }
}

/* What a flow that the link's rate does not count yet may have above its GR: a quarter of its part when all that is
 * there is shared anew, all of it where nobody else is, and no more than its part of what its user has. Until the rate
 * counts it, which takes up to two tenths of a second, everything it sends on a full link is queue. The link sets the
 * GR aside as soon as its controller knows of the grant; a rate older than the grant does not. */
static uint64_t newcomer_bps(const struct rate_entry *entry, const struct decide_link_rate *rate,
                             const struct grant_entry *grant, int64_t now_us) {
    bool set_aside =
        entry->put_at_us > grant->first_seen_us || now_us >= grant->first_seen_us + DECIDE_UNKNOWN_GRANT_US;
    uint64_t gr_bps = set_aside ? 0 : grant->guaranteed_bps;
    uint64_t capacity = rate->explicit_rate_capacity_bps;
    uint64_t share = (capacity > gr_bps ? capacity - gr_bps : 0) / (rate->active_users + 1);
    uint64_t of_user_bps = rate->available_bps / (counted_of(entry, rate, grant).flows + 1);

    if (rate->active_users)
        share /= DECIDE_NEWCOMER_PART;
    return share < of_user_bps ? share : of_user_bps;
}

bool decide_path_rate(const struct decide *decide, const struct grant_entry *grant, int64_t now_us, uint64_t *ret_bps,
                      int64_t *ret_until_us, const char **ret_missing) {
    uint64_t least = UINT64_MAX;
    int64_t first_end = INT64_MAX;

    for (size_t i = 0; i < grant->n_link_ids; i++) {
        const struct rate_entry *entry;
        uint64_t available;
        const struct decide_link_rate *rate = find_rate(decide, grant->link_ids[i], now_us, &entry);
        struct counted now;
        bool counted;

        if (!rate) {
            *ret_missing = grant->link_ids[i];
            return false;
        }
        now = counted_of(entry, rate, grant);
        counted = !decide_is_newcomer(grant, now_us) ||
                  (!decide_is_idle(grant, now_us) &&
                   (now.users > grant->before[i].users || now.flows > grant->before[i].flows));
        available =
            counted ? rate->available_bps / (now.flows ? now.flows : 1) : newcomer_bps(entry, rate, grant, now_us);
        if (available < least)
            least = available;
        if (entry->valid_until_us < first_end)
            first_end = entry->valid_until_us;
    }
    *ret_bps = least;
    *ret_until_us = first_end;
    return true;
}

struct compute {
    struct decide *decide;
    int64_t now_us;
    int64_t next_us;
    bool off;
    size_t n;
};

/* GR and AR of one grant; when the AR ends in *ret_ar_until_us, 0 when there is none. */
static void compute_rates(const struct compute *compute, struct grant_entry *grant, int64_t *ret_ar_until_us) {
    const char *missing;
    uint64_t available = 0;
    int64_t until = 0;

    grant->gr_bps = grant->guaranteed_bps;
    if (grant->maximum_bps && grant->gr_bps > grant->maximum_bps)
        grant->gr_bps = grant->maximum_bps;
    if (!grant->with_available_rate ||
        !decide_path_rate(compute->decide, grant, compute->now_us, &available, &until, &missing)) {
        available = 0;
        until = 0;
    }
    if (grant->maximum_bps && available > grant->maximum_bps - grant->gr_bps)
        available = grant->maximum_bps - grant->gr_bps;
    grant->ar_bps = available;
    *ret_ar_until_us = available ? until : 0;
}

static void sooner(int64_t *next_us, int64_t at_us, int64_t now_us) {
    if (at_us > now_us && at_us < *next_us)
        *next_us = at_us;
}

static int compute_one(const char *key, void *value, void *context) {
    struct compute *compute = context;
    struct grant_entry *grant = value;
    const struct decide_link *link = decide_find_link(compute->decide, grant->own_link_id);
    struct decide_applied *row;
    int64_t ar_until_us;

    (void)key;
    grant->desired = false;
    if (grant->released)
        return 0;
    sooner(&compute->next_us, grant->valid_from_us, compute->now_us);
    sooner(&compute->next_us, grant->valid_until_us, compute->now_us);
    if (grant->with_available_rate && decide_in_force(grant, compute->now_us))
        sooner(&compute->next_us, grant->first_seen_us + DECIDE_UNKNOWN_GRANT_US, compute->now_us);
    if (grant->moved_at_us) {
        sooner(&compute->next_us, grant->active_since_us + DECIDE_NEWCOMER_US, compute->now_us);
        sooner(&compute->next_us, grant->moved_at_us + DECIDE_IDLE_US, compute->now_us);
    }
    compute_rates(compute, grant, &ar_until_us);
    if (ar_until_us)
        sooner(&compute->next_us, ar_until_us, compute->now_us);
    if (compute->off || !decide_in_force(grant, compute->now_us) || grant->selector_error[0] || !link ||
        !link->ifindex || decide_is_beyond_link(compute->decide, grant))
        return 0;
    grant->desired = true;
    row = &compute->decide->table[compute->n++];
    memset(row, 0, sizeof(*row));
    memcpy(row->request_id, grant->request_id, sizeof(row->request_id));
    memcpy(row->link_id, grant->own_link_id, sizeof(row->link_id));
    row->ifindex = link->ifindex;
    row->selector = grant->selector;
    row->class = grant->class;
    row->sending = grant->sending;
    row->generation = grant->generation;
    row->gr_bps = grant->gr_bps;
    row->ar_bps = grant->ar_bps;
    row->valid_until_us = grant->valid_until_us;
    row->ar_valid_until_us = ar_until_us;
    return 0;
}

static int by_request(const void *a, const void *b) {
    return strcmp(((const struct decide_applied *)a)->request_id, ((const struct decide_applied *)b)->request_id);
}

int decide_desired(struct decide *decide, int64_t now_us, const struct decide_applied **ret_table,
                   int64_t *ret_next_us) {
    struct compute compute = {
        .decide = decide, .now_us = now_us, .next_us = INT64_MAX, .off = decide_mode(decide) == DECIDE_MODE_OFF};

    if (decide->grants.n_entries > decide->table_size) {
        size_t size = decide->grants.n_entries * 2;
        struct decide_applied *table = realloc(decide->table, size * sizeof(*table));

        if (!table)
            return -ENOMEM;
        decide->table = table;
        decide->table_size = size;
    }
    decide->decides = true;
    strmap_sweep(&decide->grants, compute_one, &compute);
    if (compute.n > 1)
        qsort(decide->table, compute.n, sizeof(*decide->table), by_request);
    *ret_table = decide->table;
    *ret_next_us = compute.next_us;
    return (int)compute.n;
}
