/* See control.h. This file: the agent's end. */
#define _GNU_SOURCE
#include "control/control.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/agent.h"
#include "core/log.h"
#include "grants/datapath.h"
#include "signal/signal_flows.h"
#include "signal/signal_source.h"

#define REQUEST_BYTES_MAX 4096
#define WOULD_LEN 128
/* A client that neither asks nor reads must not hold the agent up. */
#define CLIENT_TIMEOUT_US 200000
#define IN_BAND_MAX 256
#define ADVISED_MAX 256

struct control {
    struct agent *agent;
    int listener;
    char path[108];
};

static void add_flow(struct cJSON *array, const struct datapath_flow *flow) {
    struct cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "request_id", flow->request_id);
    cJSON_AddStringToObject(object, "local", flow->local);
    cJSON_AddStringToObject(object, "remote", flow->remote);
    cJSON_AddStringToObject(object, "congestion_control", flow->control);
    cJSON_AddBoolToObject(object, "in_band", flow->in_band);
    cJSON_AddNumberToObject(object, "rate_bps", (double)flow->rate_bps);
    cJSON_AddNumberToObject(object, "pacing_bytes_per_s",
                            flow->pacing_bytes_per_s == UINT64_MAX ? 0 : (double)flow->pacing_bytes_per_s);
    cJSON_AddNumberToObject(object, "cwnd_packets", flow->cwnd_packets);
    cJSON_AddNumberToObject(object, "rtt_us", flow->rtt_us);
    cJSON_AddNumberToObject(object, "min_rtt_us", flow->min_rtt_us);
    cJSON_AddNumberToObject(object, "sent_bytes", (double)flow->sent_bytes);
    cJSON_AddNumberToObject(object, "delivered_bytes", (double)flow->delivered_bytes);
    cJSON_AddNumberToObject(object, "retransmitted_packets", (double)flow->retransmitted_packets);
    cJSON_AddItemToArray(array, object);
}

static void add_grants(struct cJSON *array, struct datapath *datapath) {
    bool observes = datapath_mode(datapath) == DECIDE_MODE_OBSERVE;
    const struct decide_applied *grant;
    size_t cursor = 0;
    while ((grant = datapath_next_grant(datapath, &cursor))) {
        struct cJSON *object = cJSON_CreateObject();
        struct decide_observed seen = {0};
        datapath_observe(datapath, grant->request_id, &seen);
        cJSON_AddStringToObject(object, "request_id", grant->request_id);
        cJSON_AddBoolToObject(object, "sending", grant->sending);
        cJSON_AddNumberToObject(object, "guaranteed_bps", (double)grant->gr_bps);
        cJSON_AddNumberToObject(object, "available_bps", (double)grant->ar_bps);
        cJSON_AddNumberToObject(object, "kernel_rate_bps", observes ? 0 : (double)seen.kernel_rate_bps);
        if (observes)
            cJSON_AddNumberToObject(object, "would_run_at_bps", (double)seen.kernel_rate_bps);
        cJSON_AddNumberToObject(object, "matching_flows", seen.matching_flows);
        cJSON_AddNumberToObject(object, "sent_bytes", (double)seen.sent_bytes);
        cJSON_AddNumberToObject(object, "delivered_bytes", (double)seen.delivered_bytes);
        cJSON_AddItemToArray(array, object);
    }
}

static void answer_status(struct control *control, struct cJSON *answer) {
    struct datapath *datapath = datapath_of(control->agent);
    const struct datapath_flow *flows;
    cJSON_AddStringToObject(answer, "node", agent_options(control->agent)->node);
    cJSON_AddStringToObject(answer, "enforcement", decide_mode_name(datapath_mode(datapath)));
    cJSON_AddBoolToObject(answer, "switched_off", datapath_is_off(datapath_of(control->agent)));
    datapath_reconcile(datapath);
    struct cJSON *array = cJSON_AddArrayToObject(answer, "flows");
    size_t count = datapath_flows(datapath, &flows);
    for (size_t i = 0; i < count; i++)
        if (!datapath_flow_is_plain(&flows[i]))
            add_flow(array, &flows[i]);
    array = cJSON_AddArrayToObject(answer, "grants");
    add_grants(array, datapath);
    agent_add_status(control->agent, answer);
}

