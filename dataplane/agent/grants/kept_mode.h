/* The mode that an agent was told last and the local switch, on disk: a restarted agent goes on in the same mode, also
 * while it reaches no broker. The file `enforcement` in the state folder, replaced as a whole. */
#pragma once

#include <stdbool.h>

#include "grants/decide.h"

struct kept_mode {
    /* Of policy or rate file. */
    enum decide_mode told;
    /* `chart-agent --off` holds. */
    bool off;
};

/* An agent that was never told anything observes. 0, or a negative errno when the file cannot be understood; then the
 * agent is to be off until `--on`, for nobody knows what it was told. */
int kept_mode_read(const char *directory, struct kept_mode *ret);
/* 0 when it is on disk, or a negative errno. */
int kept_mode_write(const char *directory, const struct kept_mode *mode);
