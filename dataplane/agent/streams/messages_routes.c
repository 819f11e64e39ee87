/* Routes of a node state, packed; see messages_routes.h. */
#include "streams/messages_routes.h"

#include <stdlib.h>
#include <string.h>

#include "streams/messages.h"

struct group {
    Chart__V1__NodeRoute route;
    Chart__V1__NextHop hops[ROUTES_HOPS_MAX];
    Chart__V1__NextHop *pointers[ROUTES_HOPS_MAX];
};

static bool same_hops(const struct messages_route *one, const struct messages_route *other) {
    if (one->n_hops != other->n_hops)
        return false;
    for (size_t i = 0; i < one->n_hops; i++)
        if (strcmp(one->hops[i].interface, other->hops[i].interface) != 0 ||
            strcmp(one->hops[i].link_id, other->hops[i].link_id) != 0)
            return false;
    return true;
}

static void begin(struct group *group, const struct messages_route *from, char **prefixes) {
    chart__v1__node_route__init(&group->route);
    group->route.prefixes = prefixes;
    for (size_t i = 0; i < from->n_hops; i++) {
        chart__v1__next_hop__init(&group->hops[i]);
        group->hops[i].interface = (char *)from->hops[i].interface;
        group->hops[i].link_id = (char *)from->hops[i].link_id;
        group->pointers[i] = &group->hops[i];
    }
    group->route.next_hops = group->pointers;
    group->route.n_next_hops = from->n_hops;
}

void *messages_add_routes(Chart__V1__NodeState *message, const struct messages_node_state *state) {
    size_t n = state->n_routes, n_groups = 0;
    struct group *groups;
    Chart__V1__NodeRoute **routes;
    char **prefixes;
    /* One allocation, which the caller frees: groups, then pointers to them, then prefixes. */
    char *room = calloc(n ? n : 1, sizeof(struct group) + sizeof(Chart__V1__NodeRoute *) + sizeof(char *));

    if (!room)
        return NULL;
    groups = (struct group *)(void *)room;
    routes = (Chart__V1__NodeRoute **)(void *)(room + n * sizeof(struct group));
    prefixes = (char **)(void *)(room + n * (sizeof(struct group) + sizeof(Chart__V1__NodeRoute *)));
    for (size_t i = 0; i < n; i++) {
        if (!i || !same_hops(&state->routes[i - 1], &state->routes[i])) {
            begin(&groups[n_groups], &state->routes[i], &prefixes[i]);
            routes[n_groups] = &groups[n_groups].route;
            n_groups++;
        }
        prefixes[i] = (char *)state->routes[i].prefix;
        groups[n_groups - 1].route.n_prefixes++;
    }
    message->routes = routes;
    message->n_routes = n_groups;
    return room;
}
