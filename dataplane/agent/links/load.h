/* Load of a link over an interval, from counters that only grow: pure (link rate control of signalling.md reads it
 * every 100 ms).
 *
 * Octets are IP octets: the link header that the kernel counts with every packet is taken off. What was sent is what
 * left the link's queue (HTB); without HTB (mode off or observe) what the interface sent, split by the classifier's
 * counters. */
#pragma once

#include "core/strmap.h"
#include "grants/datapath.h"
#include "links/htb.h"

/* The guaranteed rate of a grant counts as in use for this long after its last packet (counters of a grant may be a
 * second old). */
#define LOAD_IN_USE_US 2000000ll
/* A flow counts among its user's for so many epochs of 100 ms: the count must not follow every pause (three reports).
 */
#define LOAD_RECENT_EPOCHS 3

/* One link's figures of an interval; as chart.v1.LinkLoad. */
struct link_load {
    const char *link_id;
    uint64_t sent_bytes;
    uint64_t explicit_rate_bytes;
    uint64_t legacy_bytes;
    uint64_t dropped_packets;
    uint64_t queue_bytes;
    uint64_t explicit_rate_queue_bytes;
    uint32_t active_flows;
    uint32_t legacy_flows;
    uint32_t users;
    uint64_t guaranteed_in_use_bps;
    uint64_t in_band_committed_bps;
    uint32_t rtt_us;
};

/* As chart.v1.UserFlows; `link` is an index of the report's loads. */
struct load_user_flows {
    const char *user;
    uint32_t link;
    uint32_t flows;
};

struct load_sample {
    bool have_htb;
    struct htb_stats htb;
    bool have_classifier;
    struct datapath_link_counters classifier;
    uint64_t interface_packets;
    uint64_t interface_bytes;
    uint64_t interface_dropped;
    uint32_t link_header_bytes;
};

/* Fill the octets, drops and queues of ret from two samples of a link. Counters that went back were reset: they count
 * from 0. */
void load_difference(const struct load_sample *before, const struct load_sample *now, struct link_load *ret);

/* Loads of a link in its last intervals, bits per second: RFC 4782, appendix D, wants the peak of 3 to 20. */
#define LOAD_PEAKS 20
struct load_peaks {
    uint64_t bps[LOAD_PEAKS];
    uint32_t count;
    uint32_t at;
};

void load_peak_note(struct load_peaks *peaks, uint64_t bytes, int64_t interval_us);
/* The busiest of them. 0: known; -EAGAIN: there are fewer than three, *ret is untouched. */
int load_peak(const struct load_peaks *peaks, uint64_t *ret_bps);

/* Which grants move data. */
struct load_activity {
    struct strmap grants;
    uint64_t round;
};

enum load_use { LOAD_IDLE, LOAD_IN_USE, LOAD_ACTIVE };

/* Begin a round of notes; load_end forgets the grants that had none in it. */
void load_begin(struct load_activity *activity);
/* LOAD_ACTIVE: octets moved since the last round; LOAD_IN_USE: within LOAD_IN_USE_US; LOAD_IDLE otherwise, or -ENOMEM.
 */
int load_note(struct load_activity *activity, const char *request_id, uint64_t sent_bytes, int64_t now_us);
void load_end(struct load_activity *activity);
void load_free(struct load_activity *activity);

/* A grant with traffic: whose it is ("": nobody else's), and the link that it leaves through. */
struct load_sender {
    const char *user;
    uint32_t link;
    bool active;
};

/* Users among `flows` active flows that no grant known here explains: as many of them as ask in band are the flows of
 * the users in band, each of the others is a user. */
uint32_t load_unnamed_users(uint32_t flows, uint32_t in_band_flows, uint32_t in_band_users);

/* Sort `senders` by link and user; add to users[link] how many users are active there, and list in ret, which has room
 * for `most`, who has more than one sender on a link. Returns how many are listed. */
size_t load_count_users(struct load_sender *senders, size_t n, uint32_t *users, struct load_user_flows *ret,
                        size_t most);
