/* When an application is too slow, see guard.h. */
#include "guard.h"

bool guard_too_slow(struct guard *guard, uint64_t asked_us, uint64_t answered_us) {
    if (!guard->window_start_us || asked_us - guard->window_start_us >= GUARD_WINDOW_US)
        *guard = (struct guard){.window_start_us = asked_us};
    guard->waited_us += answered_us - asked_us;
    return guard->waited_us > GUARD_WINDOW_US / GUARD_WINDOW_SHARE;
}
