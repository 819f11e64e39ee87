/* Replay protection; see replay.h. */
#include "replay.h"

#include <string.h>

static uint64_t *word(struct replay_window *window, uint32_t sequence) {
    return &window->bits[sequence % REPLAY_WINDOW / 64];
}

bool replay_window_accept(struct replay_window *window, uint32_t sequence) {
    uint64_t bit = 1ULL << (sequence % 64);

    if (sequence == 0)
        return false;
    if (sequence > window->highest) {
        uint32_t step = sequence - window->highest;

        if (step >= REPLAY_WINDOW) {
            memset(window->bits, 0, sizeof(window->bits));
        } else {
            for (uint32_t passed = window->highest + 1; passed != sequence; passed++)
                *word(window, passed) &= ~(1ULL << (passed % 64));
        }
        window->highest = sequence;
        *word(window, sequence) |= bit;
        return true;
    }
    if (window->highest - sequence >= REPLAY_WINDOW || (*word(window, sequence) & bit))
        return false;
    *word(window, sequence) |= bit;
    return true;
}

bool replay_hello_accept(struct replay_hellos *hellos, uint64_t time_ns) {
    uint64_t *oldest = &hellos->times_ns[hellos->next];

    if (time_ns <= hellos->floor_ns)
        return false;
    for (size_t i = 0; i < REPLAY_HELLOS; i++)
        if (hellos->times_ns[i] == time_ns)
            return false;
    if (*oldest > hellos->floor_ns)
        hellos->floor_ns = *oldest;
    *oldest = time_ns;
    hellos->next = (hellos->next + 1) % REPLAY_HELLOS;
    return true;
}
