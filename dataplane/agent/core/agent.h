/* What the parts of chart-agent share: one epoll loop, its timers, the options and the datapath. A part is a
 * struct agent_module; main.c opens them in order and closes them in reverse. One thread runs everything. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cJSON;
struct agent;
struct datapath;

#define AGENT_LINKS_MAX 64

/* --link ID=IFACE[:CAPACITY_BPS]; capacity 0: not configured. */
struct agent_link_option {
    char id[80];
    char interface[16];
    uint64_t capacity_bps;
};

/* --edge IFACE[:AGGREGATE_BPS]; 0: no premium traffic without a grant of its own. */
struct agent_edge_option {
    char interface[16];
    uint64_t aggregate_bps;
};

struct agent_options {
    const char *node;
    const char *state_dir;
    const char *cgroup_path;
    const char *rate_file;
    const char *signal_file;
    const char *authority_url;
    const char *authority_ca;
    const char *enrolment_token_file;
    const char *bootstrap;
    const char *metrics_listen;
    const char *ipfix;
    const char *default_control;
    uint16_t sensor_port;
    struct agent_link_option links[AGENT_LINKS_MAX];
    size_t n_links;
    struct agent_edge_option edges[AGENT_LINKS_MAX];
    size_t n_edges;
    bool edge_drop;
    uint16_t edge_depth_ms;
};

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
struct datapath *agent_datapath(struct agent *agent);
/* Whether `chart-agent --off` holds; then the mode of policy and rate file waits. */
bool agent_is_off(const struct agent *agent);
/* The mode that policy or rate file asks for (enum decide_mode); the agent applies it unless it is switched off. */
int agent_set_mode(struct agent *agent, int mode);

/* Call `ready` when `fd` has one of `events` (EPOLLIN...). The descriptor stays the caller's. 0 or negative errno. */
int agent_add_fd(struct agent *agent, int fd, uint32_t events, void (*ready)(void *context, uint32_t events),
                 void *context);
void agent_remove_fd(struct agent *agent, int fd);
/* Call `tick` every period_us; a late tick is not made up for. 0 or negative errno. */
int agent_add_timer(struct agent *agent, uint64_t period_us, void (*tick)(void *context), void *context);
void agent_stop(struct agent *agent, int exit_status);

/* Microseconds since the epoch. */
int64_t agent_now_us(void);

/* One line to stderr: what was done and why. */
void agent_log(const char *level, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define log_info(...) agent_log("info", __VA_ARGS__)
#define log_warning(...) agent_log("warning", __VA_ARGS__)
#define log_error(...) agent_log("error", __VA_ARGS__)

/* The parts. streams_module (Kafka, decisions, link loads, HTB, metrics) is compiled in when streams.c is there. */
extern const struct agent_module trinity_share_module;
extern const struct agent_module ratefile_module;
extern const struct agent_module control_module;
extern const struct agent_module signal_module;
extern const struct agent_module authority_module;
extern const struct agent_module ipfix_module;
extern const struct agent_module police_module;
extern const struct agent_module streams_module;
