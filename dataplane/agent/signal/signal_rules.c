/* See signal_rules.h. */
#include "signal/signal_rules.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "signal/session_count.h"
#include "signal/session_rules.h"
#include "signal/signal_keys.h"
#include "signal/signal_source.h"

/* Of 100 ms: how often a walk over the tables begins. */
#define WALK_EVERY_TICKS 20u

struct signal_rules {
    struct session_rules *stated;
    struct session_walk *walk; /* NULL: signalling does not run */
    bool changed;
    bool walking;
    uint32_t ticks;
    int64_t next_us; /* when the asks become others by themselves */
};

/* The one that there is; the streams hand over to it. */
static struct signal_rules *present;

struct signal_rules *signal_rules_new(void) {
    struct signal_rules *rules = calloc(1, sizeof(*rules));
    if (!rules)
        return NULL;
    rules->stated = session_rules_new();
    if (!rules->stated) {
        free(rules);
        return NULL;
    }
    rules->next_us = INT64_MAX;
    present = rules;
    return rules;
}

void signal_rules_free(struct signal_rules *rules) {
    if (!rules)
        return;
    present = NULL;
    session_rules_free(rules->stated);
    session_walk_free(rules->walk);
    free(rules);
}

int signal_rules_run(struct signal_rules *rules, const struct signal_tables *tables) {
    rules->walk = session_walk_new(tables);
    return rules->walk ? 0 : -ENOMEM;
}

bool signal_rules_due(const struct signal_rules *rules, int64_t now_us) {
    return rules->changed || now_us >= rules->next_us;
}

size_t signal_rules_asks(struct signal_rules *rules, int64_t now_us, struct signal_ask *ret, size_t room) {
    rules->changed = false;
    return session_rules_asks(rules->stated, now_us, ret, room, &rules->next_us);
}

void signal_rules_tick(struct signal_rules *rules) {
    int error;
    rules->ticks++;
    if (!rules->walk || (!rules->walking && rules->ticks % WALK_EVERY_TICKS != 0))
        return;
    rules->walking = !session_walk_step(rules->walk, signal_monotonic_ns(), &error) && !error;
    if (error)
        log_warning("sessions could not be counted, and what is over stays: %s", strerror(-error));
}

uint32_t signal_rules_kept(const struct signal_rules *rules) {
    return rules->walk ? session_walk_kept(rules->walk) : 0;
}

int signal_source_rule(const struct session_rule *rule, int64_t now_us) {
    int status;
    if (!present)
        return 0;
    status = session_rules_put(present->stated, rule, now_us);
    if (status == -ENOSPC)
        log_error("session rule %s is left out: this node has room for %d", rule->id, SESSION_RULES_MAX);
    if (status <= 0)
        return status == -ENOSPC ? 0 : status;
    present->changed = true;
    log_info("session rule %s is at revision %llu%s%s", rule->id, (unsigned long long)rule->revision,
             *rule->fault ? ", but cannot be followed: " : "", rule->fault);
    return 1;
}

void signal_source_no_rule(const char *id) {
    uint16_t number = present ? session_rules_remove(present->stated, id) : 0;
    if (!number)
        return;
    if (present->walk)
        session_walk_forget(present->walk, number);
    present->changed = true;
    log_info("session rule %s is no longer in force", id);
}

int signal_source_node_tags(const char *const *tags, size_t n) {
    int status = present ? session_rules_set_tags(present->stated, tags, n) : 0;
    if (status > 0)
        present->changed = true;
    return status;
}

size_t signal_source_rules(struct signal_rule_report *ret, size_t room) {
    struct session_rule_state states[SESSION_RULES_MAX];
    size_t n =
        present ? session_rules_list(present->stated, states, room < SESSION_RULES_MAX ? room : SESSION_RULES_MAX) : 0;
    for (size_t i = 0; i < n; i++) {
        struct session_count count = {0};
        if (present->walk)
            count = session_walk_count(present->walk, states[i].number);
        ret[i] = (struct signal_rule_report){
            .id = states[i].id,
            .revision = states[i].revision,
            .asks = states[i].asks,
            .fault = present->walk ? states[i].fault : "this node does not signal in band",
            .sessions = count.sessions,
            .expedited_sessions = count.expedited,
            .guaranteed_bps = count.guaranteed_bps,
        };
    }
    return n;
}

size_t signal_source_rules_left_out(void) {
    return present ? session_rules_left_out(present->stated) : 0;
}

void signal_rules_status(const struct signal_rules *rules, struct cJSON *object) {
    struct signal_rule_report reports[SESSION_RULES_MAX];
    struct cJSON *array = cJSON_AddArrayToObject(object, "session_rules");
    size_t n = signal_source_rules(reports, SESSION_RULES_MAX);
    for (size_t i = 0; i < n; i++) {
        struct cJSON *rule = cJSON_CreateObject();
        cJSON_AddStringToObject(rule, "id", reports[i].id);
        cJSON_AddNumberToObject(rule, "revision", (double)reports[i].revision);
        cJSON_AddBoolToObject(rule, "asks", reports[i].asks);
        cJSON_AddStringToObject(rule, "fault", reports[i].fault);
        cJSON_AddNumberToObject(rule, "sessions", reports[i].sessions);
        cJSON_AddNumberToObject(rule, "expedited_sessions", reports[i].expedited_sessions);
        cJSON_AddNumberToObject(rule, "guaranteed_bps", (double)reports[i].guaranteed_bps);
        cJSON_AddItemToArray(array, rule);
    }
    cJSON_AddNumberToObject(object, "session_rules_left_out", (double)session_rules_left_out(rules->stated));
}
