/* The stream side as a module of the agent: records in, decisions, apply, statuses, timers; see node.h. */
#include "node/node.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/utsname.h>

#include "core/agent.h"
#include "core/log.h"
#include "core/loop.h"
#include "links/edges.h"

#define TICK_US 100000ull
#define SECOND_US 1000000ll
/* Tell the datapath again what it shall have, even when nothing changed: wall clocks are set. */
#define REAPPLY_US 1000000ll
/* A stream that does not answer must not keep the others from being followed. */
#define SYNC_PATIENCE_US 5000000ll
#define CLOSE_FLUSH_MS 1000

static bool ready_to_decide(const struct node *node, int64_t now_us) {
    return node->streams && (streams_synced(node->streams) ||
                             (node->connected_at_us && now_us >= node->connected_at_us + SYNC_PATIENCE_US));
}

static int make_room(struct node *node, size_t n) {
    int *errors;

    if (n <= node->grant_errors_size)
        return 0;
    errors = realloc(node->grant_errors, 2 * n * sizeof(*errors));
    if (!errors)
        return -ENOMEM;
    node->grant_errors = errors;
    node->grant_errors_size = 2 * n;
    return 0;
}

static void follow_mode(struct node *node) {
    int mode = decide_policy_mode(node->decide);
    int err;

    if (mode == node->told_mode)
        return;
    err = datapath_set_mode(node->datapath, mode);
    if (err) {
        log_error("the mode of the policy cannot be set: %s", strerror(-err));
        return;
    }
    node->told_mode = mode;
    /* What goes with the mode on links and in settings does not wait for the next second. */
    node_links_refresh(node, agent_now_us());
}

int node_observe(struct node *node, const struct decide_applied *grant, struct decide_observed *ret) {
    int err = datapath_observe(node->datapath, grant->request_id, ret);
    int age;

    if (err)
        return err;
    age = datapath_grant_age(node->datapath, grant->request_id, grant->ifindex);
    ret->packets = age >= 0 && age <= 1;
    return 0;
}

/* Bring the kernel to what was decided and note grant by grant what became of it. */
static void apply(struct node *node, int64_t now_us) {
    int n = decide_desired(node->decide, now_us, &node->applied, &node->next_decision_us);

    node->n_applied = 0;
    if (n < 0 || make_room(node, (size_t)n) < 0) {
        log_error("no memory for %d grants", n);
        return;
    }
    node->n_applied = (size_t)n;
    node->dirty = false;
    node->applied_at_us = now_us;
    node->applies++;
    if (n > 0)
        memset(node->grant_errors, 0, (size_t)n * sizeof(*node->grant_errors));
    datapath_apply(node->datapath, node->applied, (size_t)n, now_us, node->grant_errors);
    for (int i = 0; i < n; i++) {
        struct decide_observed observed;
        const char *id = node->applied[i].request_id;
        bool seen = node_observe(node, &node->applied[i], &observed) == 0;

        node->apply_errors += node->grant_errors[i] != 0;
        if (decide_set_result(node->decide, id, node->grant_errors[i], seen ? &observed : NULL, now_us))
            node->dirty = true;
    }
}

/* Flows of grants enter the overlay by the paths that were committed. */
static void steer_grants(struct node *node) {
    struct overlay_grant grants[DATAPATH_GRANTS_MAX];
    size_t n = 0;

    for (size_t i = 0; i < node->n_applied && n < DATAPATH_GRANTS_MAX; i++) {
        const char *id = node->applied[i].request_id;

        grants[n].number = datapath_grant_number(node->datapath, id);
        grants[n].link_ids = decide_grant_path(node->decide, id, &grants[n].n_link_ids);
        n += grants[n].link_ids != NULL;
    }
    overlay_follow_grants(node->agent, grants, n);
    node->steered_applies = node->applies;
}

static int send_status(const struct decide_status *status, void *context) {
    struct node *node = context;
    int err;

    /* While the broker is away the present state waits here, not old ones in a queue. */
    if (!streams_connected(node->streams))
        return -EAGAIN;
    err = messages_send_status(node->streams, node->options->node, status);
    if (!err)
        node->statuses_sent++;
    return err;
}

static void act(struct node *node) {
    int64_t now_us = agent_now_us();

    if (!ready_to_decide(node, now_us))
        return;
    node_ends_keep(node);
    if (node->dirty)
        node_links_refresh(node, now_us);
    if (node->dirty || now_us >= node->next_decision_us || now_us >= node->applied_at_us + REAPPLY_US) {
        follow_mode(node);
        apply(node, now_us);
        /* Flows that are first seen to move now may be counted already by the rate that was applied. */
        if (node->dirty)
            apply(node, now_us);
    }
    decide_statuses(node->decide, now_us, send_status, node);
}

