/* What this node shall do about every grant: pure decisions over what the streams said (Brassil et al., The CHART
 * System, sections 3 and 5: the explicit rate of a flow is its guaranteed rate plus the least available rate on its
 * path). No I/O and no clock: the caller hands in the time.
 *
 * Every rate is a lease: a grant ends at its valid_until, a link rate at its own; when a link rate ends the available
 * rate is 0 and the guaranteed rate lives on. Rates are bits per second with IP headers counted. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "grants/bounds.h"
#include "grants/egress.h"

/* A node's id is a host name of up to 253 octets, a link's has a colon and an interface besides. */
#define DECIDE_ID_LEN 272
#define DECIDE_TRACEPARENT_LEN 56
/* Owners have up to 255 octets; of a longer one the first 255 count. */
#define DECIDE_USER_LEN 256
/* Users with several flows that one record of link rates may name; further ones are left out. */
#define DECIDE_USERS_MAX 1024
#define DECIDE_REASON_LEN 160
/* Prefixes of one end of a grant, and those beside the first. */
#define DECIDE_PREFIXES_MAX 16
#define DECIDE_MORE_PREFIXES 15
/* Refresh of a status that did not change. */
#define DECIDE_REFRESH_US 10000000ll
/* How often a changed kernel rate, or octets that moved, are told: who measures a rate from outside needs both. */
#define DECIDE_RATE_CHANGE_US 1000000ll
/* A grant without any rate is reported as failed only after this long, the time a fresh link rate may take to arrive.
 */
#define DECIDE_GRACE_US 1000000ll
/* A grant without octets for this long is idle: the links' rates do not count it any more. */
#define DECIDE_IDLE_US 2000000
/* How long a grant that has begun to move data is a newcomer: a load report, a link rate, and one of each to spare. */
#define DECIDE_NEWCOMER_US 400000
/* Of its fair part a newcomer takes one in so many where others send. */
#define DECIDE_NEWCOMER_PART 4
/* After this long a link's controller has surely set a new grant's GR aside. */
#define DECIDE_UNKNOWN_GRANT_US 2000000
/* How long a removed grant is remembered, so that an undelivered REMOVED can be sent again. */
#define DECIDE_FORGET_US 60000000ll

/* Same numbers as chart.v1.EnforcementMode. */
enum decide_mode {
    DECIDE_MODE_OFF = 1,
    DECIDE_MODE_OBSERVE = 2,
    DECIDE_MODE_ENFORCE = 3,
};

/* Same numbers as chart.v1.GrantState. */
enum decide_state {
    DECIDE_NONE = 0,
    DECIDE_APPLIED = 1,
    DECIDE_OBSERVED = 2,
    DECIDE_FAILED = 3,
    DECIDE_REMOVED = 4,
};

/* The HTB class that the packets of a grant belong in. */
enum decide_class {
    DECIDE_CLASS_EXPLICIT_RATE = 0,
    /* Low delay: expedited forwarding. Only for grants with a bucket of k <= 1 (signalling.md). */
    DECIDE_CLASS_EXPEDITED = 1,
};

/* A parsed prefix; family 0 matches any address. Addresses in network byte order, IPv4 in the first 4 octets. */
struct decide_prefix {
    uint8_t family;
    uint8_t bits;
    uint8_t address[16];
};

/* Ports in host byte order; 0 and family 0 match anything. A flow from `source` or one of `more_sources` to
 * `destination` or one of `more_destinations` matches. */
struct decide_selector {
    struct decide_prefix source;
    struct decide_prefix destination;
    struct decide_prefix more_sources[DECIDE_MORE_PREFIXES];
    struct decide_prefix more_destinations[DECIDE_MORE_PREFIXES];
    uint8_t n_more_sources;
    uint8_t n_more_destinations;
    uint8_t protocol;
    uint8_t dscp_plus_one;
    uint16_t source_port;
    uint16_t destination_port;
    uint64_t cgroup_id;
};

/* A link that this node transmits on. ifindex 0: the interface is not there. */
struct decide_link {
    char id[DECIDE_ID_LEN];
    uint32_t ifindex;
    bool up;
    uint64_t capacity_bps;
};

