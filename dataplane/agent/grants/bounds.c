/* See bounds.h. */
#include "grants/bounds.h"

#include "grants/decide.h"

const char *bounds_name(enum bounds_kind kind) {
    static const char *const names[BOUNDS_KINDS] = {
        [BOUNDS_GRANT_VALIDITY] = "grant-validity",
        [BOUNDS_RATE] = "rate",
        [BOUNDS_CAPACITY] = "capacity",
        [BOUNDS_LINK] = "link",
    };
    return names[kind];
}

bool bounds_validity(int64_t until_us, int64_t now_us) {
    return until_us <= now_us || until_us - now_us <= BOUNDS_GRANT_VALIDITY_US;
}

bool bounds_rate(uint64_t rate_bps, uint64_t capacity_bps) {
    return !capacity_bps || rate_bps <= capacity_bps;
}

bool bounds_link_rate(const struct decide_link_rate *rate, uint64_t capacity_bps) {
    return bounds_rate(rate->available_bps, capacity_bps) &&
           bounds_rate(rate->explicit_rate_capacity_bps, capacity_bps) &&
           bounds_rate(rate->legacy_share_bps, capacity_bps) && bounds_rate(rate->gr_lease_bps, capacity_bps);
}

bool bounds_capacity(uint64_t capacity_bps, uint64_t speed_bps) {
    return !speed_bps || (capacity_bps <= speed_bps && capacity_bps >= speed_bps / BOUNDS_LEAST_PART);
}
