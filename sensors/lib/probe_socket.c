/* Probe sockets with kernel timestamps; see probe_socket.h. */
#include "probe_socket.h"

#include <errno.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* After the C library's headers, which define the same structures. */
#include <linux/errqueue.h>
#include <linux/icmp.h>
#include <linux/net_tstamp.h>

#define NS_PER_S 1000000000LL

static int enable(int socket, int level, int name, int value) {
    return setsockopt(socket, level, name, &value, sizeof(value)) < 0 ? -errno : 0;
}

static int64_t to_ns(const struct timespec *time) {
    return (int64_t)time->tv_sec * NS_PER_S + time->tv_nsec;
}

static int64_t wall_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return to_ns(&now);
}

/* CAP_NET_RAW where the process may have it and has it not yet, as by a file whose capability is permitted alone: with
 * an effective one the program would not even start, and say why, where its container has not the capability. */
static void take_raw_capability(void) {
    const cap_value_t raw = CAP_NET_RAW;
    cap_t capabilities = cap_get_proc();

    if (capabilities != NULL && cap_set_flag(capabilities, CAP_EFFECTIVE, 1, &raw, CAP_SET) == 0)
        (void)cap_set_proc(capabilities); /* what it lacks, the socket says */
    cap_free(capabilities);
}

/* Options common to all probe sockets; those that fail only cost precision or buffer and are no reason to stop. */
static void prepare(int descriptor, int family, bool departures) {
    if (enable(descriptor, SOL_SOCKET, SO_RCVBUFFORCE, PROBE_SOCKET_RECEIVE_BYTES) < 0)
        (void)enable(descriptor, SOL_SOCKET, SO_RCVBUF, PROBE_SOCKET_RECEIVE_BYTES);
    (void)enable(descriptor, SOL_SOCKET, SO_TIMESTAMPNS, 1);
    if (departures) {
        (void)enable(descriptor, SOL_SOCKET, SO_TIMESTAMPING,
                     SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_ID |
                         SOF_TIMESTAMPING_OPT_TSONLY);
        if (family == AF_INET6)
            (void)enable(descriptor, IPPROTO_IPV6, IPV6_RECVERR, 1);
        else
            (void)enable(descriptor, IPPROTO_IP, IP_RECVERR, 1);
    }
}

int probe_socket_listen(const union address *address, struct failure *failure) {
    char text[ADDRESS_TEXT_BYTES];
    int family = address->any.sa_family;
    int descriptor = socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int error;

    if (descriptor < 0)
        return failure_from_errno(failure, errno, "UDP socket");
    prepare(descriptor, family, false);
    if (family == AF_INET6) {
        (void)enable(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, 1);
        error = enable(descriptor, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
    } else {
        error = enable(descriptor, IPPROTO_IP, IP_PKTINFO, 1);
    }
    if (error == 0 && bind(descriptor, &address->any, address_length(address)) < 0)
        error = -errno;
    if (error < 0) {
        close(descriptor);
        return failure_from_errno(failure, -error, address_text(address, text, sizeof(text)));
    }
    return descriptor;
}

static int connect_to(int descriptor, const union address *address, struct failure *failure) {
    char text[ADDRESS_TEXT_BYTES];

    if (connect(descriptor, &address->any, address_length(address)) == 0)
        return descriptor;
    failure_from_errno(failure, errno, address_text(address, text, sizeof(text)));
    close(descriptor);
    return -1;
}

int probe_socket_connect(const union address *address, union address *ret_local, struct failure *failure) {
    int descriptor = socket(address->any.sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    socklen_t length = sizeof(*ret_local);

    if (descriptor < 0)
        return failure_from_errno(failure, errno, "UDP socket");
    prepare(descriptor, address->any.sa_family, true);
    if (connect_to(descriptor, address, failure) < 0)
        return -1;
    memset(ret_local, 0, sizeof(*ret_local));
    if (getsockname(descriptor, &ret_local->any, &length) < 0) {
        close(descriptor);
        return failure_from_errno(failure, errno, "UDP socket");
    }
    return descriptor;
}

int probe_socket_icmp(const union address *address, bool *ret_raw, struct failure *failure) {
    int family = address->any.sa_family;
    int protocol = family == AF_INET6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP;
    int descriptor = socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);

    *ret_raw = false;
    if (descriptor < 0) {
        descriptor = socket(family, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);
        *ret_raw = true;
    }
    if (descriptor < 0)
        return failure_set(failure, FAILURE_PERMISSION,
                           "ICMP needs CAP_NET_RAW or a group in net.ipv4.ping_group_range: %s", strerror(errno));
    prepare(descriptor, family, true);
    return connect_to(descriptor, address, failure);
}

int probe_socket_raw(int protocol, struct failure *failure) {
    int descriptor;

    take_raw_capability();
    descriptor = socket(AF_INET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);
    if (descriptor < 0)
        return failure_set(failure, FAILURE_PERMISSION, "probing hops needs CAP_NET_RAW: %s", strerror(errno));
    prepare(descriptor, AF_INET, protocol == IPPROTO_RAW);
    if (protocol == IPPROTO_ICMP) {
        /* Set bits are not delivered. */
        struct icmp_filter filter = {
            .data = ~(1u << ICMP_ECHOREPLY | 1u << ICMP_DEST_UNREACH | 1u << ICMP_TIME_EXCEEDED),
        };

        (void)setsockopt(descriptor, SOL_RAW, ICMP_FILTER, &filter, sizeof(filter));
    }
    return descriptor;
}

int64_t probe_socket_send(int socket, const void *bytes, size_t length, const union address *destination) {
    int64_t before_ns = wall_ns();
    int64_t departure_ns;
    int64_t after_ns;
    int error;

    if (sendto(socket, bytes, length, MSG_DONTWAIT, &destination->any, address_length(destination)) < 0)
        return -errno;
    after_ns = wall_ns();
    while ((error = probe_socket_departure(socket, &departure_ns)) != -EAGAIN)
        if (error == 0 && departure_ns >= before_ns && departure_ns <= after_ns)
            return departure_ns;
    return before_ns;
}

static void read_control(struct msghdr *message, struct probe_arrival *arrival) {
    for (struct cmsghdr *item = CMSG_FIRSTHDR(message); item; item = CMSG_NXTHDR(message, item)) {
        if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SO_TIMESTAMPNS) {
            struct timespec time;

            memcpy(&time, CMSG_DATA(item), sizeof(time));
            arrival->at_ns = to_ns(&time);
        } else if (item->cmsg_level == IPPROTO_IP && item->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo info;

            memcpy(&info, CMSG_DATA(item), sizeof(info));
            arrival->destination.v4.sin_family = AF_INET;
            arrival->destination.v4.sin_addr = info.ipi_addr;
        } else if (item->cmsg_level == IPPROTO_IPV6 && item->cmsg_type == IPV6_PKTINFO) {
            struct in6_pktinfo info;

            memcpy(&info, CMSG_DATA(item), sizeof(info));
            arrival->destination.v6.sin6_family = AF_INET6;
            arrival->destination.v6.sin6_addr = info.ipi6_addr;
        }
    }
}

