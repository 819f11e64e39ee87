/* Between the records of the streams (protobuf, proto/chart/v1) and the agent's own structs. */
#pragma once

#include "grants/decide.h"
#include "signal/signal_source.h"
#include "streams/streams.h"

/* A link that operators stated for this node; interface "" and capacity 0 when the record removes it. */
struct messages_link {
    const char *id;
    const char *interface;
    uint64_t capacity_bps;
};

struct messages_intake {
    struct decide *decide;
    const char *node;
    int64_t now_us;
    /* A link of this node appeared, changed or was removed. */
    void (*link)(const struct messages_link *link, void *context);
    void *context;
};

/* Take one record in. 1: it may change what is applied, 0: it does not, -EBADMSG: it cannot be read, or another
 * negative errno. */
int messages_take(const struct messages_intake *intake, const struct streams_record *record);

/* One link's figures of an interval; as chart.v1.LinkLoad. */
struct messages_load {
    const char *link_id;
    uint64_t sent_bytes;
    uint64_t explicit_rate_bytes;
    uint64_t legacy_bytes;
    uint64_t dropped_packets;
    uint64_t queue_bytes;
    uint64_t explicit_rate_queue_bytes;
    uint32_t active_flows;
    uint32_t legacy_flows;
    uint32_t users;
    uint64_t guaranteed_in_use_bps;
    uint64_t in_band_committed_bps;
    uint32_t rtt_us;
};

/* As chart.v1.UserFlows; `link` is an index of the report's loads. */
struct messages_user_flows {
    const char *user;
    uint32_t link;
    uint32_t flows;
};

struct messages_load_report {
    const char *node;
    uint64_t sequence;
    int64_t interval_end_us;
    uint32_t interval_us;
    const struct messages_load *loads;
    size_t n_loads;
    /* Users with several flows on a link. */
    const struct messages_user_flows *users;
    size_t n_users;
};

struct messages_interface {
    const char *link_id;
    const char *interface;
    uint32_t ifindex;
    uint32_t mtu;
    bool up;
    uint64_t capacity_bps;
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
    enum decide_mode enforcement;
    int64_t reported_at_us;
};

struct messages_flow_record {
    const char *node;
    const char *request_id;
    const char *source_address;
    const char *destination_address;
    uint32_t source_port;
    uint32_t destination_port;
    int64_t started_at_us;
    int64_t ended_at_us;
    uint64_t sent_bytes;
    uint64_t delivered_bytes;
    uint64_t retransmitted_bytes;
    uint32_t min_rtt_us;
    uint8_t dscp;
    bool final;
    /* Since the record before: packets, and octets with the headers of IP and TCP. */
    int64_t since_us;
    uint64_t new_packets;
    uint64_t new_bytes;
};

/* Pack and send under the stream's key. 0, -ENOMEM or -ENOBUFS. */
int messages_send_status(struct streams *streams, const char *node, const struct decide_status *status);
int messages_send_loads(struct streams *streams, const struct messages_load_report *report);
int messages_send_node_state(struct streams *streams, const struct messages_node_state *state);
int messages_send_flow_record(struct streams *streams, const struct messages_flow_record *record);
