/* The agent's side of the BPF programs: the grants go down, flows and counters come up (Brassil et al., The CHART
 * System, section 5, "Trinity"; the programs are dataplane/bpf, their maps are dataplane/bpf/maps.h).
 *
 * Declarative: datapath_apply takes the whole table of grants every time and changes only what differs, so a caller
 * never has to remember what it told the kernel. Errors are negative errno. Not safe for threads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "grants/decide.h"

/* Grants that one node applies at once. */
#define DATAPATH_GRANTS_MAX 256

struct agent;
struct agent_module;
struct datapath;

/* The part of the agent that opens the datapath and walks the flows, and what it opened. */
extern const struct agent_module datapath_module;
struct datapath *datapath_of(const struct agent *agent);

/* What the kernel's tables of one node hold and can hold. */
enum datapath_room_kind { DATAPATH_ROOM_GRANTS, DATAPATH_ROOM_SELECTORS, DATAPATH_ROOM_KINDS };

struct datapath_room {
    /* "grants" or "selectors". */
    const char *kind;
    uint64_t held;
    uint64_t total;
};

/* What became of Quick-Start requests of the node's connections, and how many of others' it responded to. */
enum { DATAPATH_QUICK_START_COUNTS = 5 };

struct datapath_count {
    const char *name;
    uint64_t count;
};

struct datapath_options {
    /* The processes whose flows CHART handles: a cgroup v2 directory. */
    const char *cgroup_path;
    /* Congestion control a flow goes back to; NULL: the one it had. */
    const char *default_control;
    /* UDP port of the sensors' responders: what goes to or from it is probes, not demand; 0: none. */
    uint16_t sensor_port;
    /* Rates may come in band: attach looks for them and the flow table has its full size. */
    bool signalling;
    /* The mode that is kept, and what --cleanup needs. */
    const char *state_dir;
};

/* Counted by the classifier on one interface since it was attached; octets of IP, one figure per HTB class. */
struct datapath_link_counters {
    uint64_t expedited_bytes;
    uint64_t explicit_rate_bytes;
    uint64_t legacy_bytes;
    uint64_t background_bytes;
    /* Grants with packets here within the last full 100 ms, and flows without a grant (estimate). */
    uint32_t active_grants;
    uint32_t legacy_flows;
    /* SCONE packets while the link gave advice, and those that were lowered to it. */
    uint64_t scone_packets;
    uint64_t scone_lowered;
    /* Quick-Start requests while the link answered them; those that were lowered, and those that were refused. */
    uint64_t scone_policed;
    uint64_t quick_start_requests;
    uint64_t quick_start_lowered;
    uint64_t quick_start_refused;
};

/* What a link tells flows that nobody controls here: bits per second with IP headers, each until a time of the wall
 * clock, microseconds since the epoch, and in which formats. */
struct datapath_advice {
    /* What each may send. */
    uint64_t fair_bps;
    int64_t fair_until_us;
    /* What new ones may begin with together. */
    uint64_t spare_bps;
    int64_t spare_until_us;
    /* And the most that one of them may. */
    uint64_t begin_bps;
    bool scone;
    bool scone_police;
    bool quick_start;
    /* Only flows from or to the prefixes of datapath_advise_prefixes are served. */
    bool prefixes;
};

/* Prefixes of one link. */
#define DATAPATH_ADVICE_PREFIXES_MAX 32

/* A TCP flow of this node's processes: one that a grant matches or whose rate was agreed in band, or a plain one that
 * has sent CHART_PLAIN_FLOW_BYTES. */
struct datapath_flow {
    char request_id[DECIDE_ID_LEN];
    /* As the sender sees it, "10.0.0.1:5001" or "[fe80::1]:5001". */
    char local[64];
    char remote[64];
    char control[16];
    bool sending;
    /* Its rate was agreed in band; then request_id may be empty. */
    bool in_band;
    uint64_t cookie;
    uint64_t rate_bps;
    uint64_t pacing_bytes_per_s;
    uint32_t cwnd_packets;
    uint32_t rtt_us;
    uint32_t min_rtt_us;
    uint64_t sent_bytes;
    uint64_t delivered_bytes;
    uint64_t retransmitted_packets;
    /* Segments of any kind, and the octets of a TCP header now. */
    uint32_t sent_packets;
    uint32_t header_bytes;
    uint8_t dscp;
    /* What it was approved by Quick-Start last, bits per second; 0: nothing. */
    uint64_t quick_start_bps;
};

/* A flow that was told a rate in packets of a standard: by SCONE at the egress of one of the node's links, by
 * Quick-Start to one of its own connections. */
struct datapath_advised {
    char source[64];
    char destination[64];
    uint8_t protocol;
    /* "scone" or "quick-start". */
    const char *standard;
    /* By which it leaves; 0: Quick-Start's answer is of all links on the path. */
    uint32_t ifindex;
    uint64_t advised_bps;
    /* Since its last packet with advice, or since it asked. */
    uint32_t age_ms;
};

static inline bool datapath_flow_is_plain(const struct datapath_flow *flow) {
    return !flow->request_id[0] && !flow->in_band;
}

int datapath_open(const struct datapath_options *options, struct datapath **ret);
/* Every flow back on its own control, every program detached, the maps cleared. */
void datapath_close(struct datapath *datapath);

/* Make the kernel's grants equal `grants`, whose links it does not look at. What is left of a lease at now_us
 * (microseconds since the epoch) goes by the kernel's own clock from then on. ret_errors (may be NULL) has one entry
 * per grant: 0 or why it is not in the kernel. Returns 0, or the first error. Call it again before leases end. */
