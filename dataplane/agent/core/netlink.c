/* rtnetlink on libmnl; see netlink.h. */
#include "core/netlink.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/if_arp.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_BYTES 65536
#define ETHERNET_HEADER_BYTES 14
#define BITS_PER_MEGABIT 1000000ull
/* Attributes of Linux 6.3, which the headers of older systems do not name. */
#define GSO_IPV4_MAX_SIZE 63
#define GRO_IPV4_MAX_SIZE 64

int netlink_open(struct netlink *ret) {
    struct mnl_socket *socket = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);

    if (!socket)
        return -errno;
    if (mnl_socket_bind(socket, 0, MNL_SOCKET_AUTOPID) < 0) {
        int err = -errno;

        mnl_socket_close(socket);
        return err;
    }
    *ret = (struct netlink){.socket = socket, .port = mnl_socket_get_portid(socket), .sequence = (uint32_t)time(NULL)};
    return 0;
}

void netlink_close(struct netlink *netlink) {
    if (netlink->socket)
        mnl_socket_close(netlink->socket);
    netlink->socket = NULL;
}

static int exchange(struct netlink *netlink, struct nlmsghdr *request, mnl_cb_t row, void *context) {
    char answer[ANSWER_BYTES];
    ssize_t length;
    int more;

    request->nlmsg_seq = ++netlink->sequence;
    if (mnl_socket_sendto(netlink->socket, request, request->nlmsg_len) < 0)
        return -errno;
    do {
        length = mnl_socket_recvfrom(netlink->socket, answer, sizeof(answer));
        if (length < 0) {
            if (errno == EINTR) {
                more = MNL_CB_OK;
                continue;
            }
            return -errno;
        }
        more = mnl_cb_run(answer, length, request->nlmsg_seq, netlink->port, row, context);
        if (more < 0) {
            /* Leftovers of an earlier exchange carry another sequence number. */
            if (errno == EPROTO) {
                more = MNL_CB_OK;
                continue;
            }
            return -errno;
        }
    } while (more > MNL_CB_STOP);
    return 0;
}

int netlink_talk(struct netlink *netlink, struct nlmsghdr *request) {
    request->nlmsg_flags |= NLM_F_REQUEST | NLM_F_ACK;
    return exchange(netlink, request, NULL, NULL);
}

int netlink_dump(struct netlink *netlink, struct nlmsghdr *request, mnl_cb_t row, void *context) {
    request->nlmsg_flags |= NLM_F_REQUEST;
    if (!(request->nlmsg_flags & NLM_F_DUMP))
        request->nlmsg_flags |= NLM_F_ACK;
    return exchange(netlink, request, row, context);
}

/* Whether a device that the kernel made passes on the speed of the devices below it. */
static int read_kind(const struct nlattr *attribute, void *context) {
    struct netlink_interface *interface = context;

    if (mnl_attr_get_type(attribute) == IFLA_INFO_KIND) {
        const char *kind = mnl_attr_get_str(attribute);

        interface->has_speed = strcmp(kind, "vlan") == 0 || strcmp(kind, "bond") == 0;
    }
    return MNL_CB_OK;
}

static int read_attribute(const struct nlattr *attribute, void *context) {
    struct netlink_interface *interface = context;

    switch (mnl_attr_get_type(attribute)) {
    case IFLA_IFNAME:
        snprintf(interface->name, sizeof(interface->name), "%s", mnl_attr_get_str(attribute));
        break;
    case IFLA_MTU:
        interface->mtu = mnl_attr_get_u32(attribute);
        break;
    case IFLA_GSO_MAX_SIZE:
        interface->offload.gso_max_bytes = mnl_attr_get_u32(attribute);
        break;
    case IFLA_GRO_MAX_SIZE:
        interface->offload.gro_max_bytes = mnl_attr_get_u32(attribute);
        break;
    case GSO_IPV4_MAX_SIZE:
        interface->offload.gso_ipv4_max_bytes = mnl_attr_get_u32(attribute);
        break;
    case GRO_IPV4_MAX_SIZE:
        interface->offload.gro_ipv4_max_bytes = mnl_attr_get_u32(attribute);
        break;
    case IFLA_PARENT_DEV_NAME:
        interface->has_speed = true;
        break;
    case IFLA_LINKINFO:
        mnl_attr_parse_nested(attribute, read_kind, interface);
        break;
    case IFLA_STATS64: {
        struct rtnl_link_stats64 stats = {0};
        size_t length = mnl_attr_get_payload_len(attribute);

        memcpy(&stats, mnl_attr_get_payload(attribute), length < sizeof(stats) ? length : sizeof(stats));
        interface->sent_packets = stats.tx_packets;
        interface->sent_bytes = stats.tx_bytes;
        interface->dropped_packets = stats.tx_dropped;
        break;
    }
    default:
        break;
    }
    return MNL_CB_OK;
}

