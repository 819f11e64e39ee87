/* See proxy.h. */
#define _GNU_SOURCE
#include "proxy.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/metrics/metrics.h"
#include "lib/notify/notify.h"
#include "sockets.h"

#define CONNECTION_EVENTS (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)
#define TICK_US 1000000u
/* While connections are closing: how soon that is seen. */
#define CLOSING_TICK_US 100000u
/* A host repeats its own part of the handshake for about as long. */
#define ACCEPT_US 15000000u
/* Afterwards the kernel goes on alone. */
#define CLOSE_US 60000000u
/* A reset waits for so long, at most, that what was sent before it arrives. */
#define BREAK_US 5000000u

static uint64_t tag_of(const struct proxy *proxy, uint64_t tag, const struct connection *connection) {
    uint64_t index = (uint64_t)(connection - proxy->connections);
    return tag | (uint64_t)connection->generation << 16 | index;
}

static uint32_t *gauge_of(struct proxy *proxy, enum connection_state state) {
    switch (state) {
    case CONNECTION_HELD:
    case CONNECTION_ACCEPTING:
        return &proxy->counters.held;
    case CONNECTION_OPEN:
        return &proxy->counters.open;
    case CONNECTION_BREAKING:
    case CONNECTION_CLOSING:
        return &proxy->counters.closing;
    case CONNECTION_FREE:
        break;
    }
    return NULL;
}

static void enter(struct proxy *proxy, struct connection *connection, enum connection_state state) {
    uint32_t *before = gauge_of(proxy, connection->state), *after = gauge_of(proxy, state);
    if (before)
        --*before;
    if (after)
        ++*after;
    connection->state = state;
    connection->since_us = proxy->now_us;
}

/* Closes both sockets, in order or with a reset, and frees the place. */
static void finish(struct proxy *proxy, struct connection *connection, bool in_order) {
    uint32_t index = (uint32_t)(connection - proxy->connections);
    pump_close(&connection->onwards, &proxy->pipes);
    pump_close(&connection->back, &proxy->pipes);
    sockets_close(connection->host, in_order);
    sockets_close(connection->onward, in_order);
    connection->host = connection->onward = -1;
    table_remove(&proxy->table, index);
    enter(proxy, connection, CONNECTION_FREE);
    connection->generation++;
    proxy->used--;
    /* One that is still in the list of those with more to do becomes free when its turn comes. */
    if (!connection->again) {
        connection->next = proxy->first_free;
        proxy->first_free = index;
    }
}

static void reset(struct proxy *proxy, struct connection *connection, enum reset reason) {
    proxy->counters.resets[reason]++;
    finish(proxy, connection, false);
}

/* Lets the held first packet go on without the proxy. */
static void let_pass(struct proxy *proxy, struct connection *connection, enum passed reason) {
    uint32_t packet = connection->packet;
    proxy->counters.passed[reason]++;
    /* First its own attempt is given up, or the server would know the connection already. */
    finish(proxy, connection, false);
    (void)queue_decide(proxy->queue, packet, QUEUE_PASS);
}

static void put_again(struct proxy *proxy, struct connection *connection) {
    uint32_t index = (uint32_t)(connection - proxy->connections);
    if (connection->again)
        return;
    connection->again = true;
    connection->next = CONNECTION_NONE;
    if (proxy->last_again == CONNECTION_NONE)
        proxy->first_again = index;
    else
        proxy->connections[proxy->last_again].next = index;
    proxy->last_again = index;
}

static void serve_breaking(struct proxy *proxy, struct connection *connection) {
    struct pump *rest = connection->host_broke ? &connection->onwards : &connection->back;
    uint64_t *total = connection->host_broke ? &proxy->counters.onward_bytes : &proxy->counters.back_bytes;
    uint64_t before = rest->bytes;
    bool passed = pump_rest(rest, &proxy->pipes);
    *total += rest->bytes - before;
    if (passed && sockets_all_arrived(rest->to))
        reset(proxy, connection, RESET_PEER);
}

static void break_off(struct proxy *proxy, struct connection *connection, bool host_broke) {
    connection->host_broke = host_broke;
    enter(proxy, connection, CONNECTION_BREAKING);
    serve_breaking(proxy, connection);
}

static void pass_on(struct proxy *proxy, struct connection *connection) {
    uint64_t onward_bytes = connection->onwards.bytes, back_bytes = connection->back.bytes;
    enum pump_result onwards = pump_run(&connection->onwards, &proxy->pipes);
    enum pump_result back = pump_run(&connection->back, &proxy->pipes);
    onward_bytes = connection->onwards.bytes - onward_bytes;
    back_bytes = connection->back.bytes - back_bytes;
    proxy->counters.onward_bytes += onward_bytes;
    proxy->counters.back_bytes += back_bytes;
    if (onward_bytes || back_bytes)
        connection->since_us = proxy->now_us;
    if (onwards == PUMP_RESET || back == PUMP_RESET)
        break_off(proxy, connection, onwards == PUMP_RESET ? !connection->onwards.to_broke : connection->back.to_broke);
    else if (onwards == PUMP_DONE && back == PUMP_DONE)
        enter(proxy, connection, CONNECTION_CLOSING);
    else if (onwards == PUMP_MORE || back == PUMP_MORE)
        put_again(proxy, connection);
}

