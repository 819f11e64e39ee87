/* See sockets.h. */
#define _GNU_SOURCE
#include "sockets.h"

#include <errno.h>
#include <linux/in6.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 4096
#define KEEPALIVE_PROBES 4
#define KEEPALIVE_INTERVAL_S 15
#define US_PER_S 1000000u

static int switch_on(int descriptor, int level, int name) {
    int one = 1;
    return setsockopt(descriptor, level, name, &one, sizeof(one)) < 0 ? -errno : 0;
}

static int make_transparent(int descriptor, int family) {
    return family == AF_INET6 ? switch_on(descriptor, IPPROTO_IPV6, IPV6_TRANSPARENT)
                              : switch_on(descriptor, IPPROTO_IP, IP_TRANSPARENT);
}

static int set_up_listener(const struct options *options, int descriptor, int family) {
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(options->port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(options->port)};
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    v6.sin6_addr = in6addr_loopback;
    const struct sockaddr *address = family == AF_INET6 ? (const struct sockaddr *)&v6 : (const struct sockaddr *)&v4;
    socklen_t bytes = family == AF_INET6 ? sizeof(v6) : sizeof(v4);
    int error = make_transparent(descriptor, family);
    if (!error && family == AF_INET6)
        error = switch_on(descriptor, IPPROTO_IPV6, IPV6_V6ONLY);
    if (!error)
        error = switch_on(descriptor, SOL_SOCKET, SO_REUSEADDR);
    if (!error && (bind(descriptor, address, bytes) < 0 || listen(descriptor, BACKLOG) < 0))
        error = -errno;
    return error;
}

int sockets_listen(const struct options *options, int family) {
    const char *address = family == AF_INET6 ? "[::1]" : "127.0.0.1";
    int descriptor = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    int error = descriptor < 0 ? -errno : set_up_listener(options, descriptor, family);
    if (!error)
        return descriptor;
    const char *reason = strerror(-error), *hint = "";
    if (error == -EADDRINUSE)
        reason = "the port is taken", hint = "; is another chart-proxy running? --port takes another one";
    else if (family == AF_INET6)
        hint = "; --no-ipv6 goes without IPv6";
    fprintf(stderr, "chart-proxy: cannot listen at %s:%u: %s%s\n", address, options->port, reason, hint);
    if (descriptor >= 0)
        close(descriptor);
    return error;
}

int sockets_tune(const struct options *options, int descriptor) {
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    int unsent = (int)options->buffer_bytes, idle_s = (int)(options->keepalive_us / US_PER_S);
    int interval_s = KEEPALIVE_INTERVAL_S, probes = KEEPALIVE_PROBES;
    int error = switch_on(descriptor, IPPROTO_TCP, TCP_NODELAY);
    error = error ? error : switch_on(descriptor, SOL_SOCKET, SO_KEEPALIVE);
    /* An urgent octet stays where it is in the stream, rather than being lost. */
    error = error ? error : switch_on(descriptor, SOL_SOCKET, SO_OOBINLINE);
    if (!error && (setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) < 0 ||
                   setsockopt(descriptor, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent)) < 0 ||
                   setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s)) < 0 ||
                   setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s)) < 0 ||
                   setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes)) < 0))
        error = -errno;
    return error;
}

static int set_up_onward(const struct options *options, int descriptor, const struct flow *flow, uint8_t dscp) {
    int class = dscp << 2;
    int error = make_transparent(descriptor, flow->family);
    error = error ? error : switch_on(descriptor, SOL_SOCKET, SO_REUSEADDR);
    error = error ? error : sockets_tune(options, descriptor);
    if (!error && dscp &&
        (flow->family == AF_INET6 ? setsockopt(descriptor, IPPROTO_IPV6, IPV6_TCLASS, &class, sizeof(class))
                                  : setsockopt(descriptor, IPPROTO_IP, IP_TOS, &class, sizeof(class))) < 0)
        error = -errno;
    return error;
}

static int connect_from(const struct options *options, const struct flow *flow, uint8_t dscp, bool own_port) {
    struct sockaddr_storage client, server;
    struct flow from = *flow;
    if (!own_port)
        from.client_port = 0;
    socklen_t bytes = flow_address(&from, 0, &client);
    flow_address(flow, 1, &server);
    int descriptor = socket(flow->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    if (descriptor < 0)
        return -errno;
    int error = set_up_onward(options, descriptor, flow, dscp);
    if (!error && !own_port)
        error = switch_on(descriptor, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT);
    if (!error && (bind(descriptor, (const struct sockaddr *)&client, bytes) < 0 ||
                   (connect(descriptor, (const struct sockaddr *)&server, bytes) < 0 && errno != EINPROGRESS)))
        error = -errno;
    if (!error)
        return descriptor;
    close(descriptor);
    return error;
}

int sockets_connect(const struct options *options, const struct flow *flow, uint8_t dscp) {
    int descriptor = connect_from(options, flow, dscp, !options->new_ports);
    /* The last connection between the same ports has not been forgotten yet. */
    if (!options->new_ports && (descriptor == -EADDRINUSE || descriptor == -EADDRNOTAVAIL))
        descriptor = connect_from(options, flow, dscp, false);
    return descriptor;
}

int sockets_error(int descriptor) {
    int error = 0;
    socklen_t bytes = sizeof(error);
    return getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &bytes) < 0 ? errno : error;
}

int sockets_connected(int descriptor) {
    struct sockaddr_storage peer;
    socklen_t bytes = sizeof(peer);
    int error = sockets_error(descriptor);
    if (error)
        return -error;
    if (getpeername(descriptor, (struct sockaddr *)&peer, &bytes) == 0)
        return 1;
    return errno == ENOTCONN ? 0 : -errno;
}

int sockets_all_arrived(int descriptor) {
    int unacknowledged = 0;
    return ioctl(descriptor, SIOCOUTQ, &unacknowledged) < 0 || unacknowledged == 0;
}

void sockets_close(int descriptor, int in_order) {
    const struct linger at_leisure = {0};
    if (descriptor < 0)
        return;
    if (in_order)
        (void)setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &at_leisure, sizeof(at_leisure));
    close(descriptor);
}
