/* What the agent changes in the settings of its node, and only while it enforces: the greatest TCP buffers, and the
 * bounds on segmentation offload of its links; see node.h.
 *
 * Data behind a lost packet waits in TCP's buffers: 100 Mb/s over 200 ms at 10 % loss needs some 30 MB at both ends,
 * more than a kernel's default allows. One packet of the sender's stack is at most a millisecond of the link's time, or
 * flows with short RTTs send bursts of 64 KB that stand in the bottleneck for 5 ms at 100 Mb/s. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "node/node.h"

#define WANTED_BYTES (64ul << 20)

static const char receive_limit[] = "net/ipv4/tcp_rmem", send_limit[] = "net/ipv4/tcp_wmem";

/* Returns the limit in force afterwards, octets; 0 when it cannot be read. */
static unsigned long raise_limit(struct changes *changes, const char *name) {
    char present[CHANGES_VALUE_LEN], wanted[CHANGES_VALUE_LEN];
    unsigned long least, first, most;
    int error = changes_read(changes, CHANGE_SYSCTL, name, present);

    if (error || sscanf(present, "%lu %lu %lu", &least, &first, &most) != 3) {
        log_warning("cannot read %s: receive windows are left to the kernel", name);
        return 0;
    }
    if (most >= WANTED_BYTES)
        return most;
    snprintf(wanted, sizeof(wanted), "%lu %lu %lu", least, first, WANTED_BYTES);
    error = changes_set(changes, CHANGE_SYSCTL, name, wanted);
    if (!error)
        return WANTED_BYTES;
    log_warning("cannot raise %s to %lu octets (%s): long lossy paths will stay below their rate", name, WANTED_BYTES,
                strerror(-error));
    return most;
}

void node_settings_open(struct node *node) {
    size_t left = changes_open(node->options->state_dir, &node->netlink, &node->changes);

    if (left)
        log_warning("%zu settings of this node that an agent left when it was killed are as they were before", left);
}

void node_settings_follow(struct node *node) {
    bool enforce = datapath_mode(node->datapath) == DECIDE_MODE_ENFORCE;
    unsigned long receive_bytes = 0;

    if (enforce == node->raised)
        return;
    node->raised = enforce;
    if (enforce) {
        raise_limit(&node->changes, send_limit);
        receive_bytes = raise_limit(&node->changes, receive_limit);
    } else {
        changes_undo(&node->changes, CHANGE_SYSCTL, receive_limit);
        changes_undo(&node->changes, CHANGE_SYSCTL, send_limit);
    }
    int error = datapath_set_receive_window(node->datapath, (uint32_t)(receive_bytes / 2));
    if (error)
        log_warning("the receive window of flows cannot be set: %s", strerror(-error));
}

void node_settings_close(struct node *node) {
    changes_undo_all(&node->changes);
}

void node_settings_bound(struct node *node, struct node_link *link) {
    const struct netlink_interface *interface = &link->interface;
    uint64_t capacity_bps = node_link_capacity_bps(link);
    struct netlink_offload sizes = interface->offload;
    char value[CHANGES_VALUE_LEN];
    struct htb_plan plan;

    if (link->bounded_bps == capacity_bps)
        return;
    link->bounded_bps = capacity_bps;
    htb_make_plan(capacity_bps, 0, interface->mtu, interface->link_header_bytes, &plan);
    sizes.gso_max_bytes = sizes.gro_max_bytes = plan.gso_max_bytes;
    if (sizes.gso_ipv4_max_bytes)
        sizes.gso_ipv4_max_bytes = sizes.gro_ipv4_max_bytes = plan.gso_max_bytes;
    netlink_offload_text(&sizes, value, sizeof(value));
    int error = changes_set(&node->changes, CHANGE_OFFLOAD, link->interface_name, value);
    /* Flows work, in longer bursts. */
    if (error)
        log_warning("link %s: segmentation offload is not bounded: %s", link->id, strerror(-error));
}

void node_settings_unbound(struct node *node, struct node_link *link) {
    if (link->bounded_bps)
        changes_undo(&node->changes, CHANGE_OFFLOAD, link->interface_name);
    link->bounded_bps = 0;
}
