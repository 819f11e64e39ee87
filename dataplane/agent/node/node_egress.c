/* By which links of the node the packets of grants leave, and whether the kernel's tables say so; see node.h. */
#include <string.h>

#include "node/node.h"

#define LOOK_EVERY_US 200000ll
/* Reading so many counters five times a second costs more than it tells. */
#define MANY_COUNTERS 1024
#define MANY_COUNTERS_EVERY_US 1000000ll

static uint32_t interface_of(const struct node *node, const char *link_id) {
    for (int i = 0; i < AGENT_LINKS_MAX; i++)
        if (node->links[i].used && strcmp(node->links[i].id, link_id) == 0)
            return node->links[i].interface.ifindex;
    return 0;
}

static bool is_against(const struct node *node, const struct decide_selector *selector, const struct egress *egress) {
    for (uint8_t i = 0; i < egress->n; i++) {
        uint32_t ifindex = interface_of(node, egress->links[i].link_id);

        if (ifindex && !routes_lead_to(&node->routes, selector, ifindex))
            return true;
    }
    return false;
}

/* Returns whether the tables are still those that packets were judged by. */
static bool look_at(struct node *node, const struct decide_applied *grant, int64_t now_us) {
    struct egress_count counts[AGENT_LINKS_MAX];
    const struct egress *other;
    size_t n = 0;

    for (int i = 0; i < AGENT_LINKS_MAX; i++) {
        const struct node_link *link = &node->links[i];

        if (link->used && link->classified)
            counts[n++] = (struct egress_count){
                .link_id = link->id,
                .ifindex = link->interface.ifindex,
                .bytes = datapath_grant_bytes(node->datapath, grant->request_id, link->interface.ifindex)};
    }
    /* Counted first, then heard: what a new route sent is not judged by the old one, nor in one interval with what that
     * sent. */
    if (!routes_are_current(&node->routes))
        return false;
    other = decide_set_egress(node->decide, grant->request_id, counts, n, now_us);
    if (other)
        decide_set_against_routes(node->decide, grant->request_id, is_against(node, &grant->selector, other));
    return true;
}

void node_egress_follow(struct node *node, int64_t now_us) {
    size_t links = 0;

    for (int i = 0; i < AGENT_LINKS_MAX; i++)
        links += node->links[i].used && node->links[i].classified;
    if (now_us <
        node->egress_at_us + (links * node->n_applied > MANY_COUNTERS ? MANY_COUNTERS_EVERY_US : LOOK_EVERY_US))
        return;
    node->egress_at_us = now_us;
    for (size_t i = 0, first = node->egress_first; i < node->n_applied; i++) {
        size_t at = (first + i) % node->n_applied;

        if (look_at(node, &node->applied[at], now_us))
            continue;
        /* Again as soon as the tables were asked. */
        node->egress_first = at;
        node->egress_at_us = 0;
        return;
    }
}

static bool changed_towards(const struct decide_selector *selector, void *context) {
    return routes_changed_towards(context, selector);
}

void node_egress_routes_changed(struct node *node) {
    decide_routes_changed(node->decide, changed_towards, &node->routes);
    /* The new interval begins now. */
    node->egress_at_us = 0;
}
