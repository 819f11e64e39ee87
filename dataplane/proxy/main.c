/* chart-proxy: the explicit-rate proxy for hosts that cannot run an agent (Brassil et al., The CHART System, sections 3
 * and 5). This file: start, in the order in which things may fail without a trace, and the end. */
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "followed.h"
#include "lib/caps/caps.h"
#include "lib/events/events.h"
#include "lib/notify/notify.h"
#include "options.h"
#include "proxy.h"
#include "queue.h"
#include "steering.h"

/* Two sockets and two pipes per connection. */
#define DESCRIPTORS_EACH 6
#define DESCRIPTORS_MORE 512

static int check_machine(const struct options *options) {
    if (geteuid() != 0) {
        fprintf(stderr, "chart-proxy: sets up rules and routes and needs root\n");
        return -EPERM;
    }
    for (size_t i = 0; i < options->interface_count; i++)
        if (!if_nametoindex(options->interfaces[i])) {
            fprintf(stderr, "chart-proxy: --interface %s: there is no such interface\n", options->interfaces[i]);
            return -ENODEV;
        }
    return 0;
}

/* As many descriptors as its connections may take; where they cannot be had, fewer connections. */
static int raise_limits(struct options *options) {
    struct rlimit limit;
    rlim_t wanted = (rlim_t)options->connections * DESCRIPTORS_EACH + DESCRIPTORS_MORE;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return -errno;
    if (limit.rlim_cur >= wanted)
        return 0;
    const struct rlimit raised = {wanted, limit.rlim_max < wanted ? wanted : limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
        return 0;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur < DESCRIPTORS_MORE + DESCRIPTORS_EACH) {
        fprintf(stderr, "chart-proxy: %llu descriptors are too few\n", (unsigned long long)limit.rlim_max);
        return -EMFILE;
    }
    options->connections = (uint32_t)((limit.rlim_cur - DESCRIPTORS_MORE) / DESCRIPTORS_EACH);
    fprintf(stderr, "chart-proxy: %llu descriptors (ulimit -Hn) are enough for %u connections at a time\n",
            (unsigned long long)limit.rlim_max, options->connections);
    return 0;
}

static int drop_privileges(void) {
    /* NET_ADMIN: transparent sockets, the queue, rules and routes. NET_RAW: iptables of the older kind.
     * NET_BIND_SERVICE: hosts that come from a port below 1024. */
    static const cap_value_t kept[] = {CAP_NET_ADMIN, CAP_NET_RAW, CAP_NET_BIND_SERVICE};
    int error = caps_drop(kept, sizeof(kept) / sizeof(kept[0]));
    if (error)
        fprintf(stderr, "chart-proxy: cannot drop privileges: %s\n", strerror(-error));
    return error;
}

struct following {
    struct followed followed;
    struct options *options;
    bool steers; /* the rules are there */
};

static void say_what_is_taken(const struct options *options) {
    fprintf(stderr, "chart-proxy: takes what comes in through %zu interfaces, of %zu prefixes%s\n",
            options->interface_count, options->host_count, options->host_count ? "" : " (all hosts)");
}

/* A node whose proxy takes nothing has no rule of it. Rules that are there stay: open connections need them. */
static int steer(struct following *following) {
    const struct options *options = following->options;
    if (following->steers)
        return steering_change(options);
    if (!options->interface_count)
        return 0;
    int error = steering_install(options);
    following->steers = !error;
    return error;
}

static void look(void *context) {
    struct following *following = context;
    if (!followed_look(&following->followed, following->options))
        return;
    say_what_is_taken(following->options);
    if (steer(following))
        /* Once more at the next look. */
        following->followed.changed.tv_sec = 0;
}

/* With --state-dir: what the file says now. */
static int begin_following(struct following *following, struct options *options) {
    following->options = options;
    if (!options->state_dir)
        return 0;
    int error = followed_open(&following->followed, options);
    if (error)
        fprintf(stderr, "chart-proxy: --state-dir %s: %s\n", options->state_dir, strerror(-error));
    else if (followed_look(&following->followed, options))
        say_what_is_taken(options);
    return error;
}

static int run(struct options *options) {
    static struct following following;
    struct proxy proxy;
    if (check_machine(options) || raise_limits(options) || begin_following(&following, options))
        return 1;
    loop_catch_signals();
    int status = 1, error = proxy_open(&proxy, options);
    /* What a killed predecessor left would go on taking connections. */
    if (!error && !options->interface_count)
        error = steering_remove(options);
    if (!error)
        error = steer(&following);
    if (!error) {
        error = drop_privileges();
        if (!error) {
            fprintf(stderr, "chart-proxy: ready\n");
            if (options->state_dir)
                proxy.watch = (struct proxy_watch){look, &following};
            notify_ready();
            status = proxy_run(&proxy);
        }
        if (following.steers && steering_remove(options))
            status = 1;
    }
    proxy_close(&proxy);
    return status;
}

static int clean_up(const struct options *options) {
    struct queue *queue = NULL;
    if (geteuid() != 0) {
        fprintf(stderr, "chart-proxy: --cleanup removes rules and routes and needs root\n");
        return 1;
    }
    int error = queue_open(options->queue, 1, options->mark, &queue);
    if (error == -EBUSY) {
        fprintf(stderr, "chart-proxy: a proxy with queue %u is running: end it, it removes its rules itself\n",
                options->queue);
        return 1;
    }
    queue_close(queue);
    return steering_remove(options) ? 1 : 0;
}

int main(int count, char **arguments) {
    static struct options options;
    if (options_parse(count, arguments, stderr, &options))
        return 2;
    switch (options.action) {
    case OPTIONS_HELP:
        options_help(stdout);
        return 0;
    case OPTIONS_RULES:
        steering_print(&options, stdout);
        return 0;
    case OPTIONS_CLEANUP:
        return clean_up(&options);
    case OPTIONS_RUN:
        break;
    }
    return run(&options);
}