/* The first cause why a flow does not have its rate. */
static const char *explain(struct control *control, const struct datapath_flow *flow,
                           const struct decide_observed *seen, char would[WOULD_LEN]) {
    enum decide_mode mode = datapath_mode(datapath_of(control->agent));
    if (flow->in_band && flow->rate_bps)
        return "the flow has the rate that its path agreed to in band";
    if (datapath_flow_is_plain(flow))
        return "no grant matches: the flow uses its default congestion control";
    if (datapath_is_off(datapath_of(control->agent)))
        return "the agent is switched off locally (chart-agent --on undoes it)";
    if (mode == DECIDE_MODE_OFF)
        return "mode off: rates are not applied";
    if (mode == DECIDE_MODE_OBSERVE) {
        snprintf(would, WOULD_LEN,
                 "mode observe: under enforce the flows of this grant would run at %.3f Mb/s together, under trinity",
                 (double)seen->kernel_rate_bps / 1e6);
        return would;
    }
    if (seen->kernel_rate_bps == 0)
        return "the lease of the grant has expired";
    if (strcmp(flow->control, "trinity") != 0)
        return "the application or another program set this congestion control after the grant was applied";
    if (flow->rate_bps < seen->kernel_rate_bps)
        return "other active flows share the grant";
    return "the flow has the whole rate of its grant";
}

static bool speaks_of(const char *one, const char *other, const char *wanted) {
    char name[160];
    snprintf(name, sizeof(name), "%s-%s", one, other);
    return strstr(name, wanted) != NULL;
}

/* This hop of the flows that ask in band: also of those that only pass through this node. */
static void add_in_band(struct cJSON *array, const char *wanted) {
    struct signal_flow *flows = calloc(IN_BAND_MAX, sizeof(*flows));
    size_t n = flows ? signal_source_flows(flows, IN_BAND_MAX) : 0;
    for (size_t i = 0; i < n; i++) {
        struct cJSON *object;
        if (!speaks_of(flows[i].source, flows[i].destination, wanted) &&
            !speaks_of(flows[i].destination, flows[i].source, wanted))
            continue;
        object = cJSON_CreateObject();
        cJSON_AddStringToObject(object, "source", flows[i].source);
        cJSON_AddStringToObject(object, "destination", flows[i].destination);
        cJSON_AddNumberToObject(object, "protocol", flows[i].protocol);
        cJSON_AddStringToObject(object, "role", flows[i].role);
        cJSON_AddStringToObject(object, "state", flows[i].state);
        cJSON_AddStringToObject(object, "carrier", flows[i].carrier);
        cJSON_AddNumberToObject(object, "element", flows[i].element);
        cJSON_AddNumberToObject(object, "key_epoch", flows[i].key_epoch);
        cJSON_AddNumberToObject(object, "kept_bps", (double)flows[i].kept_bps);
        cJSON_AddNumberToObject(object, "agreed_bps", (double)flows[i].agreed_bps);
        cJSON_AddNumberToObject(object, "age_ms", flows[i].age_ms);
        cJSON_AddNumberToObject(object, "lease_ms", flows[i].lease_ms);
        cJSON_AddItemToArray(array, object);
    }
    free(flows);
}

/* Rates that flows were told in packets of a standard: at this node's links, and to its own connections. */
static void add_advised(const struct datapath *datapath, struct cJSON *array, const char *wanted) {
    struct datapath_advised *flows = calloc(ADVISED_MAX, sizeof(*flows));
    size_t n = flows ? datapath_advised_flows(datapath, flows, ADVISED_MAX) : 0;
    for (size_t i = 0; i < n; i++) {
        char interface[IF_NAMESIZE] = "";
        struct cJSON *object;
        if (!speaks_of(flows[i].source, flows[i].destination, wanted))
            continue;
        if (flows[i].ifindex && !if_indextoname(flows[i].ifindex, interface))
            *interface = '\0';
        object = cJSON_CreateObject();
        cJSON_AddStringToObject(object, "source", flows[i].source);
        cJSON_AddStringToObject(object, "destination", flows[i].destination);
        cJSON_AddNumberToObject(object, "protocol", flows[i].protocol);
        cJSON_AddStringToObject(object, "standard", flows[i].standard);
        cJSON_AddStringToObject(object, "interface", interface);
        cJSON_AddNumberToObject(object, "advised_bps", (double)flows[i].advised_bps);
        cJSON_AddNumberToObject(object, "age_ms", flows[i].age_ms);
        cJSON_AddItemToArray(array, object);
    }
    free(flows);
}

