/* One of the origin's connections, see connection.h. */
#define _GNU_SOURCE
#include "connection.h"

#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int set_options(const struct options *options, int descriptor) {
    int one = 1, unsent = (int)options->batch_bytes, timeout = CONNECTION_USER_TIMEOUT_MS;
    int mss = (int)options->mss_bytes;
    if (setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0 ||
        setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)) < 0 ||
        setsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout)) < 0 ||
        /* Room is room in the window: what waits unsent in the kernel could have gone over another connection. */
        setsockopt(descriptor, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent)) < 0 ||
        (mss && setsockopt(descriptor, IPPROTO_TCP, TCP_MAXSEG, &mss, sizeof(mss)) < 0) ||
        setsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, options->congestion,
                   (socklen_t)strlen(options->congestion)) < 0)
        return -errno;
    if (options->has_bind && bind(descriptor, &options->bind.any, endpoint_bytes(&options->bind)) < 0)
        return -errno;
    return 0;
}

int connection_open(struct connection *connection, const struct options *options, struct tls *tls, int epoll,
                    uint64_t tag) {
    const union endpoint *endpoint = &options->endpoint;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.u64 = tag};
    int descriptor = socket(endpoint->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    if (descriptor < 0)
        return -errno;
    int error = set_options(options, descriptor);
    if (error < 0) {
        close(descriptor);
        return error;
    }
    error = channel_open(&connection->channel, descriptor, tls, options->address_text);
    if (error < 0)
        return error;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) < 0)
        return -errno;
    if (connect(descriptor, &endpoint->any, endpoint_bytes(endpoint)) < 0 && errno != EINPROGRESS)
        return -errno;
    return 0;
}

void connection_close(struct connection *connection) {
    channel_close(&connection->channel);
    connection->room = connection->said_bye = connection->finished = false;
    connection->out_used = connection->out_sent = connection->in_used = 0;
}

int connection_pending_error(const struct connection *connection) {
    int error = 0;
    socklen_t bytes = sizeof(error);
    return getsockopt(connection->channel.descriptor, SOL_SOCKET, SO_ERROR, &error, &bytes) < 0 ? errno : error;
}

void connection_hello(struct connection *connection, const struct hello *hello) {
    connection->out_used = frame_write_hello(connection->out, hello);
    connection->out_sent = 0;
    connection->loaded_bytes = connection->out_used;
}

uint64_t connection_acknowledged(const struct connection *connection) {
    int queued_bytes = 0;
    uint64_t here_bytes = connection->out_used - connection->out_sent;
    if (ioctl(connection->channel.descriptor, SIOCOUTQ, &queued_bytes) < 0)
        return 0;
    here_bytes += (uint64_t)queued_bytes;
    return connection->loaded_bytes > here_bytes ? connection->loaded_bytes - here_bytes : 0;
}

int connection_flush(struct connection *connection) {
    while (connection->out_sent < connection->out_used) {
        ssize_t sent = channel_send(&connection->channel, connection->out + connection->out_sent,
                                    connection->out_used - connection->out_sent);
        if (sent < 0) {
            connection->room = false;
            return sent == -EAGAIN ? 0 : (int)sent;
        }
        connection->out_sent += (size_t)sent;
    }
    connection->out_used = connection->out_sent = 0;
    return 0;
}

int connection_receive(struct connection *connection, connection_frame *take, void *context,
                       char fault[CONNECTION_FAULT_BYTES]) {
    for (;;) {
        struct frame frame;
        ssize_t used;
        size_t at = 0;
        ssize_t got = channel_receive(&connection->channel, connection->in + connection->in_used,
                                      CONNECTION_IN_BYTES - connection->in_used, fault);
        if (got <= 0)
            return got == -EAGAIN ? 1 : (int)got;
        connection->in_used += (size_t)got;
        while ((used = frame_parse(connection->in + at, connection->in_used - at, &frame)) > 0) {
            int error = take(context, &frame);
            if (error < 0)
                return error;
            at += (size_t)used;
        }
        if (used < 0 || (at == 0 && connection->in_used == CONNECTION_IN_BYTES))
            return -EBADMSG;
        connection->in_used -= at;
        memmove(connection->in, connection->in + at, connection->in_used);
    }
}

int connection_finish(struct connection *connection) {
    if (connection->finished || connection->out_used)
        return 0;
    if (!connection->said_bye) {
        frame_header(connection->out, FRAME_BYE, 0, 0);
        connection->out_used = FRAME_HEADER_BYTES;
        connection->loaded_bytes += FRAME_HEADER_BYTES;
        connection->said_bye = true;
    }
    int error = connection_flush(connection);
    if (error < 0 || connection->out_used)
        return error;
    channel_finish(&connection->channel);
    connection->finished = true;
    return 0;
}

const char *connection_reason(int error, const char *fault) {
    if ((error == -EPROTO || error == -ECONNREFUSED) && fault[0])
        return fault;
    if (error == -EBADMSG)
        return "what answers there is no destination of a tunnel";
    return error ? strerror(-error) : "closed by the destination";
}
