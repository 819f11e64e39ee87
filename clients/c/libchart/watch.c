/* Changes of a rate as events: the kernel has no descriptor to wait on, so a timer looks every 10 ms. A rate changes at
 * most with a renewal, of which there is one in 128 packets or a second. */
#include <errno.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "chart.h"
#include "clock.h"

struct chart_watch {
    int fd;
    int timer;
    struct chart_rate last;
};

int chart_watch_open(int fd, struct chart_watch **ret) {
    const struct itimerspec every = {.it_interval = {.tv_nsec = (long)CHART_LOOK_NS},
                                     .it_value = {.tv_nsec = (long)CHART_LOOK_NS}};
    struct chart_rate rate;
    int error = chart_get_rate(fd, &rate);
    if (error)
        return error;
    struct chart_watch *watch = calloc(1, sizeof(*watch));
    if (!watch)
        return -ENOMEM;
    watch->fd = fd;
    watch->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (watch->timer < 0 || timerfd_settime(watch->timer, 0, &every, NULL)) {
        error = -errno;
        chart_watch_close(watch);
        return error;
    }
    *ret = watch;
    return 0;
}

void chart_watch_close(struct chart_watch *watch) {
    if (!watch)
        return;
    if (watch->timer >= 0)
        close(watch->timer);
    free(watch);
}

int chart_watch_fd(const struct chart_watch *watch) {
    return watch->timer;
}

int chart_watch_next(struct chart_watch *watch, struct chart_rate *ret) {
    uint64_t expirations;
    struct chart_rate rate;
    if (read(watch->timer, &expirations, sizeof(expirations)) < 0 && errno != EAGAIN)
        return -errno;
    int error = chart_get_rate(watch->fd, &rate);
    if (error)
        return error;
    bool changed = rate.changes != watch->last.changes || rate.state != watch->last.state ||
                   (rate.bps == 0) != (watch->last.bps == 0);
    watch->last = rate;
    *ret = rate;
    return changed;
}
