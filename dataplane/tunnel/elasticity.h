/* How many connections the tunnel is to have: what the controller said, while its lease lasts. When the lease runs out
 * the tunnel gives its extra connections back, half of them per measurement period, down to one (tunnels.md). And the
 * pause before a lost connection is tried again. Pure. */
#ifndef ITM_ELASTICITY_H
#define ITM_ELASTICITY_H

#include <stdbool.h>
#include <stdint.h>

#define TUNNEL_CONNECTIONS_MAX 256
#define BACKOFF_FIRST_US 100000U
#define BACKOFF_LONGEST_US 10000000U

struct elasticity {
    uint32_t connections;    /* wanted now, 1 to TUNNEL_CONNECTIONS_MAX */
    uint64_t lease_until_us; /* 0: no lease, the number stays */
    uint64_t changes;        /* connections opened or closed by it so far */
    uint64_t leases_lost;
    bool decaying;
};

/* 0, or -EINVAL for a number out of range; lease_us 0: for good. */
int elasticity_set(struct elasticity *elasticity, uint32_t connections, uint64_t lease_us, uint64_t now_us);
/* 0 for none and for one that is over. */
uint64_t elasticity_lease_left_us(const struct elasticity *elasticity, uint64_t now_us);
/* Once per measurement period. */
void elasticity_period(struct elasticity *elasticity, uint64_t now_us);
/* Pause before the next attempt after this many failures in a row (from 1): doubles up to BACKOFF_LONGEST_US; noise
 * (any number) moves it by up to a quarter, so that connections do not come back together. */
uint64_t backoff_us(uint32_t failures, uint32_t noise);

#endif
