/* The state behind decide.h: what the streams said. The rates that follow stand in decide_rates.c, what is told about
 * them in decide_status.c. */
#include "grants/decide_state.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/htb/htb_classes.h"

static int copy_id(char *to, size_t size, const char *from) {
    size_t length = from ? strnlen(from, size) : 0;

    if (length == 0 || length >= size)
        return -EINVAL;
    memcpy(to, from, length + 1);
    return 0;
}

/* Whether `link_id` ("<node>:<interface>") leaves from `node`. */
static bool leaves_from(const char *link_id, const char *node) {
    size_t length = strlen(node);

    return strncmp(link_id, node, length) == 0 && link_id[length] == ':';
}

struct decide *decide_new(const char *node) {
    struct decide *decide = calloc(1, sizeof(*decide));

    if (decide && copy_id(decide->node, sizeof(decide->node), node) < 0) {
        free(decide);
        return NULL;
    }
    if (decide)
        decide->untold_mode = DECIDE_MODE_OBSERVE;
    return decide;
}

void decide_free_grant(void *value) {
    struct grant_entry *grant = value;

    free(grant->link_ids);
    free(grant->before);
    free(grant);
}

void decide_free(struct decide *decide) {
    if (!decide)
        return;
    strmap_free(&decide->grants, decide_free_grant);
    strmap_free(&decide->rates, decide_free_rates);
    strmap_free(&decide->policies, NULL);
    free(decide->links);
    free(decide->table);
    free(decide);
}

int decide_set_links(struct decide *decide, const struct decide_link *links, size_t n_links) {
    struct decide_link *copy = NULL;

    if (n_links == decide->n_links && (n_links == 0 || memcmp(links, decide->links, n_links * sizeof(*links)) == 0))
        return 0;
    if (n_links > 0) {
        copy = malloc(n_links * sizeof(*copy));
        if (!copy)
            return -ENOMEM;
        memcpy(copy, links, n_links * sizeof(*copy));
    }
    free(decide->links);
    decide->links = copy;
    decide->n_links = n_links;
    return 1;
}

const struct decide_link *decide_find_link(const struct decide *decide, const char *link_id) {
    for (size_t i = 0; i < decide->n_links; i++)
        if (strcmp(decide->links[i].id, link_id) == 0)
            return &decide->links[i];
    return NULL;
}

bool decide_is_beyond_link(const struct decide *decide, const struct grant_entry *grant) {
    const struct decide_link *link = decide_find_link(decide, grant->own_link_id);

    return link && !bounds_rate(grant->guaranteed_bps, link->capacity_bps);
}

static int copy_path(struct grant_entry *entry, const struct decide *decide, const struct decide_grant *grant) {
    char(*path)[DECIDE_ID_LEN] = calloc(grant->n_link_ids, sizeof(*path));
    struct counted *before = calloc(grant->n_link_ids, sizeof(*before));

    if (!path || !before) {
        free(path);
        free(before);
        return -ENOMEM;
    }
    entry->own_link_id[0] = '\0';
    for (size_t i = 0; i < grant->n_link_ids; i++) {
        if (copy_id(path[i], sizeof(path[i]), grant->link_ids[i]) < 0) {
            free(path);
            free(before);
            return -EINVAL;
        }
        if (!entry->own_link_id[0] && leaves_from(path[i], decide->node)) {
            memcpy(entry->own_link_id, path[i], sizeof(path[i]));
            entry->sending = i == 0;
        }
    }
    free(entry->link_ids);
    free(entry->before);
    entry->link_ids = path;
    entry->before = before;
    entry->n_link_ids = grant->n_link_ids;
    return 0;
}

/* Does the path of the grant use a link that this node transmits on? */
static bool concerns(const struct decide *decide, const struct decide_grant *grant) {
    for (size_t i = 0; i < grant->n_link_ids; i++)
        if (grant->link_ids[i] && leaves_from(grant->link_ids[i], decide->node))
            return true;
    return false;
}

