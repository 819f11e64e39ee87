/* Precise waiting: sleep until shortly before the moment, then spin. A sleeping process wakes tens of microseconds late
 * even with timer slack 1; chirps and trains need single microseconds. */
#ifndef CHART_SENSORS_PACING_H
#define CHART_SENSORS_PACING_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

/* The last part of a wait is spent spinning. */
#define PACING_SPIN_NS 100000

/* Set timer slack to 1 ns for this thread, and lock what is in memory: a page of a program that waited for long may
 * have gone, and reading it again takes milliseconds in the middle of a train. */
void pacing_prepare(void);
/* Lowest real-time priority: above ordinary processes, below a link emulator or anything else that asked for more. */
#define PACING_PRIORITY 1

struct pacing_priority {
    int policy;
    struct sched_param parameters;
};

/* Run in real time from here to pacing_end_precise(), which is only to be called when this returned true. For stretches
 * of milliseconds; without the permission the caller goes on as it is and times less exactly. */
bool pacing_begin_precise(struct pacing_priority *ret_before);
void pacing_end_precise(const struct pacing_priority *before);
/* CLOCK_MONOTONIC, ns. */
int64_t pacing_now_ns(void);
/* CLOCK_REALTIME, ns: the clock of kernel packet timestamps. */
int64_t pacing_wall_ns(void);
/* Return at `deadline_ns` of CLOCK_MONOTONIC or as little later as can be. */
void pacing_wait_until(int64_t deadline_ns);

#endif
