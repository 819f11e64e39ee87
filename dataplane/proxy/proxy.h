/* All connections of a proxy and what becomes of them.
 *
 *   held       the host's first packet waits in the queue while the proxy connects onward
 *   accepting  the server has answered: the packet was let through to the proxy's listener, the host is being answered
 *   open       octets pass in both directions
 *   breaking   one end has reset it; what it said before is on its way to the other, which is then reset, too
 *   closing    both ends were told of the end; the last octets are under way
 *
 * When the server refuses or does not answer, the held packet goes on as if there were no proxy: the host gets the
 * server's own answer, or silence. */
#ifndef PROXY_PROXY_H
#define PROXY_PROXY_H

#include <sys/epoll.h>

#include "connection.h"
#include "counters.h"
#include "flow.h"
#include "lib/events/events.h"
#include "options.h"
#include "pump.h"
#include "queue.h"

/* Of its descriptors in epoll; those of a connection go with its place and generation. */
#define TAG_QUEUE TAG(1)
#define TAG_LISTENER TAG(2)
#define TAG_EXPORTER TAG(3)
#define TAG_HOST TAG(4)
#define TAG_ONWARD TAG(5)

struct metrics;

/* Called once a second; changes what options say of new connections. */
struct proxy_watch {
    void (*look)(void *context);
    void *context;
};

struct proxy {
    const struct options *options;
    struct proxy_watch watch; /* look NULL: none */
    int epoll, listeners[2];
    struct queue *queue; /* NULL: no new connections any more */
    struct metrics *metrics;
    struct connection *connections; /* options->connections of them */
    uint32_t first_free, first_again, last_again, used;
    struct table table;
    struct pipes pipes;
    struct counters counters;
    uint64_t now_us, tick_us;
};

/* 0, or a negative errno after a sentence on standard error. Everything but the rules, which proxy_close leaves alone,
 * too. */
int proxy_open(struct proxy *proxy, const struct options *options);
void proxy_close(struct proxy *proxy);
/* Serves until it is told to end, then until connections have ended or the time for that is up. Exit status. */
int proxy_run(struct proxy *proxy);

#endif
