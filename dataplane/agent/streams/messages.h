/* Between the records of the streams (protobuf, proto/chart/v1) and the agent's own structs. */
#pragma once

#include "core/addresses.h"
#include "export/records.h"
#include "grants/datapath.h"
#include "grants/decide.h"
#include "links/load.h"
#include "links/routes.h"
#include "paths/overlay.h"
#include "signal/session_rules.h"
#include "signal/signal_flows.h"
#include "signal/signal_source.h"
#include "streams/streams.h"

/* A link that operators stated for this node; interface "" and capacity 0 when the record removes it. */
struct messages_link {
    const char *id;
    const char *interface;
    uint64_t capacity_bps;
    /* SCONE packets get advice there. */
    bool scone;
    /* Quick-Start requests are answered there. */
    bool quick_start;
    /* Of it, 0 to 1; 0: the default. */
    double quick_start_threshold;
    double quick_start_share;
    bool scone_police;
    /* Whom advice is for, CIDR notation; none: all. */
    const char *const *advice_prefixes;
    size_t n_advice_prefixes;
};

/* What a policy says besides the mode; texts are empty when it does not say them, or was removed. */
struct messages_policy {
    const char *id;
    const char *default_control;
    const char *ipfix_collector;
    /* What new TCP connections ask for by Quick-Start, bits per second; 0: nothing. */
    bool says_quick_start;
    uint64_t quick_start_bps;
};

/* Interfaces at which this node polices what comes in; see edges.h. */
struct edges_wanted;

struct messages_intake {
    struct decide *decide;
    const char *node;
    int64_t now_us;
    /* A link of this node appeared, changed or was removed. */
    void (*link)(const struct messages_link *link, void *context);
    /* A session rule was enabled or changed (1: taken, 0: as before, negative errno); `id` is none any more. */
    int (*rule)(const struct session_rule *rule, void *context);
    void (*no_rule)(const char *id, void *context);
    /* The tags of this node, "name=value". */
    int (*tags)(const char *const *tags, size_t n, void *context);
    /* The edges of this node, whenever its record was read; may be NULL. */
    void (*edges)(const struct edges_wanted *edges, void *context);
    /* The addresses of another node, whenever its record was read; none: it was removed. May be NULL. */
    int (*addresses)(const char *node, char *const *prefixes, size_t n, void *context);
    /* What runs on this node beside the agent, as JSON; may be NULL. */
    int (*ends)(const char *text, void *context);
    /* A policy, this node's or another one's; may be NULL. */
    void (*policy)(const struct messages_policy *policy, void *context);
    /* The overlay's table of this node, without links when it has none any more; it is handed over. May be NULL. */
    void (*path_table)(struct overlay_table *table, uint64_t generation, void *context);
    void *context;
};

/* Take one record in. 1: it may change what is applied, 0: it does not, -EBADMSG: it cannot be read, or another
 * negative errno. */
int messages_take(const struct messages_intake *intake, const struct streams_record *record);

struct messages_load_report {
    const char *node;
    uint64_t sequence;
    int64_t interval_end_us;
    uint32_t interval_us;
    const struct link_load *loads;
    size_t n_loads;
    /* Users with several flows on a link. */
    const struct load_user_flows *users;
    size_t n_users;
};

struct messages_interface {
    const char *link_id;
    const char *interface;
    uint32_t ifindex;
    uint32_t mtu;
    bool up;
    uint64_t capacity_bps;
    uint64_t own_capacity_bps;
    /* NULL: not known. */
    const struct addresses *addresses;
};

/* Where packets to a prefix go: interface by interface, with the link on it ("": none); no hop: nowhere. */
struct messages_hop {
    const char *interface;
    const char *link_id;
};

struct messages_route {
    const char *prefix;
    struct messages_hop hops[ROUTES_HOPS_MAX];
    size_t n_hops;
};

/* Flows that are signalled in band, in one state of a node. */
#define MESSAGES_IN_BAND_MAX 32
#define MESSAGES_ADVISED_MAX 32

/* A flow that was told a rate, and the id of the link by which it leaves; "": none. */
struct messages_advised {
    struct datapath_advised flow;
    char link_id[DECIDE_ID_LEN];
};

struct messages_node_state {
    const char *node;
    const char *agent_version;
    const char *kernel_release;
    const char *agent_instance;
    const struct messages_interface *interfaces;
    size_t n_interfaces;
    const char *const *capabilities;
    size_t n_capabilities;
    const char *const *faults;
    size_t n_faults;
    const struct signal_refused *refused;
    size_t n_refused;
    const struct signal_rule_report *rules;
    size_t n_rules;
    const struct signal_flow *in_band;
    size_t n_in_band;
    const struct messages_advised *advised;
    size_t n_advised;
    /* Those of the same hops next to each other. */
    const struct messages_route *routes;
    size_t n_routes;
    const struct datapath_room *room;
    size_t n_room;
    const struct overlay_report *overlay;
    struct signal_identity identity;
    enum decide_mode enforcement;
    int64_t reported_at_us;
};

/* Pack and send under the stream's key. 0, -ENOMEM or -ENOBUFS. */
int messages_send_status(struct streams *streams, const char *node, const struct decide_status *status);
int messages_send_loads(struct streams *streams, const struct messages_load_report *report);
int messages_send_node_state(struct streams *streams, const struct messages_node_state *state);
int messages_send_flow_record(struct streams *streams, const struct flow_record *record);