static int on_rule(const struct session_rule *rule, void *context) {
    (void)context;
    return signal_source_rule(rule, agent_now_us());
}

static void on_no_rule(const char *id, void *context) {
    (void)context;
    signal_source_no_rule(id);
}

static int on_tags(const char *const *tags, size_t n, void *context) {
    (void)context;
    return signal_source_node_tags(tags, n);
}

static void on_edges(const struct edges_wanted *edges, void *context) {
    const struct node *node = context;

    edges_follow(node->agent, edges);
}

static void on_path_table(struct overlay_table *table, uint64_t generation, void *context) {
    const struct node *node = context;

    overlay_follow(node->agent, table, generation);
}

static void on_record(const struct streams_record *record, void *context) {
    struct node *node = context;
    const struct messages_intake intake = {.decide = node->decide,
                                           .node = node->options->node,
                                           .now_us = agent_now_us(),
                                           .link = node_links_stated,
                                           .rule = on_rule,
                                           .no_rule = on_no_rule,
                                           .tags = on_tags,
                                           .edges = on_edges,
                                           .addresses = node_routes_addresses,
                                           .ends = node_ends_stated,
                                           .policy = node_policy_stated,
                                           .path_table = on_path_table,
                                           .context = node};
    int changed = messages_take(&intake, record);

    if (changed > 0)
        node->dirty = true;
    if (changed < 0) {
        node->bad_records++;
        log_warning("record %s of stream %d cannot be used: %s", record->key, record->topic, strerror(-changed));
    }
}

static void on_undelivered(enum streams_out topic, const char *key, void *context) {
    struct node *node = context;
    char request_id[DECIDE_ID_LEN];
    const char *comma = strrchr(key, ',');

    if (topic == STREAMS_NODE_STATE)
        node->state_resend = true;
    if (topic != STREAMS_GRANT_STATUS || !comma || (size_t)(comma - key) >= sizeof(request_id))
        return;
    snprintf(request_id, sizeof(request_id), "%.*s", (int)(comma - key), key);
    decide_undelivered(node->decide, request_id);
}

static void on_connected(void *context) {
    struct node *node = context;

    if (!node->connected_at_us)
        node->connected_at_us = agent_now_us();
}

static void on_streams(void *context, uint32_t events) {
    struct node *node = context;

    (void)events;
    streams_poll(node->streams);
    act(node);
}

static void on_metrics(void *context, uint32_t events) {
    struct node *node = context;

    (void)events;
    metrics_run(node->metrics);
}

static int open_streams(struct node *node) {
    const struct streams_handler handler = {
        .record = on_record, .undelivered = on_undelivered, .connected = on_connected, .context = node};
    int err;

    /* Noted before it is read: one that comes in between is taken for a change. */
    broker_identity_use(&node->streams_identity);
    err = streams_open(node->options->bootstrap, node->options->node, &handler, &node->streams);
    if (err)
        return err;
    return agent_add_fd(node->agent, streams_fd(node->streams), EPOLLIN, on_streams, node);
}

static void close_streams(struct node *node) {
    if (!node->streams)
        return;
    agent_remove_fd(node->agent, streams_fd(node->streams));
    streams_close(node->streams, CLOSE_FLUSH_MS);
    node->streams = NULL;
}

/* Whether the streams wait for the certificate that the broker asks for; said once. */
static bool wait_for_identity(struct node *node) {
    if (broker_identity_ready(&node->streams_identity)) {
        node->streams_wait_us = 0;
        return false;
    }
    if (!node->streams_wait_us) {
        node->streams_wait_us = agent_now_us();
        log_info("the broker is asked when this node has its certificate, %s", node->streams_identity.certificate);
    }
    return true;
}

/* A link of the overlay that failed or returned is told at once. */
static void tell_overlay(struct node *node) {
    uint64_t changes = overlay_changes(node->agent);

    if (changes == node->overlay_changes)
        return;
    node->overlay_changes = changes;
    node_report_state(node, agent_now_us());
}

