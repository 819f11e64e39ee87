/* One rtnetlink socket of the agent, on libmnl: requests with an answer, dumps, and what an interface is and counts. */
#pragma once

#include <libmnl/libmnl.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

struct netlink {
    struct mnl_socket *socket;
    uint32_t port;
    uint32_t sequence;
};

/* An interface. Counters as the kernel keeps them: octets include link_header_bytes per packet. */
struct netlink_interface {
    uint32_t ifindex;
    char name[IF_NAMESIZE];
    uint32_t mtu;
    bool up;
    /* 14 on Ethernet-like devices, 0 on TUN. */
    uint32_t link_header_bytes;
    uint32_t gso_max_bytes;
    uint32_t gro_max_bytes;
    uint64_t sent_packets;
    uint64_t sent_bytes;
    uint64_t dropped_packets;
};

int netlink_open(struct netlink *ret);
void netlink_close(struct netlink *netlink);

/* Send one request and wait for the kernel's word on it. 0 or the kernel's negative errno. */
int netlink_talk(struct netlink *netlink, struct nlmsghdr *request);

/* Send a dump or get request and call `row` for every message of the answer. 0 or a negative errno. */
int netlink_dump(struct netlink *netlink, struct nlmsghdr *request, mnl_cb_t row, void *context);

/* The interface by index, or by name when ifindex is 0. 0, -ENODEV, or another negative errno. */
int netlink_interface(struct netlink *netlink, uint32_t ifindex, const char *name, struct netlink_interface *ret);

/* Bound the size of segmentation-offload packets that go out and of receive-offload packets that come in, octets. */
int netlink_set_offload(struct netlink *netlink, uint32_t ifindex, uint32_t gso_max_bytes, uint32_t gro_max_bytes);
