/* See datapath.h. This file: grants and modes, and what the kernel counted of a grant. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/log.h"
#include "core/loop.h"
#include "grants/datapath_state.h"
#include "grants/kept_mode.h"
#include "grants/selectors.h"

#define NS_PER_US 1000ull
/* A lease no longer than this is taken; more would outlive what anybody means. */
#define LEASE_MAX_US (3600ll * 1000 * 1000)

/* One moment on the clock of leases and on the kernel's. */
struct present {
    int64_t epoch_us;
    uint64_t monotonic_ns;
};

static uint64_t monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

struct datapath_entry *datapath_find(const struct datapath *datapath, const char *request_id) {
    for (size_t i = 0; i < DATAPATH_GRANTS_MAX; i++)
        if (datapath->entries[i].used && strcmp(datapath->entries[i].grant.request_id, request_id) == 0)
            return &datapath->entries[i];
    return NULL;
}

struct datapath_entry *datapath_find_number(const struct datapath *datapath, uint64_t number) {
    for (size_t i = 0; i < DATAPATH_GRANTS_MAX; i++)
        if (datapath->entries[i].used && datapath->entries[i].number == number)
            return &datapath->entries[i];
    return NULL;
}

static struct datapath_entry *add_entry(struct datapath *datapath, const char *request_id) {
    struct chart_usage usage = {0};
    for (size_t i = 0; i < DATAPATH_GRANTS_MAX; i++) {
        struct datapath_entry *entry = &datapath->entries[i];
        if (entry->used)
            continue;
        struct chart_grant_key key = {.node = datapath->config.node, .grant = datapath->next_number};
        if (bpf_map_update_elem(datapath->trinity.usage_fd, &key, &usage, BPF_ANY))
            return NULL;
        *entry = (struct datapath_entry){.used = true, .number = datapath->next_number++};
        strncpy(entry->grant.request_id, request_id, sizeof(entry->grant.request_id) - 1);
        return entry;
    }
    errno = ENOSPC;
    return NULL;
}

static void remove_entry(struct datapath *datapath, struct datapath_entry *entry) {
    struct chart_grant_key key = {.node = datapath->config.node, .grant = entry->number};
    bpf_map_delete_elem(datapath->trinity.rates_fd, &key);
    bpf_map_delete_elem(datapath->trinity.usage_fd, &key);
    free(entry->selectors);
    *entry = (struct datapath_entry){0};
}

/* What is left of a lease, on the kernel's clock. */
static uint64_t expires_ns(int64_t until_us, const struct present *now) {
    int64_t left_us = until_us > now->epoch_us ? until_us - now->epoch_us : 0;
    return now->monotonic_ns + (uint64_t)(left_us < LEASE_MAX_US ? left_us : LEASE_MAX_US) * NS_PER_US;
}

static int write_rate(struct datapath *datapath, const struct datapath_entry *entry, const struct present *now) {
    const struct decide_applied *grant = &entry->grant;
    struct chart_grant_key key = {.node = datapath->config.node, .grant = entry->number};
    struct chart_rate rate = {
        .gr_bps = grant->gr_bps,
        .ar_bps = grant->ar_bps,
        .gr_expires_ns = expires_ns(grant->valid_until_us, now),
        .ar_expires_ns = expires_ns(grant->ar_valid_until_us, now),
        .enforce = datapath->mode == DECIDE_MODE_ENFORCE,
    };
    return bpf_map_update_elem(datapath->trinity.rates_fd, &key, &rate, BPF_ANY) ? -errno : 0;
}

/* Write the table that is not in use, then switch over. */
static int write_selectors(struct datapath *datapath) {
    struct chart_selector_table *table = calloc(1, sizeof(*table));
    uint32_t next = datapath->config.table ^ 1;
    int error = 0;
    if (!table)
        return -ENOMEM;
    for (size_t i = 0; i < DATAPATH_GRANTS_MAX; i++)
        for (size_t j = 0; j < datapath->entries[i].n_selectors; j++)
            table->selectors[table->count++] = datapath->entries[i].selectors[j];
    selector_sort(table->selectors, table->count);
    if (bpf_map_update_elem(bpf_map__fd(datapath->attach->maps.selectors), &next, table, BPF_ANY))
        error = -errno;
    free(table);
    if (error)
        return error;
    datapath->config.table = next;
    datapath->config.generation++;
    return datapath_write_config(datapath);
}