static void fill_grant(struct grant_entry *entry, const struct decide_grant *grant, const char *traceparent) {
    bool expedited = grant->delay_priority >= HTB_EXPEDITED_DELAY_PRIORITY &&
                     grant->burst_tolerance <= HTB_EXPEDITED_BURST_TOLERANCE;

    entry->generation = grant->generation;
    entry->selector = grant->selector;
    snprintf(entry->selector_error, sizeof(entry->selector_error), "%s",
             grant->selector_error ? grant->selector_error : "");
    snprintf(entry->traceparent, sizeof(entry->traceparent), "%s", traceparent ? traceparent : "");
    entry->guaranteed_bps = grant->guaranteed_bps;
    entry->maximum_bps = grant->maximum_bps;
    entry->class = expedited && grant->guaranteed_bps > 0 ? DECIDE_CLASS_EXPEDITED : DECIDE_CLASS_EXPLICIT_RATE;
    entry->valid_from_us = grant->valid_from_us;
    entry->valid_until_us = grant->valid_until_us;
    entry->with_available_rate = grant->with_available_rate;
    snprintf(entry->user, sizeof(entry->user), "%s", grant->user ? grant->user : "");
    entry->released = false;
    entry->removed_at_us = 0;
    entry->egress.unjudged = true;
}

int decide_put_grant(struct decide *decide, const struct decide_grant *grant, const char *traceparent, int64_t now_us) {
    struct grant_entry *entry = strmap_get(&decide->grants, grant->request_id);
    int err;

    if (!concerns(decide, grant))
        /* A new path may leave this node out: for us that is a release. */
        return entry ? decide_remove_grant(decide, grant->request_id, traceparent, now_us) : 0;
    if (entry) {
        if (decide_in_force(entry, now_us) && grant->generation < entry->generation)
            return 0;
        /* A relay that lost its lock may deliver late what another one published before the release: generations of a
         * request only grow, so nothing up to the released one brings it back. */
        if (entry->released && grant->generation <= entry->generation)
            return 0;
    } else {
        entry = calloc(1, sizeof(*entry));
        if (!entry)
            return -ENOMEM;
        err = copy_id(entry->request_id, sizeof(entry->request_id), grant->request_id);
        if (!err)
            err = strmap_put(&decide->grants, grant->request_id, entry, NULL);
        if (err) {
            free(entry);
            return err;
        }
        entry->first_seen_us = now_us;
        entry->first_read_here = decide->decides;
    }
    if (entry->released)
        entry->first_seen_us = now_us;
    err = copy_path(entry, decide, grant);
    if (err) {
        decide_free_grant(strmap_remove(&decide->grants, grant->request_id));
        return err;
    }
    fill_grant(entry, grant, traceparent);
    if (!bounds_validity(grant->valid_until_us, now_us)) {
        decide->refused[BOUNDS_GRANT_VALIDITY]++;
        snprintf(entry->selector_error, sizeof(entry->selector_error),
                 "refused: the grant is valid for %lld s, this node takes at most %lld s",
                 (long long)((grant->valid_until_us - now_us) / 1000000), BOUNDS_GRANT_VALIDITY_US / 1000000);
    } else if (decide_is_beyond_link(decide, entry)) {
        decide->refused[BOUNDS_RATE]++;
    }
    return 1;
}

int decide_remove_grant(struct decide *decide, const char *request_id, const char *traceparent, int64_t now_us) {
    struct grant_entry *entry = strmap_get(&decide->grants, request_id);

    if (!entry || entry->released)
        return 0;
    entry->released = true;
    entry->removed_at_us = now_us;
    /* Nobody looks where its packets go any more; should it come back, its counters begin at 0. */
    entry->egress = (struct egress){0};
    if (traceparent && *traceparent)
        snprintf(entry->traceparent, sizeof(entry->traceparent), "%s", traceparent);
    return 1;
}

int decide_put_link_rates(struct decide *decide, const char *node, uint64_t generation, int64_t valid_until_us,
                          const struct decide_link_rate *rates, size_t n_rates, const struct decide_user_flows *users,
                          size_t n_users, int64_t now_us) {
    const struct rate_entry *held = strmap_get(&decide->rates, node);
    struct rate_entry *entry;
    void *old = NULL;
    int err;

    /* An ended lease has no claim: after a broker was set up anew generations may start again. */
    if (held && generation < held->generation && held->valid_until_us > now_us)
        return 0;
    entry = malloc(sizeof(*entry) + n_rates * sizeof(*rates));
    if (!entry)
        return -ENOMEM;
    err = decide_keep_users(entry, users, n_users);
    if (err) {
        free(entry);
        return err;
    }
    entry->generation = generation;
    entry->valid_until_us = valid_until_us;
    entry->put_at_us = now_us;
    entry->n_rates = n_rates;
    if (n_rates > 0)
        memcpy(entry->rates, rates, n_rates * sizeof(*rates));
    err = strmap_put(&decide->rates, node, entry, &old);
    if (err) {
        decide_free_rates(entry);
        return err;
    }
    decide_free_rates(old);
    for (size_t i = 0; i < n_rates; i++)
        decide->refused[BOUNDS_RATE] += decide_rate_is_refused(decide, rates[i].link_id, now_us);
    return 1;
}

