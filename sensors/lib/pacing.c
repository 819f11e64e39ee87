/* Precise waiting; see pacing.h. */
#include "pacing.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#define NS_PER_S 1000000000LL

static int64_t read_clock(clockid_t clock) {
    struct timespec now;

    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

void pacing_prepare(void) {
    prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
    /* Best effort: without CAP_IPC_LOCK the limit (RLIMIT_MEMLOCK) may be too low. */
    (void)mlockall(MCL_CURRENT);
}

bool pacing_begin_precise(struct pacing_priority *ret_before) {
    struct sched_param wanted = {.sched_priority = PACING_PRIORITY};

    ret_before->policy = sched_getscheduler(0);
    if (sched_getparam(0, &ret_before->parameters) < 0)
        return false;
    return sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &wanted) == 0;
}

void pacing_end_precise(const struct pacing_priority *before) {
    /* Going back to the ordinary policy is always allowed. */
    (void)sched_setscheduler(0, before->policy, &before->parameters);
}

int64_t pacing_now_ns(void) {
    return read_clock(CLOCK_MONOTONIC);
}

int64_t pacing_wall_ns(void) {
    return read_clock(CLOCK_REALTIME);
}

void pacing_wait_until(int64_t deadline_ns) {
    int64_t sleep_until_ns = deadline_ns - PACING_SPIN_NS;

    if (sleep_until_ns > pacing_now_ns()) {
        struct timespec until = {.tv_sec = sleep_until_ns / NS_PER_S, .tv_nsec = sleep_until_ns % NS_PER_S};

        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
            ;
    }
    while (pacing_now_ns() < deadline_ns)
        ;
}
