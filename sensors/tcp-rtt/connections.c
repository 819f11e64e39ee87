/* What the kernel tells of TCP connections; see connections.h. */
#include "connections.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <libmnl/libmnl.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>

#define STATE_ESTABLISHED 1u
/* What an older kernel leaves out of tcp_info counts as 0, but not what we need most. */
#define TCP_INFO_MIN_BYTES (offsetof(struct tcp_info, tcpi_total_retrans) + sizeof(uint32_t))
#define RECEIVE_LIMIT_S 2

static bool read_info(const struct nlattr *attribute, struct connection *connection) {
    struct tcp_info info = {0};
    size_t length = mnl_attr_get_payload_len(attribute);

    if (length < TCP_INFO_MIN_BYTES)
        return false;
    memcpy(&info, mnl_attr_get_payload(attribute), length < sizeof(info) ? length : sizeof(info));
    connection->rtt_us = info.tcpi_rtt;
    /* Not measured yet: all ones. */
    connection->rtt_min_us = info.tcpi_min_rtt == UINT32_MAX ? 0 : info.tcpi_min_rtt;
    connection->segments = info.tcpi_data_segs_out;
    connection->repeated = info.tcpi_total_retrans;
    return true;
}

static void read_remote(const struct inet_diag_msg *diag, union address *ret_remote) {
    memset(ret_remote, 0, sizeof(*ret_remote));
    if (diag->idiag_family == AF_INET6) {
        ret_remote->v6.sin6_family = AF_INET6;
        memcpy(&ret_remote->v6.sin6_addr, diag->id.idiag_dst, 16);
    } else {
        ret_remote->v4.sin_family = AF_INET;
        memcpy(&ret_remote->v4.sin_addr, diag->id.idiag_dst, 4);
    }
    address_set_port(ret_remote, ntohs(diag->id.idiag_dport));
}

static void keep(struct connections *connections, const struct connection *connection) {
    if (connections->count == connections->capacity) {
        size_t capacity = connections->capacity ? 2 * connections->capacity : 64;
        struct connection *items = NULL;

        if (capacity <= CONNECTIONS_MAX)
            items = realloc(connections->items, capacity * sizeof(*items));
        if (!items) {
            connections->not_kept++;
            return;
        }
        connections->items = items;
        connections->capacity = capacity;
    }
    connections->items[connections->count++] = *connection;
}

bool connections_add_message(struct connections *connections, const void *message, size_t length,
                             const union address *remote) {
    const struct nlmsghdr *header = message;
    struct connection connection = {0};
    const struct inet_diag_msg *diag;
    const struct nlattr *attribute;
    bool told = false;

    if (length > INT32_MAX || !mnl_nlmsg_ok(header, (int)length) || mnl_nlmsg_get_payload_len(header) < sizeof(*diag))
        return false;
    diag = mnl_nlmsg_get_payload(header);
    if (diag->idiag_family != AF_INET && diag->idiag_family != AF_INET6)
        return false;
    mnl_attr_for_each(attribute, header, sizeof(*diag)) {
        if (mnl_attr_get_type(attribute) == INET_DIAG_INFO && !read_info(attribute, &connection))
            return false;
        told = told || mnl_attr_get_type(attribute) == INET_DIAG_INFO;
    }
    read_remote(diag, &connection.remote);
    if (!told || diag->idiag_state != STATE_ESTABLISHED || (remote && !address_same_host(remote, &connection.remote)))
        return true;
    connection.cookie = (uint64_t)diag->id.idiag_cookie[1] << 32 | diag->id.idiag_cookie[0];
    keep(connections, &connection);
    return true;
}

static int ask(struct mnl_socket *netlink, int family) {
    char buffer[MNL_NLMSG_HDRLEN + MNL_ALIGN(sizeof(struct inet_diag_req_v2))] = {0};
    struct nlmsghdr *header = mnl_nlmsg_put_header(buffer);
    struct inet_diag_req_v2 *request = mnl_nlmsg_put_extra_header(header, sizeof(*request));

    header->nlmsg_type = SOCK_DIAG_BY_FAMILY;
    header->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    request->sdiag_family = (uint8_t)family;
    request->sdiag_protocol = IPPROTO_TCP;
    request->idiag_ext = 1 << (INET_DIAG_INFO - 1);
    request->idiag_states = 1u << STATE_ESTABLISHED;
    return mnl_socket_sendto(netlink, header, header->nlmsg_len) < 0 ? -errno : 0;
}

