/* See overlay_device.h. */
#include "paths/overlay_device.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "overlay_maps.h"

#define REQUEST_BYTES 512
#define KIND "vxlan"
/* Sources of packets lie behind other interfaces: strict checks of the way back would drop them (loose: 2), and loose
 * ones what comes by an interface without any address. Of link scope, so that nothing is sent from it. */
#define ADDRESS "169.254.84.67"
#define ADDRESS_BITS 32
#define RP_FILTER "/proc/sys/net/ipv4/conf/" CHART_OVERLAY_DEVICE "/rp_filter"

static struct nlmsghdr *begin(char *buffer, uint16_t type, uint16_t flags, uint32_t ifindex, bool up) {
    struct nlmsghdr *request = mnl_nlmsg_put_header(buffer);
    struct ifinfomsg *message = mnl_nlmsg_put_extra_header(request, sizeof(*message));

    request->nlmsg_type = type;
    request->nlmsg_flags = flags;
    message->ifi_family = AF_UNSPEC;
    message->ifi_index = (int)ifindex;
    if (up) {
        /* The program writes the link addresses: nobody is to be asked for them. */
        message->ifi_flags = IFF_UP | IFF_NOARP;
        message->ifi_change = IFF_UP | IFF_NOARP;
    }
    return request;
}

static int read_info(const struct nlattr *attribute, void *context) {
    bool *ours = context;

    if (mnl_attr_get_type(attribute) == IFLA_INFO_KIND)
        *ours = strcmp(mnl_attr_get_str(attribute), KIND) == 0;
    return MNL_CB_OK;
}

static int read_attribute(const struct nlattr *attribute, void *context) {
    return mnl_attr_get_type(attribute) == IFLA_LINKINFO ? mnl_attr_parse_nested(attribute, read_info, context)
                                                         : MNL_CB_OK;
}

static int read_link(const struct nlmsghdr *header, void *context) {
    return mnl_attr_parse(header, sizeof(struct ifinfomsg), read_attribute, context);
}

static bool is_vxlan(struct netlink *netlink, uint32_t ifindex) {
    char buffer[REQUEST_BYTES];
    bool ours = false;

    (void)netlink_dump(netlink, begin(buffer, RTM_GETLINK, 0, ifindex, false), read_link, &ours);
    return ours;
}

int overlay_device_remove(struct netlink *netlink) {
    uint32_t ifindex = if_nametoindex(CHART_OVERLAY_DEVICE);
    char buffer[REQUEST_BYTES];

    if (!ifindex)
        return 0;
    if (!is_vxlan(netlink, ifindex))
        return -EEXIST;
    return netlink_talk(netlink, begin(buffer, RTM_DELLINK, 0, ifindex, false));
}

static void loosen_filter(void) {
    int fd = open(RP_FILTER, O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, "2", 1) != 1)
        log_warning(RP_FILTER " cannot be set to 2: %s; a host with strict checks drops what leaves the overlay here",
                    strerror(errno));
    if (fd >= 0)
        close(fd);
}

static int add_address(struct netlink *netlink, uint32_t ifindex) {
    char buffer[REQUEST_BYTES];
    struct nlmsghdr *request = mnl_nlmsg_put_header(buffer);
    struct ifaddrmsg *message = mnl_nlmsg_put_extra_header(request, sizeof(*message));
    struct in_addr address;

    request->nlmsg_type = RTM_NEWADDR;
    request->nlmsg_flags = NLM_F_CREATE | NLM_F_REPLACE;
    message->ifa_family = AF_INET;
    message->ifa_prefixlen = ADDRESS_BITS;
    message->ifa_scope = RT_SCOPE_LINK;
    message->ifa_index = ifindex;
    inet_pton(AF_INET, ADDRESS, &address);
    mnl_attr_put(request, IFA_LOCAL, sizeof(address), &address);
    return netlink_talk(netlink, request);
}

/* `quiet`: no IPv6 address of its own, and so nothing that the kernel says to neighbours by itself. */
static int create(struct netlink *netlink, uint16_t port, uint32_t mtu, bool quiet) {
    char buffer[REQUEST_BYTES];
    struct nlmsghdr *request = begin(buffer, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, 0, true);
    struct nlattr *outer, *inner;

    mnl_attr_put_strz(request, IFLA_IFNAME, CHART_OVERLAY_DEVICE);
    mnl_attr_put_u32(request, IFLA_MTU, mtu);
    outer = mnl_attr_nest_start(request, IFLA_LINKINFO);
    mnl_attr_put_strz(request, IFLA_INFO_KIND, KIND);
    inner = mnl_attr_nest_start(request, IFLA_INFO_DATA);
    mnl_attr_put_u8(request, IFLA_VXLAN_COLLECT_METADATA, 1);
    mnl_attr_put_u8(request, IFLA_VXLAN_LEARNING, 0);
    mnl_attr_put_u16(request, IFLA_VXLAN_PORT, htons(port));
    mnl_attr_nest_end(request, inner);
    mnl_attr_nest_end(request, outer);
    if (quiet) {
        outer = mnl_attr_nest_start(request, IFLA_AF_SPEC);
        inner = mnl_attr_nest_start(request, AF_INET6);
        mnl_attr_put_u8(request, IFLA_INET6_ADDR_GEN_MODE, IN6_ADDR_GEN_MODE_NONE);
        mnl_attr_nest_end(request, inner);
        mnl_attr_nest_end(request, outer);
    }
    return netlink_talk(netlink, request);
}

int overlay_device_make(struct netlink *netlink, uint16_t port, uint32_t mtu, uint32_t *ret_ifindex) {
    int error = overlay_device_remove(netlink);

    error = error ? error : create(netlink, port, mtu, true);
    /* A kernel without IPv6 does not know the attribute. */
    if (error == -EAFNOSUPPORT)
        error = create(netlink, port, mtu, false);
    if (error)
        return error;
    *ret_ifindex = if_nametoindex(CHART_OVERLAY_DEVICE);
    loosen_filter();
    return *ret_ifindex ? add_address(netlink, *ret_ifindex) : -ENODEV;
}

int overlay_device_set_mtu(struct netlink *netlink, uint32_t ifindex, uint32_t mtu) {
    char buffer[REQUEST_BYTES];
    struct nlmsghdr *request = begin(buffer, RTM_NEWLINK, 0, ifindex, false);

    mnl_attr_put_u32(request, IFLA_MTU, mtu);
    return netlink_talk(netlink, request);
}
