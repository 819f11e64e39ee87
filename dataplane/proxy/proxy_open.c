/* What a proxy consists of, opened and closed; see proxy.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/metrics/metrics.h"
#include "proxy.h"
#include "sockets.h"

#define HELD_MAX 1024u

static void render(FILE *out, void *context) {
    const struct proxy *proxy = context;
    counters_write(&proxy->counters, proxy->options->connections, out);
}

static const char *not_ready(void *context) {
    const struct proxy *proxy = context;
    return proxy->queue ? NULL : "it is ending";
}

static int open_metrics(struct proxy *proxy) {
    const struct metrics_source source = {render, not_ready, proxy};
    if (!proxy->options->metrics)
        return 0;
    int error = metrics_open(proxy->options->metrics, &source, &proxy->metrics);
    if (error)
        fprintf(stderr, "chart-proxy: metrics at %s: %s\n", proxy->options->metrics, strerror(-error));
    return error ? error : loop_watch(proxy->epoll, metrics_fd(proxy->metrics), EPOLLIN, TAG_EXPORTER);
}

static int open_listeners(struct proxy *proxy) {
    for (int i = 0; i < (proxy->options->ipv6 ? 2 : 1); i++) {
        int listener = sockets_listen(proxy->options, i ? AF_INET6 : AF_INET);
        if (listener < 0)
            return listener;
        proxy->listeners[i] = listener;
        int error = loop_watch(proxy->epoll, listener, EPOLLIN, TAG_LISTENER + (uint64_t)listener);
        if (error)
            return error;
    }
    return 0;
}

static int open_queue(struct proxy *proxy) {
    const struct options *options = proxy->options;
    uint32_t held = options->connections < HELD_MAX ? options->connections : HELD_MAX;
    int error = queue_open(options->queue, held, options->mark, &proxy->queue);
    if (error) {
        const char *reason = strerror(-error);
        if (error == -EBUSY)
            reason = "it is taken; is another chart-proxy running? --queue takes another one";
        fprintf(stderr, "chart-proxy: queue %u for first packets: %s\n", options->queue, reason);
    }
    return error ? error : loop_watch(proxy->epoll, queue_fd(proxy->queue), EPOLLIN, TAG_QUEUE);
}

static int open_table(struct proxy *proxy) {
    uint32_t count = proxy->options->connections;
    uint64_t seed;
    if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
        return -errno;
    proxy->connections = calloc(count, sizeof(*proxy->connections));
    if (!proxy->connections)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        proxy->connections[i].next = i + 1 < count ? i + 1 : CONNECTION_NONE;
        proxy->connections[i].host = proxy->connections[i].onward = -1;
    }
    return table_init(&proxy->table, count, seed);
}

int proxy_open(struct proxy *proxy, const struct options *options) {
    *proxy = (struct proxy){
        .options = options,
        .epoll = epoll_create1(EPOLL_CLOEXEC),
        .listeners = {-1, -1},
        .first_again = CONNECTION_NONE,
        .last_again = CONNECTION_NONE,
    };
    int error = proxy->epoll < 0 ? -errno : open_table(proxy);
    if (error)
        fprintf(stderr, "chart-proxy: %s\n", strerror(-error));
    error = error ? error : open_listeners(proxy);
    error = error ? error : open_queue(proxy);
    return error ? error : open_metrics(proxy);
}

void proxy_close(struct proxy *proxy) {
    metrics_close(proxy->metrics);
    queue_close(proxy->queue);
    for (size_t i = 0; i < 2; i++)
        if (proxy->listeners[i] >= 0)
            close(proxy->listeners[i]);
    pipes_close(&proxy->pipes);
    table_free(&proxy->table);
    free(proxy->connections);
    if (proxy->epoll >= 0)
        close(proxy->epoll);
}
