/* Writes the maps of the BPF program `signal` (dataplane/bpf/signal_maps.h): the one place for it, used by the file of
 * --signal-file and by the client of authority.
 *
 * Declarative: each call takes a whole table and changes in the kernel what differs, so a caller hands over what it was
 * told last and remembers nothing. Call again whenever the table changes; keys and authorisations also once a second,
 * because they begin and end by the wall clock (times here are microseconds since the epoch; 0: always, or never ends).
 * Rates are bits per second with IP headers counted. Functions return 0 or the first negative errno and go on after it.
 * Not safe for threads.
 *
 * Keys. One per ordered pair and epoch. Of the keys whose receiver is this element every one is accepted, at most two
 * epochs of a sender (the two whose time began last). Of those whose sender is this element the one whose time began
 * last is signed with. An epoch number that is installed is never written over: while it is known its window and its
 * sequence go on, so handing over the same keys again costs nothing and endangers nothing. After a restart of this
 * process sequences go on where `signal_sequences` left off; whoever hands out keys gives new epochs as soon as it can.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "grants/decide.h"

struct signal_tables;

struct signal_key {
    uint16_t sender;
    uint16_t receiver;
    uint8_t epoch;
    uint8_t key[32];
    int64_t from_us;
    int64_t until_us;
};

/* Destinations with this prefix are reached through CHART element `element`; without an entry this element is the last
 * one before them. family 0 of shim: the UDP shim cannot reach it. */
struct signal_hop {
    struct decide_prefix prefix;
    uint16_t element;
    struct decide_prefix shim;
};

/* What clients with these addresses may ask, as senders or receivers. A prefix may stand several times: a request is
 * checked against all that name its service at that time, of the longest prefix that has one, and the largest applies.
 */
struct signal_authorisation {
    struct decide_prefix prefix;
    uint64_t guaranteed_bps;
    uint64_t available_bps;
    uint8_t preemption_priority;
    uint8_t delay_priority;
    uint8_t services; /* bit n: enum chart_service n */
    int64_t from_us;
    int64_t until_us;
};

/* What is asked for flows whose program does not ask; the cgroup of the selector is not looked at. Its ports begin
 * ranges where a last port is stated. */
struct signal_ask {
    struct decide_selector selector;
    uint16_t source_port_last; /* 0: the selector's port alone */
    uint16_t destination_port_last;
    uint16_t rule;  /* number of the session rule that it comes from; 0: of none */
    bool permits;   /* flows that it matches may have as much, whatever their addresses may ask */
    bool elsewhere; /* other nodes ask by it; this one only permits */
    uint64_t guaranteed_bps;
    uint64_t available_bps;
    uint8_t preemption_priority;
    uint8_t delay_priority;
    uint8_t burst_tolerance;
    uint8_t service; /* enum chart_service */
};

/* Delay classes 0 to 7 are spread evenly over the delay priorities of signals: 7 is 255, and from 4 on (145) flows may
 * be expedited (docs/signalling.md, "Queues"). */
#define SIGNAL_DELAY_CLASS_MAX 7
static inline uint8_t signal_delay_priority(uint32_t delay_class) {
    return (uint8_t)(delay_class >= SIGNAL_DELAY_CLASS_MAX ? UINT8_MAX
                                                           : delay_class * UINT8_MAX / SIGNAL_DELAY_CLASS_MAX);
}

/* explicit_bps 0: the link lowers nothing. rate_bps: the controller's common rate, for rate_lease_us from now. leased:
 * guaranteed_bps is a lease that ends lease_us from now; nothing new is guaranteed, and nothing renewed, from one
 * lifetime of a commitment before (0: nothing at all). */
struct signal_link {
    uint32_t ifindex;
    uint32_t header_bytes;
    uint64_t explicit_bps;
    uint64_t guaranteed_bps;
    uint64_t rate_bps;
    uint64_t rate_lease_us;
    bool leased;
    uint64_t lease_us;
};

/* Zeros are replaced by the defaults of docs/signalling.md. */
struct signal_policy {
    uint16_t element;      /* 0: not known yet, signals pass by untouched */
    enum decide_mode mode; /* what is not `enforce` touches no packet; 0: off */
    bool drop_unauthorised;
    uint64_t free_bps;
    uint64_t hold_us;
    uint64_t commitment_us;
    uint64_t idle_us;
    uint64_t renew_us;
    uint64_t retry_us;
    uint64_t legacy_us;
    uint32_t renew_packets;
    uint32_t tries;
    struct decide_prefix shim4; /* own addresses of the shim; family 0: none */
    struct decide_prefix shim6;
};

/* Descriptors of the maps; they stay the caller's. */
struct signal_map_fds {
    int config, in, out, next_hops, authorisations, asks, links, loads, counters, flows, users;
};

/* `directory`: where sequences are kept over a restart; NULL: nowhere. NULL: no memory. */
struct signal_tables *signal_tables_new(const struct signal_map_fds *fds, const char *directory);
void signal_tables_free(struct signal_tables *tables);

int signal_tables_keys(struct signal_tables *tables, const struct signal_key *keys, size_t n, int64_t now_us);
int signal_tables_next_hops(struct signal_tables *tables, const struct signal_hop *hops, size_t n);
int signal_tables_authorisations(struct signal_tables *tables, const struct signal_authorisation *authorisations,
                                 size_t n, int64_t now_us);
int signal_tables_asks(struct signal_tables *tables, const struct signal_ask *asks, size_t n);
int signal_tables_link(struct signal_tables *tables, const struct signal_link *link);
int signal_tables_remove_link(struct signal_tables *tables, uint32_t ifindex);
int signal_tables_policy(struct signal_tables *tables, const struct signal_policy *policy);

/* Once a second: keep the sequences in use on disk, ahead of them. */
int signal_tables_keep(struct signal_tables *tables);

/* The sequence used last towards an element and its epoch; -ENOENT. From 2^23 on a new epoch is due. */
int signal_tables_sequence(const struct signal_tables *tables, uint16_t element, uint8_t *ret_epoch,
                           uint32_t *ret_sequence);
/* How many requests an element ignored (signal_maps.h, struct chart_signal_out); 0: or it has no key. */
uint32_t signal_tables_ignored(const struct signal_tables *tables, uint16_t element, bool *ret_answered);
/* The highest epoch of the keys that are signed with now; 0: none. */
uint8_t signal_tables_key_epoch(const struct signal_tables *tables);
/* One of enum chart_signal_counter or chart_qos_error, over all processors. */
uint64_t signal_tables_count(const struct signal_tables *tables, uint32_t counter);
/* What a link has promised now. */
struct signal_load {
    uint64_t held_bps;
    uint32_t flows; /* that share what is available */
    uint32_t users; /* whose flows they are */
};
/* -ENOENT. */
int signal_tables_load(const struct signal_tables *tables, uint32_t ifindex, struct signal_load *ret);
