/* Session rules, and the tags of a node by which they find it: from records to the agent's own structs. */
#include "streams/messages_rules.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chart/v1/session_rule.pb-c.h"

#define MAX_PORT 65535
#define MAX_DSCP 63
#define MAX_BURST_TOLERANCE 15

/* A map's entries as "name=value"; NULL: no memory. Free with free_tags. */
static char **tags_of(size_t n, const char *(*entry)(const void *entries, size_t i, const char **value),
                      const void *entries) {
    char **tags = calloc(n + 1, sizeof(*tags));
    for (size_t i = 0; tags && i < n; i++) {
        const char *value, *name = entry(entries, i, &value);
        size_t size = strlen(name) + strlen(value) + 2;
        tags[i] = malloc(size);
        if (!tags[i]) {
            for (size_t k = 0; k < i; k++)
                free(tags[k]);
            free(tags);
            return NULL;
        }
        snprintf(tags[i], size, "%s=%s", name, value);
    }
    return tags;
}

static void free_tags(char **tags) {
    for (size_t i = 0; tags && tags[i]; i++)
        free(tags[i]);
    free(tags);
}

static const char *node_entry(const void *entries, size_t i, const char **value) {
    const Chart__V1__Node *node = entries;
    *value = node->tags[i]->value;
    return node->tags[i]->key;
}

static const char *rule_entry(const void *entries, size_t i, const char **value) {
    const Chart__V1__SessionRule *rule = entries;
    *value = rule->node_tags[i]->value;
    return rule->node_tags[i]->key;
}

int messages_take_tags(const struct messages_intake *intake, const Chart__V1__Node *node) {
    size_t n = node ? node->n_tags : 0;
    char **tags = tags_of(n, node_entry, node);
    int status = tags ? intake->tags((const char *const *)tags, n, intake->context) : -ENOMEM;
    free_tags(tags);
    return status;
}

static const char *read_ports(const Chart__V1__PortRange *from, uint16_t *ret_first, uint16_t *ret_last) {
    if (!from || (!from->first && !from->last))
        return NULL;
    if (!from->first || from->first > from->last || from->last > MAX_PORT)
        return "ports are out of range";
    *ret_first = (uint16_t)from->first;
    *ret_last = (uint16_t)from->last;
    return NULL;
}

/* NULL, or what is wrong. */
static const char *read_selector(const Chart__V1__SessionSelector *from, struct signal_ask *ret) {
    struct decide_selector *selector = &ret->selector;
    const char *wrong = read_ports(from->local_ports, &selector->source_port, &ret->source_port_last);
    wrong = wrong ? wrong : read_ports(from->remote_ports, &selector->destination_port, &ret->destination_port_last);
    if (wrong)
        return wrong;
    if (from->protocol && from->protocol != IPPROTO_TCP && from->protocol != IPPROTO_UDP)
        return "its protocol is neither TCP nor UDP";
    if (from->dscp_plus_one > MAX_DSCP + 1)
        return "its DSCP is out of range";
    if ((*from->local_prefix && decide_parse_prefix(from->local_prefix, &selector->source)) ||
        (*from->remote_prefix && decide_parse_prefix(from->remote_prefix, &selector->destination)))
        return "a prefix cannot be read";
    if (selector->source.family && selector->destination.family &&
        selector->source.family != selector->destination.family)
        return "its prefixes are of two address families";
    selector->protocol = (uint8_t)from->protocol;
    selector->dscp_plus_one = (uint8_t)from->dscp_plus_one;
    return NULL;
}

static void read_rule(const Chart__V1__SessionRule *from, const char *node, struct session_rule *ret) {
    struct signal_ask ask = {.guaranteed_bps = from->guaranteed_bps,
                             .available_bps = from->available_bps,
                             .preemption_priority = (uint8_t)from->preemption_priority,
                             .delay_priority = signal_delay_priority(from->delay_class),
                             .burst_tolerance = (uint8_t)from->burst_tolerance};
    for (size_t i = 0; i < from->n_nodes; i++)
        ret->names_this_node |= strcmp(from->nodes[i], node) == 0;
    ret->names_nodes = from->n_nodes > 0;
    if (from->service < CHART__V1__SERVICE_TYPE__SERVICE_TYPE_AVAILABLE ||
        from->service > CHART__V1__SERVICE_TYPE__SERVICE_TYPE_VARIABLE)
        snprintf(ret->fault, sizeof(ret->fault), "this agent does not know its service");
    else if (from->preemption_priority > UINT8_MAX || from->burst_tolerance > MAX_BURST_TOLERANCE ||
             from->delay_class > SIGNAL_DELAY_CLASS_MAX)
        snprintf(ret->fault, sizeof(ret->fault), "priority, burst tolerance or delay class is out of range");
    else if (from->n_selectors > SESSION_RULE_SELECTORS_MAX)
        snprintf(ret->fault, sizeof(ret->fault), "it has %zu selectors, more than %d", from->n_selectors,
                 SESSION_RULE_SELECTORS_MAX);
    if (*ret->fault)
        return;
    ask.service = (uint8_t)(from->service - CHART__V1__SERVICE_TYPE__SERVICE_TYPE_AVAILABLE);
    for (size_t i = 0; i < from->n_selectors; i++) {
        const char *wrong;
        ret->asks[i] = ask;
        wrong = read_selector(from->selectors[i], &ret->asks[i]);
        if (wrong) {
            snprintf(ret->fault, sizeof(ret->fault), "selector %zu: %s", i + 1, wrong);
            return;
        }
    }
    ret->n_asks = from->n_selectors;
}

int messages_take_rule(const struct messages_intake *intake, const struct streams_record *record) {
    Chart__V1__SessionRule *message = NULL;
    int status = 0;
    if (record->value) {
        message = chart__v1__session_rule__unpack(NULL, record->length, record->value);
        if (!message)
            return -EBADMSG;
    }
    if (message && message->enabled) {
        struct session_rule rule = {.id = record->key,
                                    .revision = message->revision,
                                    .authorised = message->authorised,
                                    .built_in = message->built_in,
                                    .n_tags = message->n_node_tags};
        char **tags = tags_of(message->n_node_tags, rule_entry, message);
        read_rule(message, intake->node, &rule);
        rule.tags = (const char *const *)tags;
        status = tags ? intake->rule(&rule, intake->context) : -ENOMEM;
        free_tags(tags);
    } else {
        intake->no_rule(record->key, intake->context);
    }
    if (message)
        chart__v1__session_rule__free_unpacked(message, NULL);
    /* What grants there are and what links carry does not depend on it. */
    return status < 0 ? status : 0;
}
