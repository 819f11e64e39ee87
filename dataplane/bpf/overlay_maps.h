/* The maps of the overlay's programs and its probes. Included from C and from BPF; units and one writer each, as in
 * maps.h.
 *
 * An owner is a node with prefixes behind it; a neighbour is the other end of an overlay link. The table is (owner,
 * colour) -> next hops in order, and the first that answers probes is taken (Bavier et al., Increasing TCP Throughput
 * with an Enhanced Internet Control Plane, section II: any of several neighbours may be the next hop, and traffic moves
 * at once when one fails). */
#pragma once

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#define CHART_OVERLAY_DEVICE "chart-overlay"
/* Neighbours are numbered from 1; 0 is none. */
#define CHART_OVERLAY_NEIGHBOURS_MAX 64
#define CHART_OVERLAY_HOPS_MAX 4
#define CHART_OVERLAY_PREFIXES_MAX 16384
#define CHART_OVERLAY_PATHS_MAX 16384
#define CHART_OVERLAY_INTERFACES_MAX 256
/* The lowest bits of the VNI. */
#define CHART_OVERLAY_COLOURS 16
/* The bits above: the class, and that a packet takes its path or none, as the probes of paths do. */
#define CHART_OVERLAY_CLASS_SHIFT 4
#define CHART_OVERLAY_STRICT 0x40
#define CHART_OVERLAY_ROUTE_BITS (CHART_OVERLAY_STRICT | (CHART_OVERLAY_COLOURS - 1))
/* Neighbours and, from CHART_OVERLAY_NEIGHBOURS_MAX on, paths that flows may choose. */
#define CHART_OVERLAY_PROBED_MAX 576
#define CHART_OVERLAY_FLOWS_MAX 32768
#define CHART_OVERLAY_GRANTS_MAX 4096
#define CHART_OVERLAY_SLOTS 16
/* "Local Experimental EtherType 1" (IEEE 802, Guidelines for Use Organizationally Unique Identifier). */
#define CHART_OVERLAY_PROBE_ETHERTYPE 0x88b5
#define CHART_OVERLAY_PROBE_VERSION 1

/* Owner of this node's own prefixes. */
#define CHART_OVERLAY_SELF 0xffffffffu

/* Map `overlay_config` (array of 1). Writer: the agent. */
struct chart_overlay_config {
    /* The VXLAN device; 0: off, every packet takes the kernel's way. */
    __u32 ifindex;
    /* Octets of the largest IP packet that goes into the overlay. */
    __u32 mtu;
    /* UDP port of outer packets. */
    __u32 port;
    /* UDP port of the sensors, whose probes measure links and keep the kernel's routes; 0: none. */
    __u32 sensor_port;
    /* Another one whenever `overlay_grants` is: flows are looked at anew. */
    __u32 grants_generation;
    __u32 unused;
    /* Of this run of the agent; an answer with another one is not to a probe of ours. */
    __u64 session;
};

/* Key of `overlay_owners` (LPM trie); IPv4 as ::ffff:a.b.c.d, prefix_bits counts from there. Its value is the owner's
 * number, from 1, or CHART_OVERLAY_SELF. Writer: the agent. */
struct chart_overlay_prefix {
    __u32 bits;
    __u32 address[4];
};

/* By what flows choose their path: from DSCP (RFC 4594, section 2.3). */
enum chart_overlay_class {
    CHART_OVERLAY_VOICE = 0,
    CHART_OVERLAY_VIDEO = 1,
    CHART_OVERLAY_DATA = 2,
    CHART_OVERLAY_CLASSES = 3,
};

struct chart_overlay_path_key {
    __u32 owner;
    __u32 colour;
};

/* Map `overlay_paths` (hash). Writer: the agent. Neighbours in order of preference, 0 behind the last. */
struct chart_overlay_path {
    __u32 hops[CHART_OVERLAY_HOPS_MAX];
};

struct chart_overlay_choice_key {
    __u32 owner;
    /* enum chart_overlay_class */
    __u32 class;
};

/* Map `overlay_choices` (hash): of owners that several paths lead to. Writer: the agent, but `turn`. */
struct chart_overlay_choice {
    /* By colour: its place in `overlay_liveness`; 0: not a path that flows may choose. */
    __u32 numbers[CHART_OVERLAY_COLOURS];
    /* Colours for new flows, in turn; a colour stands as often as its share of them. */
    __u8 slots[CHART_OVERLAY_SLOTS];
    /* All colours, the preferred first: for when none of the slots' is alive. */
    __u8 order[CHART_OVERLAY_COLOURS];
    __u32 n_order;
    /* Bits of colours that flows leave with their next packet. */
    __u32 left;
    __u32 turn;
};

