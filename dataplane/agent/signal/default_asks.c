/* See default_asks.h. */
#include "signal/default_asks.h"

#include <errno.h>
#include <linux/bpf.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "police.h"
#include "signal_maps.h"

/* Telephony by code point (EF, RFC 3246) and by RTP's registered port: a packet of 160 octets of G.711 every 20 ms with
 * its headers, before everything else on every link. */
#define TELEPHONY_BPS 82000
#define TELEPHONY_DELAY_PRIORITY 200
#define RTP_PORT 5004

static const struct {
    const char *name;
    struct decide_selector selector;
} default_asks[] = {
    {"telephony", {.protocol = IPPROTO_UDP, .dscp_plus_one = CHART_DSCP_EXPEDITED + 1}},
    {"telephony", {.protocol = IPPROTO_UDP, .destination_port = RTP_PORT}},
};
#define N_DEFAULT_ASKS (sizeof(default_asks) / sizeof(default_asks[0]))

int default_asks_add(const char *name, struct signal_ask **asks, size_t *n_asks) {
    size_t before = *n_asks;
    struct signal_ask *grown = reallocarray(*asks, before + N_DEFAULT_ASKS, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    *asks = grown;
    for (size_t i = 0; i < N_DEFAULT_ASKS; i++)
        if (strcmp(name, default_asks[i].name) == 0)
            grown[(*n_asks)++] = (struct signal_ask){.selector = default_asks[i].selector,
                                                     .guaranteed_bps = TELEPHONY_BPS,
                                                     .delay_priority = TELEPHONY_DELAY_PRIORITY,
                                                     .service = CHART_GUARANTEED};
    return *n_asks == before ? -ENOENT : 0;
}
