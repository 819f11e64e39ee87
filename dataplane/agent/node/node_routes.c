/* Where the kernel sends packets to the other nodes, told in the node's state; see node.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "core/agent.h"
#include "core/log.h"
#include "node/node.h"

static void on_notice(void *context, uint32_t events) {
    struct node *node = context;

    (void)events;
    routes_heard(&node->routes);
}

int node_routes_open(struct node *node) {
    int err = routes_open(&node->routes);

    if (err) {
        log_error("the kernel does not tell of its routes: %s", strerror(-err));
        return err;
    }
    return agent_add_fd(node->agent, routes_fd(&node->routes), EPOLLIN, on_notice, node);
}

void node_routes_close(struct node *node) {
    if (node->routes.monitor)
        agent_remove_fd(node->agent, routes_fd(&node->routes));
    routes_close(&node->routes);
    free(node->told_routes);
    node->told_routes = NULL;
}

int node_routes_addresses(const char *other, char *const *prefixes, size_t n, void *context) {
    struct node *node = context;

    return routes_put(&node->routes, other, prefixes, n);
}

void node_routes_follow(struct node *node, int64_t now_us) {
    if (!node->looked || !routes_look(&node->routes, &node->netlink, now_us))
        return;
    node_report_state(node, now_us);
    node_egress_routes_changed(node);
}

/* The name of an interface with the link on it; false: it is gone. */
static bool name_hop(const struct node *node, uint32_t ifindex, char *name, struct messages_hop *ret) {
    if (!if_indextoname(ifindex, name))
        return false;
    *ret = (struct messages_hop){.interface = name, .link_id = ""};
    for (int i = 0; i < AGENT_LINKS_MAX; i++)
        if (node->links[i].used && strcmp(node->links[i].interface_name, name) == 0)
            ret->link_id = node->links[i].id;
    return true;
}

static int by_hops(const void *one, const void *other) {
    const struct route *a = *(const struct route *const *)one, *b = *(const struct route *const *)other;
    int order = memcmp(a->hops, b->hops, sizeof(a->hops));

    return order ? order : strcmp(a->prefix, b->prefix);
}

bool node_routes_tell(struct node *node, struct messages_node_state *state) {
    /* The names of the interfaces live until the state is sent. */
    static char names[ROUTES_MAX * 2][IF_NAMESIZE];
    const struct route **order = calloc(node->routes.n + 1, sizeof(*order));
    struct messages_route *told = realloc(node->told_routes, (node->routes.n + 1) * sizeof(*told));
    size_t n = 0, n_names = 0;

    if (told)
        node->told_routes = told;
    if (!order || !told) {
        free(order);
        return false;
    }
    for (size_t i = 0; i < node->routes.n; i++) {
        enum route_state of = node->routes.routes[i].state;
        if (of == ROUTE_NONE || of == ROUTE_FORWARDED)
            order[n++] = &node->routes.routes[i];
    }
    qsort(order, n, sizeof(*order), by_hops);
    for (size_t i = 0; i < n; i++) {
        told[i] = (struct messages_route){.prefix = order[i]->prefix};
        /* Prefixes of the same hops are next to each other and share their names. */
        if (i && memcmp(order[i]->hops, order[i - 1]->hops, sizeof(order[i]->hops)) == 0) {
            memcpy(told[i].hops, told[i - 1].hops, sizeof(told[i].hops));
            told[i].n_hops = told[i - 1].n_hops;
            continue;
        }
        if (n_names + order[i]->n_hops > sizeof(names) / sizeof(names[0])) {
            n = i;
            break;
        }
        for (uint8_t k = 0; k < order[i]->n_hops; k++)
            if (name_hop(node, order[i]->hops[k], names[n_names], &told[i].hops[told[i].n_hops])) {
                told[i].n_hops++;
                n_names++;
            }
    }
    free(order);
    state->routes = told;
    state->n_routes = n;
    return true;
}