/* Key of `overlay_flows` (LRU hash): a 5-tuple, in network byte order; without ports where the packet has none. */
struct chart_overlay_flow_key {
    __u32 source[4];
    __u32 destination[4];
    __be16 ports[2];
    __u32 protocol;
};

/* What holds a flow on its path. */
enum chart_overlay_bond {
    CHART_OVERLAY_FREE = 0,
    /* A grant, by whose path it goes. */
    CHART_OVERLAY_GRANTED = 1,
    /* It agrees on rates in band, with the elements on the kernel's path: colour 0 is the nearest to that. */
    CHART_OVERLAY_SIGNALLED = 2,
};

/* The path that a flow took first and keeps. Writer: the program. */
struct chart_overlay_flow {
    __u32 owner;
    __u16 colour;
    /* enum chart_overlay_class */
    __u16 class;
    /* Of the selectors of grants and of `overlay_grants`, added up, when it was looked whether one matches. */
    __u32 generation;
    /* enum chart_overlay_bond */
    __u32 bond;
};

/* Map `overlay_grants` (hash: the number of a grant, as in chart_selector) -> the colour that its flows take; without
 * an entry it is 0. Writer: the agent. */

/* Map `overlay_neighbours` (array). Writer: the agent. Addresses in network byte order, IPv4 as ::ffff:a.b.c.d. */
struct chart_overlay_neighbour {
    __u32 local[4];
    __u32 remote[4];
    __u8 family;
    /* The other end is on the link itself: an outer packet dies rather than take another way. */
    __u8 direct;
    __u8 used;
    __u8 unused;
    /* Of a direct neighbour: the interface that leads there, and the octets of IP that its link carries. */
    __u32 ifindex;
    __u32 mtu;
};

/* Map `overlay_remotes` (hash: a neighbour's address) -> its number. Writer: the agent. */
struct chart_overlay_remote {
    __u32 address[4];
};

/* Map `overlay_liveness` (array), of neighbours and of paths from end to end. The agent writes `allowed`, `patience_ns`
 * and, besides the program, `usable`; the program the rest. A neighbour has failed when more than `allowed` of the
 * probes that were sent are unanswered, and the last that was answered was sent more than `patience_ns` ago: time that
 * passes without probes proves nothing. */
struct chart_overlay_liveness {
    /* Sequence number of the last probe that was sent, and of the last that was answered. */
    __u64 sent;
    __u64 answered;
    /* How many answers came, late ones and those out of order too. */
    __u64 answers;
    /* When the last that was answered was sent, CLOCK_MONOTONIC. */
    __u64 answered_sent_ns;
    /* As RFC 6298 smooths them, of answers; nanoseconds. */
    __u64 rtt_ns;
    __u64 rtt_variation_ns;
    __u64 forwarded_packets;
    __u64 forwarded_bytes;
    __u64 patience_ns;
    __u32 allowed;
    __u32 usable;
};

/* Map `overlay_counters` (array of 1). Writer: the program. */
struct chart_overlay_counters {
    /* Packets that entered the overlay here, passed through, and left it here. */
    __u64 entered;
    __u64 transit;
    /* Of those in transit: from interface to interface, the device was not needed. */
    __u64 relayed;
    __u64 left;
    /* From an address that is no neighbour's; probes and answers that are malformed, of another session or not due. */
    __u64 strangers;
    __u64 bad_probes;
    /* No next hop: the kernel's routes were taken. */
    __u64 no_path;
    /* Another than the first next hop was taken, and the first although none was alive. */
    __u64 detours;
    __u64 all_stale;
    /* Flows that got a path; that got another because theirs failed, and because another became better. */
    __u64 flows;
    __u64 flows_failed_over;
    __u64 flows_moved;
    /* Answered with "packet too big"; largest segment of a new connection lowered. */
    __u64 too_big;
    __u64 clamped;
    __u64 faults;
};

enum chart_overlay_probe_kind {
    CHART_OVERLAY_PROBE = 1,
    CHART_OVERLAY_ANSWER = 2,
    CHART_OVERLAY_PATH_PROBE = 3,
    CHART_OVERLAY_PATH_ANSWER = 4,
};

/* What follows the Ethernet header of a probe; integers in network byte order. An answer is the probe with another kind
 * and without padding lost. A path's probe is the payload of a UDP datagram from one owner to the other, to the port of
 * outer packets: nodes between pass it on as they do all packets of its colour. */
struct chart_overlay_probe {
    __u8 version;
    /* enum chart_overlay_probe_kind */
    __u8 kind;
    /* The neighbour or path, as who sent the probe numbers it. */
    __be16 number;
    /* Of a path. */
    __be32 colour;
    __be64 session;
    __be64 sequence;
    /* CLOCK_MONOTONIC of who sent the probe, nanoseconds. Written by the program. */
    __be64 sent_ns;
};
