/* Records to decisions; see messages.h. The way out stands in messages_out.c. */
#include "streams/messages.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chart/v1/flow_grant.pb-c.h"
#include "chart/v1/link_rate.pb-c.h"
#include "chart/v1/policy.pb-c.h"
#include "chart/v1/topology.pb-c.h"
#include "links/edges.h"
#include "streams/messages_ends.h"
#include "streams/messages_paths.h"
#include "streams/messages_rules.h"

#define MAX_PORT 65535

/* What the grant says of one end: every prefix, the first apart. A message of before names only one. Why not goes to
 * `error`. */
static void read_end(const char *end, const char *one, char *const *all, size_t n, struct decide_prefix *ret_first,
                     struct decide_prefix *ret_more, uint8_t *ret_n_more, char *error, size_t size) {
    if (n > DECIDE_PREFIXES_MAX) {
        snprintf(error, size, "%s_prefixes are %zu, at most %d match", end, n, DECIDE_PREFIXES_MAX);
        return;
    }
    for (size_t i = 0; i < (n ? n : 1); i++) {
        const char *text = n ? all[i] : one;
        if (decide_parse_prefix(text, i ? &ret_more[i - 1] : ret_first)) {
            snprintf(error, size, "%s_prefix \"%.50s\" is no address or prefix", end, text);
            return;
        }
    }
    *ret_n_more = n ? (uint8_t)(n - 1) : 0;
}

/* Whether a flow can be from one of the sources to one of the destinations. */
static bool families_meet(const struct decide_selector *selector) {
    for (size_t i = 0; i <= selector->n_more_sources; i++) {
        uint8_t source = i ? selector->more_sources[i - 1].family : selector->source.family;
        for (size_t j = 0; j <= selector->n_more_destinations; j++) {
            uint8_t destination = j ? selector->more_destinations[j - 1].family : selector->destination.family;
            if (!source || !destination || source == destination)
                return true;
        }
    }
    return false;
}

/* The selector, or in `error` why not: the grant then fails on this node with that reason. */
static void read_selector(const Chart__V1__FlowSelector *from, struct decide_selector *ret, char *error, size_t size) {
    error[0] = '\0';
    *ret = (struct decide_selector){0};
    if (!from) {
        snprintf(error, size, "the grant has no selector");
        return;
    }
    read_end("source", from->source_prefix, from->source_prefixes, from->n_source_prefixes, &ret->source,
             ret->more_sources, &ret->n_more_sources, error, size);
    if (!error[0])
        read_end("destination", from->destination_prefix, from->destination_prefixes, from->n_destination_prefixes,
                 &ret->destination, ret->more_destinations, &ret->n_more_destinations, error, size);
    if (error[0])
        return;
    if (!families_meet(ret))
        snprintf(error, size, "source_prefix and destination_prefix are of two address families");
    else if (from->protocol > UINT8_MAX || from->source_port > MAX_PORT || from->destination_port > MAX_PORT ||
             from->dscp_plus_one > 64)
        snprintf(error, size, "protocol, port or DSCP of the selector is out of range");
    if (error[0])
        return;
    ret->protocol = (uint8_t)from->protocol;
    ret->source_port = (uint16_t)from->source_port;
    ret->destination_port = (uint16_t)from->destination_port;
    ret->dscp_plus_one = (uint8_t)from->dscp_plus_one;
    ret->cgroup_id = from->cgroup_id;
}

static int take_grant(const struct messages_intake *intake, const struct streams_record *record) {
    char error[DECIDE_REASON_LEN];
    Chart__V1__FlowGrant *message;
    struct decide_grant grant;
    int changed;

    if (!record->value)
        return decide_remove_grant(intake->decide, record->key, record->traceparent, intake->now_us);
    message = chart__v1__flow_grant__unpack(NULL, record->length, record->value);
    if (!message)
        return -EBADMSG;
    grant = (struct decide_grant){.request_id = record->key,
                                  .generation = message->generation,
                                  .selector_error = error,
                                  .link_ids = (const char *const *)message->link_ids,
                                  .n_link_ids = message->n_link_ids,
                                  .guaranteed_bps = message->guaranteed_bps,
                                  .maximum_bps = message->maximum_bps,
                                  .delay_priority = message->delay_priority,
                                  .burst_tolerance = message->burst_tolerance,
                                  .valid_from_us = message->valid_from_us,
                                  .valid_until_us = message->valid_until_us,
                                  .with_available_rate = message->with_available_rate,
                                  .user = message->user};
    read_selector(message->selector, &grant.selector, error, sizeof(error));
    changed = decide_put_grant(intake->decide, &grant, record->traceparent, intake->now_us);
    chart__v1__flow_grant__free_unpacked(message, NULL);
    return changed == -EINVAL ? -EBADMSG : changed;
}

