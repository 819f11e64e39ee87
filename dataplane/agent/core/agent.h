/* The agent as its parts see it. A part is a struct agent_module; main.c lists them, they are opened in that order and
 * closed in reverse. One thread runs everything. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/options.h"

struct cJSON;
struct agent;

struct agent_module {
    const char *name;
    /* 0 or a negative errno; *ret_state is handed to the other calls. */
    int (*open)(struct agent *agent, void **ret_state);
    void (*close)(void *state);
    /* Add what `chart-agent --status --json` shall show; may be NULL. */
    void (*status)(void *state, struct cJSON *object);
    /* The local off switch (true) was thrown or taken back; may be NULL. */
    void (*switched_off)(void *state, bool off);
};

const struct agent_options *agent_options(const struct agent *agent);
/* What a part that is open has made; NULL when it is not open. */
void *agent_state(const struct agent *agent, const struct agent_module *module);

/* Call `ready` when `fd` has one of `events` (EPOLLIN...). The descriptor stays the caller's. 0 or negative errno. */
int agent_add_fd(struct agent *agent, int fd, uint32_t events, void (*ready)(void *context, uint32_t events),
                 void *context);
void agent_remove_fd(struct agent *agent, int fd);
/* Call `tick` every period_us; a late tick is not made up for. 0 or negative errno. */
int agent_add_timer(struct agent *agent, uint64_t period_us, void (*tick)(void *context), void *context);
void agent_stop(struct agent *agent, int exit_status);

/* Let every part add to the status; tell every part of the off switch. */
void agent_add_status(const struct agent *agent, struct cJSON *object);
void agent_tell_switched_off(struct agent *agent, bool off);

/* Make the state folder, open the parts, drop privileges and run until a signal or agent_stop; then close the parts.
 * Returns the exit status. */
int agent_run(const struct agent_options *options, const struct agent_module *const *modules, size_t n_modules);
