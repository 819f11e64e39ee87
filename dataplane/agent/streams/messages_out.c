/* What the agent says, packed and sent; see messages.h. */
#include "streams/messages.h"

#include <errno.h>
#include <netinet/in.h>
#include <protobuf-c/protobuf-c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chart/v1/flow_record.pb-c.h"
#include "chart/v1/grant_status.pb-c.h"
#include "chart/v1/link_load.pb-c.h"
#include "chart/v1/node_state.pb-c.h"
#include "streams/messages_paths.h"
#include "streams/messages_room.h"
#include "streams/messages_routes.h"

static int send_message(struct streams *streams, enum streams_out topic, const char *key,
                        const ProtobufCMessage *message, const char *traceparent) {
    size_t length = protobuf_c_message_get_packed_size(message);
    uint8_t *buffer = malloc(length ? length : 1);
    int err;

    if (!buffer)
        return -ENOMEM;
    protobuf_c_message_pack(message, buffer);
    err = streams_send(streams, topic, key, buffer, length, traceparent);
    free(buffer);
    return err;
}

int messages_send_status(struct streams *streams, const char *node, const struct decide_status *status) {
    Chart__V1__GrantStatus message = CHART__V1__GRANT_STATUS__INIT;
    Chart__V1__EgressLink links[EGRESS_LINKS_MAX], *pointers[EGRESS_LINKS_MAX];
    char key[2 * DECIDE_ID_LEN + 1];

    message.request_id = (char *)status->request_id;
    message.node = (char *)node;
    message.generation = status->generation;
    message.state = (Chart__V1__GrantState)status->state;
    message.reason = (char *)status->reason;
    message.link_down = status->link_down;
    message.applied_at_us = status->applied_at_us;
    message.kernel_rate_bps = status->observed.kernel_rate_bps;
    message.matching_flows = status->observed.matching_flows;
    message.sent_bytes = status->observed.sent_bytes;
    message.delivered_bytes = status->observed.delivered_bytes;
    message.counted_at_us = status->observed.counted_at_us;
    message.seen_at_us = status->seen_at_us;
    message.egress = pointers;
    for (uint8_t i = 0; status->egress && i < status->egress->n; i++) {
        chart__v1__egress_link__init(&links[i]);
        links[i].link_id = (char *)status->egress->links[i].link_id;
        links[i].sent_bytes = status->egress->links[i].sent_bytes;
        links[i].recent_bytes = status->egress->links[i].recent_bytes;
        pointers[message.n_egress++] = &links[i];
        message.egress_against_routes = status->egress->against_routes;
    }
    snprintf(key, sizeof(key), "%s,%s", status->request_id, node);
    return send_message(streams, STREAMS_GRANT_STATUS, key, &message.base, status->traceparent);
}

static void fill_load(Chart__V1__LinkLoad *message, const struct link_load *load) {
    chart__v1__link_load__init(message);
    message->link_id = (char *)load->link_id;
    message->sent_bytes = load->sent_bytes;
    message->explicit_rate_bytes = load->explicit_rate_bytes;
    message->legacy_bytes = load->legacy_bytes;
    message->dropped_packets = load->dropped_packets;
    message->queue_bytes = load->queue_bytes;
    message->explicit_rate_queue_bytes = load->explicit_rate_queue_bytes;
    message->active_flows = load->active_flows;
    message->legacy_flows = load->legacy_flows;
    message->users = load->users;
    message->guaranteed_in_use_bps = load->guaranteed_in_use_bps;
    message->in_band_committed_bps = load->in_band_committed_bps;
    message->rtt_us = load->rtt_us;
}

