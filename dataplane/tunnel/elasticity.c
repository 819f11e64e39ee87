/* Leases of m and pauses of lost connections, see elasticity.h. */
#include "elasticity.h"

#include <errno.h>

static void change(struct elasticity *elasticity, uint32_t connections) {
    uint32_t before = elasticity->connections;
    elasticity->changes += connections > before ? connections - before : before - connections;
    elasticity->connections = connections;
}

int elasticity_set(struct elasticity *elasticity, uint32_t connections, uint64_t lease_us, uint64_t now_us) {
    if (connections < 1 || connections > TUNNEL_CONNECTIONS_MAX)
        return -EINVAL;
    change(elasticity, connections);
    elasticity->lease_until_us = lease_us ? now_us + lease_us : 0;
    elasticity->decaying = false;
    return 0;
}

uint64_t elasticity_lease_left_us(const struct elasticity *elasticity, uint64_t now_us) {
    return elasticity->lease_until_us > now_us ? elasticity->lease_until_us - now_us : 0;
}

void elasticity_period(struct elasticity *elasticity, uint64_t now_us) {
    if (!elasticity->lease_until_us || now_us < elasticity->lease_until_us)
        return;
    if (!elasticity->decaying)
        elasticity->leases_lost++;
    elasticity->decaying = true;
    if (elasticity->connections > 1)
        change(elasticity, elasticity->connections / 2);
}

uint64_t backoff_us(uint32_t failures, uint32_t noise) {
    uint32_t doublings = failures > 1 ? failures - 1 : 0;
    uint64_t pause_us = doublings < 7 ? (uint64_t)BACKOFF_FIRST_US << doublings : BACKOFF_LONGEST_US;
    if (pause_us > BACKOFF_LONGEST_US)
        pause_us = BACKOFF_LONGEST_US;
    return pause_us * 3 / 4 + pause_us / 2 * (noise % 1024) / 1024;
}