static void on_tick(void *context) {
    struct node *node = context;

    /* Not in node_open: the library's threads shall start after the agent dropped its privileges, or they would keep
     * them. */
    if (node->options->bootstrap && !node->streams && !wait_for_identity(node) && open_streams(node) < 0) {
        agent_stop(node->agent, 1);
        return;
    }
    if (node->streams)
        streams_poll(node->streams);
    if (node->metrics)
        metrics_run(node->metrics);
    act(node);
    node_routes_follow(node, agent_now_us());
    node_egress_follow(node, agent_now_us());
    tell_overlay(node);
    if (node->steered_applies != node->applies)
        steer_grants(node);
    node_report_loads(node, agent_now_us());
}

static void on_second(void *context) {
    struct node *node = context;
    int64_t now_us = agent_now_us();

    /* Nothing is made before the streams said what mode this node is in. */
    if (!node->options->bootstrap || ready_to_decide(node, now_us) || now_us >= node->opened_at_us + SYNC_PATIENCE_US)
        node_links_refresh(node, now_us);
    /* The overlay's table may be another one. */
    steer_grants(node);
    node_report_flows(node, now_us);
    node_report_state(node, now_us);
    if (node->streams && broker_identity_changed(&node->streams_identity)) {
        log_info("the certificate is another one: the broker is spoken to anew");
        close_streams(node);
        node->state_resend = true;
    }
}

static void node_switched_off(void *state, bool off) {
    struct node *node = state;

    if (decide_set_local_off(node->decide, off) <= 0)
        return;
    node->dirty = true;
    node_links_refresh(node, agent_now_us());
    act(node);
    node_report_state(node, agent_now_us());
}

static void read_identity(struct node *node) {
    struct utsname names;
    FILE *file = fopen("/proc/sys/kernel/random/uuid", "re");

    if (file) {
        if (fscanf(file, "%39s", node->instance) != 1)
            node->instance[0] = '\0';
        fclose(file);
    }
    if (uname(&names) == 0)
        snprintf(node->kernel_release, sizeof(node->kernel_release), "%s", names.release);
}

static int open_metrics(struct node *node) {
    int err = node_metrics_open(node);

    if (err) {
        log_error("cannot serve metrics on %s: %s", node->options->metrics_listen, strerror(-err));
        return err;
    }
    return agent_add_fd(node->agent, metrics_fd(node->metrics), EPOLLIN, on_metrics, node);
}

static void node_close(void *state) {
    struct node *node = state;
    int64_t now_us = agent_now_us();

    records_close(&node->records, now_us);
    close_streams(node);
    if (node->metrics)
        agent_remove_fd(node->agent, metrics_fd(node->metrics));
    metrics_close(node->metrics);
    node_links_close(node);
    node_routes_close(node);
    node_settings_close(node);
    netlink_close(&node->netlink);
    load_free(&node->activity);
    free(node->senders);
    free(node->user_names);
    free(node->ends);
    decide_free(node->decide);
    free(node->grant_errors);
    free(node);
}

static int node_open(struct agent *agent, void **ret_state) {
    struct node *node = calloc(1, sizeof(*node));
    int err;

    if (!node)
        return -ENOMEM;
    node->agent = agent;
    node->options = agent_options(agent);
    node->datapath = datapath_of(agent);
    node->next_decision_us = INT64_MAX;
    node->opened_at_us = agent_now_us();
    broker_identity_open(&node->streams_identity);
    node->dirty = true;
    node->records = (struct records){.node = node->options->node, .sink = node_report_record, .context = node};
    node->decide = decide_new(node->options->node);
    err = node->decide ? netlink_open(&node->netlink) : -EINVAL;
    if (err)
        goto fail;
    read_identity(node);
    decide_set_local_off(node->decide, datapath_is_off(node->datapath));
    decide_set_untold_mode(node->decide, datapath_told_mode(node->datapath));
    node_links_open(node);
    node_policy_quick_start(node);
    node_settings_open(node);
    /* In the mode that is kept, for flows that begin before the streams were read. */
    node_settings_follow(node);
    /* Now, before the control socket answers, and not a second later: a link that gets its queue loses what passes at
     * that moment. */
    if (!node->options->bootstrap)
        node_links_refresh(node, agent_now_us());
    if (node->options->metrics_listen)
        err = open_metrics(node);
    if (!err)
        err = node_routes_open(node);
    if (!err)
        err = agent_add_timer(agent, TICK_US, on_tick, node);
    if (!err)
        err = agent_add_timer(agent, SECOND_US, on_second, node);
    if (err)
        goto fail;
    *ret_state = node;
    return 0;
fail:
    node_close(node);
    return err;
}

const struct agent_module node_module = {
    .name = "streams",
    .open = node_open,
    .close = node_close,
    .status = node_status,
    .switched_off = node_switched_off,
};
