/* What this node obeys, whoever says it: bounds on grants, link rates and capacities. Pure; what is outside is refused,
 * counted by kind and reported as a fault or in the grant's status. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A grant holds for a minute and is renewed; the rest is for clocks that differ. */
#define BOUNDS_GRANT_VALIDITY_US (300 * 1000000ll)
/* A capacity below this part of its interface's speed is the node's own business. */
#define BOUNDS_LEAST_PART 10

enum bounds_kind {
    BOUNDS_GRANT_VALIDITY,
    /* A rate, lease or guarantee above the capacity of a link of this node. */
    BOUNDS_RATE,
    BOUNDS_CAPACITY,
    /* A link that the node's own configuration does not name. */
    BOUNDS_LINK,
    BOUNDS_KINDS
};

struct decide_link_rate;

/* "grant-validity", "rate", "capacity", "link" */
const char *bounds_name(enum bounds_kind kind);
/* Whether a grant that ends at until_us is one to take at now_us. */
bool bounds_validity(int64_t until_us, int64_t now_us);
/* Whether a link of this capacity can have the rate; a capacity of 0, not known, bounds nothing. */
bool bounds_rate(uint64_t rate_bps, uint64_t capacity_bps);
bool bounds_link_rate(const struct decide_link_rate *rate, uint64_t capacity_bps);
/* Whether an interface of this speed can be meant with the capacity; a speed of 0, not known, bounds nothing. */
bool bounds_capacity(uint64_t capacity_bps, uint64_t speed_bps);
