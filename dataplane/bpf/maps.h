/* The whole contract between the BPF programs and chart-agent: every map's key and value, with units and its one
 * writer. Included from C and from BPF (which takes the integer types from vmlinux.h).
 *
 * Two lifetimes. `trinity` is registered once per kernel and shared by every agent of it (struct_ops names are global),
 * so the maps it reads are shared too: `rates`, `usage`, `flows`. Their keys begin with the node, which is the cookie
 * of the agent's network namespace; an agent writes only under its own. The other maps exist once per agent. Nothing is
 * pinned: the kernel drops programs and maps with the last agent that holds them; flows that still use trinity keep
 * their copy until their lease ends, then hand themselves over (Brassil et al., The CHART System, section 5). */
#pragma once

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

/* A grant between nodes with several addresses has one for each pair of these. */
#define CHART_SELECTORS_MAX 4096
#define CHART_GRANTS_MAX 65536
#define CHART_LINKS_MAX 64
#define CHART_CONTROL_NAME_LEN 16
#define CHART_TRINITY "trinity"
/* Activity of flows and grants is counted per epoch: a flow that leaves stops counting after two. */
#define CHART_EPOCH_NS 100000000ull

/* A grant at a node. Grant numbers are given by the agent and never used twice. */
struct chart_grant_key {
    __u64 node;
    __u64 grant;
};

/* Map `rates` (hash). Writer: the agent. What a grant may send; bits per second with IP headers counted. Leases end at
 * a time of CLOCK_MONOTONIC, so that a rate dies without anybody's help. */
struct chart_rate {
    __u64 gr_bps;
    __u64 ar_bps;
    __u64 gr_expires_ns;
    __u64 ar_expires_ns;
    /* 0: computed and shown, not enforced. */
    __u32 enforce;
    __u32 unused;
};

/* Map `usage` (hash). Made by the agent with zeros, counted by the kernel. */
struct chart_usage {
    /* Flows that made progress in an epoch: epoch number << 16 | flows; the place is epoch modulo 4. */
    __u64 active[4];
    __u64 sent_bytes;
    __u64 delivered_bytes;
    __u64 retransmitted_packets;
};

/* Set in the time at which a rate ends (its lowest bit, a nanosecond): Quick-Start approved it. No field of its own,
 * for agents of several versions share the map. */
#define CHART_QUICK_START_BIT 1ull

/* Map `flows` (socket storage). Writer: attach, from the socket's own context; trinity only counts; signal writes the
 * two fields of its own. */
struct chart_socket_flow {
    struct chart_grant_key key;
    /* What the path agreed to in band, bits per second with headers, and when it ends (CLOCK_MONOTONIC). While it lasts
     * it stands above the grant. Writer: signal; attach and the classifier for what
     * Quick-Start approved. */
    __u64 signal_bps;
    __u64 signal_expires_ns; /* with CHART_QUICK_START_BIT: approved by Quick-Start, for the first round trip */
    /* What of the socket's counters `usage` already has. */
    __u64 counted_sent_bytes;
    __u64 counted_delivered_bytes;
    __u32 counted_retransmits;
    /* Progress in the present epoch. */
    __u32 epoch_delivered_packets;
    __u64 epoch;
    /* This flow's share of the grant when it was last paced, bits per second with headers; 0: not under trinity. */
    __u64 rate_bps;
    /* The control the socket goes back to. */
    char fallback[CHART_CONTROL_NAME_LEN];
};

/* Addresses in network byte order, IPv4 as ::ffff:a.b.c.d; ports in host byte order; 0 matches anything. */
struct chart_selector {
    __u32 source[4];
    __u32 source_mask[4];
    __u32 destination[4];
    __u32 destination_mask[4];
    __u64 cgroup_id;
    __u64 grant;
    __u16 source_port;
    __u16 destination_port;
    __u8 protocol;
    __u8 dscp_plus_one;
    __u8 expedited;
    __u8 sending;
};

/* Map `selectors` (array of 2). Writer: the agent, always the table that is not in use, then node_config.table. The
 * first match counts; the agent puts the most specific selector first. */
struct chart_selector_table {
    __u32 count;
    __u32 unused;
    struct chart_selector selectors[CHART_SELECTORS_MAX];
};

/* Map `qs_counts` (array): what became of Quick-Start requests of this node's connections. */
enum chart_qs_count {
    CHART_QS_COUNT_ASKED,
    CHART_QS_COUNT_APPROVED,
    /* Nothing came back until a retransmission timeout. */
    CHART_QS_COUNT_UNANSWERED,
    /* The nonce says that the receiver reports more than arrived. */
    CHART_QS_COUNT_LIES,
    /* Of others' requests. */
    CHART_QS_COUNT_RESPONDED,
    CHART_QS_COUNTS,
};