static int read_interface(const struct nlmsghdr *header, void *context) {
    const struct ifinfomsg *message = mnl_nlmsg_get_payload(header);
    struct netlink_interface *interface = context;

    interface->ifindex = (uint32_t)message->ifi_index;
    interface->up = (message->ifi_flags & IFF_UP) && (message->ifi_flags & IFF_RUNNING);
    interface->link_header_bytes = message->ifi_type == ARPHRD_ETHER ? ETHERNET_HEADER_BYTES : 0;
    mnl_attr_parse(header, sizeof(*message), read_attribute, interface);
    return MNL_CB_OK;
}

int netlink_interface(struct netlink *netlink, uint32_t ifindex, const char *name, struct netlink_interface *ret) {
    char buffer[256];
    struct nlmsghdr *request = mnl_nlmsg_put_header(buffer);
    struct netlink_interface interface = {0};
    struct ifinfomsg *message;
    int err;

    request->nlmsg_type = RTM_GETLINK;
    message = mnl_nlmsg_put_extra_header(request, sizeof(*message));
    message->ifi_index = (int)ifindex;
    if (!ifindex) {
        if (strlen(name) >= IF_NAMESIZE)
            return -ENODEV;
        mnl_attr_put_strz(request, IFLA_IFNAME, name);
    }
    err = netlink_dump(netlink, request, read_interface, &interface);
    if (err)
        return err;
    *ret = interface;
    return 0;
}

int netlink_set_offload(struct netlink *netlink, uint32_t ifindex, const struct netlink_offload *sizes) {
    char buffer[256];
    struct nlmsghdr *request = mnl_nlmsg_put_header(buffer);
    struct ifinfomsg *message;

    request->nlmsg_type = RTM_NEWLINK;
    message = mnl_nlmsg_put_extra_header(request, sizeof(*message));
    message->ifi_index = (int)ifindex;
    mnl_attr_put_u32(request, IFLA_GSO_MAX_SIZE, sizes->gso_max_bytes);
    mnl_attr_put_u32(request, IFLA_GRO_MAX_SIZE, sizes->gro_max_bytes);
    if (sizes->gso_ipv4_max_bytes)
        mnl_attr_put_u32(request, GSO_IPV4_MAX_SIZE, sizes->gso_ipv4_max_bytes);
    if (sizes->gro_ipv4_max_bytes)
        mnl_attr_put_u32(request, GRO_IPV4_MAX_SIZE, sizes->gro_ipv4_max_bytes);
    return netlink_talk(netlink, request);
}

void netlink_offload_text(const struct netlink_offload *sizes, char *ret, size_t size) {
    snprintf(ret, size, "%u %u %u %u", sizes->gso_max_bytes, sizes->gro_max_bytes, sizes->gso_ipv4_max_bytes,
             sizes->gro_ipv4_max_bytes);
}

uint64_t netlink_speed_bps(const struct netlink_interface *interface) {
    struct ethtool_cmd settings = {.cmd = ETHTOOL_GSET};
    struct ifreq request = {.ifr_data = (char *)&settings};
    uint32_t megabits;
    int fd;

    /* A TUN device says 10 Mb/s and a veth 10 Gb/s, whatever they carry. */
    if (!interface->has_speed)
        return 0;
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    memcpy(request.ifr_name, interface->name, sizeof(request.ifr_name));
    megabits = ioctl(fd, SIOCETHTOOL, &request) ? (uint32_t)SPEED_UNKNOWN : ethtool_cmd_speed(&settings);
    close(fd);
    return megabits == (uint32_t)SPEED_UNKNOWN ? 0 : megabits * BITS_PER_MEGABIT;
}