int datapath_apply(struct datapath *datapath, const struct decide_applied *grants, size_t n_grants, int64_t now_us,
                   int *ret_errors);

/* By what number the kernel knows a grant; 0: it does not. */
uint64_t datapath_grant_number(const struct datapath *datapath, const char *request_id);

/* The mode that policy or rate file asks for; it waits while the local off switch holds. OFF and OBSERVE give every
 * flow back to its own control at once; OBSERVE goes on counting. Both are kept in the state folder (kept_mode.h), and
 * datapath_open begins with them. */
int datapath_set_mode(struct datapath *datapath, enum decide_mode mode);
/* `chart-agent --off` and `--on`; an error also when it is in force but will not outlive this process. */
int datapath_switch(struct datapath *datapath, bool off);
bool datapath_is_off(const struct datapath *datapath);
/* What datapath_set_mode was told last, by this process or one before it. */
enum decide_mode datapath_told_mode(const struct datapath *datapath);
/* The mode in force. */
enum decide_mode datapath_mode(const struct datapath *datapath);

/* The room for grants, kind by kind. */
void datapath_room(const struct datapath *datapath, struct datapath_room ret[DATAPATH_ROOM_KINDS]);

/* Rate in force, active flows and octets of one grant; -ENOENT when the kernel does not have it. */
int datapath_observe(struct datapath *datapath, const char *request_id, struct decide_observed *ret);

/* The grants that the kernel has, one per call: start with *cursor 0. NULL after the last. */
const struct decide_applied *datapath_next_grant(const struct datapath *datapath, size_t *cursor);

/* The receive window that flows set up from now on may have at once, octets; 0: what the kernel gives them. Sockets
 * keep what they were given until they are closed. */
int datapath_set_receive_window(struct datapath *datapath, uint32_t bytes);

/* Congestion control that flows go back to when their rate ends; "": the one that each had. */
int datapath_set_default_control(struct datapath *datapath, const char *name);

/* What new TCP connections ask for by Quick-Start, rounded down to a step of its scale; 0: nothing. */
int datapath_set_quick_start(struct datapath *datapath, uint64_t bps);
/* The UDP port of the overlay, whose packets may hold requests; 0: it does not run. */
int datapath_set_overlay_port(struct datapath *datapath, uint16_t port);
void datapath_quick_start(const struct datapath *datapath, struct datapath_count ret[DATAPATH_QUICK_START_COUNTS]);

/* The newest `max` flows that were told a rate, the newest first; returns how many. A walk over the kernel's tables. */
size_t datapath_advised_flows(const struct datapath *datapath, struct datapath_advised *ret, size_t max);

/* The classifier on the egress of an interface: writes HTB class ids (htb_classes.h) to skb->priority and counts. */
int datapath_attach_link(struct datapath *datapath, uint32_t ifindex);
int datapath_detach_link(struct datapath *datapath, uint32_t ifindex);
int datapath_link_counters(struct datapath *datapath, uint32_t ifindex, struct datapath_link_counters *ret);

/* Advice that packets on a classified interface are given: the rate of their grant, else what `advice` says while it
 * lasts, else none. Advice ends with datapath_no_advice and when the link is detached. -ENOENT: no classifier is there.
 */
int datapath_advise(struct datapath *datapath, uint32_t ifindex, const struct datapath_advice *advice, int64_t now_us);
/* Whom a link's advice is for, in place of those of before. 0 or a negative errno (-EINVAL: more bits than the family
 * has). */
int datapath_advise_prefixes(struct datapath *datapath, uint32_t ifindex, const struct decide_prefix *prefixes,
                             size_t n_prefixes);
void datapath_no_advice(struct datapath *datapath, uint32_t ifindex);

/* Octets in front of the IP header: Ethernet has them, TUN and other bare IP devices do not. */
uint32_t datapath_link_header_bytes(uint32_t ifindex);

/* For the program `signal`, before it is loaded: the maps it shares with trinity and attach. */
struct bpf_map;
int datapath_share_maps(const struct datapath *datapath, struct bpf_map *rates, struct bpf_map *usage,
                        struct bpf_map *flows, struct bpf_map *signal_flows);

/* What agents of one kernel share. */
struct trinity;
const struct trinity *datapath_trinity(const struct datapath *datapath);

/* For the program `police`, before it is loaded: what holds on this node, its selectors and its rates. */
int datapath_share_grants(const struct datapath *datapath, struct bpf_map *rates, struct bpf_map *node_config,
                          struct bpf_map *selectors);

/* Walk the node's TCP flows once: engage running flows whose grant is new, give back those whose rate ended, refresh
 * the counts. Called by the agent once a second and by datapath_apply when a selector changed. */
int datapath_reconcile(struct datapath *datapath);

/* Flows found by the last walk. The table belongs to `datapath` and lives until the next walk. */
size_t datapath_flows(struct datapath *datapath, const struct datapath_flow **ret);
/* Mean smoothed RTT of the sending flows of one grant at the last walk; 0: none. */
uint32_t datapath_grant_rtt_us(const struct datapath *datapath, const char *request_id);
/* How long ago packets of a grant left through an interface, in epochs of 100 ms (0: in the present one), or -ENOENT.
 */
int datapath_grant_age(const struct datapath *datapath, const char *request_id, uint32_t ifindex);
/* Octets of IP that left through an interface under a grant since this node has it. */
uint64_t datapath_grant_bytes(const struct datapath *datapath, const char *request_id, uint32_t ifindex);

/* Take away what a killed agent left in the kernel and in the state folder; no agent may be running on it. Returns the
 * number of things removed or a negative errno. */
int datapath_cleanup(const struct datapath_options *options);