/* Map `node_config` (array of 1). Writer: the agent. */
struct chart_node_config {
    __u64 node;
    /* Flows of this cgroup v2 and those below are CHART's; level: its depth. */
    __u64 cgroup_id;
    __u32 cgroup_level;
    /* Which selector table is in use: 0 or 1; generation changes with every new table. */
    __u32 table;
    __u32 generation;
    /* 1: trinity may be set on flows. */
    __u32 enforce;
    /* Receive window that sockets of the cgroup get from the start; 0: leave it alone. */
    __u32 receive_window_bytes;
    /* After which a SYN of a flow with a fresh rate is repeated, in the kernel's ticks; 0: the kernel's own second. */
    __u32 syn_timeout_ticks;
    /* UDP port of the sensors' responders, whose packets are probes; 0: none. */
    __u32 sensor_port;
    /* 1: rates are asked for in band; attach looks for them whenever a socket measures its RTT. */
    __u32 signalling;
    /* What new TCP connections ask for by Quick-Start, as the option has it (lib/advice/quick_start.h); 0: nothing. */
    __u32 quick_start_rate;
    /* UDP port of the overlay's outer packets, whose inner ones may ask by Quick-Start; 0: it does not run. */
    __u32 overlay_port;
    /* Empty: the control the flow had. */
    char default_control[CHART_CONTROL_NAME_LEN];
};

/* What the walk over the node's flows writes, one record per flow a grant matches or that has asked in band; grant 0
 * and not in band: a flow without a rate, which the walk took off trinity if it was there. */
struct chart_flow_record {
    __u64 cookie;
    __u64 grant;
    __u64 rate_bps;
    __u64 pacing_bytes_per_s;
    __u64 sent_bytes;
    __u64 delivered_bytes;
    __u32 retransmitted_packets;
    __u32 cwnd_packets;
    __u32 rtt_us;
    __u32 min_rtt_us;
    __u32 local[4];
    __u32 remote[4];
    __u16 local_port;
    __u16 remote_port;
    /* 1: its rate was agreed in band. */
    __u32 in_band;
    /* Segments of any kind, and the octets of a TCP header now. */
    __u32 sent_packets;
    __u32 header_bytes;
    __u32 dscp;
    __u32 unused;
    char control[CHART_CONTROL_NAME_LEN];
};

/* A flow without a grant is reported from so many octets on: what carries little is no news to anybody. */
#define CHART_PLAIN_FLOW_BYTES (1 << 20)

/* Map `links` (hash: interface index). Made by the agent with zeros, counted by the classifier. Octets of IP. */
struct chart_link {
    /* Written by the agent: octets in front of the IP header on this interface. */
    __u64 link_header_bytes;
    __u64 expedited_bytes;
    __u64 explicit_rate_bytes;
    __u64 legacy_bytes;
    __u64 background_bytes;
    /* As chart_usage.active: grants with packets, flows without a grant. */
    __u64 active_grants[4];
    __u64 legacy_flows[4];
    /* SCONE packets while the link gives advice, and those of them that were lowered to it. */
    __u64 scone_packets;
    __u64 scone_lowered;
    /* Packets above the advice of their flow, dropped. */
    __u64 scone_policed;
    /* Quick-Start requests while the link answers them; of them those that were lowered, and those that were refused.
     */
    __u64 quick_start_requests;
    __u64 quick_start_lowered;
    __u64 quick_start_refused;
};

/* Map `packet_flows` (LRU hash). Writer: the classifier. Remembers the match of a packet's flow. */
struct chart_packet_key {
    __u32 source[4];
    __u32 destination[4];
    __u16 source_port;
    __u16 destination_port;
    __u8 protocol;
    __u8 dscp;
    __u16 unused;
    __u32 ifindex;
};

struct chart_packet_flow {
    __u64 grant; /* 0: none */
    __u64 epoch; /* counted last in this one */
    __u32 generation;
    __u8 expedited;
    __u8 unused[3];
};

/* Map `advice_prefixes` (LPM trie). Of a link that serves only some flows: addresses in network byte order, IPv4 as
 * ::ffff:a.b.c.d. `bits`: 32 of the interface and those of the address. */
struct chart_advice_prefix {
    __u32 bits;
    __u32 ifindex;
    __u32 address[4];
};

#define CHART_ADVICE_BITS_MAX (32 + 128)

/* Map `grant_uses` (LRU hash). Writer: the classifier. What of a grant leaves by an interface. */
struct chart_grant_link {
    __u64 grant;
    __u32 ifindex;
    __u32 unused;
};

struct chart_grant_use {
    /* When the grant was last counted as active there; 0: never. */
    __u64 epoch;
    /* Of all packets that its selectors match, with a rate in force or without; octets of IP. */
    __u64 bytes;
};
