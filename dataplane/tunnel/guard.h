/* When an application is too slow for the tunnel: the tunnel waits for its answers, so the sum of the waits is bounded
 * as well as each one. Pure. */
#ifndef ITM_GUARD_H
#define ITM_GUARD_H

#include <stdbool.h>
#include <stdint.h>

/* One answer may take so long, unless an operator says otherwise. */
#define GUARD_LIMIT_US 20000U
#define GUARD_LIMIT_LEAST_US 1000U
#define GUARD_LIMIT_MOST_US 40000U
/* All answers of a window together may take half of it. */
#define GUARD_WINDOW_US 1000000U
#define GUARD_WINDOW_SHARE 2U

struct guard {
    uint64_t window_start_us, waited_us;
};

/* The tunnel waited for an answer from one time to another: true when the application has to go. */
bool guard_too_slow(struct guard *guard, uint64_t asked_us, uint64_t answered_us);

#endif
