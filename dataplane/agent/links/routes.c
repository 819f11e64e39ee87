/* Where the kernel sends packets to the other nodes; see routes.h. */
#include "links/routes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "core/log.h"
#include "core/loop.h"

#define IPV4_BITS 32
#define IPV6_BITS 128
/* Asked again although nothing was told: a notice can get lost. */
#define LOOK_AGAIN_US 5000000ll
/* Of its time the agent spends at most a tenth on asking. */
#define REST 9

int routes_open(struct routes *ret) {
    static const int groups[] = {RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE, RTNLGRP_IPV4_RULE,
                                 RTNLGRP_IPV6_RULE,  RTNLGRP_LINK,       RTNLGRP_NEXTHOP};
    struct mnl_socket *socket = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int err = 0;

    if (!socket)
        return -errno;
    if (mnl_socket_bind(socket, 0, MNL_SOCKET_AUTOPID) < 0)
        err = -errno;
    for (size_t i = 0; !err && i < sizeof(groups) / sizeof(groups[0]); i++) {
        int group = groups[i];

        /* A kernel without next hops of their own (before 5.3) has no such group. */
        if (mnl_socket_setsockopt(socket, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)) < 0 &&
            group != RTNLGRP_NEXTHOP)
            err = -errno;
    }
    if (err) {
        mnl_socket_close(socket);
        return err;
    }
    *ret = (struct routes){.monitor = socket, .stale = true};
    return 0;
}

void routes_close(struct routes *routes) {
    if (routes->monitor)
        mnl_socket_close(routes->monitor);
    free(routes->routes);
    *routes = (struct routes){0};
}

int routes_fd(const struct routes *routes) {
    return mnl_socket_get_fd(routes->monitor);
}

void routes_heard(struct routes *routes) {
    char notice[8192];

    /* What changed is not read: the tables are asked. A notice that was lost (ENOBUFS) is one too. */
    for (int i = 0; i < 1000; i++) {
        if (mnl_socket_recvfrom(routes->monitor, notice, sizeof(notice)) < 0 && errno != ENOBUFS && errno != EINTR)
            return;
        routes->stale = true;
    }
}

bool routes_are_current(struct routes *routes) {
    routes_heard(routes);
    return !routes->stale;
}

int routes_parse(const char *text, uint8_t *ret_family, uint8_t ret_address[16]) {
    char address[INET6_ADDRSTRLEN], *end;
    const char *slash = strchr(text, '/');
    size_t length = slash ? (size_t)(slash - text) : strlen(text);
    uint8_t family, bits, whole;
    uint8_t bytes[16] = {0};
    bool own = false;
    unsigned long stated;

    if (length >= sizeof(address))
        return -EINVAL;
    memcpy(address, text, length);
    address[length] = '\0';
    family = strchr(address, ':') ? AF_INET6 : AF_INET;
    whole = family == AF_INET6 ? IPV6_BITS : IPV4_BITS;
    if (inet_pton(family, address, bytes) != 1)
        return -EINVAL;
    stated = slash ? strtoul(slash + 1, &end, 10) : whole;
    if (slash && (end == slash + 1 || *end || stated > whole))
        return -EINVAL;
    bits = (uint8_t)stated;
    for (unsigned bit = bits; bit < whole; bit++)
        own |= bytes[bit / 8] & (0x80 >> (bit % 8));
    /* The first address of a network belongs to nobody, but for those of one and two addresses. */
    if (!own && bits + 1 < whole)
        bytes[whole / 8 - 1] |= 1;
    *ret_family = family;
    memcpy(ret_address, bytes, sizeof(bytes));
    return 0;
}

static void forget(struct routes *routes, const char *node) {
    size_t kept = 0;

    for (size_t i = 0; i < routes->n; i++)
        if (strcmp(routes->routes[i].node, node) != 0)
            routes->routes[kept++] = routes->routes[i];
    routes->n = kept;
}

