/* See net.h. */
#define _GNU_SOURCE
#include "net.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"

volatile sig_atomic_t blast_stop;

int blast_failed(int error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("chart-blast: ", stderr);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, error ? ": %s\n" : "\n", strerror(-error));
    va_end(arguments);
    return error ? error : -EIO;
}

static int resolve(const char *host, const char *port, int type, int family, struct addrinfo **ret) {
    const struct addrinfo hints = {
        .ai_family = family, .ai_socktype = type, .ai_flags = AI_NUMERICSERV | (host ? 0 : AI_PASSIVE)};
    int error = getaddrinfo(host, port, &hints, ret);
    if (!error)
        return 0;
    fprintf(stderr, "chart-blast: %s cannot be resolved: %s\n", host ? host : port, gai_strerror(error));
    return -EHOSTUNREACH;
}

/* Without an agent the flow goes on as it would without CHART; the account says so. */
static void ask(struct blast_account *account, int socket) {
    if (account->options->asks)
        account->request_error = chart_request(socket, &account->options->ask);
    if (account->request_error && !account->options->json)
        fprintf(stderr, "chart-blast: no rate: %s\n", chart_error_text(account->request_error));
}

static int bind_own(const struct blast_options *options, int socket, const struct addrinfo *peer) {
    struct addrinfo *own;
    if (!options->bind[0])
        return 0;
    int error = resolve(options->bind, "0", peer->ai_socktype, peer->ai_family, &own);
    if (error)
        return error;
    error = bind(socket, own->ai_addr, own->ai_addrlen) ? -errno : 0;
    freeaddrinfo(own);
    return error ? blast_failed(error, "the own address %s cannot be used", options->bind) : 0;
}

/* One of the peer's addresses; negative errno without a sentence, for there may be others. */
static int try_connect(struct blast_account *account, const struct addrinfo *peer, int *ret_socket) {
    int error, length = sizeof(error);
    int fd = socket(peer->ai_family, peer->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    error = bind_own(account->options, fd, peer);
    ask(account, fd);
    account->start_ns = chart_now_ns();
    if (!error && connect(fd, peer->ai_addr, peer->ai_addrlen) && errno != EINPROGRESS)
        error = -errno;
    if (!error && peer->ai_socktype == SOCK_STREAM) {
        struct pollfd entry = {.fd = fd, .events = POLLOUT};
        int ready = poll(&entry, 1, (int)(account->options->timeout_s * 1e3));
        error = ready > 0 ? 0 : (ready < 0 ? -errno : -ETIMEDOUT);
        if (!error && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, (socklen_t *)&length) == 0)
            error = -error;
    }
    if (error) {
        close(fd);
        return error;
    }
    account->open_ns = chart_now_ns();
    *ret_socket = fd;
    return 0;
}

static int open_to_peer(struct blast_account *account, int type, int *ret_socket) {
    const struct blast_options *options = account->options;
    struct addrinfo *peers;
    int error = resolve(options->host, options->port, type, AF_UNSPEC, &peers);
    if (error)
        return error;
    error = -EHOSTUNREACH;
    for (const struct addrinfo *peer = peers; peer && error; peer = peer->ai_next)
        error = try_connect(account, peer, ret_socket);
    freeaddrinfo(peers);
    return error ? blast_failed(error, "%s port %s cannot be reached", options->host, options->port) : 0;
}

static int bind_and_listen(const struct blast_options *options, int type, int *ret_socket) {
    struct addrinfo *own;
    int on = 1, fd;
    int error = resolve(options->host[0] ? options->host : NULL, options->port, type, AF_UNSPEC, &own);
    if (error)
        return error;
    fd = socket(own->ai_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
        bind(fd, own->ai_addr, own->ai_addrlen) || (type == SOCK_STREAM && listen(fd, 1)))
        error = -errno;
    freeaddrinfo(own);
    if (error) {
        if (fd >= 0)
            close(fd);
        return blast_failed(error, "cannot listen on port %s", options->port);
    }
    /* Whoever starts the other side may wait for this line. */
    fprintf(stderr, "chart-blast: listening on port %s\n", options->port);
    *ret_socket = fd;
    return 0;
}

static int accept_one(struct blast_account *account, int listener, int *ret_socket) {
    while (!blast_stop) {
        struct pollfd entry = {.fd = listener, .events = POLLIN};
        if (poll(&entry, 1, 1000) <= 0)
            continue;
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR))
            continue;
        if (fd < 0)
            return blast_failed(-errno, "the flow cannot be accepted");
        account->start_ns = account->open_ns = chart_now_ns();
        ask(account, fd);
        *ret_socket = fd;
        return 0;
    }
    return blast_failed(0, "stopped before a flow came");
}

int blast_open_stream(struct blast_account *account, int *ret_socket) {
    int listener;
    if (!account->options->listen)
        return open_to_peer(account, SOCK_STREAM, ret_socket);
    int error = bind_and_listen(account->options, SOCK_STREAM, &listener);
    if (error)
        return error;
    error = accept_one(account, listener, ret_socket);
    close(listener);
    return error;
}

int blast_open_datagram(struct blast_account *account, int *ret_socket) {
    if (!account->options->listen)
        return open_to_peer(account, SOCK_DGRAM, ret_socket);
    int error = bind_and_listen(account->options, SOCK_DGRAM, ret_socket);
    int buffer = 4 << 20;
    if (!error)
        setsockopt(*ret_socket, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
    return error;
}

int blast_wait(struct blast_account *account, struct chart_watch *watch, int socket, short events, uint64_t wait_ns) {
    struct pollfd entries[2] = {{.fd = socket, .events = events}, {.fd = -1, .events = POLLIN}};
    const struct timespec timeout = {.tv_sec = (time_t)(wait_ns / CHART_NS_PER_S),
                                     .tv_nsec = (long)(wait_ns % CHART_NS_PER_S)};
    struct chart_rate rate;
    if (watch)
        entries[1].fd = chart_watch_fd(watch);
    int ready = ppoll(entries, 2, &timeout, NULL);
    if (ready < 0)
        return errno == EINTR ? 0 : -errno;
    if (entries[1].revents && chart_watch_next(watch, &rate) == 1)
        blast_account_rate(account, &rate, chart_now_ns());
    return entries[0].revents != 0;
}