/* Selectors of all grants but this one. */
static size_t other_selectors(const struct datapath *datapath, const struct datapath_entry *but) {
    size_t n = 0;
    for (size_t i = 0; i < DATAPATH_GRANTS_MAX; i++)
        if (&datapath->entries[i] != but)
            n += datapath->entries[i].n_selectors;
    return n;
}

/* Returns 1 when the selectors of the entry are other ones than before, 0 when not, or a negative errno. */
static int take_selectors(const struct datapath *datapath, struct datapath_entry *entry,
                          const struct decide_applied *grant) {
    struct chart_selector pairs[SELECTOR_PAIRS_MAX];
    size_t n, size;
    int found = selector_pairs_to_kernel(&grant->selector, pairs, SELECTOR_PAIRS_MAX);
    if (found < 0)
        return found;
    n = (size_t)found;
    size = n * sizeof(*pairs);
    for (size_t i = 0; i < n; i++) {
        pairs[i].grant = entry->number;
        pairs[i].sending = grant->sending;
        pairs[i].expedited = grant->class == DECIDE_CLASS_EXPEDITED;
    }
    if (n == entry->n_selectors && memcmp(pairs, entry->selectors, size) == 0)
        return 0;
    if (other_selectors(datapath, entry) + n > CHART_SELECTORS_MAX)
        return -ENOSPC;
    struct chart_selector *kept = realloc(entry->selectors, size);
    if (!kept)
        return -ENOMEM;
    memcpy(kept, pairs, size);
    entry->selectors = kept;
    entry->n_selectors = n;
    return 1;
}

static int take_grant(struct datapath *datapath, const struct decide_applied *grant, bool *ret_selectors_changed,
                      bool *ret_rate_came, const struct present *now) {
    struct datapath_entry *entry = datapath_find(datapath, grant->request_id);
    if (!entry)
        entry = add_entry(datapath, grant->request_id);
    if (!entry)
        return -errno;
    int changed = take_selectors(datapath, entry, grant);
    /* Without selectors that hold the entry is removed with those of grants that are over. */
    if (changed < 0)
        return changed;
    entry->keep = true;
    if (changed)
        *ret_selectors_changed = true;
    if (entry->grant.gr_bps + entry->grant.ar_bps == 0)
        *ret_rate_came = true;
    entry->grant = *grant;
    return write_rate(datapath, entry, now);
}

int datapath_apply(struct datapath *datapath, const struct decide_applied *grants, size_t n_grants, int64_t now_us,
                   int *ret_errors) {
    const struct present now = {.epoch_us = now_us, .monotonic_ns = monotonic_ns()};
    bool selectors_changed = false, rate_came = false;
    int first_error = 0;
    for (size_t i = 0; i < DATAPATH_GRANTS_MAX; i++)
        datapath->entries[i].keep = false;
    for (size_t i = 0; i < n_grants; i++) {
        int error = take_grant(datapath, &grants[i], &selectors_changed, &rate_came, &now);
        if (ret_errors)
            ret_errors[i] = error;
        if (error && !first_error)
            first_error = error;
    }
    for (size_t i = 0; i < DATAPATH_GRANTS_MAX; i++) {
        struct datapath_entry *entry = &datapath->entries[i];
        if (entry->used && !entry->keep) {
            selectors_changed = selectors_changed || entry->n_selectors;
            remove_entry(datapath, entry);
        }
    }
    int error = selectors_changed ? write_selectors(datapath) : 0;
    if (!error && (selectors_changed || rate_came))
        error = datapath_reconcile(datapath);
    return first_error ? first_error : error;
}