/* Users with several flows on the link `number` of the record, after the `n` that there are; how many there are then.
 */
static size_t read_users(const Chart__V1__LinkRate *from, size_t number, struct decide_user_flows *users, size_t n) {
    for (size_t i = 0; i < from->n_user_flows && n < DECIDE_USERS_MAX; i++)
        users[n++] = (struct decide_user_flows){
            .user = from->user_flows[i]->user, .rate = (uint32_t)number, .flows = from->user_flows[i]->flows};
    return n;
}

static int take_link_rates(const struct messages_intake *intake, const struct streams_record *record) {
    struct decide_user_flows users[DECIDE_USERS_MAX];
    struct decide_link_rate *rates;
    Chart__V1__LinkRates *message;
    size_t n = 0, n_users = 0;
    int changed;

    if (!record->value)
        return decide_remove_link_rates(intake->decide, record->key);
    message = chart__v1__link_rates__unpack(NULL, record->length, record->value);
    if (!message)
        return -EBADMSG;
    rates = calloc(message->n_links ? message->n_links : 1, sizeof(*rates));
    if (!rates) {
        chart__v1__link_rates__free_unpacked(message, NULL);
        return -ENOMEM;
    }
    for (size_t i = 0; i < message->n_links; i++) {
        const Chart__V1__LinkRate *from = message->links[i];

        if (strlen(from->link_id) >= sizeof(rates[n].link_id))
            continue;
        strcpy(rates[n].link_id, from->link_id);
        rates[n].available_bps = from->available_bps;
        rates[n].explicit_rate_capacity_bps = from->explicit_rate_capacity_bps;
        rates[n].legacy_share_bps = from->legacy_share_bps;
        rates[n].active_users = from->active_users;
        rates[n].gr_lease_bps = from->gr_lease_bps;
        rates[n].gr_lease_until_us = from->gr_lease_until_us;
        n_users = read_users(from, n, users, n_users);
        n++;
    }
    changed = decide_put_link_rates(intake->decide, record->key, message->generation, message->valid_until_us, rates, n,
                                    users, n_users, intake->now_us);
    free(rates);
    chart__v1__link_rates__free_unpacked(message, NULL);
    return changed;
}

/* message NULL: the policy was removed. */
static void tell_policy(const struct messages_intake *intake, const char *id, const Chart__V1__Policy *message) {
    const struct messages_policy policy = {
        .id = id,
        .default_control = message ? message->default_congestion : "",
        .ipfix_collector = message ? message->ipfix_collector : "",
        .says_quick_start =
            message && message->quick_start_case == CHART__V1__POLICY__QUICK_START_QUICK_START_REQUEST_BPS,
        .quick_start_bps = message ? message->quick_start_request_bps : 0,
    };

    if (intake->policy)
        intake->policy(&policy, intake->context);
}

static int take_policy(const struct messages_intake *intake, const struct streams_record *record) {
    Chart__V1__Policy *message;
    int changed;

    if (!record->value) {
        tell_policy(intake, record->key, NULL);
        return decide_remove_policy(intake->decide, record->key);
    }
    message = chart__v1__policy__unpack(NULL, record->length, record->value);
    if (!message)
        return -EBADMSG;
    /* A policy that says nothing of enforcement leaves the word to the default. */
    if (message->enforcement == CHART__V1__ENFORCEMENT_MODE__ENFORCEMENT_MODE_UNSPECIFIED)
        changed = decide_remove_policy(intake->decide, record->key);
    else
        changed = decide_put_policy(intake->decide, record->key, (enum decide_mode)message->enforcement);
    tell_policy(intake, record->key, message);
    chart__v1__policy__free_unpacked(message, NULL);
    return changed == -EINVAL ? -EBADMSG : changed;
}

/* node NULL: it has none. An edge that cannot be is left out and counted, the others hold. */
static void tell_edges(const struct messages_intake *intake, const Chart__V1__Node *node) {
    struct edges_wanted wanted = {0};

    for (size_t i = 0; node && i < node->n_edges; i++) {
        const Chart__V1__NodeEdge *from = node->edges[i];
        struct edge_wanted *edge = &wanted.edges[wanted.n];

        if (wanted.n == EDGES_MAX || !*from->interface || strlen(from->interface) >= sizeof(edge->interface) ||
            from->depth_ms > UINT16_MAX) {
            wanted.left_out++;
            continue;
        }
        strcpy(edge->interface, from->interface);
        edge->aggregate_bps = from->aggregate_bps;
        edge->drop = from->exceed == CHART__V1__EDGE_EXCEED__EDGE_EXCEED_DROP;
        edge->depth_ms = from->depth_ms ? (uint16_t)from->depth_ms : EDGE_DEPTH_MS;
        wanted.n++;
    }
    if (intake->edges)
        intake->edges(&wanted, intake->context);
}

