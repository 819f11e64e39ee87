/* TUN devices, see tun.h. */
#include "tun.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <linux/if_link.h>
#include <linux/if_tun.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* Routes of IPv6 go by their priority; 1024 is what they have when nobody says another. */
#define ROUTE_PRIORITY_IPV6 1

static int failed(const char *name, const char *what, int descriptor) {
    int error = -errno;
    fprintf(stderr, "chart-tunnel: %s of device %s: %s\n", what, name, strerror(-error));
    if (descriptor >= 0)
        close(descriptor);
    return error;
}

static int bring_up(const char *name, unsigned mtu_bytes) {
    struct ifreq request;
    memset(&request, 0, sizeof(request));
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
    int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (control < 0)
        return failed(name, "control socket", -1);
    request.ifr_mtu = (int)mtu_bytes;
    if (ioctl(control, SIOCSIFMTU, &request) < 0)
        return failed(name, "MTU", control);
    if (ioctl(control, SIOCGIFFLAGS, &request) < 0)
        return failed(name, "reading flags", control);
    request.ifr_flags = (short)(request.ifr_flags | IFF_UP);
    if (ioctl(control, SIOCSIFFLAGS, &request) < 0)
        return failed(name, "bringing up", control);
    close(control);
    return 0;
}

/* Sends one request to the kernel and takes its answer: 0 or a negative errno. */
static int ask_kernel(char *buffer) {
    struct nlmsghdr *header = (struct nlmsghdr *)(void *)buffer;
    struct mnl_socket *socket = mnl_socket_open(NETLINK_ROUTE);
    if (!socket)
        return -errno;
    int error = 0;
    ssize_t got = -1;
    if (mnl_socket_bind(socket, 0, MNL_SOCKET_AUTOPID) < 0 ||
        mnl_socket_sendto(socket, header, header->nlmsg_len) < 0 ||
        (got = mnl_socket_recvfrom(socket, buffer, MNL_SOCKET_BUFFER_SIZE)) < 0 ||
        mnl_cb_run(buffer, (size_t)got, 0, mnl_socket_get_portid(socket), NULL, NULL) < 0)
        error = -errno;
    mnl_socket_close(socket);
    return error;
}

/* Larger ones the kernel cuts itself: a long frame would block its connection for the time that it takes. */
static int limit_large_packets(const char *name) {
    char buffer[MNL_SOCKET_BUFFER_SIZE];
    struct nlmsghdr *header = mnl_nlmsg_put_header(buffer);
    header->nlmsg_type = RTM_NEWLINK;
    header->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
    struct ifinfomsg *link = mnl_nlmsg_put_extra_header(header, sizeof(*link));
    link->ifi_index = (int)if_nametoindex(name);
    mnl_attr_put_u32(header, IFLA_GSO_MAX_SIZE, TUN_LARGE_PACKET_BYTES);
    return ask_kernel(buffer);
}

struct network {
    uint8_t address[16], bytes, bits;
};

static bool read_network(const char *text, struct network *ret) {
    char address[INET6_ADDRSTRLEN], *end;
    const char *slash = strchr(text, '/');
    struct network network = {.bytes = 4};
    if (!slash || slash - text >= INET6_ADDRSTRLEN || slash[1] < '0' || slash[1] > '9')
        return false;
    snprintf(address, sizeof(address), "%.*s", (int)(slash - text), text);
    if (inet_pton(AF_INET, address, network.address) != 1) {
        network.bytes = 16;
        if (inet_pton(AF_INET6, address, network.address) != 1)
            return false;
    }
    unsigned long bits = strtoul(slash + 1, &end, 10);
    if (*end || bits > 8UL * network.bytes)
        return false;
    network.bits = (uint8_t)bits;
    for (unsigned bit = network.bits; bit < 8U * network.bytes; bit++)
        if (network.address[bit / 8] & 0x80 >> bit % 8)
            return false;
    *ret = network;
    return true;
}

bool tun_prefix_good(const char *prefix) {
    struct network network;
    return read_network(prefix, &network);
}

int tun_route(const char *name, const char *prefix) {
    char buffer[MNL_SOCKET_BUFFER_SIZE];
    struct network network;
    if (!read_network(prefix, &network))
        return -EINVAL;
    struct nlmsghdr *header = mnl_nlmsg_put_header(buffer);
    header->nlmsg_type = RTM_NEWROUTE;
    /* Without NLM_F_REPLACE and NLM_F_APPEND: before those of IPv4 that are there already. */
    header->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE;
    struct rtmsg *route = mnl_nlmsg_put_extra_header(header, sizeof(*route));
    route->rtm_family = network.bytes == 4 ? AF_INET : AF_INET6;
    route->rtm_dst_len = network.bits;
    route->rtm_table = RT_TABLE_MAIN;
    route->rtm_protocol = RTPROT_STATIC;
    route->rtm_scope = network.bytes == 4 ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE;
    route->rtm_type = RTN_UNICAST;
    mnl_attr_put(header, RTA_DST, network.bytes, network.address);
    mnl_attr_put_u32(header, RTA_OIF, if_nametoindex(name));
    if (network.bytes == 16)
        mnl_attr_put_u32(header, RTA_PRIORITY, ROUTE_PRIORITY_IPV6);
    int error = ask_kernel(buffer);
    if (error < 0)
        fprintf(stderr, "chart-tunnel: route to %s through device %s: %s\n", prefix, name, strerror(-error));
    return error;
}

/* Without it the kernel does the work: slower, no worse. */
static void leave_work_undone(const char *name, int descriptor) {
    static const unsigned OFFLOADS = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
    int error = limit_large_packets(name);
    if (!error && ioctl(descriptor, TUNSETOFFLOAD, OFFLOADS) < 0)
        error = -errno;
    if (error < 0)
        fprintf(stderr, "chart-tunnel: device %s does every packet by itself: %s\n", name, strerror(-error));
}

int tun_open(const char *name, unsigned mtu_bytes, bool offload) {
    struct ifreq request;
    memset(&request, 0, sizeof(request));
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
    request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
    int descriptor = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0)
        return failed(name, "opening /dev/net/tun", -1);
    if (ioctl(descriptor, TUNSETIFF, &request) < 0)
        return failed(name, "creation", descriptor);
    int error = bring_up(name, mtu_bytes);
    if (error < 0) {
        close(descriptor);
        return error;
    }
    if (offload)
        leave_work_undone(name, descriptor);
    return descriptor;
}
