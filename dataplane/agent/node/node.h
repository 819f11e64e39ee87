/* The stream side of the agent as one module: what the streams say becomes what the datapath and the links' queues do,
 * and what they count becomes streams and metrics again.
 *
 *   node.c         the module: records in, decisions, apply, statuses, timers
 *   node_links.c   the node's links: interfaces, HTB, classifier, samples
 *   node_policy.c  what its policy says besides the mode
 *   node_ends.c    tunnel ends and proxied traffic, for the programs beside the agent
 *   node_routes.c where the kernel sends packets to other nodes
 *   node_egress.c by which links the packets of grants leave
 *   node_settings.c what it changes in the node's own settings while it enforces
 *   node_report.c  link loads, node state, flow records
 *   node_metrics.c Prometheus and --status
 *
 * Without --bootstrap there are no streams and another module applies grants (--rate-file); links, loads and metrics go
 * on. */
#pragma once

#include "core/options.h"
#include "export/records.h"
#include "grants/datapath.h"
#include "grants/decide.h"
#include "lib/kafka/broker_identity.h"
#include "lib/metrics/metrics.h"
#include "links/htb.h"
#include "links/load.h"
#include "links/routes.h"
#include "node/changes.h"
#include "streams/messages.h"
#include "streams/streams.h"

struct agent_module;
struct cJSON;
extern const struct agent_module node_module;

#define NODE_REASON_LEN 160
#define NODE_MAX_FAULTS 16
#define NODE_VERSION "0.1.0"

struct node_link {
    bool used;
    /* Given on the command line, so a topology record cannot take it away. */
    bool fixed;
    bool stated;
    /* What the newest record of it has outside of the bounds was counted. */
    bool counted;
    char id[DECIDE_ID_LEN];
    char interface_name[IF_NAMESIZE];
    uint64_t option_capacity_bps;
    uint64_t stated_capacity_bps;
    /* What the interface's driver says; 0: nothing. */
    uint64_t speed_bps;
    struct netlink_interface interface;
    struct htb_link htb;
    /* The capacity that its segmentation offload is bounded for; 0: it is as it was. */
    uint64_t bounded_bps;
    /* A queue that a killed agent left would have been seen. */
    bool swept;
    bool classified;
    /* The registry says that SCONE packets get advice here, and what they get without a grant: bits per second, 0:
     * none. */
    bool scone;
    uint64_t advised_bps;
    /* Who sends more than that loses it. */
    bool scone_police;
    /* The registry says that Quick-Start requests are answered here; what new flows may begin with together, bits per
     * second, which follows from the loads of late. */
    bool quick_start;
    uint64_t spare_bps;
    /* Up to which part of the capacity, and how much of what is spare one request gets at most: permille. */
    uint32_t quick_start_threshold_permille;
    uint32_t quick_start_share_permille;
    /* Whom advice is for; `prefixes_limit` without one that can be read: nobody. */
    struct decide_prefix advice_prefixes[DATAPATH_ADVICE_PREFIXES_MAX];
    size_t n_advice_prefixes;
    bool prefixes_limit;
    bool prefixes_written;
    struct load_peaks peaks;
    int64_t sampled_us;
    char fault[NODE_REASON_LEN];
    bool have_before;
    struct load_sample before;
    struct link_load load;
    /* The grants' part of the load, as last noted. */
    uint64_t in_use_bps;
    uint64_t rtt_sum_us;
    uint32_t rtt_count;
    uint32_t active_grants;
    uint32_t active_users;
    uint32_t active_senders;
    /* Who shares what is available in band. */
    uint32_t in_band_flows;
    uint32_t in_band_users;
    uint64_t total_sent_bytes;
    uint64_t total_explicit_rate_bytes;
    uint64_t total_dropped_packets;
    uint64_t total_scone_packets;
    uint64_t total_scone_lowered;
    uint64_t total_scone_policed;
    uint64_t total_quick_start_requests;
    uint64_t total_quick_start_lowered;
    uint64_t total_quick_start_refused;
};

/* What a policy says besides the mode; empty texts: it does not say. */
struct node_policy {
    char default_control[16];
    char ipfix_collector[80];
    bool says_quick_start;
    uint64_t quick_start_bps;
};

struct node {
    struct agent *agent;
    const struct agent_options *options;
    struct datapath *datapath;
    struct decide *decide;
    struct streams *streams;
    struct broker_identity streams_identity;
    /* When the streams began to wait for their certificate; 0: they do not. */
    int64_t streams_wait_us;
    struct metrics *metrics;
    struct netlink netlink;
    struct changes changes;
    /* TCP's buffers have the room that an enforcing node gives them. */
    bool raised;
    struct records records;
    struct load_activity activity;
    /* Who sends, as last noted; `users` names those with several flows on a link (an index of `links`), and their names
     * stand in `user_names`. */
    struct load_sender *senders;
    size_t senders_size;
    size_t n_senders;
    struct load_user_flows users[DECIDE_USERS_MAX];
    size_t n_users;
    char *user_names;

