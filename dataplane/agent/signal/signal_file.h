// clang-format off
/* What authority would tell this element about signalling, from a JSON file: for laboratories and until authority does.
 * Unknown fields are refused. Times are milliseconds since the epoch, durations milliseconds; 0 or absent: the default.
 *
 *   {"element": 1,
 *    "policy": {"unauthorised": "free" | "drop", "free_bps": 1000000,
 *               "hold_ms": 3000, "commitment_ms": 3000, "idle_ms": 30000,
 *               "renew_ms": 1000, "renew_packets": 128, "retry_ms": 200, "tries": 6, "legacy_ms": 10000},
 *    "shim": {"ipv4": "10.0.0.1", "ipv6": "fd00::1"},
 *    "keys": [{"sender": 1, "receiver": 2, "epoch": 1, "key": "64 hexadecimal digits", "from": 0, "until": 0}],
 *    "next_hops": [{"prefix": "10.0.0.2/32", "element": 2, "shim_address": "10.0.0.2"}],
 *    "authorisations": [{"prefix": "10.0.0.1/32", "guaranteed_bps": 10000000, "available_bps": 100000000,
 *                        "preemption_priority": 0, "delay_priority": 0, "services": ["available", "guaranteed"],
 *                        "from": 0, "until": 0}],
 *    "asks": [{"selector": {as in a rate file, without cgroup_id},
 *              "guaranteed_bps": 0, "available_bps": 100000000, "preemption_priority": 0, "delay_priority": 0,
 *              "burst_tolerance": 0, "service": "available"}],
 *    "default_asks": ["telephony"],
 *    "links": [{"interface": "to-bravo", "explicit_bps": 97000000, "guaranteed_bps": 50000000, "rate_bps": 0}]} */
// clang-format on
#pragma once

#include <net/if.h>

#include "signal/signal_tables.h"

#define SIGNAL_FILE_ERROR_LEN 200
#define SIGNAL_FILE_BYTES_MAX (16u << 20)

struct signal_file_link {
    char interface[IF_NAMESIZE];
    bool has_explicit, has_guaranteed;
    uint64_t explicit_bps, guaranteed_bps, rate_bps;
};

struct signal_file {
    struct signal_policy policy; /* the mode is not the file's matter */
    struct signal_key *keys;
    size_t n_keys;
    struct signal_hop *hops;
    size_t n_hops;
    struct signal_authorisation *authorisations;
    size_t n_authorisations;
    struct signal_ask *asks;
    size_t n_asks;
    struct signal_file_link *links;
    size_t n_links;
};

/* Pure. 0, -ENOMEM, or -EINVAL with a sentence that names the place (never a key). */
int signal_file_parse(const char *text, size_t length, struct signal_file *ret, char error[SIGNAL_FILE_ERROR_LEN]);
void signal_file_free(struct signal_file *file);
