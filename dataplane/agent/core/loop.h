/* One epoll with callbacks for descriptors and timers; agent.h says what the calls mean. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Microseconds since the epoch. */
int64_t agent_now_us(void);

struct loop_watch {
    struct loop_watch *next;
    int fd;
    bool dead;
    void (*ready)(void *context, uint32_t events);
    void (*tick)(void *context);
    void *context;
};

struct loop {
    int epoll_fd;
    bool stop;
    struct loop_watch *watches;
};

int loop_open(struct loop *loop);
int loop_add_fd(struct loop *loop, int fd, uint32_t events, void (*ready)(void *, uint32_t), void *context);
void loop_remove_fd(struct loop *loop, int fd);
int loop_add_timer(struct loop *loop, uint64_t period_us, void (*tick)(void *), void *context);
int loop_run(struct loop *loop);
/* Closes the timers; other descriptors belong to who added them. */
void loop_close(struct loop *loop);