int decide_remove_link_rates(struct decide *decide, const char *node) {
    void *entry = strmap_remove(&decide->rates, node);

    decide_free_rates(entry);
    return entry != NULL;
}

int decide_put_policy(struct decide *decide, const char *id, enum decide_mode mode) {
    if (mode < DECIDE_MODE_OFF || mode > DECIDE_MODE_ENFORCE)
        return -EINVAL;
    return strmap_put(&decide->policies, id, (void *)(uintptr_t)mode, NULL) ? -ENOMEM : 1;
}

int decide_remove_policy(struct decide *decide, const char *id) {
    bool removed = strmap_remove(&decide->policies, id) != NULL;
    bool was = decide->untold_mode != DECIDE_MODE_OBSERVE;

    if (strcmp(id, decide->node) != 0 && strcmp(id, "default") != 0)
        return removed;
    /* That there is no policy is something to be told too. */
    decide->untold_mode = DECIDE_MODE_OBSERVE;
    return removed || was;
}

void decide_set_untold_mode(struct decide *decide, enum decide_mode mode) {
    decide->untold_mode = mode;
}

int decide_set_local_off(struct decide *decide, bool off) {
    bool changed = decide->local_off != off;

    decide->local_off = off;
    return changed;
}

enum decide_mode decide_policy_mode(const struct decide *decide) {
    void *mode = strmap_get(&decide->policies, decide->node);

    if (!mode)
        mode = strmap_get(&decide->policies, "default");
    return mode ? (enum decide_mode)(uintptr_t)mode : decide->untold_mode;
}

const char *decide_mode_name(enum decide_mode mode) {
    switch (mode) {
    case DECIDE_MODE_OFF:
        return "off";
    case DECIDE_MODE_OBSERVE:
        return "observe";
    case DECIDE_MODE_ENFORCE:
        return "enforce";
    }
    return "unknown";
}

enum decide_mode decide_mode(const struct decide *decide) {
    return decide->local_off ? DECIDE_MODE_OFF : decide_policy_mode(decide);
}

const char *decide_user(const struct decide *decide, const char *request_id) {
    const struct grant_entry *grant = strmap_get(&decide->grants, request_id);

    return grant && grant->with_available_rate ? grant->user : "";
}

int decide_parse_prefix(const char *text, struct decide_prefix *ret) {
    struct decide_prefix prefix = {0};
    char address[64];
    const char *slash;
    size_t length;
    unsigned long bits;

    if (!text || !*text) {
        *ret = prefix;
        return 0;
    }
    slash = strchr(text, '/');
    length = slash ? (size_t)(slash - text) : strlen(text);
    if (length >= sizeof(address))
        return -EINVAL;
    memcpy(address, text, length);
    address[length] = '\0';
    prefix.family = strchr(address, ':') ? AF_INET6 : AF_INET;
    if (inet_pton(prefix.family, address, prefix.address) != 1)
        return -EINVAL;
    bits = prefix.family == AF_INET ? 32 : 128;
    if (slash) {
        char *end;
        unsigned long stated = strtoul(slash + 1, &end, 10);

        if (slash[1] < '0' || slash[1] > '9' || *end || stated > bits)
            return -EINVAL;
        bits = stated;
    }
    prefix.bits = (uint8_t)bits;
    for (unsigned long i = bits; i < 128; i++)
        prefix.address[i / 8] &= (uint8_t)~(0x80 >> (i % 8));
    *ret = prefix;
    return 0;
}

struct decide_counts decide_counts(const struct decide *decide) {
    struct decide_counts counts = {.grants = decide->grants.n_entries,
                                   .link_rate_nodes = decide->rates.n_entries,
                                   .policies = decide->policies.n_entries};

    memcpy(counts.refused, decide->refused, sizeof(counts.refused));
    return counts;
}

void decide_count_refused(struct decide *decide, enum bounds_kind kind) {
    decide->refused[kind]++;
}

const char (*decide_grant_path(const struct decide *decide, const char *request_id, size_t *ret_n))[DECIDE_ID_LEN] {
    const struct grant_entry *grant = strmap_get(&decide->grants, request_id);

    *ret_n = grant ? grant->n_link_ids : 0;
    return grant ? (const char(*)[DECIDE_ID_LEN])grant->link_ids : NULL;
}
