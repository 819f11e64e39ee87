/* The maps of the program `signal`: keys, values, units, writers (docs/signalling.md). Included from C and from BPF
 * after qos.h. Addresses are 16 octets, IPv4 as ::ffff:a.b.c.d; ports in network order; times are CLOCK_MONOTONIC. */
#pragma once

#include "marks.h"
#include "qos.h"

#define CHART_SIGNAL_FLOWS_MAX 131072
#define CHART_SIGNAL_JUDGED_MAX 65536
#define CHART_SIGNAL_PEERS_MAX 4096
#define CHART_SIGNAL_PREFIXES_MAX 16384
/* An authorised prefix has a place for each service and one for all. */
#define CHART_SIGNAL_CLIENTS_MAX (5 * CHART_SIGNAL_PREFIXES_MAX)
#define CHART_SIGNAL_ASKS_MAX 256
#define CHART_SIGNAL_LINKS_MAX 64
#define CHART_SIGNAL_USERS_MAX 16384
#define CHART_SIGNAL_FAILING_MAX 8192
/* Signals of one sender that fail to verify: so many at once, then one in so long; what comes beyond is not verified.
 */
#define CHART_FAILURES_AT_ONCE 64u
#define CHART_FAILURE_NS 100000000ull

/* Held and committed rates end at the borders of slots, so that a link needs no walk over its flows to know what is in
 * use: half a second each, and more of them than an idle guaranteed flow lives (30 s). */
#define CHART_SLOT_NS 500000000ull
#define CHART_SLOTS 64u
/* Classes of pre-emption priority, 16 priorities each: who is in a higher one takes from those in lower ones. */
#define CHART_CLASSES 16u
#define CHART_CLASS_OF(priority) ((priority) >> 4)

/* What the mode of the node leaves of signalling. */
enum chart_signal_mode {
    CHART_SIGNALLING_OFF = 0, /* no packet is looked at */
    CHART_SIGNALLING_OBSERVE, /* what would be done is counted; nothing is sent, written or changed */
    CHART_SIGNALLING_ENFORCE
};

/* Map `signal_config` (array of 1). Writer: the agent. */
struct chart_signal_config {
    __u32 element;    /* own id; 0: signals pass by untouched */
    __u32 generation; /* changes with the asks and the mode; flows are looked at anew */
    __u32 n_asks;
    __u8 mode;              /* enum chart_signal_mode */
    __u8 drop_unauthorised; /* 0: the free level; 1: silence */
    __u8 has_shim4;
    __u8 has_shim6;
    __u64 free_bps;      /* most available rate without authorisation */
    __u64 hold_ns;       /* a hold without confirm */
    __u64 commitment_ns; /* a commitment without renewal */
    __u64 idle_ns;       /* the same for guaranteed rates */
    __u64 rate_ns;       /* a rate at its sender: ends before what elements keep for it */
    __u64 renew_ns;
    __u64 retry_ns;  /* least time before an unanswered request is repeated */
    __u64 legacy_ns; /* until a flow that got no answer or was refused asks again */
    __u32 renew_packets;
    __u32 tries;
    __u8 shim_address[16]; /* own address of shim datagrams, IPv4 */
    __u8 shim_address6[16];
};

/* Map `signal_flows` (hash): both directions of a flow under one key. `low` is the end whose address (then port) is the
 * smaller number as it lies in memory. Flows that ask for a rate or that a signal of a neighbour spoke of; nothing is
 * evicted, what is over the agent takes out (signal_expiry.h). Writer: signal. */
struct chart_signal_key {
    __u64 low[2];
    __u64 high[2];
    __u16 low_port;
    __u16 high_port;
    __u8 protocol;
    __u8 unused[3];
};

enum chart_signal_role {
    CHART_ROLE_NONE = 0,
    CHART_ROLE_ORIGIN = 1,  /* this element asks for the flow */
    CHART_ROLE_TRANSIT = 2, /* signals pass through */
    CHART_ROLE_LAST = 3     /* this element answers */
};

