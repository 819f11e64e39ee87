/* See ratefile.h. This file: the module that reads the file when it changes and renews its leases. */
#include "grants/ratefile.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/agent.h"
#include "core/log.h"
#include "core/loop.h"
#include "core/watched_file.h"

/* A changed file is in force within this time (a look at its times costs a microsecond; writers replace or rewrite it
 * as they like). */
#define LOOK_US 20000u
#define RENEW_US 500000u
/* A killed agent leaves flows under their rate no longer than this. */
#define LEASE_US 1500000u

struct state {
    struct agent *agent;
    struct ratefile ratefile;
    struct watched_file file;
    int64_t read_at_us;
    char error[RATEFILE_ERROR_LEN];
    bool complained;
};

static void apply(struct state *state) {
    struct ratefile *ratefile = &state->ratefile;
    int64_t now_us = agent_now_us();
    uint64_t age_us = (uint64_t)(now_us - state->read_at_us);
    for (size_t i = 0; i < ratefile->n_grants; i++) {
        uint64_t valid_us = ratefile->valid_for_us[i];
        uint64_t left_us = valid_us > age_us ? valid_us - age_us : 0;
        uint64_t lease_us = valid_us == 0 || left_us > LEASE_US ? LEASE_US : left_us;
        ratefile->grants[i].valid_until_us = now_us + (int64_t)lease_us;
        ratefile->grants[i].ar_valid_until_us = now_us + (int64_t)lease_us;
    }
    int error = datapath_apply(datapath_of(state->agent), ratefile->grants, ratefile->n_grants, now_us, NULL);
    if (error)
        log_error("rate file: a grant could not be applied: %s", strerror(-error));
}

static void complain(struct state *state, const char *what) {
    const char *path = agent_options(state->agent)->rate_file;
    snprintf(state->error, sizeof(state->error), "%s", what);
    if (!state->complained)
        log_error("rate file %s: %s; the grants of before stay until they end", path, what);
    state->complained = true;
}

static void take(struct state *state, const char *text, size_t length) {
    struct ratefile fresh;
    char error[RATEFILE_ERROR_LEN];
    state->complained = false;
    if (ratefile_parse(text, length, &fresh, error)) {
        complain(state, error);
        return;
    }
    ratefile_free(&state->ratefile);
    state->ratefile = fresh;
    state->error[0] = '\0';
    state->read_at_us = agent_now_us();
    datapath_set_mode(datapath_of(state->agent), fresh.mode);
    apply(state);
    log_info("rate file read: %zu grants", fresh.n_grants);
}

static void look(void *context) {
    struct state *state = context;
    char *text = NULL;
    size_t length = 0;
    int status = watched_file_look(&state->file, &text, &length);
    if (status < 0)
        complain(state, watched_file_error(status));
    else if (status > 0)
        take(state, text, length);
    free(text);
}

static void renew(void *context) {
    apply(context);
}

static void close_module(void *context) {
    struct state *state = context;
    ratefile_free(&state->ratefile);
    free(state);
}

static int open_module(struct agent *agent, void **ret_state) {
    struct state *state = calloc(1, sizeof(*state));
    int error;
    if (!state)
        return -ENOMEM;
    state->agent = agent;
    *ret_state = state;
    if (!agent_options(agent)->rate_file)
        return 0;
    state->file = (struct watched_file){.path = agent_options(agent)->rate_file, .bytes_max = RATEFILE_BYTES_MAX};
    look(state);
    error = agent_add_timer(agent, LOOK_US, look, state);
    error = error ? error : agent_add_timer(agent, RENEW_US, renew, state);
    if (error)
        close_module(state);
    return error;
}

static void status(void *context, struct cJSON *object) {
    const struct state *state = context;
    const char *path = agent_options(state->agent)->rate_file;
    if (!path)
        return;
    struct cJSON *file = cJSON_AddObjectToObject(object, "rate_file");
    cJSON_AddStringToObject(file, "path", path);
    cJSON_AddNumberToObject(file, "grants", (double)state->ratefile.n_grants);
    cJSON_AddStringToObject(file, "error", state->error);
}

const struct agent_module ratefile_module = {
    .name = "rate-file", .open = open_module, .close = close_module, .status = status};
