/* From grants and link rates to what this node shall apply now (decide.h). */
#include "decide_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct decide_link_rate *find_rate(const struct decide *decide, const char *link_id, int64_t now_us,
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

const struct decide_link_rate *decide_link_rate(const struct decide *decide, const char *link_id, int64_t now_us) {
    const struct rate_entry *entry;

    return find_rate(decide, link_id, now_us, &entry);
}

/* What a flow that the link's rate does not count yet may have above its GR: its part when all that is there is shared
 * anew. The link sets the GR aside as soon as its controller knows of the grant; a rate older than the grant does not.
 */
static uint64_t newcomer_bps(const struct rate_entry *entry, const struct decide_link_rate *rate,
                             const struct grant_entry *grant, int64_t now_us) {
    bool set_aside =
        entry->put_at_us > grant->first_seen_us || now_us >= grant->first_seen_us + DECIDE_UNKNOWN_GRANT_US;
    uint64_t gr_bps = set_aside ? 0 : grant->guaranteed_bps;
    uint64_t capacity = rate->explicit_rate_capacity_bps;
    uint64_t share = (capacity > gr_bps ? capacity - gr_bps : 0) / (rate->active_flows + 1);

    return share < rate->available_bps ? share : rate->available_bps;
}

bool decide_path_rate(const struct decide *decide, const struct grant_entry *grant, int64_t now_us, uint64_t *ret_bps,
                      int64_t *ret_until_us, const char **ret_missing) {
    uint64_t least = UINT64_MAX;
    int64_t first_end = INT64_MAX;

    for (size_t i = 0; i < grant->n_link_ids; i++) {
        const struct rate_entry *entry;
        uint64_t available;
        const struct decide_link_rate *rate = find_rate(decide, grant->link_ids[i], now_us, &entry);

        if (!rate) {
            *ret_missing = grant->link_ids[i];
            return false;
        }
        available = decide_is_newcomer(grant, now_us) ? newcomer_bps(entry, rate, grant, now_us) : rate->available_bps;
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
    if (compute->off || !decide_in_force(grant, compute->now_us) || grant->selector_error[0] || !link || !link->ifindex)
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
    strmap_sweep(&decide->grants, compute_one, &compute);
    if (compute.n > 1)
        qsort(decide->table, compute.n, sizeof(*decide->table), by_request);
    *ret_table = decide->table;
    *ret_next_us = compute.next_us;
    return (int)compute.n;
}