/* One direction of data. */
struct chart_signal_half {
    __u64 last_ns; /* of the last request or renewal */
    /* Origin. */
    __u64 next_ns;    /* no request before this */
    __u64 expires_ns; /* of the agreed rate */
    __u32 packets;    /* segments since last_ns */
    __u32 generation; /* of the asks it was judged by */
    __u32 changes;    /* of the agreed rate */
    /* Every element: what the link keeps for this flow, until `slot` begins. */
    __u32 ifindex;
    __u64 held_bps;
    __u64 wanted_bps; /* guaranteed rate that it asked for and did not get */
    __u64 slot;
    __u64 bucket_ns; /* when the token bucket of its guaranteed rate is empty of debt; expedited flows */
    __u8 counted;    /* among the flows that share what is available */
    __u8 role;       /* enum chart_signal_role */
    __u8 state;      /* enum chart_socket_state; origin */
    __u8 tries;
    __u8 pending; /* status of the answer that waits for a packet, plus one; 0: none */
    __u8 confirm; /* origin: a confirm is due */
    __u8 carrier; /* enum chart_signal_carrier; origin */
    __u8 closed;
    __u8 preemption; /* class in which it wants */
    __u8 unused;
    __u16 rule; /* origin: number of the session rule by which it asks; 0: none */
    __u8 unused2[4];
    struct chart_qos asked;  /* origin: what is asked; last: what came */
    struct chart_qos agreed; /* origin: the answer */
};

struct chart_signal_flow {
    struct chart_signal_half halves[2]; /* 0: low sends */
};

/* Map `signal_judged` (LRU hash, keys as of signal_flows): flows that nothing is asked for, by direction. To forget one
 * costs a second look at it. Writer: signal. */
struct chart_signal_judgement {
    __u64 until_ns; /* ~0: as long as the generation is the same */
    __u32 generation;
    __u32 unused;
};

struct chart_signal_judged {
    struct chart_signal_judgement ways[2];
};

enum chart_signal_carrier { CHART_CARRIER_OPTION = 0, CHART_CARRIER_SHIM = 1 };

/* Map `signal_in` (hash). Writer: the agent makes and removes entries; signal moves the window. An epoch is never
 * written over, so that its window cannot go back. */
struct chart_signal_in_key {
    __u16 sender;
    __u8 epoch;
    __u8 unused;
};

struct chart_signal_in {
    struct bpf_spin_lock lock;
    __u32 unused;
    struct chart_hmac_key key;
    struct chart_replay replay;
};

/* Map `signal_out` (hash: element id, u32). Writer: the agent; signal takes sequences and counts silence. */
struct chart_signal_out {
    struct chart_hmac_key key;
    __u32 sequence; /* used last */
    __u32 epoch;
    __u32 unanswered;    /* option requests in a row */
    __u32 ignored;       /* requests and renewals sent when the element had answered nothing for `retry_ns` */
    __u64 shim_until_ns; /* the shim carries what begins before this */
    __u64 asked_ns;      /* of the first request or renewal since the element's last answer; 0: it answered */
};

/* Key of `signal_next_hops`: octets of an address after the length of the prefix in bits. */
struct chart_signal_prefix {
    __u32 bits;
    __u8 address[16];
};

/* Map `signal_next_hops` (LPM trie). Writer: the agent. No entry: this element is the last before the destination. */
struct chart_signal_hop {
    __u16 element;
    __u8 has_shim;
    __u8 unused;
    __u8 shim_address[16];
};

/* Key of `signal_auths`: the service (enum chart_service, or CHART_SERVICE_ANY), then octets of the client's address;
 * `bits` counts both. */
struct chart_signal_client {
    __u32 bits;
    __u32 service;
    __u8 address[16];
};
#define CHART_SERVICE_BITS 32u
/* Under this one stand all clients that any service is allowed to. */
#define CHART_SERVICE_ANY 4u

/* What may be asked within one time; until_ns 0: an empty place. */
struct chart_signal_limit {
    __u64 guaranteed_bps;
    __u64 available_bps;
    __u64 from_ns;
    __u64 until_ns;
    __u8 preemption_priority;
    __u8 delay_priority;
    __u8 unused[6];
};
#define CHART_LIMITS_MAX 4

/* Map `signal_auths` (LPM trie). Writer: the agent. The largest comes first; the first within whose time a signal comes
 * applies, when there is none that of the next shorter prefix. */
struct chart_signal_authorisation {
    __u32 bits; /* of its key */
    __u32 unused;
    struct chart_signal_limit limits[CHART_LIMITS_MAX];
};

/* What an ask is besides: */
#define CHART_ASK_PERMITS 1u   /* flows that it matches may have as much, whatever their addresses may ask */
#define CHART_ASK_ELSEWHERE 2u /* other nodes ask by it; this one only permits */

/* Map `signal_asks` (array of CHART_SIGNAL_ASKS_MAX): what is asked for flows whose program does not ask. Writer: the
 * agent; config.n_asks are in use, the first match counts. */
struct chart_signal_ask {
    __u8 source[16];
    __u8 source_mask[16];
    __u8 destination[16];
    __u8 destination_mask[16];
    /* Host order, both ends included; 0 to 65535: any. */
    __u16 source_port_first;
    __u16 source_port_last;
    __u16 destination_port_first;
    __u16 destination_port_last;
    __u16 rule;         /* number of the session rule that it comes from; 0: of none */
    __u8 protocol;      /* 0: TCP and UDP */
    __u8 dscp_plus_one; /* of the packet by which the flow is judged, its first; 0: any */
    __u8 flags;         /* CHART_ASK_... */
    __u8 unused[3];
    struct chart_qos qos;
};