static void serve_held(struct proxy *proxy, struct connection *connection) {
    int connected = sockets_connected(connection->onward);
    if (!connected)
        return;
    if (connected < 0) {
        let_pass(proxy, connection, connected == -ECONNREFUSED ? PASSED_REFUSED : PASSED_UNANSWERED);
        return;
    }
    enter(proxy, connection, CONNECTION_ACCEPTING);
    if (queue_decide(proxy->queue, connection->packet, QUEUE_TAKE) < 0)
        reset(proxy, connection, RESET_UNACCEPTED);
}

static void serve_connection(struct proxy *proxy, uint32_t place, bool of_host, uint32_t events) {
    struct connection *connection = &proxy->connections[place & 0xffff];
    bool broken = events & (EPOLLERR | EPOLLHUP);
    if (connection->generation != place >> 16)
        return;
    if (connection->state == CONNECTION_HELD) {
        serve_held(proxy, connection);
        return;
    }
    broken = broken && sockets_error(of_host ? connection->host : connection->onward);
    if (connection->state == CONNECTION_OPEN && !broken)
        pass_on(proxy, connection);
    else if (connection->state == CONNECTION_CLOSING && broken)
        finish(proxy, connection, true); /* the other end may still wait for the last octets */
    else if (connection->state == CONNECTION_OPEN)
        break_off(proxy, connection, of_host);
    else if (connection->state == CONNECTION_BREAKING && !broken)
        serve_breaking(proxy, connection);
    else if (broken)
        reset(proxy, connection, RESET_PEER);
}

/* A first packet; which first packet comes twice is known by its flow. */
static void take_packet(void *context, uint32_t id, const uint8_t *packet, size_t bytes) {
    struct proxy *proxy = context;
    struct flow flow;
    uint8_t dscp;
    if (flow_of_packet(packet, bytes, &flow, &dscp)) {
        (void)queue_decide(proxy->queue, id, QUEUE_PASS);
        return;
    }
    uint32_t index = table_find(&proxy->table, &flow);
    if (index != TABLE_NONE) {
        bool held = proxy->connections[index].state == CONNECTION_HELD;
        (void)queue_decide(proxy->queue, id, held ? QUEUE_DROP : QUEUE_TAKE);
        return;
    }
    index = proxy->first_free;
    int onward = index == CONNECTION_NONE ? -ENOSPC : sockets_connect(proxy->options, &flow, dscp);
    struct connection *connection = index == CONNECTION_NONE ? NULL : &proxy->connections[index];
    if (onward >= 0 && loop_watch(proxy->epoll, onward, CONNECTION_EVENTS, tag_of(proxy, TAG_ONWARD, connection)) < 0) {
        sockets_close(onward, false);
        onward = -ENOMEM;
    }
    if (onward < 0) {
        proxy->counters.passed[onward == -ENOSPC ? PASSED_LIMIT : PASSED_FAILED]++;
        (void)queue_decide(proxy->queue, id, QUEUE_PASS);
        return;
    }
    proxy->first_free = connection->next;
    proxy->used++;
    connection->flow = flow;
    connection->onward = onward;
    connection->packet = id;
    pump_init(&connection->onwards, -1, -1);
    pump_init(&connection->back, -1, -1);
    table_put(&proxy->table, index, &connection->flow);
    enter(proxy, connection, CONNECTION_HELD);
}

static struct connection *expected(struct proxy *proxy, int host) {
    struct sockaddr_storage client, server;
    socklen_t client_bytes = sizeof(client), server_bytes = sizeof(server);
    struct flow flow;
    if (getpeername(host, (struct sockaddr *)&client, &client_bytes) < 0 ||
        getsockname(host, (struct sockaddr *)&server, &server_bytes) < 0 || flow_of_sockets(&client, &server, &flow))
        return NULL;
    uint32_t index = table_find(&proxy->table, &flow);
    if (index == TABLE_NONE || proxy->connections[index].state != CONNECTION_ACCEPTING)
        return NULL;
    return &proxy->connections[index];
}

