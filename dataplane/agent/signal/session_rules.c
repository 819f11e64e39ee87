/* See session_rules.h. */
#include "signal/session_rules.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef char tag_text[SESSION_RULE_TAG_LEN];

struct rule {
    char id[SESSION_RULE_ID_LEN]; /* "": the place is free */
    struct session_rule stated;   /* its pointers are not used */
    tag_text *tags;
    size_t n_tags;
    int64_t asks_from_us;
    bool asks;
    char fault[SESSION_RULE_FAULT_LEN];
};

struct session_rules {
    struct rule places[SESSION_RULES_MAX];
    tag_text *tags; /* of this node */
    size_t n_tags;
    size_t left_out;
};

struct session_rules *session_rules_new(void) {
    return calloc(1, sizeof(struct session_rules));
}

void session_rules_free(struct session_rules *rules) {
    if (!rules)
        return;
    for (size_t i = 0; i < SESSION_RULES_MAX; i++)
        free(rules->places[i].tags);
    free(rules->tags);
    free(rules);
}

static struct rule *find(struct session_rules *rules, const char *id) {
    for (size_t i = 0; i < SESSION_RULES_MAX; i++)
        if (strcmp(rules->places[i].id, id) == 0)
            return &rules->places[i];
    return NULL;
}

/* 0, -ENOMEM, or -EINVAL when one is too long. */
static int copy_tags(const char *const *tags, size_t n, tag_text **ret) {
    tag_text *copies = calloc(n ? n : 1, sizeof(*copies));
    if (!copies)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        if (strlen(tags[i]) >= sizeof(copies[i])) {
            free(copies);
            return -EINVAL;
        }
        strcpy(copies[i], tags[i]);
    }
    *ret = copies;
    return 0;
}

int session_rules_put(struct session_rules *rules, const struct session_rule *rule, int64_t now_us) {
    struct rule *place = *rule->id ? find(rules, rule->id) : NULL;
    tag_text *tags;
    int error;
    if (!*rule->id || strlen(rule->id) >= SESSION_RULE_ID_LEN || rule->n_asks > SESSION_RULE_SELECTORS_MAX)
        return -EINVAL;
    if (place && place->stated.revision == rule->revision)
        return 0;
    if (!place) {
        place = find(rules, "");
        if (!place) {
            rules->left_out++;
            return -ENOSPC;
        }
    }
    error = copy_tags(rule->tags, rule->n_tags, &tags);
    if (error)
        return error;
    if (!*place->id) {
        strcpy(place->id, rule->id);
        place->asks_from_us = now_us + SESSION_RULE_ASKS_AFTER_US;
    }
    free(place->tags);
    place->tags = tags;
    place->n_tags = rule->n_tags;
    place->stated = *rule;
    place->stated.id = NULL;
    place->stated.tags = NULL;
    return 1;
}

static uint16_t number_of(const struct session_rules *rules, const struct rule *rule) {
    return (uint16_t)(rule - rules->places + 1);
}

uint16_t session_rules_remove(struct session_rules *rules, const char *id) {
    struct rule *place = *id ? find(rules, id) : NULL;
    if (!place)
        return 0;
    free(place->tags);
    *place = (struct rule){0};
    rules->left_out = 0;
    return number_of(rules, place);
}

int session_rules_set_tags(struct session_rules *rules, const char *const *tags, size_t n) {
    bool same = n == rules->n_tags;
    tag_text *copies;
    int error;
    for (size_t i = 0; same && i < n; i++)
        same = strcmp(tags[i], rules->tags[i]) == 0;
    if (same)
        return false;
    error = copy_tags(tags, n, &copies);
    if (error)
        return error;
    free(rules->tags);
    rules->tags = copies;
    rules->n_tags = n;
    return true;
}

static bool has_tag(const struct session_rules *rules, const char *tag) {
    for (size_t i = 0; i < rules->n_tags; i++)
        if (strcmp(rules->tags[i], tag) == 0)
            return true;
    return false;
}

static bool is_for_this_node(const struct session_rules *rules, const struct rule *rule) {
    bool has_all = rule->n_tags > 0;
    if (!rule->stated.names_nodes && !rule->n_tags)
        return true;
    for (size_t i = 0; i < rule->n_tags; i++)
        has_all &= has_tag(rules, rule->tags[i]);
    return rule->stated.names_this_node || has_all;
}

static int order_by_id(const void *left, const void *right) {
    return strcmp((*(struct rule *const *)left)->id, (*(struct rule *const *)right)->id);
}

/* Operators' own before the built-in ones. */
static int order(const void *left, const void *right) {
    const struct rule *one = *(struct rule *const *)left, *other = *(struct rule *const *)right;
    return one->stated.built_in != other->stated.built_in ? one->stated.built_in - other->stated.built_in
                                                          : strcmp(one->id, other->id);
}

static size_t collect(const struct session_rules *rules, const struct rule *ret[SESSION_RULES_MAX],
                      int (*by)(const void *, const void *)) {
    size_t n = 0;
    for (size_t i = 0; i < SESSION_RULES_MAX; i++)
        if (*rules->places[i].id)
            ret[n++] = &rules->places[i];
    qsort(ret, n, sizeof(*ret), by);
    return n;
}

/* The asks of one rule; how many. */
static size_t add_asks(struct session_rules *rules, struct rule *rule, int64_t now_us, struct signal_ask *ret,
                       size_t room, int64_t *next_us) {
    bool here = is_for_this_node(rules, rule);
    bool asks = here && now_us >= rule->asks_from_us;
    rule->asks = false;
    memcpy(rule->fault, rule->stated.fault, sizeof(rule->fault));
    if (*rule->fault)
        return 0;
    if (here && !asks && rule->asks_from_us < *next_us)
        *next_us = rule->asks_from_us;
    if (!asks && !rule->stated.authorised)
        return 0;
    if (rule->stated.n_asks > room) {
        snprintf(rule->fault, sizeof(rule->fault), "no room for its %zu selectors: %zu are left on this node",
                 rule->stated.n_asks, room);
        return 0;
    }
    for (size_t i = 0; i < rule->stated.n_asks; i++) {
        ret[i] = rule->stated.asks[i];
        ret[i].rule = number_of(rules, rule);
        ret[i].permits = rule->stated.authorised;
        ret[i].elsewhere = !asks;
    }
    rule->asks = asks;
    return rule->stated.n_asks;
}

size_t session_rules_asks(struct session_rules *rules, int64_t now_us, struct signal_ask *ret, size_t room,
                          int64_t *ret_next_us) {
    const struct rule *ordered[SESSION_RULES_MAX] = {0};
    size_t n_rules = collect(rules, ordered, order), n = 0;
    *ret_next_us = INT64_MAX;
    for (size_t i = 0; i < n_rules; i++) {
        struct rule *rule = &rules->places[ordered[i] - rules->places];
        n += add_asks(rules, rule, now_us, ret + n, room - n, ret_next_us);
    }
    return n;
}

size_t session_rules_list(const struct session_rules *rules, struct session_rule_state *ret, size_t room) {
    const struct rule *ordered[SESSION_RULES_MAX] = {0};
    size_t n = collect(rules, ordered, order_by_id);
    n = n < room ? n : room;
    for (size_t i = 0; i < n; i++)
        ret[i] = (struct session_rule_state){.id = ordered[i]->id,
                                             .revision = ordered[i]->stated.revision,
                                             .number = number_of(rules, ordered[i]),
                                             .asks = ordered[i]->asks,
                                             .fault = ordered[i]->fault};
    return n;
}

size_t session_rules_left_out(const struct session_rules *rules) {
    return rules->left_out;
}
