/* See loop.h. */
#include "core/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define EVENTS 32
#define US_PER_S 1000000ull

int64_t agent_now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int loop_open(struct loop *loop) {
    *loop = (struct loop){.epoll_fd = epoll_create1(EPOLL_CLOEXEC)};
    return loop->epoll_fd < 0 ? -errno : 0;
}

static struct loop_watch *find_watch(struct loop *loop, int fd) {
    for (struct loop_watch *watch = loop->watches; watch; watch = watch->next)
        if (watch->fd == fd && !watch->dead)
            return watch;
    return NULL;
}

static struct loop_watch *add(struct loop *loop, int fd, uint32_t events, int *ret_error) {
    struct loop_watch *watch = calloc(1, sizeof(*watch));
    struct epoll_event event = {.events = events, .data.ptr = watch};
    *ret_error = watch ? 0 : -ENOMEM;
    if (!watch)
        return NULL;
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event)) {
        *ret_error = -errno;
        free(watch);
        return NULL;
    }
    watch->fd = fd;
    watch->next = loop->watches;
    loop->watches = watch;
    return watch;
}

int loop_add_fd(struct loop *loop, int fd, uint32_t events, void (*ready)(void *, uint32_t), void *context) {
    int error;
    struct loop_watch *watch = add(loop, fd, events, &error);
    if (watch) {
        watch->ready = ready;
        watch->context = context;
    }
    return error;
}

void loop_remove_fd(struct loop *loop, int fd) {
    struct loop_watch *watch = find_watch(loop, fd);
    if (!watch)
        return;
    epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    /* Freed after the round: an event of this round may still point here. */
    watch->dead = true;
}

int loop_add_timer(struct loop *loop, uint64_t period_us, void (*tick)(void *), void *context) {
    struct timespec period = {.tv_sec = (time_t)(period_us / US_PER_S), .tv_nsec = (long)(period_us % US_PER_S * 1000)};
    struct itimerspec timer = {.it_interval = period, .it_value = period};
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), error = 0;
    if (fd < 0)
        return -errno;
    if (timerfd_settime(fd, 0, &timer, NULL))
        error = -errno;
    struct loop_watch *watch = error ? NULL : add(loop, fd, EPOLLIN, &error);
    if (!watch) {
        close(fd);
        return error;
    }
    watch->tick = tick;
    watch->context = context;
    return 0;
}

static void sweep(struct loop *loop) {
    struct loop_watch **place = &loop->watches;
    while (*place) {
        struct loop_watch *watch = *place;
        if (!watch->dead) {
            place = &watch->next;
            continue;
        }
        *place = watch->next;
        free(watch);
    }
}

static void serve(const struct loop_watch *watch, uint32_t events) {
    uint64_t expirations;
    if (watch->dead)
        return;
    if (!watch->tick) {
        watch->ready(watch->context, events);
        return;
    }
    if (read(watch->fd, &expirations, sizeof(expirations)) == sizeof(expirations))
        watch->tick(watch->context);
}

int loop_run(struct loop *loop) {
    struct epoll_event events[EVENTS];
    while (!loop->stop) {
        int count = epoll_wait(loop->epoll_fd, events, EVENTS, -1);
        if (count < 0 && errno != EINTR)
            return -errno;
        for (int i = 0; i < count && !loop->stop; i++)
            serve(events[i].data.ptr, events[i].events);
        sweep(loop);
    }
    return 0;
}

void loop_close(struct loop *loop) {
    while (loop->watches) {
        struct loop_watch *watch = loop->watches;
        loop->watches = watch->next;
        if (watch->tick)
            close(watch->fd);
        free(watch);
    }
    close(loop->epoll_fd);
}
