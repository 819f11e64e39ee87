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

/* Bounds on the size of segmentation-offload packets that go out and of receive-offload packets that come in, octets;
 * those of IPv4 are 0 on kernels that have none of their own (before 6.3). */
struct netlink_offload {
    uint32_t gso_max_bytes;
    uint32_t gro_max_bytes;
    uint32_t gso_ipv4_max_bytes;
    uint32_t gro_ipv4_max_bytes;
};

/* An interface. Counters as the kernel keeps them: octets include link_header_bytes per packet. */
struct netlink_interface {
    uint32_t ifindex;
    char name[IF_NAMESIZE];
    uint32_t mtu;
    bool up;
    /* 14 on Ethernet-like devices, 0 on TUN. */
    uint32_t link_header_bytes;
    struct netlink_offload offload;
    /* A device of its own (PCI, virtio), or one that stands for such devices (VLAN, bond): its speed is true. */
    bool has_speed;
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

int netlink_set_offload(struct netlink *netlink, uint32_t ifindex, const struct netlink_offload *sizes);
/* The four sizes with spaces between. */
void netlink_offload_text(const struct netlink_offload *sizes, char *ret, size_t size);

/* What the interface's driver says of its speed, bits per second; 0: it says nothing, or nothing true. */
uint64_t netlink_speed_bps(const struct netlink_interface *interface);