/* A grant as the stream stated it; pointers are borrowed for the call. */
struct decide_grant {
    const char *request_id;
    uint64_t generation;
    struct decide_selector selector;
    /* Empty, or why the selector could not be understood. */
    const char *selector_error;
    const char *const *link_ids;
    size_t n_link_ids;
    uint64_t guaranteed_bps;
    uint64_t maximum_bps;
    uint32_t delay_priority;
    uint32_t burst_tolerance;
    int64_t valid_from_us;
    int64_t valid_until_us;
    bool with_available_rate;
    /* Whose flow it is; NULL or "": of nobody else's. */
    const char *user;
};

struct decide_link_rate {
    char link_id[DECIDE_ID_LEN];
    uint64_t available_bps;
    uint64_t explicit_rate_capacity_bps;
    uint64_t legacy_share_bps;
    /* Users that the rates count: R is what all flows of a user may have together. */
    uint32_t active_users;
    /* What flows may be guaranteed in band together, and until when; microseconds since the epoch. */
    uint64_t gr_lease_bps;
    int64_t gr_lease_until_us;
};

/* A user with several flows on a link, as its rate says; the user is borrowed for the call. */
struct decide_user_flows {
    const char *user;
    /* Which of the record's rates, from 0. */
    uint32_t rate;
    uint32_t flows;
};

/* A grant as this node shall apply it now: what decisions or a rate file say, and what the datapath writes into the
 * maps of the kernel. */
struct decide_applied {
    char request_id[DECIDE_ID_LEN];
    char link_id[DECIDE_ID_LEN];
    uint32_t ifindex;
    struct decide_selector selector;
    enum decide_class class;
    /* This node sends the flows: it paces them; otherwise it only puts them in their class. */
    bool sending;
    uint64_t generation;
    uint64_t gr_bps;
    uint64_t ar_bps;
    /* When GR ends, and when AR ends (0 when there is no AR), microseconds since the epoch; a rate without a lease is
     * 0. */
    int64_t valid_until_us;
    int64_t ar_valid_until_us;
};

/* What the datapath knows of an applied grant; fed back before decide_statuses. */
struct decide_observed {
    uint64_t kernel_rate_bps;
    uint32_t matching_flows;
    uint64_t sent_bytes;
    uint64_t delivered_bytes;
    /* Packets of the grant left lately, be they a SYN: that is what links count. */
    bool packets;
    /* When the bytes were read, microseconds since the epoch. */
    int64_t counted_at_us;
};

/* A status to publish; strings are borrowed for the call of the sink. */
struct decide_status {
    const char *request_id;
    uint64_t generation;
    enum decide_state state;
    const char *reason;
    /* FAILED because the grant's link at this node is down. */
    bool link_down;
    const char *traceparent;
    int64_t applied_at_us;
    struct decide_observed observed;
    /* When a packet or a flow of the grant was last seen; 0: never. */
    int64_t seen_at_us;
    /* By which links of the node its packets leave. */
    const struct egress *egress;
};

struct decide;

struct decide *decide_new(const char *node);
void decide_free(struct decide *decide);

/* Inputs. Each returns 1 when it may change the outcome, 0 when it does not, or -ENOMEM / -EINVAL (an id too long or
 * empty). */
int decide_set_links(struct decide *decide, const struct decide_link *links, size_t n_links);
int decide_put_grant(struct decide *decide, const struct decide_grant *grant, const char *traceparent, int64_t now_us);
int decide_remove_grant(struct decide *decide, const char *request_id, const char *traceparent, int64_t now_us);
int decide_put_link_rates(struct decide *decide, const char *node, uint64_t generation, int64_t valid_until_us,
                          const struct decide_link_rate *rates, size_t n_rates, const struct decide_user_flows *users,
                          size_t n_users, int64_t now_us);
int decide_remove_link_rates(struct decide *decide, const char *node);
int decide_put_policy(struct decide *decide, const char *id, enum decide_mode mode);
int decide_remove_policy(struct decide *decide, const char *id);
/* The mode until a policy says another or is removed: what this node was told before it was restarted. */
void decide_set_untold_mode(struct decide *decide, enum decide_mode mode);

/* "off", "observe" or "enforce". */
const char *decide_mode_name(enum decide_mode mode);

/* The local off switch overrules every policy. Returns 1 when that changes something. */
int decide_set_local_off(struct decide *decide, bool off);