int probe_socket_receive(int socket, void *buffer, size_t size, struct probe_arrival *ret_arrival) {
    _Alignas(struct cmsghdr) char control[256];
    struct iovec vector = {.iov_base = buffer, .iov_len = size};
    struct msghdr message = {
        .msg_name = &ret_arrival->source,
        .msg_namelen = sizeof(ret_arrival->source),
        .msg_iov = &vector,
        .msg_iovlen = 1,
        .msg_control = control,
        .msg_controllen = sizeof(control),
    };
    ssize_t got;

    memset(ret_arrival, 0, sizeof(*ret_arrival));
    got = recvmsg(socket, &message, 0);
    if (got < 0)
        return -errno;
    read_control(&message, ret_arrival);
    if (ret_arrival->at_ns == 0)
        ret_arrival->at_ns = wall_ns();
    ret_arrival->length = (size_t)got;
    ret_arrival->truncated = (message.msg_flags & MSG_TRUNC) != 0;
    return (int)got;
}

int probe_socket_reply(int socket, const void *bytes, size_t length, const union address *source,
                       const union address *destination) {
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(struct in6_pktinfo))] = {0};
    union address to = *destination;
    struct iovec vector = {.iov_base = (void *)bytes, .iov_len = length};
    struct msghdr message = {
        .msg_name = &to,
        .msg_namelen = address_length(&to),
        .msg_iov = &vector,
        .msg_iovlen = 1,
        .msg_control = control,
        .msg_controllen = sizeof(control),
    };
    struct cmsghdr *item = CMSG_FIRSTHDR(&message);

    if (source->any.sa_family == AF_INET6) {
        struct in6_pktinfo info = {.ipi6_addr = source->v6.sin6_addr};

        item->cmsg_level = IPPROTO_IPV6;
        item->cmsg_type = IPV6_PKTINFO;
        item->cmsg_len = CMSG_LEN(sizeof(info));
        memcpy(CMSG_DATA(item), &info, sizeof(info));
    } else {
        struct in_pktinfo info = {.ipi_spec_dst = source->v4.sin_addr};

        item->cmsg_level = IPPROTO_IP;
        item->cmsg_type = IP_PKTINFO;
        item->cmsg_len = CMSG_LEN(sizeof(info));
        memcpy(CMSG_DATA(item), &info, sizeof(info));
    }
    message.msg_controllen =
        CMSG_SPACE(source->any.sa_family == AF_INET6 ? sizeof(struct in6_pktinfo) : sizeof(struct in_pktinfo));
    return sendmsg(socket, &message, MSG_DONTWAIT) < 0 ? -errno : 0;
}

int probe_socket_departure(int socket, int64_t *ret_at_ns) {
    for (;;) {
        _Alignas(struct cmsghdr) char control[512];
        struct msghdr message = {.msg_control = control, .msg_controllen = sizeof(control)};
        int64_t at_ns = 0;

        if (recvmsg(socket, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
            return -errno;
        for (struct cmsghdr *item = CMSG_FIRSTHDR(&message); item; item = CMSG_NXTHDR(&message, item)) {
            if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_TIMESTAMPING) {
                struct scm_timestamping times;

                memcpy(&times, CMSG_DATA(item), sizeof(times));
                at_ns = to_ns(&times.ts[0]);
            } else if ((item->cmsg_level == IPPROTO_IP && item->cmsg_type == IP_RECVERR) ||
                       (item->cmsg_level == IPPROTO_IPV6 && item->cmsg_type == IPV6_RECVERR)) {
                struct sock_extended_err error;

                memcpy(&error, CMSG_DATA(item), sizeof(error));
                /* An ICMP error about a probe: the network's own words. */
                if (error.ee_origin != SO_EE_ORIGIN_TIMESTAMPING && error.ee_errno)
                    return -(int)error.ee_errno;
            }
        }
        if (at_ns) {
            *ret_at_ns = at_ns;
            return 0;
        }
    }
}