static void accept_hosts(struct proxy *proxy, int listener) {
    int host;
    while ((host = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct connection *connection = expected(proxy, host);
        int error = sockets_tune(proxy->options, host);
        if (!connection) {
            proxy->counters.strangers++;
            sockets_close(host, false);
            continue;
        }
        connection->host = host;
        if (!error)
            error = loop_watch(proxy->epoll, host, CONNECTION_EVENTS, tag_of(proxy, TAG_HOST, connection));
        if (error) {
            reset(proxy, connection, RESET_UNACCEPTED);
            continue;
        }
        pump_init(&connection->onwards, host, connection->onward);
        pump_init(&connection->back, connection->onward, host);
        proxy->counters.taken++;
        enter(proxy, connection, CONNECTION_OPEN);
        pass_on(proxy, connection);
    }
}

static void serve(struct proxy *proxy, const struct epoll_event *event) {
    uint64_t data = event->data.u64;
    if (TAG_OF(data) == TAG_HOST || TAG_OF(data) == TAG_ONWARD)
        serve_connection(proxy, (uint32_t)INDEX_OF(data), TAG_OF(data) == TAG_HOST, event->events);
    else if (TAG_OF(data) == TAG_LISTENER)
        accept_hosts(proxy, (int)INDEX_OF(data));
    else if (TAG_OF(data) == TAG_EXPORTER)
        metrics_run(proxy->metrics);
    else if (TAG_OF(data) == TAG_QUEUE && proxy->queue)
        (void)queue_run(proxy->queue, take_packet, proxy);
}

/* Those with more to do, each once. */
static void serve_again(struct proxy *proxy) {
    uint32_t index = proxy->first_again;
    proxy->first_again = proxy->last_again = CONNECTION_NONE;
    while (index != CONNECTION_NONE) {
        struct connection *connection = &proxy->connections[index];
        uint32_t next = connection->next;
        connection->again = false;
        if (connection->state == CONNECTION_OPEN) {
            pass_on(proxy, connection);
        } else if (connection->state == CONNECTION_FREE) {
            connection->next = proxy->first_free;
            proxy->first_free = index;
        }
        index = next;
    }
}

static void tick(struct proxy *proxy) {
    const struct connection_limits limits = {proxy->options->connect_us, ACCEPT_US, proxy->options->idle_us, BREAK_US,
                                             CLOSE_US};
    for (uint32_t i = 0; proxy->used && i < proxy->options->connections; i++) {
        struct connection *connection = &proxy->connections[i];
        if (connection->state == CONNECTION_CLOSING && sockets_all_arrived(connection->host) &&
            sockets_all_arrived(connection->onward)) {
            finish(proxy, connection, true);
            continue;
        }
        if (connection->state == CONNECTION_BREAKING)
            serve_breaking(proxy, connection);
        switch (connection_due(connection, &limits, proxy->now_us)) {
        case DUE_UNANSWERED:
            let_pass(proxy, connection, PASSED_UNANSWERED);
            break;
        case DUE_UNACCEPTED:
            reset(proxy, connection, RESET_UNACCEPTED);
            break;
        case DUE_IDLE:
            reset(proxy, connection, RESET_IDLE);
            break;
        case DUE_BROKEN:
            reset(proxy, connection, RESET_PEER);
            break;
        case DUE_CLOSED:
            finish(proxy, connection, true);
            break;
        case DUE_NOTHING:
            break;
        }
    }
    if (proxy->watch.look)
        proxy->watch.look(proxy->watch.context);
    proxy->tick_us = proxy->now_us + (proxy->counters.closing ? CLOSING_TICK_US : TICK_US);
}

static int turn(struct proxy *proxy) {
    struct epoll_event events[LOOP_EVENTS];
    proxy->now_us = loop_now_us();
    if (proxy->counters.closing && proxy->tick_us > proxy->now_us + CLOSING_TICK_US)
        proxy->tick_us = proxy->now_us + CLOSING_TICK_US;
    int wait_ms = proxy->first_again == CONNECTION_NONE ? loop_timeout_ms(proxy->tick_us, proxy->now_us) : 0;
    int count = epoll_wait(proxy->epoll, events, LOOP_EVENTS, wait_ms);
    if (count < 0 && errno != EINTR) {
        perror("chart-proxy: epoll_wait");
        return -errno;
    }
    proxy->now_us = loop_now_us();
    notify_alive_at(proxy->now_us);
    for (int i = 0; i < count; i++)
        serve(proxy, &events[i]);
    serve_again(proxy);
    if (proxy->now_us >= proxy->tick_us)
        tick(proxy);
    return 0;
}

/* From now on first packets go past the proxy: those that are held by its word, others by the rule. */
static void take_no_more(struct proxy *proxy) {
    for (uint32_t i = 0; i < proxy->options->connections; i++)
        if (proxy->connections[i].state == CONNECTION_HELD)
            let_pass(proxy, &proxy->connections[i], PASSED_ENDING);
    queue_close(proxy->queue);
    proxy->queue = NULL;
}

int proxy_run(struct proxy *proxy) {
    int error = 0;
    while (!error && !loop_ended())
        error = turn(proxy);
    notify_stopping();
    take_no_more(proxy);
    uint64_t until_us = loop_now_us() + proxy->options->drain_us;
    while (!error && proxy->used && proxy->now_us < until_us)
        error = turn(proxy);
    for (uint32_t i = 0; i < proxy->options->connections; i++)
        if (proxy->connections[i].state != CONNECTION_FREE)
            reset(proxy, &proxy->connections[i], RESET_ENDING);
    return error ? 1 : 0;
}
