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
/* When routes changed and no packet has been seen for so long, what was seen before says nothing any more. */
#define EGRESS_STALE_US 2000000ll

struct egress_link {
    char link_id[EGRESS_ID_LEN];
    /* Since the node has the grant, and in the newest interval in which packets left. */
    uint64_t sent_bytes;
    uint64_t recent_bytes;
};

struct egress {
    /* Where packets were seen to go. */
    struct egress_link links[EGRESS_LINKS_MAX];
    uint8_t n;
    /* The tables of the kernel say another link than they take. */
    bool against_routes;
    /* The beginning of the present interval. */
    struct egress_link begin[EGRESS_LINKS_MAX];
    uint8_t n_begin;
    int64_t begin_us;
    /* Routes changed, and nothing was seen since; 0: not so. */
    int64_t stale_at_us;
};

/* What a link counted of a grant. */
struct egress_count {
    const char *link_id;
    uint64_t bytes;
};

/* Take counts of the node's links. Returns whether packets were seen to leave by other links than before. */
bool egress_note(struct egress *egress, const struct egress_count *counts, size_t n, int64_t now_us);
/* The kernel's tables changed: packets may take another link from now on. */
void egress_routes_changed(struct egress *egress, int64_t now_us);