int datapath_enter_mode(struct datapath *datapath, enum decide_mode mode) {
    int error = 0;
    if (mode == datapath->mode)
        return 0;
    datapath->mode = mode;
    datapath->config.enforce = mode == DECIDE_MODE_ENFORCE;
    error = datapath_write_config(datapath);
    for (size_t i = 0; i < DATAPATH_GRANTS_MAX; i++) {
        struct datapath_entry *entry = &datapath->entries[i];
        struct chart_grant_key key = {.node = datapath->config.node, .grant = entry->number};
        struct chart_rate rate;
        if (!entry->used || bpf_map_lookup_elem(datapath->trinity.rates_fd, &key, &rate))
            continue;
        rate.enforce = datapath->config.enforce;
        if (bpf_map_update_elem(datapath->trinity.rates_fd, &key, &rate, BPF_ANY) && !error)
            error = -errno;
    }
    int walked = datapath_reconcile(datapath);
    return error ? error : walked;
}

/* On disk before it is in force, and in force also when it is not on disk. */
static int keep_mode(const struct datapath *datapath) {
    const struct kept_mode kept = {.told = datapath->wanted_mode, .off = datapath->off};
    int error = kept_mode_write(datapath->state_dir, &kept);
    if (error)
        log_error("the mode of this node cannot be kept over a restart: %s", strerror(-error));
    return error;
}

int datapath_set_mode(struct datapath *datapath, enum decide_mode mode) {
    if (datapath->wanted_mode != mode) {
        log_info("enforcement: %s", decide_mode_name(mode));
        datapath->wanted_mode = mode;
        (void)keep_mode(datapath);
    }
    return datapath_enter_mode(datapath, datapath->off ? DECIDE_MODE_OFF : mode);
}

int datapath_switch(struct datapath *datapath, bool off) {
    int kept, entered;
    datapath->off = off;
    kept = keep_mode(datapath);
    entered = datapath_enter_mode(datapath, off ? DECIDE_MODE_OFF : datapath->wanted_mode);
    return entered ? entered : kept;
}

enum decide_mode datapath_told_mode(const struct datapath *datapath) {
    return datapath->wanted_mode;
}

bool datapath_is_off(const struct datapath *datapath) {
    return datapath->off;
}

const struct decide_applied *datapath_next_grant(const struct datapath *datapath, size_t *cursor) {
    while (*cursor < DATAPATH_GRANTS_MAX) {
        const struct datapath_entry *entry = &datapath->entries[(*cursor)++];
        if (entry->used)
            return &entry->grant;
    }
    return NULL;
}

enum decide_mode datapath_mode(const struct datapath *datapath) {
    return datapath->mode;
}

void datapath_room(const struct datapath *datapath, struct datapath_room ret[DATAPATH_ROOM_KINDS]) {
    ret[DATAPATH_ROOM_GRANTS] = (struct datapath_room){.kind = "grants", .total = DATAPATH_GRANTS_MAX};
    ret[DATAPATH_ROOM_SELECTORS] = (struct datapath_room){.kind = "selectors", .total = CHART_SELECTORS_MAX};
    for (size_t i = 0; i < DATAPATH_GRANTS_MAX; i++) {
        ret[DATAPATH_ROOM_GRANTS].held += datapath->entries[i].used;
        ret[DATAPATH_ROOM_SELECTORS].held += datapath->entries[i].n_selectors;
    }
}

int datapath_observe(struct datapath *datapath, const char *request_id, struct decide_observed *ret) {
    struct datapath_entry *entry = datapath_find(datapath, request_id);
    struct chart_rate rate;
    struct chart_usage usage;
    if (!entry)
        return -ENOENT;
    struct chart_grant_key key = {.node = datapath->config.node, .grant = entry->number};
    if (bpf_map_lookup_elem(datapath->trinity.rates_fd, &key, &rate) ||
        bpf_map_lookup_elem(datapath->trinity.usage_fd, &key, &usage))
        return -errno;
    uint64_t now_ns = monotonic_ns();
    *ret = (struct decide_observed){
        .kernel_rate_bps =
            (now_ns < rate.gr_expires_ns ? rate.gr_bps : 0) + (now_ns < rate.ar_expires_ns ? rate.ar_bps : 0),
        .matching_flows = entry->flows,
        .sent_bytes = usage.sent_bytes,
        .delivered_bytes = usage.delivered_bytes,
        .counted_at_us = agent_now_us(),
    };
    return 0;
}

uint64_t datapath_grant_number(const struct datapath *datapath, const char *request_id) {
    const struct datapath_entry *entry = datapath_find(datapath, request_id);

    return entry ? entry->number : 0;
}
