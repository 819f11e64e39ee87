/* See events.h. */
#define _GNU_SOURCE
#include "events.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <time.h>

static volatile sig_atomic_t ended;

uint64_t loop_now_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000U + (uint64_t)time.tv_nsec / 1000U;
}

static void on_signal(int number) {
    (void)number;
    ended = 1;
}

void loop_catch_signals(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

bool loop_ended(void) {
    return ended;
}

void loop_end(void) {
    ended = 1;
}

int loop_watch(int epoll, int descriptor, uint32_t events, uint64_t data) {
    struct epoll_event event = {.events = events, .data.u64 = data};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) < 0 ? -errno : 0;
}

int loop_timeout_ms(uint64_t until_us, uint64_t now_us) {
    if (until_us <= now_us)
        return 0;
    uint64_t left_ms = (until_us - now_us + 999) / 1000;
    return left_ms < 1000 ? (int)left_ms : 1000;
}
