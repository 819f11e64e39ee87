/* TUN devices, see tun.h. */
#include "tun.h"

#include <errno.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <linux/if_link.h>
#include <linux/if_tun.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

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

/* Larger ones the kernel cuts itself: a long frame would block its connection for the time that it takes. */
static int limit_large_packets(const char *name) {
    char buffer[MNL_SOCKET_BUFFER_SIZE];
    struct nlmsghdr *header = mnl_nlmsg_put_header(buffer);
    header->nlmsg_type = RTM_NEWLINK;
    header->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
    struct ifinfomsg *link = mnl_nlmsg_put_extra_header(header, sizeof(*link));
    link->ifi_index = (int)if_nametoindex(name);
    mnl_attr_put_u32(header, IFLA_GSO_MAX_SIZE, TUN_LARGE_PACKET_BYTES);
    struct mnl_socket *socket = mnl_socket_open(NETLINK_ROUTE);
    if (!socket)
        return -errno;
    int error = 0;
    ssize_t got = -1;
    if (mnl_socket_bind(socket, 0, MNL_SOCKET_AUTOPID) < 0 ||
        mnl_socket_sendto(socket, header, header->nlmsg_len) < 0 ||
        (got = mnl_socket_recvfrom(socket, buffer, sizeof(buffer))) < 0 ||
        mnl_cb_run(buffer, (size_t)got, 0, mnl_socket_get_portid(socket), NULL, NULL) < 0)
        error = -errno;
    mnl_socket_close(socket);
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