/* node NULL: it is not registered, or no more. */
static int tell_ends(const struct messages_intake *intake, const Chart__V1__Node *node) {
    char *text;
    int status;

    if (!intake->ends)
        return 0;
    text = messages_ends_text(intake->node, node);
    if (!text)
        return -ENOMEM;
    status = intake->ends(text, intake->context);
    free(text);
    return status;
}

static int tell_own_node(const struct messages_intake *intake, const Chart__V1__Node *node) {
    int tags = messages_take_tags(intake, node), ends = tell_ends(intake, node);

    tell_edges(intake, node);
    return tags < 0 ? tags : ends < 0 ? ends : 0;
}

static int take_own_node(const struct messages_intake *intake, const struct streams_record *record) {
    Chart__V1__TopologyEntity *message;
    int status = 0;

    if (!record->value)
        return tell_own_node(intake, NULL);
    message = chart__v1__topology_entity__unpack(NULL, record->length, record->value);
    if (!message)
        return -EBADMSG;
    if (message->entity_case == CHART__V1__TOPOLOGY_ENTITY__ENTITY_NODE)
        status = tell_own_node(intake, message->node);
    chart__v1__topology_entity__free_unpacked(message, NULL);
    return status;
}

/* Another node, or none any more. */
static int take_other_node(const struct messages_intake *intake, const struct streams_record *record) {
    Chart__V1__TopologyEntity *message = NULL;
    const Chart__V1__Node *node = NULL;
    int status;

    if (!intake->addresses)
        return 0;
    if (record->value) {
        message = chart__v1__topology_entity__unpack(NULL, record->length, record->value);
        if (!message)
            return -EBADMSG;
        if (message->entity_case == CHART__V1__TOPOLOGY_ENTITY__ENTITY_NODE)
            node = message->node;
    }
    status =
        intake->addresses(record->key, node ? node->addresses : NULL, node ? node->n_addresses : 0, intake->context);
    if (message)
        chart__v1__topology_entity__free_unpacked(message, NULL);
    return status;
}

static int take_topology(const struct messages_intake *intake, const struct streams_record *record) {
    const char *colon = strchr(record->key, ':');
    struct messages_link link = {.id = record->key, .interface = ""};
    Chart__V1__TopologyEntity *message;

    if (strcmp(record->key, intake->node) == 0)
        return take_own_node(intake, record);
    /* A node's key has no colon. Of links only those that leave from here matter. */
    if (!colon)
        return take_other_node(intake, record);
    if (strncmp(record->key, intake->node, (size_t)(colon - record->key)) != 0 ||
        intake->node[colon - record->key] != '\0')
        return 0;
    if (!record->value) {
        intake->link(&link, intake->context);
        return 1;
    }
    message = chart__v1__topology_entity__unpack(NULL, record->length, record->value);
    if (!message)
        return -EBADMSG;
    if (message->entity_case == CHART__V1__TOPOLOGY_ENTITY__ENTITY_LINK) {
        link.interface = message->link->interface;
        link.capacity_bps = message->link->capacity_bps;
        link.scone = message->link->scone;
        link.quick_start = message->link->quick_start;
        link.quick_start_threshold = message->link->quick_start_threshold;
        link.quick_start_share = message->link->quick_start_share;
        link.scone_police = message->link->scone_police;
        link.advice_prefixes = (const char *const *)message->link->advice_prefixes;
        link.n_advice_prefixes = message->link->n_advice_prefixes;
        intake->link(&link, intake->context);
    }
    chart__v1__topology_entity__free_unpacked(message, NULL);
    return 1;
}

int messages_take(const struct messages_intake *intake, const struct streams_record *record) {
    switch (record->topic) {
    case STREAMS_TOPOLOGY:
        return take_topology(intake, record);
    case STREAMS_POLICY:
        return take_policy(intake, record);
    case STREAMS_LINK_RATE:
        return take_link_rates(intake, record);
    case STREAMS_FLOW_GRANT:
        return take_grant(intake, record);
    case STREAMS_SESSION_RULE:
        return messages_take_rule(intake, record);
    case STREAMS_PATH_TABLE:
        return messages_take_path_table(intake, record);
    default:
        return -EINVAL;
    }
}
