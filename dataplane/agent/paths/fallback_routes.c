/* See fallback_routes.h. */
#include "paths/fallback_routes.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define REQUEST_BYTES 256
#define METRIC 0x7ffffffeu
#define MAPPED_BITS 96
#define ADDRESS_BITS 128

static bool is_mapped(const struct chart_overlay_prefix *prefix) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

    return prefix->bits >= MAPPED_BITS && memcmp(prefix->address, mapped, sizeof(mapped)) == 0;
}

/* `source`: the address that packets of this node have which take the route; NULL: the kernel's choice. */
static int change(struct netlink *netlink, const struct chart_overlay_prefix *prefix, uint32_t ifindex, uint16_t type,
                  uint16_t flags, const struct chart_overlay_prefix *source) {
    bool ipv4 = is_mapped(prefix);
    char buffer[REQUEST_BYTES];
    struct nlmsghdr *request = mnl_nlmsg_put_header(buffer);
    struct rtmsg *message = mnl_nlmsg_put_extra_header(request, sizeof(*message));

    request->nlmsg_type = type;
    request->nlmsg_flags = flags;
    message->rtm_family = ipv4 ? AF_INET : AF_INET6;
    message->rtm_dst_len = (unsigned char)(prefix->bits - (ipv4 ? MAPPED_BITS : 0));
    message->rtm_table = RT_TABLE_MAIN;
    message->rtm_protocol = RTPROT_STATIC;
    message->rtm_scope = ipv4 ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE;
    message->rtm_type = RTN_UNICAST;
    mnl_attr_put(request, RTA_DST, ipv4 ? 4 : 16, (const char *)prefix->address + (ipv4 ? 12 : 0));
    mnl_attr_put_u32(request, RTA_OIF, ifindex);
    mnl_attr_put_u32(request, RTA_PRIORITY, METRIC);
    if (source)
        mnl_attr_put(request, RTA_PREFSRC, ipv4 ? 4 : 16, (const char *)source->address + (ipv4 ? 12 : 0));
    return netlink_talk(netlink, request);
}

static int compare(const void *left, const void *right) {
    return memcmp(left, right, sizeof(struct chart_overlay_prefix));
}

static bool has(const struct chart_overlay_prefix *prefixes, size_t n, const struct chart_overlay_prefix *one) {
    return n && bsearch(one, prefixes, n, sizeof(*prefixes), compare);
}

/* The prefixes of the other owners, sorted; NULL: no memory. */
static struct chart_overlay_prefix *wanted(const struct overlay_table *table, const char *self, size_t *ret_n) {
    size_t room = 0, n = 0;
    struct chart_overlay_prefix *prefixes;

    for (size_t i = 0; i < table->n_owners; i++)
        room += table->owners[i].n_prefixes;
    prefixes = calloc(room + 1, sizeof(*prefixes));
    for (size_t i = 0; prefixes && i < table->n_owners; i++)
        for (size_t k = 0; k < table->owners[i].n_prefixes && strcmp(table->owners[i].node, self) != 0; k++)
            prefixes[n++] = overlay_prefix_to_kernel(&table->owners[i].prefixes[k]);
    if (prefixes)
        qsort(prefixes, n, sizeof(*prefixes), compare);
    *ret_n = n;
    return prefixes;
}

/* An address of this node among what it owns, of the family of a prefix. */
static bool find_source(const struct overlay_table *table, const char *self, bool ipv4,
                        struct chart_overlay_prefix *ret) {
    for (size_t i = 0; i < table->n_owners; i++)
        for (size_t k = 0; k < table->owners[i].n_prefixes && strcmp(table->owners[i].node, self) == 0; k++) {
            *ret = overlay_prefix_to_kernel(&table->owners[i].prefixes[k]);
            if (ret->bits == ADDRESS_BITS && is_mapped(ret) == ipv4)
                return true;
        }
    return false;
}

static int add(struct netlink *netlink, const struct chart_overlay_prefix *prefix, uint32_t ifindex,
               const struct overlay_table *table, const char *self) {
    struct chart_overlay_prefix source;
    int error = -EINVAL;

    if (find_source(table, self, is_mapped(prefix), &source))
        error = change(netlink, prefix, ifindex, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &source);
    /* What a node owns need not be an address that it has. */
    return error ? change(netlink, prefix, ifindex, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, NULL) : 0;
}

int fallback_routes_follow(struct fallback_routes *routes, struct netlink *netlink, uint32_t ifindex,
                           const struct overlay_table *table, const char *self, size_t *ret_refused) {
    size_t n, kept = 0;
    struct chart_overlay_prefix *fresh = wanted(table, self, &n);

    *ret_refused = 0;
    if (!fresh)
        return -ENOMEM;
    for (size_t i = 0; i < routes->n; i++)
        if (!has(fresh, n, &routes->prefixes[i]))
            (void)change(netlink, &routes->prefixes[i], ifindex, RTM_DELROUTE, 0, NULL);
    for (size_t i = 0; i < n; i++) {
        int error = has(routes->prefixes, routes->n, &fresh[i]) ? 0 : add(netlink, &fresh[i], ifindex, table, self);

        if (error)
            (*ret_refused)++;
        else
            fresh[kept++] = fresh[i];
    }
    fallback_routes_forget(routes);
    *routes = (struct fallback_routes){.prefixes = fresh, .n = kept};
    return 0;
}

void fallback_routes_forget(struct fallback_routes *routes) {
    free(routes->prefixes);
    *routes = (struct fallback_routes){0};
}
