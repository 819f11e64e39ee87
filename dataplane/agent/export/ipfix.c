/* Flow records to a collector, of --ipfix or of the policy, with the streams or without. Accounting is best effort:
 * what a collector does not take is lost and counted. */
#include "export/ipfix.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/agent.h"
#include "core/log.h"
#include "core/loop.h"
#include "export/ipfix_export.h"
#include "export/records.h"

#define WALK_US 1000000u
#define COLLECTOR_LEN 80

struct state {
    struct agent *agent;
    struct ipfix_export *export;
    struct records records;
    uint64_t sent;
    uint64_t lost;
    /* Empty: nobody takes them. */
    char collector[COLLECTOR_LEN];
    char error[IPFIX_ERROR_LEN];
};

static void note(struct state *state, int error, const char *why) {
    if (!error)
        return;
    state->lost++;
    /* Said once for each reason, not every second. */
    if (strcmp(state->error, why) != 0)
        log_warning("flow records are not taken by %s: %s", state->collector, why);
    memcpy(state->error, why, sizeof(state->error));
}

static int take(const struct flow_record *record, void *context) {
    struct state *state = context;
    char why[IPFIX_ERROR_LEN] = "";
    int error = ipfix_export_add(state->export, record, why);

    state->sent += !error;
    note(state, error, why);
    return error;
}

static void flush(struct state *state) {
    char why[IPFIX_ERROR_LEN] = "";

    note(state, ipfix_export_flush(state->export, agent_now_us(), why), why);
}

static void tick(void *context) {
    struct state *state = context;
    const struct datapath_flow *flows;
    size_t n;

    if (!state->export)
        return;
    n = datapath_flows(datapath_of(state->agent), &flows);
    if (records_walk(&state->records, flows, n, agent_now_us()))
        log_warning("no memory for the records of %zu flows", n);
    flush(state);
}

static void stop(struct state *state) {
    if (state->export) {
        records_close(&state->records, agent_now_us());
        flush(state);
    }
    ipfix_export_close(state->export);
    state->export = NULL;
}

static int send_to(struct state *state, const char *collector) {
    const char *node = agent_options(state->agent)->node;
    char why[IPFIX_ERROR_LEN] = "";
    int error = 0;

    stop(state);
    snprintf(state->collector, sizeof(state->collector), "%s", collector);
    state->records = (struct records){.node = node, .sink = take, .context = state};
    if (*collector)
        error = ipfix_export_open(collector, node, why, &state->export);
    if (error)
        log_error("flow records cannot go to %s: %s", collector, why);
    memcpy(state->error, why, sizeof(state->error));
    return error;
}

void ipfix_send_to(const struct agent *agent, const char *collector) {
    struct state *state = agent_state(agent, &ipfix_module);

    if (state && strncmp(state->collector, collector, sizeof(state->collector) - 1) != 0)
        (void)send_to(state, collector);
}

static void ipfix_close(void *context) {
    struct state *state = context;

    stop(state);
    free(state);
}

static int ipfix_open(struct agent *agent, void **ret_state) {
    const struct agent_options *options = agent_options(agent);
    struct state *state = calloc(1, sizeof(*state));
    int error = state ? 0 : -ENOMEM;

    if (state)
        state->agent = agent;
    if (!error && options->ipfix)
        error = send_to(state, options->ipfix);
    error = error ? error : agent_add_timer(agent, WALK_US, tick, state);
    if (error && state) {
        ipfix_close(state);
        return error;
    }
    *ret_state = state;
    return error;
}

static void ipfix_status(void *context, struct cJSON *object) {
    const struct state *state = context;
    struct cJSON *ipfix;

    if (!state->collector[0])
        return;
    ipfix = cJSON_AddObjectToObject(object, "ipfix");
    cJSON_AddStringToObject(ipfix, "collector", state->collector);
    cJSON_AddNumberToObject(ipfix, "sent", (double)state->sent);
    cJSON_AddNumberToObject(ipfix, "lost", (double)state->lost);
    cJSON_AddStringToObject(ipfix, "error", state->error);
}

const struct agent_module ipfix_module = {
    .name = "ipfix", .open = ipfix_open, .close = ipfix_close, .status = ipfix_status};
