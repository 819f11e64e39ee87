/* Session rules (chart.session-rule.v1) as this node has them, and the asks that they become: the same as those of
 * --signal-file. Pure decisions over what the streams said; no I/O and no clock (Brassil et al., The CHART System,
 * section 4: what is asked for a flow follows from its program's request or from a rule). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "signal/signal_tables.h"

#define SESSION_RULES_MAX 256
#define SESSION_RULE_ID_LEN 64
#define SESSION_RULE_SELECTORS_MAX 16
#define SESSION_RULE_FAULT_LEN 128
/* "name=value" */
#define SESSION_RULE_TAG_LEN 336
/* A new rule permits at once and asks this much later: by then the other end of a session permits too. */
#define SESSION_RULE_ASKS_AFTER_US 1000000ll

/* An enabled rule as the stream stated it; pointers are borrowed for the call. */
struct session_rule {
    const char *id;
    uint64_t revision;
    /* One of each selector; rule, permits and elsewhere are filled in here. */
    struct signal_ask asks[SESSION_RULE_SELECTORS_MAX];
    size_t n_asks;
    bool authorised;
    bool built_in;
    /* Who asks: this node is named, or has all these tags; nobody is named and no tag: every node. */
    bool names_nodes;
    bool names_this_node;
    const char *const *tags;
    size_t n_tags;
    /* Empty, or why the rule cannot be understood: nothing is asked by it then. */
    char fault[SESSION_RULE_FAULT_LEN];
};

/* A rule as it is followed; pointers live until the next change. */
struct session_rule_state {
    const char *id;
    uint64_t revision;
    uint16_t number; /* in asks; the same as long as the rule is there */
    bool asks;
    const char *fault;
};

struct session_rules;

struct session_rules *session_rules_new(void);
void session_rules_free(struct session_rules *rules);

/* 1: changed, 0: as before, -ENOSPC: more rules than there is room for, -EINVAL, -ENOMEM. */
int session_rules_put(struct session_rules *rules, const struct session_rule *rule, int64_t now_us);
/* The number that it had; 0: there was none. */
uint16_t session_rules_remove(struct session_rules *rules, const char *id);
/* The tags of this node, "name=value". Returns whether they are others than before, or -ENOMEM. */
int session_rules_set_tags(struct session_rules *rules, const char *const *tags, size_t n);

/* The asks of all rules, at most `room`: operators' own rules by id, then the built-in ones. A rule whose asks do not
 * all fit is left out and has a fault. ret_next_us: when they become others by themselves; INT64_MAX: never. */
size_t session_rules_asks(struct session_rules *rules, int64_t now_us, struct signal_ask *ret, size_t room,
                          int64_t *ret_next_us);

/* By id. Returns how many. */
size_t session_rules_list(const struct session_rules *rules, struct session_rule_state *ret, size_t room);
/* Rules that were not taken for want of room since the last one that was removed. */
size_t session_rules_left_out(const struct session_rules *rules);