/* Map `signal_links` (hash: interface index). Writer: the agent. */
struct chart_signal_link {
    __u32 header_bytes; /* in front of the IP header */
    __u32 unused;
    __u64 explicit_bps;   /* most of all explicit rates together; 0: this link lowers nothing */
    __u64 guaranteed_bps; /* most of all guaranteed rates */
    /* Nothing is guaranteed from then on: what was guaranteed before may live on until the lease is reused. ~0: never
     * ends. */
    __u64 guaranteed_until_ns;
    /* The common rate of the link's controller and until when it holds; without it flows share equally. */
    __u64 rate_bps;
    __u64 rate_until_ns;
};

/* How many there are, and how many of them end with each slot. */
struct chart_signal_number {
    __u32 now;
    __u32 ending[CHART_SLOTS];
};

/* Map `signal_loads` (hash: interface index). Made by the agent with zeros; writer: signal. */
struct chart_signal_load {
    struct bpf_spin_lock lock;
    __u32 unused;
    __u64 slot; /* all before this one are over */
    __u64 held_bps;
    __u64 slot_bps[CHART_SLOTS];
    struct chart_signal_number flows; /* that share what is available */
    struct chart_signal_number users; /* whose flows they are */
    /* What flows of each class want beyond what they hold, and what of it ends with each slot. */
    __u64 wanted_bps[CHART_CLASSES];
    __u64 slot_wanted_bps[CHART_SLOTS][CHART_CLASSES];
};

/* Map `signal_users` (hash): who has flows on a link that share what is available. The user is the end that an
 * authorisation known to this element names, else the sender. Flows of a user without a place share as users of their
 * own. What is over the agent takes out. Guarded by the lock of the link's load; writer: signal. */
struct chart_signal_user_key {
    __u8 address[16];
    __u32 ifindex;
};

struct chart_signal_user {
    __u64 slot;    /* all before this one are over */
    __u64 counted; /* the slot in which the link's load ceases to count this user; 0: it does not */
    struct chart_signal_number flows;
};

/* Map `signal_failing` (LRU hash): who sent signals that failed to verify. A sender is the address that the packet came
 * from (of IPv6 the first 64 bits) on an interface, not the element that the signal names, which anybody can write.
 * Flows whose signals verified have a budget each beside the one of their address, so that who forges the address does
 * not silence them. Writer: signal. */
struct chart_signal_sender {
    __u8 address[16];
    __u32 ifindex;
    __u32 flow; /* hash of a known flow; 0: all that are not known */
};

struct chart_signal_failing {
    __u64 until_ns; /* when what it is charged with is paid off */
};

/* Map `signal_counters` (array per processor): enum chart_qos_error first, then these. Writer: signal. */
enum chart_signal_counter {
    CHART_COUNT_ACCEPTED = CHART_QOS_ERRORS, /* signals verified */
    CHART_COUNT_SENT,
    CHART_COUNT_CONSUMED,
    CHART_COUNT_LOWERED,
    CHART_COUNT_UNAUTHORISED,
    CHART_COUNT_UNSENT, /* a clone could not become a signal */
    CHART_COUNT_REJECTED,
    CHART_COUNT_SHIM_SENT,
    CHART_COUNT_PREEMPTED,    /* renewals that were lowered for flows of a higher class */
    CHART_COUNT_UNEXPECTED,   /* verified, but nothing that this element waits for */
    CHART_COUNT_WOULD_ASK,    /* flows that a rate would be asked for; mode observe */
    CHART_COUNT_WOULD_TAKE,   /* well-formed signals that would be verified and taken; mode observe */
    CHART_COUNT_NO_ROOM,      /* verified requests that found no room in the table of flows, and were dropped */
    CHART_COUNT_OVER_BUDGET,  /* not verified: too many before it from the same sender failed */
    CHART_COUNT_UNKEPT,       /* flows of this node that found no room in the table of flows, and ask later */
    CHART_COUNT_UNKNOWN_USER, /* signals of users that found no room in the table of users */
    CHART_COUNTERS
};

/* Ring `signal_reports`: signals that name a known sender and fail, for authority. */
struct chart_signal_report {
    __u64 at_ns;
    __u32 error; /* enum chart_qos_error */
    __u32 unused;
    struct chart_flow flow;
    __u8 signal[CHART_SIGNAL_OCTETS];
    __u8 unused2[4];
};
