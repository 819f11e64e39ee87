/* What records tell an origin: commands (chart.tunnel-command.v1) and the policy (chart.policy.v1). A customer's weight
 * is that of the last command which named it, else that of the node's policy, else of the default policy, else that of
 * the command line. Pure: bytes and times come in, decisions go out. */
#ifndef ITM_ORDERS_H
#define ITM_ORDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options.h"

#define ORDERS_DEFAULT_POLICY "default"

struct orders {
    const struct options *options;
    uint64_t generation; /* of the last command taken, 0: none */
    uint32_t commanded[SCHEDULER_CLASSES], of_node[SCHEDULER_CLASSES], of_all[SCHEDULER_CLASSES]; /* 0: nothing said */
    uint64_t taken, ignored, unreadable;
};

/* What a command wants of m. */
struct order {
    uint32_t connections; /* 0: as it is */
    uint64_t lease_us;    /* from now on; 0: for good */
    uint64_t limit_bps;   /* of what the tunnel carries; 0: none */
};

void orders_init(struct orders *orders, const struct options *options);
/* A command for this tunnel, at a wall-clock time. 0, -EBADMSG when it cannot be read or is not this tunnel's, -ESTALE
 * when it is no newer than the last one. Numbers out of range are brought into it. */
int orders_command(struct orders *orders, const uint8_t *bytes, size_t count, int64_t now_us, struct order *ret);
/* A record of the policy; bytes NULL: it is gone. 0, -EBADMSG, or -ENOENT for a policy that is not for this node. */
int orders_policy(struct orders *orders, const char *key, const uint8_t *bytes, size_t count);
/* A weight set by hand counts as commanded. */
void orders_weight(struct orders *orders, uint32_t class_id, uint32_t weight);
/* The weight that holds now. */
uint32_t orders_effective(const struct orders *orders, uint32_t class_id);

#endif
