/* The queue of every CHART link: one HTB that owns the link's rate and gives explicit-rate flows, legacy flows and
 * background their places (signalling.md; the paper's "queueing in network elements", Brassil et al., The CHART System,
 * section 5).
 *
 *   link, 0.99 of capacity, so that the queue stands here and not in the next element
 *     expedited      priority 0   signals and EF: served first whenever it has something
 *     explicit rate  priority 1   a floor of 1 %, then everything that expedited and legacy's share leave
 *     legacy         priority 2   its share guaranteed (5 % at least), plus what the two above do not use; a queue of
 * its own of 50 ms background     priority 3   a floor of 1 %, then the rest
 *
 * HTB serves a class within its own rate before any class that borrows: so expedited has a large rate of its own and
 * never waits for a token, while explicit-rate flows borrow. HTB counts the Ethernet header, CHART does not: rates are
 * scaled for full packets. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/netlink.h"
#include "lib/htb/htb_classes.h"

#define HTB_CLASSES 4
/* No offload packet is greater. */
#define HTB_GSO_MAX_BYTES 65536
/* Fastest change of the legacy share of one link. */
#define HTB_CHANGE_INTERVAL_US 500000ll

enum htb_class { HTB_EXPEDITED, HTB_EXPLICIT_RATE, HTB_LEGACY, HTB_BACKGROUND };

struct htb_class_plan {
    uint32_t minor;
    uint32_t priority;
    /* Octets per second as HTB counts them. */
    uint64_t rate_bytes_per_s;
    uint64_t ceil_bytes_per_s;
    uint32_t queue_bytes;
};

struct htb_plan {
    uint64_t link_bytes_per_s;
    uint32_t burst_bytes;
    uint32_t quantum_bytes;
    /* Greatest offload packet: 1 ms of the link's time, at least two packets. */
    uint32_t gso_max_bytes;
    struct htb_class_plan classes[HTB_CLASSES];
};

/* What a class counted since it was made; octets with link headers. */
struct htb_class_stats {
    uint64_t bytes;
    uint64_t packets;
    uint64_t dropped_packets;
    uint64_t queue_bytes;
};

struct htb_stats {
    struct htb_class_stats classes[HTB_CLASSES];
};

/* The state the agent keeps of one link's queue. */
struct htb_link {
    bool installed;
    uint32_t ifindex;
    uint32_t mtu;
    uint32_t link_header_bytes;
    uint64_t capacity_bps;
    uint64_t legacy_share_bps;
    int64_t changed_at_us;
};

/* Pure: the classes for a link. legacy_share_bps 0: not known, take the part that admission never commits. */
void htb_make_plan(uint64_t capacity_bps, uint64_t legacy_share_bps, uint32_t mtu, uint32_t link_header_bytes,
                   struct htb_plan *ret);

/* Make or adopt the HTB of an interface and bring it to the plan. 0 or a negative errno (-EBUSY: somebody else's root
 * qdisc). */
int htb_install(struct netlink *netlink, const struct netlink_interface *interface, uint64_t capacity_bps,
                uint64_t legacy_share_bps, int64_t now_us, struct htb_link *link);

/* Follow the legacy share: changes below 2 % of the link or within HTB_CHANGE_INTERVAL_US wait. 1 changed, 0 not, or
 * negative. */
int htb_follow(struct netlink *netlink, struct htb_link *link, uint64_t legacy_share_bps, int64_t now_us);

/* Remove our HTB (only ours). 0 also when there is none. */
int htb_remove(struct netlink *netlink, struct htb_link *link);

/* Remove what an agent that was killed left on an interface. 1 removed, 0 nothing there, or negative. */
int htb_cleanup(struct netlink *netlink, uint32_t ifindex);

int htb_read(struct netlink *netlink, uint32_t ifindex, struct htb_stats *ret);
