/* TUN devices, see tun.h. */
#include "tun.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
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

int tun_open(const char *name, unsigned mtu_bytes) {
    struct ifreq request;
    memset(&request, 0, sizeof(request));
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
    request.ifr_flags = IFF_TUN | IFF_NO_PI;
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
    return descriptor;
}
