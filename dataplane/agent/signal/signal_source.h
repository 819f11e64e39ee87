/* What gives signalling its tables besides --signal-file, and what it tells: the client of the authority (keys, next
 * hops, authorisations), and the streams (what may be guaranteed on a link). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct session_rule;
struct signal_file;
struct signal_flow;
struct signal_load;

/* Take the tables over, also when signalling does not run; asks and links of --signal-file stay as they are. */
void signal_source_take(struct signal_file *tables);
/* Whether the sequence towards an element has passed the half of its range, so that a new epoch is due. */
bool signal_source_exhausted(uint16_t element);
/* How many requests were sent towards an element that had answered nothing for a while; 0: or it has no key. Whether
 * nothing was asked of it since it answered. */
uint32_t signal_source_ignored(uint16_t element, bool *ret_answered);
/* Whether flows can be guaranteed a rate in band here. */
bool signal_source_runs(void);
/* A link of this node as command line or topology state it, and one that is none any more; taken up within a second.
 * Capacity 0: not known. */
void signal_source_link(const char *interface, uint64_t capacity_bps);
void signal_source_no_link(const char *interface);
/* The lease of a link's free guaranteed rate and when it ends, microseconds since the epoch. An agent that follows the
 * streams guarantees nothing in band on a link that it has not heard a lease of; rate 0: there is none. */
void signal_source_lease(uint32_t ifindex, uint64_t lease_bps, int64_t until_us);
/* The common rate of a link's controller, which an available rate in band does not exceed, and when it ends,
 * microseconds since the epoch; 0: there is none, flows share equally. */
void signal_source_rate(uint32_t ifindex, uint64_t rate_bps, int64_t until_us);
/* What a link has promised in band; zeros when signalling does not run. */
void signal_source_load(uint32_t ifindex, struct signal_load *ret);
/* Signals that were not taken, by reason, since the start; reasons that did not occur are left out. Returns how many.
 */
struct signal_refused {
    const char *reason;
    uint64_t count;
};
#define SIGNAL_REFUSED_MAX 24
size_t signal_source_refused(struct signal_refused ret[SIGNAL_REFUSED_MAX]);
/* That flows found no room in the table of flows within the last minutes, a sentence for people; "": they did. */
const char *signal_source_room_fault(void);
/* An enabled session rule of the streams (session_rules.h), one that is none any more, and this node's tags
 * ("name=value"), by which rules find it. Taken up within 100 ms; asked by after a second. 1: changed, 0: as before or
 * no room, or a negative errno. */
int signal_source_rule(const struct session_rule *rule, int64_t now_us);
void signal_source_no_rule(const char *id);
int signal_source_node_tags(const char *const *tags, size_t n);
/* The rules as this node follows them, by id, also when signalling does not run; pointers live until the next change.
 * Returns how many. */
struct signal_rule_report {
    const char *id;
    uint64_t revision;
    bool asks;
    const char *fault; /* why it is not followed; "" */
    uint32_t sessions;
    uint32_t expedited_sessions;
    uint64_t guaranteed_bps;
};
size_t signal_source_rules(struct signal_rule_report *ret, size_t room);
/* Rules for which there was no room. */
size_t signal_source_rules_left_out(void);
/* Flows that ask for their rates in band and were signalled lately (signal_flows.h), at most `max`; returns how many.
 */
size_t signal_source_flows(struct signal_flow *ret, size_t max);
/* This node as an element, and the epoch of the newest key that it signs with; zeros when it is or has none. */
struct signal_identity {
    uint16_t element;
    uint8_t key_epoch;
};
struct signal_identity signal_source_identity(void);
/* The ring `signal_reports`, of signals that failed here: its descriptor; negative when signalling does not run. */
int signal_source_reports(void);