int messages_send_loads(struct streams *streams, const struct messages_load_report *report) {
    Chart__V1__LinkLoadReport message = CHART__V1__LINK_LOAD_REPORT__INIT;
    Chart__V1__LinkLoad *loads = calloc(report->n_loads ? report->n_loads : 1, sizeof(*loads));
    Chart__V1__LinkLoad **pointers = calloc(report->n_loads ? report->n_loads : 1, sizeof(Chart__V1__LinkLoad *));
    Chart__V1__UserFlows users[DECIDE_USERS_MAX], *user_pointers[DECIDE_USERS_MAX];
    int err = -ENOMEM;

    if (loads && pointers) {
        for (size_t i = 0; i < report->n_users && i < DECIDE_USERS_MAX; i++) {
            chart__v1__user_flows__init(&users[i]);
            users[i].user = (char *)report->users[i].user;
            users[i].link = report->users[i].link;
            users[i].flows = report->users[i].flows;
            user_pointers[message.n_user_flows++] = &users[i];
        }
        message.user_flows = user_pointers;
        for (size_t i = 0; i < report->n_loads; i++) {
            fill_load(&loads[i], &report->loads[i]);
            pointers[i] = &loads[i];
        }
        message.node = (char *)report->node;
        message.sequence = report->sequence;
        message.interval_end_us = report->interval_end_us;
        message.interval_us = report->interval_us;
        message.n_links = report->n_loads;
        message.links = pointers;
        err = send_message(streams, STREAMS_LINK_LOAD, report->node, &message.base, NULL);
    }
    free(pointers);
    free(loads);
    return err;
}

/* The rules of a node state, which points to them; NULL: no memory. Free when it is sent. */
static void *add_rules(Chart__V1__NodeState *message, const struct messages_node_state *state) {
    struct {
        Chart__V1__NodeSessionRule rules[SESSION_RULES_MAX];
        Chart__V1__NodeSessionRule *pointers[SESSION_RULES_MAX];
    } *room = malloc(sizeof(*room));
    size_t n = state->n_rules < SESSION_RULES_MAX ? state->n_rules : SESSION_RULES_MAX;

    for (size_t i = 0; room && i < n; i++) {
        const struct signal_rule_report *from = &state->rules[i];

        chart__v1__node_session_rule__init(&room->rules[i]);
        room->rules[i].rule_id = (char *)from->id;
        room->rules[i].revision = from->revision;
        room->rules[i].asks = from->asks;
        room->rules[i].fault = (char *)from->fault;
        room->rules[i].sessions = from->sessions;
        room->rules[i].expedited_sessions = from->expedited_sessions;
        room->rules[i].guaranteed_bps = from->guaranteed_bps;
        room->pointers[i] = &room->rules[i];
    }
    if (room) {
        message->n_session_rules = n;
        message->session_rules = room->pointers;
    }
    return room;
}

static void put_in_band(Chart__V1__InBandFlow *message, const struct signal_flow *flow) {
    chart__v1__in_band_flow__init(message);
    message->source = (char *)flow->source;
    message->destination = (char *)flow->destination;
    message->protocol = flow->protocol;
    message->role = (char *)flow->role;
    message->state = (char *)flow->state;
    message->carrier = (char *)flow->carrier;
    message->element = flow->element;
    message->key_epoch = flow->key_epoch;
    message->kept_bps = flow->kept_bps;
    message->agreed_bps = flow->agreed_bps;
    message->age_ms = flow->age_ms;
    message->lease_ms = flow->lease_ms;
}

static void put_advised(Chart__V1__AdvisedFlow *message, const struct messages_advised *advised) {
    chart__v1__advised_flow__init(message);
    message->source = (char *)advised->flow.source;
    message->destination = (char *)advised->flow.destination;
    message->protocol = advised->flow.protocol;
    message->standard = (char *)advised->flow.standard;
    message->link_id = (char *)advised->link_id;
    message->advised_bps = advised->flow.advised_bps;
    message->age_ms = advised->flow.age_ms;
}

/* The interfaces of a state, which point to it; one allocation, which the caller frees. NULL: no memory. */
static void *add_interfaces(Chart__V1__NodeState *message, const struct messages_node_state *state) {
    struct interfaces {
        Chart__V1__NodeInterface interface;
        char *addresses[ADDRESSES_PER_INTERFACE];
    } *room;
    Chart__V1__NodeInterface **pointers;
    size_t n = state->n_interfaces;

    room = calloc(n ? n : 1, sizeof(*room) + sizeof(*pointers));
    if (!room)
        return NULL;
    pointers = (Chart__V1__NodeInterface **)(void *)(room + n);
    for (size_t i = 0; i < n; i++) {
        const struct messages_interface *from = &state->interfaces[i];
        Chart__V1__NodeInterface *interface = &room[i].interface;

        chart__v1__node_interface__init(interface);
        interface->link_id = (char *)from->link_id;
        interface->interface = (char *)from->interface;
        interface->ifindex = from->ifindex;
        interface->mtu = from->mtu;
        interface->up = from->up;
        interface->capacity_bps = from->capacity_bps;
        interface->own_capacity_bps = from->own_capacity_bps;
        for (size_t k = 0; from->addresses && k < from->addresses->n; k++)
            room[i].addresses[interface->n_addresses++] = (char *)from->addresses->texts[k];
        interface->addresses = room[i].addresses;
        pointers[i] = interface;
    }
    message->n_interfaces = n;
    message->interfaces = pointers;
    return room;
}

