/* See signal_tables.h. This file: authorisations, from a list in which an address may stand several times to the trie
 * that holds, for every service, what of it applies. */
#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>

#include "signal/signal_keys.h"

#define NS_PER_US 1000ull
/* What begins later is left out until then: the tables are handed over once a second. */
#define AHEAD_US 5000000

/* One authorisation for one service of those that it names. */
struct permit {
    struct chart_signal_client client;
    struct chart_signal_limit limit;
};

static int order_numbers(uint64_t one, uint64_t other) {
    return (one < other) - (one > other);
}

static int order_clients(const void *one, const void *other) {
    return memcmp(one, other, sizeof(struct chart_signal_client));
}

/* By client and service; of one client the one that allows most comes first. */
static int order_permits(const void *left, const void *right) {
    const struct permit *one = left, *other = right;
    const struct chart_signal_limit *a = &one->limit, *b = &other->limit;
    int order = order_clients(&one->client, &other->client);
    if (order)
        return order;
    if (one->client.service == CHART_AVAILABLE) {
        order = order_numbers(a->available_bps, b->available_bps);
        order = order ? order : order_numbers(a->guaranteed_bps, b->guaranteed_bps);
    } else if (one->client.service != CHART_SERVICE_ANY) {
        order = order_numbers(a->guaranteed_bps, b->guaranteed_bps);
        order = order ? order : order_numbers(a->available_bps, b->available_bps);
    }
    order = order ? order : order_numbers(a->until_ns, b->until_ns);
    order = order ? order : order_numbers(a->preemption_priority, b->preemption_priority);
    return order ? order : order_numbers(a->delay_priority, b->delay_priority);
}

/* Nothing while it has ended or does not begin soon. */
static size_t add_permits(const struct signal_authorisation *from, int64_t now_us, uint64_t now_ns,
                          struct permit *ret_permits) {
    struct permit permit = {
        .limit =
            {
                .guaranteed_bps = from->guaranteed_bps,
                .available_bps = from->available_bps,
                .preemption_priority = from->preemption_priority,
                .delay_priority = from->delay_priority,
                .from_ns = from->from_us > now_us ? now_ns + (uint64_t)(from->from_us - now_us) * NS_PER_US : 0,
                .until_ns = from->until_us ? now_ns + (uint64_t)(from->until_us - now_us) * NS_PER_US : UINT64_MAX,
            },
    };
    struct chart_signal_prefix prefix;
    size_t n = 0;
    if ((from->until_us && from->until_us <= now_us) || from->from_us > now_us + AHEAD_US || !from->services ||
        signal_prefix_key(&from->prefix, &prefix))
        return 0;
    permit.client.bits = CHART_SERVICE_BITS + prefix.bits;
    memcpy(permit.client.address, prefix.address, sizeof(permit.client.address));
    for (uint32_t service = 0; service <= CHART_SERVICE_ANY; service++) {
        if (service != CHART_SERVICE_ANY && !(from->services >> service & 1))
            continue;
        permit.client.service = service;
        ret_permits[n++] = permit;
    }
    return n;
}

/* What a larger one covers at all of its time says nothing more. */
static bool is_covered(const struct chart_signal_authorisation *value, const struct chart_signal_limit *limit) {
    for (size_t i = 0; i < CHART_LIMITS_MAX && value->limits[i].until_ns; i++)
        if (value->limits[i].from_ns <= limit->from_ns && value->limits[i].until_ns >= limit->until_ns)
            return true;
    return false;
}

/* The value of the client whose permits begin at `permits`; returns how many are its. */
static size_t gather(const struct permit *permits, size_t n, struct chart_signal_authorisation *ret) {
    size_t kept = 0, i = 0;
    *ret = (struct chart_signal_authorisation){.bits = permits->client.bits};
    for (; i < n && order_clients(&permits[i].client, &permits->client) == 0; i++)
        if (kept < CHART_LIMITS_MAX && !is_covered(ret, &permits[i].limit))
            ret->limits[kept++] = permits[i].limit;
    return i;
}

static int forget_clients(const struct signal_tables *tables, const struct chart_signal_client *kept, size_t n_kept) {
    int status = 0;
    for (size_t i = 0; i < tables->n_clients; i++) {
        const struct chart_signal_client *old = &tables->clients[i];
        if (!bsearch(old, kept, n_kept, sizeof(*kept), order_clients) &&
            bpf_map_delete_elem(tables->fds.authorisations, old) && errno != ENOENT && !status)
            status = -errno;
    }
    return status;
}

int signal_tables_authorisations(struct signal_tables *tables, const struct signal_authorisation *authorisations,
                                 size_t n, int64_t now_us) {
    struct permit *permits = calloc(n * (CHART_SERVICE_ANY + 1) + 1, sizeof(*permits));
    struct chart_signal_client *clients = calloc(n * (CHART_SERVICE_ANY + 1) + 1, sizeof(*clients));
    uint64_t now_ns = signal_monotonic_ns();
    size_t n_permits = 0, n_clients = 0;
    int status = 0, error;
    if (!permits || !clients) {
        free(permits);
        free(clients);
        return -ENOMEM;
    }
    for (size_t i = 0; i < n; i++)
        n_permits += add_permits(&authorisations[i], now_us, now_ns, &permits[n_permits]);
    qsort(permits, n_permits, sizeof(*permits), order_permits);
    for (size_t i = 0, taken; i < n_permits; i += taken) {
        struct chart_signal_authorisation value;
        taken = gather(&permits[i], n_permits - i, &value);
        if (bpf_map_update_elem(tables->fds.authorisations, &permits[i].client, &value, BPF_ANY))
            status = status ? status : -errno;
        else
            clients[n_clients++] = permits[i].client;
    }
    error = forget_clients(tables, clients, n_clients);
    free(permits);
    free(tables->clients);
    tables->clients = clients;
    tables->n_clients = n_clients;
    return status ? status : error;
}