static int make_room(struct routes *routes, size_t n) {
    size_t room = routes->room ? routes->room : 16;
    struct route *grown;

    while (room < n)
        room *= 2;
    if (room == routes->room)
        return 0;
    grown = realloc(routes->routes, room * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    routes->routes = grown;
    routes->room = room;
    return 0;
}

int routes_put(struct routes *routes, const char *node, char *const *prefixes, size_t n) {
    size_t left_out = routes->left_out;

    forget(routes, node);
    routes->stale = true;
    for (size_t i = 0; i < n; i++) {
        struct route route = {.state = ROUTE_UNKNOWN};

        if (strlen(node) >= sizeof(route.node) || strlen(prefixes[i]) >= sizeof(route.prefix) ||
            routes_parse(prefixes[i], &route.family, route.address))
            continue;
        if (routes->n == ROUTES_MAX) {
            routes->left_out++;
            continue;
        }
        if (make_room(routes, routes->n + 1))
            return -ENOMEM;
        strcpy(route.node, node);
        strcpy(route.prefix, prefixes[i]);
        routes->routes[routes->n++] = route;
    }
    if (routes->left_out > left_out)
        log_warning("where packets to node %s go is not told: of the other nodes' addresses there is room for %d", node,
                    ROUTES_MAX);
    return 0;
}

static void add_hop(struct route *route, uint32_t ifindex) {
    uint8_t at = 0;

    while (at < route->n_hops && route->hops[at] < ifindex)
        at++;
    if ((at < route->n_hops && route->hops[at] == ifindex) || route->n_hops == ROUTES_HOPS_MAX)
        return;
    memmove(&route->hops[at + 1], &route->hops[at], (route->n_hops - at) * sizeof(route->hops[0]));
    route->hops[at] = ifindex;
    route->n_hops++;
}

static int read_attribute(const struct nlattr *attribute, void *context) {
    struct route *route = context;

    switch (mnl_attr_get_type(attribute)) {
    case RTA_OIF:
        add_hop(route, mnl_attr_get_u32(attribute));
        break;
    case RTA_MULTIPATH: {
        const struct rtnexthop *hop = mnl_attr_get_payload(attribute);
        int left = mnl_attr_get_payload_len(attribute);

        for (; RTNH_OK(hop, left); left -= (int)RTNH_ALIGN(hop->rtnh_len), hop = RTNH_NEXT(hop))
            if (!(hop->rtnh_flags & RTNH_F_DEAD))
                add_hop(route, (uint32_t)hop->rtnh_ifindex);
        break;
    }
    default:
        break;
    }
    return MNL_CB_OK;
}

static int read_route(const struct nlmsghdr *header, void *context) {
    const struct rtmsg *message = mnl_nlmsg_get_payload(header);
    struct route *route = context;

    if (message->rtm_type == RTN_LOCAL) {
        route->state = ROUTE_LOCAL;
    } else if (message->rtm_type != RTN_UNICAST) {
        route->state = ROUTE_NONE;
    } else {
        mnl_attr_parse(header, sizeof(*message), read_attribute, route);
        route->state = route->n_hops ? ROUTE_FORWARDED : ROUTE_NONE;
    }
    return MNL_CB_OK;
}

/* What the kernel says of one address now. */
static struct route look_up(struct netlink *netlink, const struct route *known) {
    size_t length = known->family == AF_INET6 ? IPV6_BITS / 8 : IPV4_BITS / 8;
    char buffer[256];
    struct nlmsghdr *request = mnl_nlmsg_put_header(buffer);
    struct route found = *known;
    struct rtmsg *message;
    int err;

    found.state = ROUTE_UNKNOWN;
    found.n_hops = 0;
    memset(found.hops, 0, sizeof(found.hops));
    request->nlmsg_type = RTM_GETROUTE;
    message = mnl_nlmsg_put_extra_header(request, sizeof(*message));
    message->rtm_family = known->family;
    message->rtm_dst_len = (uint8_t)(length * 8);
    /* The table's entry with all its next hops, not the one that a packet would get. */
    message->rtm_flags = RTM_F_FIB_MATCH;
    mnl_attr_put(request, RTA_DST, length, known->address);
    err = netlink_dump(netlink, request, read_route, &found);
    /* The answers for no route, and for those that send nothing on (unreachable, blackhole, prohibit). */
    if (err == -ENETUNREACH || err == -EHOSTUNREACH || err == -EINVAL || err == -EACCES)
        found.state = ROUTE_NONE;
    return found;
}

bool routes_look(struct routes *routes, struct netlink *netlink, int64_t now_us) {
    bool changed = false, due = routes->stale || now_us >= routes->looked_at_us + LOOK_AGAIN_US;
    int64_t ended_us;

    if (!due || now_us < routes->rest_until_us)
        return false;
    routes->stale = false;
    for (size_t i = 0; i < routes->n; i++) {
        struct route *route = &routes->routes[i], found = look_up(netlink, route);

        found.changed = found.state != route->state || found.n_hops != route->n_hops ||
                        memcmp(found.hops, route->hops, sizeof(found.hops)) != 0;
        changed |= found.changed;
        *route = found;
    }
    ended_us = agent_now_us();
    routes->looked_at_us = now_us;
    routes->rest_until_us = ended_us + REST * (ended_us > now_us ? ended_us - now_us : 0);
    return changed;
}

static bool within(const uint8_t *address, const struct decide_prefix *prefix) {
    for (unsigned bit = 0; bit < prefix->bits; bit++)
        if ((address[bit / 8] ^ prefix->address[bit / 8]) & (0x80 >> (bit % 8)))
            return false;
    return true;
}

static bool overlap(const struct route *route, const struct decide_prefix *destination) {
    struct decide_prefix own;

    if (destination->family == 0)
        return true;
    if (destination->family != route->family)
        return false;
    return within(route->address, destination) ||
           (decide_parse_prefix(route->prefix, &own) == 0 && within(destination->address, &own));
}

static bool leads_to(const struct route *route, uint32_t ifindex) {
    for (uint8_t i = 0; route->state == ROUTE_FORWARDED && i < route->n_hops; i++)
        if (route->hops[i] == ifindex)
            return true;
    return false;
}

static bool concerns(const struct route *route, const struct decide_selector *selector) {
    bool found = overlap(route, &selector->destination);

    for (uint8_t k = 0; !found && k < selector->n_more_destinations; k++)
        found = overlap(route, &selector->more_destinations[k]);
    return found;
}

bool routes_lead_to(const struct routes *routes, const struct decide_selector *selector, uint32_t ifindex) {
    for (size_t i = 0; i < routes->n; i++)
        if (leads_to(&routes->routes[i], ifindex) && concerns(&routes->routes[i], selector))
            return true;
    return false;
}

bool routes_changed_towards(const struct routes *routes, const struct decide_selector *selector) {
    for (size_t i = 0; i < routes->n; i++)
        if (routes->routes[i].changed && concerns(&routes->routes[i], selector))
            return true;
    return false;
}