int messages_send_node_state(struct streams *streams, const struct messages_node_state *state) {
    Chart__V1__NodeState message = CHART__V1__NODE_STATE__INIT;
    static const struct overlay_report none;
    void *interfaces = add_interfaces(&message, state);
    void *overlay = messages_add_overlay(&message, state->overlay ? state->overlay : &none);
    Chart__V1__RefusedSignals refused[SIGNAL_REFUSED_MAX], *refused_pointers[SIGNAL_REFUSED_MAX];
    void *rules = add_rules(&message, state);
    void *routes = messages_add_routes(&message, state);
    Chart__V1__InBandFlow in_band[MESSAGES_IN_BAND_MAX], *in_band_pointers[MESSAGES_IN_BAND_MAX];
    Chart__V1__AdvisedFlow advised[MESSAGES_ADVISED_MAX], *advised_pointers[MESSAGES_ADVISED_MAX];
    struct messages_room room;
    int err = -ENOMEM;

    if (interfaces && overlay && rules && routes) {
        for (size_t i = 0; i < state->n_refused && i < SIGNAL_REFUSED_MAX; i++) {
            chart__v1__refused_signals__init(&refused[i]);
            refused[i].reason = (char *)state->refused[i].reason;
            refused[i].count = state->refused[i].count;
            refused_pointers[i] = &refused[i];
        }
        for (size_t i = 0; i < state->n_in_band && i < MESSAGES_IN_BAND_MAX; i++) {
            put_in_band(&in_band[i], &state->in_band[i]);
            in_band_pointers[i] = &in_band[i];
            message.n_in_band_flows++;
        }
        message.in_band_flows = in_band_pointers;
        for (size_t i = 0; i < state->n_advised && i < MESSAGES_ADVISED_MAX; i++) {
            put_advised(&advised[i], &state->advised[i]);
            advised_pointers[i] = &advised[i];
            message.n_advised_flows++;
        }
        message.advised_flows = advised_pointers;
        messages_put_room(&message, state, &room);
        message.key_epoch = state->identity.key_epoch;
        message.element = state->identity.element;
        message.n_refused_signals = state->n_refused;
        message.refused_signals = refused_pointers;
        message.node = (char *)state->node;
        message.agent_version = (char *)state->agent_version;
        message.kernel_release = (char *)state->kernel_release;
        message.agent_instance = (char *)state->agent_instance;
        message.n_capabilities = state->n_capabilities;
        message.capabilities = (char **)state->capabilities;
        message.n_faults = state->n_faults;
        message.faults = (char **)state->faults;
        message.enforcement = (Chart__V1__EnforcementMode)state->enforcement;
        message.reported_at_us = state->reported_at_us;
        err = send_message(streams, STREAMS_NODE_STATE, state->node, &message.base, NULL);
    }
    free(routes);
    free(rules);
    free(overlay);
    free(interfaces);
    return err;
}

int messages_send_flow_record(struct streams *streams, const struct flow_record *record) {
    Chart__V1__FlowRecord message = CHART__V1__FLOW_RECORD__INIT;

    message.node = (char *)record->node;
    message.request_id = (char *)record->request_id;
    message.source_address = (char *)record->source_address;
    message.destination_address = (char *)record->destination_address;
    message.protocol = IPPROTO_TCP;
    message.source_port = record->source_port;
    message.destination_port = record->destination_port;
    message.started_at_us = record->started_at_us;
    message.ended_at_us = record->ended_at_us;
    message.sent_bytes = record->sent_bytes;
    message.delivered_bytes = record->delivered_bytes;
    message.retransmitted_bytes = record->retransmitted_bytes;
    message.min_rtt_us = record->min_rtt_us;
    message.final = record->final;
    message.dscp_plus_one = record->dscp + 1u;
    message.quick_start_bps = record->quick_start_bps;
    return send_message(streams, STREAMS_FLOW_RECORD, record->node, &message.base, NULL);
}
