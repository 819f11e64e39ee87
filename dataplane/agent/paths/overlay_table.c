/* See overlay_table.h. */
#include "paths/overlay_table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define MAPPED_BITS 96

/* A prefix and whose it is, for sorting. */
struct owned {
    struct chart_overlay_prefix prefix;
    const char *node;
};

struct chart_overlay_prefix overlay_prefix_to_kernel(const struct decide_prefix *prefix) {
    struct chart_overlay_prefix ret = {.bits = prefix->bits};

    if (prefix->family == AF_INET) {
        uint8_t mapped[16] = {[10] = 0xff, [11] = 0xff};

        memcpy(mapped + 12, prefix->address, 4);
        memcpy(ret.address, mapped, sizeof(ret.address));
        ret.bits += MAPPED_BITS;
    } else {
        memcpy(ret.address, prefix->address, sizeof(ret.address));
    }
    /* What is behind the prefix says nothing. */
    for (unsigned bit = ret.bits; bit < 128; bit++)
        ((uint8_t *)ret.address)[bit / 8] &= (uint8_t)~(0x80 >> (bit % 8));
    return ret;
}

static int fail(char *error, const char *what, const char *name) {
    snprintf(error, OVERLAY_ERROR_LEN, "%.80s: %.100s", name, what);
    return -EINVAL;
}

static int check_links(const struct overlay_table *table, char *error) {
    if (table->n_links > OVERLAY_LINKS_MAX)
        return fail(error, "more links than a node has room for (63)", "links");
    for (size_t i = 0; i < table->n_links; i++) {
        const struct overlay_link *link = &table->links[i];
        uint8_t bits = link->local.family == AF_INET6 ? 128 : 32;

        if (link->local.family != link->remote.family || link->local.bits != bits || link->remote.bits != bits)
            return fail(error, "local and remote have to be addresses of one family", link->name);
        if (!*link->name)
            return fail(error, "a link without a name", "links");
        if (link->mtu < OVERLAY_MTU_MIN || link->mtu > OVERLAY_MTU_MAX)
            return fail(error, "mtu: expected 1350 to 65535 octets", link->name);
        if (link->capacity_bps > OVERLAY_CAPACITY_MAX_BPS)
            return fail(error, "capacity_bps: expected at most 10000000000000", link->name);
        for (size_t k = 0; k < i; k++) {
            if (strcmp(table->links[k].name, link->name) == 0)
                return fail(error, "two links of this name", link->name);
            if (memcmp(&table->links[k].remote, &link->remote, sizeof(link->remote)) == 0)
                return fail(error, "another link ends at the same address", link->name);
        }
    }
    return 0;
}

static int compare_owned(const void *left, const void *right) {
    return memcmp(&((const struct owned *)left)->prefix, &((const struct owned *)right)->prefix,
                  sizeof(struct chart_overlay_prefix));
}

static int compare_names(const void *left, const void *right) {
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static int check_names(const struct overlay_table *table, char *error) {
    const char **names = calloc(table->n_owners + 1, sizeof(*names));
    int status = 0;

    if (!names)
        return -ENOMEM;
    for (size_t i = 0; i < table->n_owners; i++) {
        names[i] = table->owners[i].node;
        if (!*names[i])
            status = fail(error, "an owner without a name", "owners");
    }
    qsort(names, table->n_owners, sizeof(*names), compare_names);
    for (size_t i = 1; !status && i < table->n_owners; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            status = fail(error, "two owners of this name", names[i]);
    free(names);
    return status;
}

static int check_prefixes(const struct overlay_table *table, char *error) {
    size_t n = 0, n_routes = 0;
    struct owned *all;
    int status = 0;

    for (size_t i = 0; i < table->n_owners; i++) {
        n += table->owners[i].n_prefixes;
        n_routes += table->owners[i].n_routes;
    }
    if (n > CHART_OVERLAY_PREFIXES_MAX || n_routes > CHART_OVERLAY_PATHS_MAX)
        return fail(error, "more prefixes or paths than the kernel's tables hold (16384)", "owners");
    all = calloc(n + 1, sizeof(*all));
    if (!all)
        return -ENOMEM;
    n = 0;
    for (size_t i = 0; i < table->n_owners; i++)
        for (size_t k = 0; k < table->owners[i].n_prefixes; k++)
            all[n++] = (struct owned){overlay_prefix_to_kernel(&table->owners[i].prefixes[k]), table->owners[i].node};
    qsort(all, n, sizeof(*all), compare_owned);
    for (size_t i = 1; !status && i < n; i++)
        if (compare_owned(&all[i - 1], &all[i]) == 0 && strcmp(all[i - 1].node, all[i].node) != 0) {
            snprintf(error, OVERLAY_ERROR_LEN, "owners: %.80s and %.80s own the same prefix", all[i - 1].node,
                     all[i].node);
            status = -EINVAL;
        }
    free(all);
    return status;
}

static int check_routes(const struct overlay_table *table, char *error) {
    for (size_t i = 0; i < table->n_owners; i++) {
        const struct overlay_owner *owner = &table->owners[i];

        for (size_t k = 0; k < owner->n_routes; k++) {
            if (owner->routes[k].colour >= CHART_OVERLAY_COLOURS)
                return fail(error, "a colour is a number from 0 to 15", owner->node);
            if (owner->routes[k].capacity_bps > OVERLAY_CAPACITY_MAX_BPS)
                return fail(error, "capacity_bps: expected at most 10000000000000", owner->node);
            for (size_t j = 0; j < owner->routes[k].n_link_ids; j++)
                if (!*owner->routes[k].link_ids[j])
                    return fail(error, "a path has a link without an id", owner->node);
            for (size_t j = 0; j < k; j++)
                if (owner->routes[j].colour == owner->routes[k].colour)
                    return fail(error, "two paths of one colour", owner->node);
        }
    }
    return 0;
}

int overlay_table_check(const struct overlay_table *table, char error[OVERLAY_ERROR_LEN]) {
    int status = check_links(table, error);

    status = status ? status : check_names(table, error);
    status = status ? status : check_prefixes(table, error);
    return status ? status : check_routes(table, error);
}

uint32_t overlay_table_mtu(const struct overlay_table *table) {
    uint32_t least = 0;

    for (size_t i = 0; i < table->n_links; i++) {
        const struct overlay_link *link = &table->links[i];
        uint32_t mtu = link->mtu - (link->local.family == AF_INET6 ? OVERLAY_IPV6_OVERHEAD : OVERLAY_IPV4_OVERHEAD);

        least = !least || mtu < least ? mtu : least;
    }
    return least;
}

static bool is_reachable(const struct overlay_owner *owner, const bool *alive) {
    for (size_t i = 0; i < owner->n_routes; i++)
        for (size_t hop = 0; hop < owner->routes[i].n_hops; hop++)
            if (alive[owner->routes[i].hops[hop]])
                return true;
    return false;
}

size_t overlay_table_unreachable(const struct overlay_table *table, const char *self, const bool *alive) {
    size_t n = 0;

    for (size_t i = 0; i < table->n_owners; i++)
        n += strcmp(table->owners[i].node, self) != 0 && !is_reachable(&table->owners[i], alive);
    return n;
}

void overlay_table_free(struct overlay_table *table) {
    for (size_t i = 0; i < table->n_owners; i++) {
        free(table->owners[i].prefixes);
        for (size_t k = 0; k < table->owners[i].n_routes; k++)
            free(table->owners[i].routes[k].link_ids);
        free(table->owners[i].routes);
    }
    free(table->owners);
    free(table->links);
    *table = (struct overlay_table){0};
}
