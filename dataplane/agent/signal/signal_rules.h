/* Session rules as a part of signalling: what the streams said of them, the asks that they make, and how many sessions
 * run under each. signal_source.h is what the streams and the node's reports use. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "signal/signal_tables.h"

struct cJSON;
struct signal_rules;

/* One at a time. NULL: no memory. */
struct signal_rules *signal_rules_new(void);
void signal_rules_free(struct signal_rules *rules);
/* Signalling runs with these tables: from now on its sessions are counted, and what is over is taken out of them. 0 or
 * -ENOMEM. */
int signal_rules_run(struct signal_rules *rules, const struct signal_tables *tables);
/* Flows in the table, as the last walk left it. */
uint32_t signal_rules_kept(const struct signal_rules *rules);
/* Whether the asks have become others since they were last taken. */
bool signal_rules_due(const struct signal_rules *rules, int64_t now_us);
size_t signal_rules_asks(struct signal_rules *rules, int64_t now_us, struct signal_ask *ret, size_t room);
/* Every 100 ms. */
void signal_rules_tick(struct signal_rules *rules);
/* Adds the array "session_rules". */
void signal_rules_status(const struct signal_rules *rules, struct cJSON *object);
