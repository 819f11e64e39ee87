/* Grants from a JSON file, for laboratories and for nodes without a broker:
 *
 *   {"enforcement": "enforce" | "observe" | "off",
 *    "grants": [{"request_id": "a",
 *                "selector": {"source_prefix": "10.0.0.0/8", "destination_prefix": "", "protocol": "tcp" | "udp" | 6,
 *                             "source_port": 0, "destination_port": 5201, "dscp": 46, "cgroup_id": 0},
 *                "guaranteed_bps": 0, "available_bps": 100000000, "valid_for_ms": 60000, "sending": true,
 *                "expedited": false}]}
 *
 * enforcement: observe when it is not said, as everywhere.
 * sending: this node sends the flows and paces them; expedited: their packets go in the premium class, to which an edge
 * marks them, and only as far as guaranteed_bps reaches.
 * valid_for_ms counts from when the file was last read; 0 or absent: as long as the agent runs and the file stands. */
#pragma once

#include <stddef.h>

#include "grants/datapath.h"

struct agent_module;
extern const struct agent_module ratefile_module;

#define RATEFILE_ERROR_LEN 200
#define RATEFILE_BYTES_MAX (4u << 20)

struct ratefile {
    enum decide_mode mode;
    struct decide_applied *grants;
    /* Lease of each grant, microseconds; 0: renewed while the file stands. */
    uint64_t *valid_for_us;
    size_t n_grants;
};

/* Pure. 0, -ENOMEM, or -EINVAL with a sentence that names the place. */
int ratefile_parse(const char *text, size_t length, struct ratefile *ret, char error[RATEFILE_ERROR_LEN]);
void ratefile_free(struct ratefile *ratefile);
