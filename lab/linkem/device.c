/* Opening a TUN device inside a namespace, see device.h. */
#define _GNU_SOURCE
#include "device.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/sockios.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "direction.h"

static int failed(const char *what, const char *namespace_name, const char *interface_name) {
    int error = errno;
    fprintf(stderr, "linkem: %s of %s in namespace %s failed: %s\n", what, interface_name, namespace_name,
            strerror(error));
    return -error;
}

static int enter(const char *namespace_name) {
    char path[256];
    if (strcmp(namespace_name, "-") == 0)
        return 0;
    snprintf(path, sizeof(path), "/run/netns/%s", namespace_name);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return -errno;
    int error = setns(descriptor, CLONE_NEWNET) < 0 ? -errno : 0;
    close(descriptor);
    return error;
}

/* Offloads would merge packets before or after the link; those a TUN device does not have answer EOPNOTSUPP. */
static int set_offloads_off(int control, const char *interface_name) {
    static const __u32 commands[] = {ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO};
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        struct ethtool_value value = {.cmd = commands[i], .data = 0};
        struct ifreq request = {.ifr_data = (void *)&value};
        snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", interface_name);
        if (ioctl(control, SIOCETHTOOL, &request) < 0 && errno != EOPNOTSUPP)
            return -errno;
    }
    return 0;
}

static int configure(const char *interface_name, int mtu, int queue_packets) {
    struct ifreq request = {0};
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", interface_name);
    int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (control < 0)
        return -errno;
    int error = 0;
    request.ifr_mtu = mtu;
    if (ioctl(control, SIOCSIFMTU, &request) < 0)
        error = -errno;
    request.ifr_qlen = queue_packets;
    if (!error && ioctl(control, SIOCSIFTXQLEN, &request) < 0)
        error = -errno;
    if (!error)
        error = set_offloads_off(control, interface_name);
    close(control);
    errno = -error;
    return error;
}

static int create(const char *namespace_name, const char *interface_name, int mtu, int queue_packets) {
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    if (mtu > PACKET_CAPACITY_BYTES || strlen(interface_name) >= sizeof(request.ifr_name)) {
        errno = EINVAL;
        return failed("creation (name up to 15 characters, MTU up to 2048)", namespace_name, interface_name);
    }
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", interface_name);
    int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (device < 0)
        return failed("opening /dev/net/tun for the device", namespace_name, interface_name);
    int error = 0;
    if (ioctl(device, TUNSETIFF, &request) < 0)
        error = failed("creation", namespace_name, interface_name);
    else if (ioctl(device, TUNSETOFFLOAD, 0) < 0)
        error = failed("switching off the offloads", namespace_name, interface_name);
    else if (configure(interface_name, mtu, queue_packets) < 0)
        error = failed("configuration", namespace_name, interface_name);
    if (error) {
        close(device);
        return error;
    }
    return device;
}

int device_open(const char *namespace_name, const char *interface_name, int mtu, int queue_packets) {
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home < 0)
        return failed("finding the own namespace before the creation", namespace_name, interface_name);
    int result = enter(namespace_name);
    if (result < 0) {
        errno = -result;
        result = failed("entering the namespace", namespace_name, interface_name);
    } else {
        result = create(namespace_name, interface_name, mtu, queue_packets);
    }
    if (setns(home, CLONE_NEWNET) < 0)
        result = failed("returning from the namespace", namespace_name, interface_name);
    close(home);
    return result;
}