static void answer_explain(struct control *control, const char *wanted, struct cJSON *answer) {
    struct datapath *datapath = datapath_of(control->agent);
    const struct datapath_flow *flows;
    datapath_reconcile(datapath);
    struct cJSON *array = cJSON_AddArrayToObject(answer, "flows");
    size_t count = datapath_flows(datapath, &flows);
    for (size_t i = 0; i < count; i++) {
        char would[WOULD_LEN];
        struct decide_observed seen = {0};
        if (!speaks_of(flows[i].local, flows[i].remote, wanted))
            continue;
        datapath_observe(datapath, flows[i].request_id, &seen);
        add_flow(array, &flows[i]);
        struct cJSON *object = cJSON_GetArrayItem(array, cJSON_GetArraySize(array) - 1);
        cJSON_AddNumberToObject(object, "grant_rate_bps", (double)seen.kernel_rate_bps);
        cJSON_AddStringToObject(object, "cause", explain(control, &flows[i], &seen, would));
    }
    struct cJSON *in_band = cJSON_AddArrayToObject(answer, "in_band");
    add_in_band(in_band, wanted);
    struct cJSON *advised = cJSON_AddArrayToObject(answer, "advised");
    add_advised(datapath, advised, wanted);
    if (cJSON_GetArraySize(array) == 0 && cJSON_GetArraySize(in_band) == 0 && cJSON_GetArraySize(advised) == 0)
        cJSON_AddStringToObject(
            answer, "note", "no sending TCP flow of this node matches; flows without a grant are listed from 1 MiB on");
}

static int switch_agent(struct agent *agent, bool off) {
    log_info("switched %s by the local command", off ? "off" : "on");
    int error = datapath_switch(datapath_of(agent), off);
    agent_tell_switched_off(agent, off);
    return error;
}

static struct cJSON *answer(struct control *control, const char *text, size_t length) {
    struct cJSON *request = cJSON_ParseWithLength(text, length), *answer = cJSON_CreateObject();
    const char *command = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(request, "command"));
    const char *flow = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(request, "flow"));
    int error = 0;
    const char *problem = NULL;
    if (!command)
        problem = "expected {\"command\": \"status\" | \"off\" | \"on\" | \"explain\"}";
    else if (strcmp(command, "status") == 0)
        answer_status(control, answer);
    else if (strcmp(command, "off") == 0 || strcmp(command, "on") == 0)
        error = switch_agent(control->agent, command[1] == 'f');
    else if (strcmp(command, "explain") == 0)
        answer_explain(control, flow ? flow : "", answer);
    else
        problem = "unknown command";
    if (error)
        problem = strerror(-error);
    cJSON_AddBoolToObject(answer, "ok", !problem);
    if (problem)
        cJSON_AddStringToObject(answer, "error", problem);
    cJSON_Delete(request);
    return answer;
}

static void serve(void *context, uint32_t events) {
    struct control *control = context;
    struct timeval timeout = {.tv_usec = CLIENT_TIMEOUT_US};
    char text[REQUEST_BYTES_MAX];
    (void)events;
    int fd = accept4(control->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    ssize_t length = recv(fd, text, sizeof(text), 0);
    if (length > 0) {
        struct cJSON *object = answer(control, text, (size_t)length);
        char *line = cJSON_PrintUnformatted(object);
        for (size_t sent = 0, size = line ? strlen(line) : 0; sent < size;) {
            ssize_t part = send(fd, line + sent, size - sent, MSG_NOSIGNAL);
            if (part <= 0)
                break;
            sent += (size_t)part;
        }
        free(line);
        cJSON_Delete(object);
    }
    close(fd);
}

static void close_module(void *context) {
    struct control *control = context;
    if (control->listener >= 0) {
        agent_remove_fd(control->agent, control->listener);
        close(control->listener);
        unlink(control->path);
    }
    free(control);
}

static int listen_on(struct control *control) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (snprintf(control->path, sizeof(control->path), "%s/agent.sock", agent_options(control->agent)->state_dir) >=
        (int)sizeof(address.sun_path)) {
        log_error("--state-dir is too long for a socket");
        return -ENAMETOOLONG;
    }
    memcpy(address.sun_path, control->path, sizeof(address.sun_path));
    unlink(control->path);
    control->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (control->listener < 0)
        return -errno;
    if (bind(control->listener, (struct sockaddr *)&address, sizeof(address)) || chmod(control->path, 0600) ||
        listen(control->listener, 16))
        return -errno;
    return agent_add_fd(control->agent, control->listener, EPOLLIN, serve, control);
}

static int open_module(struct agent *agent, void **ret_state) {
    struct control *control = calloc(1, sizeof(*control));
    if (!control)
        return -ENOMEM;
    control->agent = agent;
    control->listener = -1;
    int error = listen_on(control);
    if (error) {
        log_error("cannot listen on %s: %s", control->path, strerror(-error));
        close_module(control);
        return error;
    }
    *ret_state = control;
    return 0;
}

const struct agent_module control_module = {.name = "control socket", .open = open_module, .close = close_module};