/* The mode of this node: off when switched off locally, its own policy, else "default", else what it was told before
 * this process began, else observe. */
enum decide_mode decide_mode(const struct decide *decide);
/* The same without the local off switch. */
enum decide_mode decide_policy_mode(const struct decide *decide);

/* Outcome: the grants to apply now, ordered by request id, empty in mode off (in mode observe the
 * datapath only counts). The table belongs to
 * `decide` and lives until the next call. *ret_next_us: when the outcome changes by itself (a lease ends or a grant
 * starts), INT64_MAX never. Returns the number of grants or -ENOMEM. */
int decide_desired(struct decide *decide, int64_t now_us, const struct decide_applied **ret_table,
                   int64_t *ret_next_us);

/* Feed back what the datapath made of a desired grant: error 0 or a negative errno. Returns as decide_set_observed. */
int decide_set_result(struct decide *decide, const char *request_id, int error, const struct decide_observed *observed,
                      int64_t now_us);

/* Fresh counts of a grant that the datapath has. Returns 1 when its flows began or fell idle, so that the outcome may
 * change, else 0. */
int decide_set_observed(struct decide *decide, const char *request_id, const struct decide_observed *observed,
                        int64_t now_us);

/* What the node's links counted of a grant. Returns where its packets leave when that has to be judged by the kernel's
 * tables (egress_note), else NULL. */
const struct egress *decide_set_egress(struct decide *decide, const char *request_id, const struct egress_count *counts,
                                       size_t n, int64_t now_us);
/* Whether packets of a grant take another link than the kernel's tables say. */
void decide_set_against_routes(struct decide *decide, const char *request_id, bool against);
/* The kernel's tables changed for those selectors that `lead` is true of: what was seen of their packets before says
 * nothing of the new ones. */
void decide_routes_changed(struct decide *decide, bool (*lead)(const struct decide_selector *selector, void *context),
                           void *context);

/* Hand every status that is due to `sink` (changes at once, refreshes every DECIDE_REFRESH_US); when the sink returns
 * an error the status stays due. Returns how many were taken. */
int decide_statuses(struct decide *decide, int64_t now_us,
                    int (*sink)(const struct decide_status *status, void *context), void *context);

/* A status was not delivered: send the present one again. */
void decide_undelivered(struct decide *decide, const char *request_id);

/* The links of a grant's path; NULL: there is no such grant. Lives until the grant changes. */
const char (*decide_grant_path(const struct decide *decide, const char *request_id, size_t *ret_n))[DECIDE_ID_LEN];

/* Fresh rate of one link, NULL when none or when its lease ended. */
const struct decide_link_rate *decide_link_rate(const struct decide *decide, const char *link_id, int64_t now_us);

/* What flows may be guaranteed in band together on a link, and when that ends in *ret_until_us; 0 when the link has no
 * lease that holds. A lease that nobody renews, because its allocator or its stream is away, ends by itself. */
uint64_t decide_in_band_lease(const struct decide *decide, const char *link_id, int64_t now_us, int64_t *ret_until_us);

/* The rate that the link's controller gives every user, in *ret_bps, and when it ends; false when it has none that
 * holds. */
bool decide_in_band_rate(const struct decide *decide, const char *link_id, int64_t now_us, uint64_t *ret_bps,
                         int64_t *ret_until_us);

/* Whose flow a grant is, "" when nobody else's or when there is no such grant; lives until the grant changes. */
const char *decide_user(const struct decide *decide, const char *request_id);

/* Parse "10.0.0.0/8", "fe80::/10", a bare address or "" (any). 0, or -EINVAL. */
int decide_parse_prefix(const char *text, struct decide_prefix *ret);

/* Counts for metrics: grants known that concern this node, link rates known, policies known. */
struct decide_counts {
    size_t grants;
    size_t link_rate_nodes;
    size_t policies;
    /* Commands outside of the bounds of this node, by kind, since the start. */
    uint64_t refused[BOUNDS_KINDS];
};
struct decide_counts decide_counts(const struct decide *decide);
/* A command that somebody else refused. */
void decide_count_refused(struct decide *decide, enum bounds_kind kind);
/* Whether the rate that a link of this node was told, and that has not ended, is above its capacity: it does not hold.
 */
bool decide_rate_is_refused(const struct decide *decide, const char *link_id, int64_t now_us);
