/* By which links of this node the packets of a grant leave: what was seen, for admission to judge its commitments by.
 * Pure, over counters that only grow. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A host name of up to 253 octets, a colon and an interface (DECIDE_ID_LEN). */
#define EGRESS_ID_LEN 272
/* Of more links those with the most octets count. */
#define EGRESS_LINKS_MAX 4
/* Octets that are enough to judge by (three full packets); fewer are judged after EGRESS_PATIENCE_US. */
#define EGRESS_ENOUGH_BYTES 4500
#define EGRESS_PATIENCE_US 1000000ll
/* A link with less of the octets than one in so many is not where packets go. */
#define EGRESS_LEAST_PART 20
/* Of more interfaces at once no grant's octets are counted. */
#define EGRESS_COUNTERS_MAX 64

struct egress_link {
    char link_id[EGRESS_ID_LEN];
    /* Since the node has the grant, and in the newest interval in which packets left. */
    uint64_t sent_bytes;
    uint64_t recent_bytes;
};

/* A counter as it stood when an interval began. */
struct egress_counter {
    uint32_t ifindex;
    uint64_t bytes;
};

struct egress {
    /* Where packets were seen to go; none: not seen since the tables changed. */
    struct egress_link links[EGRESS_LINKS_MAX];
    uint8_t n;
    /* The tables of the kernel say another link than they take. */
    bool against_routes;
    /* What was seen was not judged by the tables yet. */
    bool unjudged;
    /* The next counts are where an interval begins: those before them say nothing. */
    bool anew;
    /* The beginning of the present interval, also of interfaces that are not counted at the moment. */
    struct egress_counter begin[EGRESS_COUNTERS_MAX];
    uint8_t n_begin;
    int64_t begin_us;
};

/* What a link counted of a grant. */
struct egress_count {
    const char *link_id;
    uint32_t ifindex;
    uint64_t bytes;
};

/* Take counts of the node's links. Returns whether what was seen has to be judged by the kernel's tables: packets leave
 * by other links than before, or were against the tables until now. */
bool egress_note(struct egress *egress, const struct egress_count *counts, size_t n, int64_t now_us);
/* The kernel's tables changed: only octets counted from the next counts on are judged by the new ones. */
void egress_begin_anew(struct egress *egress);