/* The messages of one dump; 0 or a negative errno. */
static int take(struct mnl_socket *netlink, const union address *remote, struct connections *connections) {
    _Alignas(struct nlmsghdr) char buffer[32768];

    for (;;) {
        ssize_t got = mnl_socket_recvfrom(netlink, buffer, sizeof(buffer));
        int left = (int)got;

        if (got <= 0)
            return got < 0 ? -errno : -EPIPE;
        for (struct nlmsghdr *header = (struct nlmsghdr *)buffer; mnl_nlmsg_ok(header, left);
             header = mnl_nlmsg_next(header, &left)) {
            if (header->nlmsg_type == NLMSG_DONE)
                return 0;
            if (header->nlmsg_type == NLMSG_ERROR) {
                const struct nlmsgerr *error = mnl_nlmsg_get_payload(header);

                return mnl_nlmsg_get_payload_len(header) < sizeof(*error) || error->error == 0 ? -EBADMSG
                                                                                               : error->error;
            }
            (void)connections_add_message(connections, header, (size_t)left, remote);
        }
    }
}

int connections_read(const union address *remote, struct connections *ret_connections, struct failure *failure) {
    static const int FAMILIES[] = {AF_INET, AF_INET6};
    struct timeval limit = {.tv_sec = RECEIVE_LIMIT_S};
    struct mnl_socket *netlink = mnl_socket_open(NETLINK_SOCK_DIAG);
    int error = 0;

    memset(ret_connections, 0, sizeof(*ret_connections));
    if (!netlink)
        return failure_from_errno(failure, errno, "sock_diag");
    (void)setsockopt(mnl_socket_get_fd(netlink), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (mnl_socket_bind(netlink, 0, MNL_SOCKET_AUTOPID) < 0)
        error = -errno;
    for (size_t i = 0; i < sizeof(FAMILIES) / sizeof(FAMILIES[0]) && error == 0; i++) {
        error = ask(netlink, FAMILIES[i]);
        if (error == 0)
            error = take(netlink, remote, ret_connections);
        /* A kernel without IPv6 has no such connections. */
        if (error == -ENOENT && FAMILIES[i] == AF_INET6)
            error = 0;
    }
    mnl_socket_close(netlink);
    if (error == 0)
        return 0;
    connections_free(ret_connections);
    return failure_from_errno(failure, -error, "sock_diag");
}

void connections_free(struct connections *connections) {
    free(connections->items);
    memset(connections, 0, sizeof(*connections));
}

static int by_cookie(const void *a, const void *b) {
    uint64_t x = ((const struct connection *)a)->cookie;
    uint64_t y = ((const struct connection *)b)->cookie;

    return (x > y) - (x < y);
}

struct connections_summary connections_summarise(const struct connections *before, const struct connections *after) {
    struct connections_summary summary = {0};
    double weighted = 0, weights = 0, plain = 0;

    if (before->count)
        qsort(before->items, before->count, sizeof(struct connection), by_cookie);
    for (size_t i = 0; i < after->count; i++) {
        const struct connection *now = &after->items[i];
        const struct connection *then =
            before->count ? bsearch(now, before->items, before->count, sizeof(*now), by_cookie) : NULL;
        /* Counters wrap around. */
        uint32_t segments = now->segments - (then ? then->segments : 0);
        uint32_t repeated = now->repeated - (then ? then->repeated : 0);

        summary.segments += segments;
        summary.repeated += repeated;
        if (now->rtt_us == 0)
            continue;
        summary.measured++;
        weighted += (double)segments * now->rtt_us;
        weights += segments;
        plain += now->rtt_us;
        if (now->rtt_min_us && (summary.rtt_min_us <= 0 || now->rtt_min_us < summary.rtt_min_us))
            summary.rtt_min_us = now->rtt_min_us;
    }
    if (summary.measured)
        summary.rtt_us = weights > 0 ? weighted / weights : plain / (double)summary.measured;
    return summary;
}
