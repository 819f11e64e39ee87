/* The maps of the program `police`: the edges of a domain and the token buckets of grants. Included from C and from
 * BPF; units and one writer each, as in maps.h. */
#pragma once

#include "maps.h"

#define CHART_DSCP_EXPEDITED 46

enum chart_police_exceed {
    /* What is above the rate goes on as best effort. */
    CHART_POLICE_REMARK = 0,
    CHART_POLICE_DROP = 1,
};

/* Map `police_edges` (hash: interface index). The agent writes the first five fields when it attaches, police the
 * others. A packet that comes in here from outside is held to its grant; premium marks that no grant explains are held
 * to the aggregate that the neighbour domain may send, and to nothing where there is none. */
struct chart_police_edge {
    /* Octets in front of the IP header on this interface. */
    __u64 link_header_bytes;
    /* What all premium packets without a grant of their own may send, bits per second with IP headers; 0: nothing. */
    __u64 aggregate_bps;
    /* Bucket depth as time at the rate: k x (RTT + queueing time) of signalling's burst tolerance, nanoseconds. */
    __u64 depth_ns;
    /* enum chart_police_exceed */
    __u32 exceed;
    __u32 unused;
    /* When the aggregate's bucket is empty again, CLOCK_MONOTONIC. */
    __u64 aggregate_at_ns;
    __u64 conforming_packets;
    __u64 conforming_bytes;
    __u64 exceeding_packets;
    __u64 exceeding_bytes;
    /* Premium marks taken off although nothing was exceeded: nobody granted them. */
    __u64 unmarked_packets;
};

/* Map `police_buckets` (LRU hash: grant number). Writer: police. One bucket for all flows of a grant: the time at which
 * it is empty again when nothing more comes (virtual scheduling, as ITU-T I.371 has it: no timer, one number). */
struct chart_police_bucket {
    __u64 at_ns;
    __u64 exceeding_packets;
};