    struct node_link links[AGENT_LINKS_MAX];
    /* Whether they were looked at: before, nothing is known of an interface, and saying "down" would cost every request
     * on the link its rate. */
    bool looked;

    struct node_policy own_policy, policy_of_all;
    struct routes routes;
    /* When it was looked by which links packets of grants leave. */
    int64_t egress_at_us;
    /* The grant of the table that is looked at first: the one that routes which changed kept from being judged. */
    size_t egress_first;
    /* As told last: of the newest state those that the kernel was asked for, and room for them. */
    struct messages_route *told_routes;
    /* Tunnel ends and proxied traffic that are not written yet, or NULL. */
    char *ends;

    /* Decisions. */
    bool dirty;
    int told_mode;
    int64_t opened_at_us;
    int64_t connected_at_us;
    int64_t next_decision_us;
    int64_t applied_at_us;
    int *grant_errors;
    size_t grant_errors_size;
    const struct decide_applied *applied;
    size_t n_applied;

    /* Reports. */
    char instance[40];
    char kernel_release[65];
    uint64_t load_sequence;
    int64_t load_at_us;
    int64_t noted_at_us;
    uint64_t state_hash;
    int64_t state_at_us;
    bool state_resend;
    /* As told last. */
    uint64_t refused_signals;
    uint64_t overlay_changes;
    uint64_t counts_hash;
    /* Flows that are signalled in band, when they were looked for, how many were told last. */
    struct signal_flow in_band[MESSAGES_IN_BAND_MAX];
    size_t n_in_band;
    size_t in_band_told;
    int64_t in_band_at_us;
    /* Looked at with those; how old the newest was when it was told, by the clock: 0: nothing was told. */
    struct messages_advised advised[MESSAGES_ADVISED_MAX];
    size_t n_advised;
    int64_t advised_told_us;

    /* Counted for metrics. */
    uint64_t applies;
    /* When the overlay was told of grants last. */
    uint64_t steered_applies;
    uint64_t apply_errors;
    uint64_t bad_records;
    uint64_t statuses_sent;
};

/* What the datapath knows of a grant, with what its classifier saw of it; 0 or a negative errno. */
int node_observe(struct node *node, const struct decide_applied *grant, struct decide_observed *ret);

/* node_links.c */
void node_links_open(struct node *node);
void node_links_close(struct node *node);
/* A topology record about a link of this node; interface "" removes it. */
void node_links_stated(const struct messages_link *link, void *context);
/* Look at every interface, bring HTB and classifier to what the mode wants, tell decide. Once a second and on change.
 */
void node_links_refresh(struct node *node, int64_t now_us);
/* Follow the legacy share and take the counters: fills link->load but for the grants' part. */
void node_links_sample(struct node *node, int64_t now_us);
/* Of --link, else of the registry, else the interface's speed; 0: nobody says. */
uint64_t node_link_capacity_bps(const struct node_link *link);
/* What the node knows without the registry. */
uint64_t node_link_own_capacity_bps(const struct node_link *link);

/* node_policy.c */
/* What a policy says besides the mode: the node's own, else that for all, else the command line. */
void node_policy_stated(const struct messages_policy *policy, void *context);
/* What new connections ask for by Quick-Start, as policies and command line have it now. */
void node_policy_quick_start(struct node *node);

/* node_ends.c */
/* Notes what the registry states, as the file's text; 0 or -ENOMEM. */
int node_ends_stated(const char *text, void *context);
/* Writes it when it differs from what stands there: once the streams were read to their end, for earlier records of the
 * node may come first. */
void node_ends_keep(struct node *node);

/* node_routes.c */
int node_routes_open(struct node *node);
void node_routes_close(struct node *node);
int node_routes_addresses(const char *other, char *const *prefixes, size_t n, void *context);
/* Ask the kernel if something may have changed, and tell what did: ten times a second. */
void node_routes_follow(struct node *node, int64_t now_us);
/* Into the state; false: no memory, or they are not known. */
bool node_routes_tell(struct node *node, struct messages_node_state *state);

/* node_egress.c */
/* Count by which links packets of grants leave, every 200 ms. */
void node_egress_follow(struct node *node, int64_t now_us);
/* The kernel's tables changed. */
void node_egress_routes_changed(struct node *node);

/* node_settings.c */
/* Puts back what a killed agent left. */
void node_settings_open(struct node *node);
/* To what the mode wants: once a second and on change. */
void node_settings_follow(struct node *node);
void node_settings_bound(struct node *node, struct node_link *link);
void node_settings_unbound(struct node *node, struct node_link *link);
void node_settings_close(struct node *node);

/* node_report.c */
void node_report_loads(struct node *node, int64_t now_us);
void node_report_state(struct node *node, int64_t now_us);
void node_report_flows(struct node *node, int64_t now_us);
int node_report_record(const struct flow_record *record, void *context);

/* node_metrics.c */
int node_metrics_open(struct node *node);
void node_status(void *state, struct cJSON *object);
