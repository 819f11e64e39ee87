/* See offload.h. */
#include "links/offload.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/agent.h"
#include "core/log.h"
#include "core/netlink.h"
#include "links/htb.h"

struct offload {
    struct netlink netlink;
    struct netlink_interface before[AGENT_LINKS_MAX];
    size_t n;
};

static int bound_link(struct offload *offload, const struct agent_link_option *link) {
    struct netlink_interface *before = &offload->before[offload->n];
    struct htb_plan plan;
    int error = netlink_interface(&offload->netlink, 0, link->interface, before);
    if (error)
        return error;
    htb_make_plan(link->capacity_bps, 0, before->mtu, before->link_header_bytes, &plan);
    error = netlink_set_offload(&offload->netlink, before->ifindex, plan.gso_max_bytes, plan.gso_max_bytes);
    if (error)
        return error;
    /* Left by an agent that was killed: these were not the interface's own. */
    if (before->gso_max_bytes == plan.gso_max_bytes)
        before->gso_max_bytes = before->gro_max_bytes = HTB_GSO_DEFAULT_BYTES;
    offload->n++;
    return 0;
}

/* A link that cannot be bounded is logged and no error: flows work, in longer bursts. */
static void bound_links(struct offload *offload, const struct agent_options *options) {
    for (size_t i = 0; i < options->n_links; i++) {
        const struct agent_link_option *link = &options->links[i];
        int error = link->capacity_bps ? bound_link(offload, link) : 0;
        if (error)
            log_warning("link %s: segmentation offload is not bounded: %s", link->id, strerror(-error));
    }
}

static void close_module(void *state) {
    struct offload *offload = state;
    if (!offload)
        return;
    for (size_t i = 0; i < offload->n; i++) {
        const struct netlink_interface *before = &offload->before[i];
        netlink_set_offload(&offload->netlink, before->ifindex, before->gso_max_bytes, before->gro_max_bytes);
    }
    netlink_close(&offload->netlink);
    free(offload);
}

static int open_module(struct agent *agent, void **ret_state) {
    const struct agent_options *options = agent_options(agent);
    struct offload *offload = options->rate_file ? calloc(1, sizeof(*offload)) : NULL;
    *ret_state = NULL;
    if (!offload)
        return options->rate_file ? -ENOMEM : 0;
    int error = netlink_open(&offload->netlink);
    if (error) {
        log_warning("segmentation offload is not bounded: %s", strerror(-error));
        free(offload);
        return 0;
    }
    bound_links(offload, options);
    *ret_state = offload;
    return 0;
}

const struct agent_module offload_module = {.name = "offload", .open = open_module, .close = close_module};
