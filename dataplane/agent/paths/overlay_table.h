/* What this node's kernel shall know of the overlay: its links, who owns which prefixes, and by which neighbours each
 * owner is reached (Bavier et al., Increasing TCP Throughput with an Enhanced Internet Control Plane, section II). */
#pragma once

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "grants/decide.h"
#include "overlay_maps.h"

#define OVERLAY_NAME_LEN 256
/* Octets of IP that a link carries: IPv6 inside has to fit (RFC 8200, section 5). 0 in what others write: the usual. */
#define OVERLAY_MTU_MIN 1350
#define OVERLAY_MTU_MAX 65535
#define OVERLAY_MTU_USUAL 1500
/* Of a link or path. */
#define OVERLAY_CAPACITY_MAX_BPS 10000000000000ull
#define OVERLAY_ERROR_LEN 200
#define OVERLAY_LINKS_MAX (CHART_OVERLAY_NEIGHBOURS_MAX - 1)
#define OVERLAY_PORT 18480
/* Octets that VXLAN puts before a packet: Ethernet, VXLAN, UDP, and IPv4 or IPv6. */
#define OVERLAY_IPV4_OVERHEAD 50
#define OVERLAY_IPV6_OVERHEAD 70

struct overlay_link {
    /* The node at the other end, or a name of the operator's: what next hops name. */
    char name[OVERLAY_NAME_LEN];
    /* Of the underlay: where outer packets leave from and go to; one family. */
    struct decide_prefix local;
    struct decide_prefix remote;
    /* The interface that leads there without a router between; empty: there may be some. */
    char interface[IF_NAMESIZE];
    /* Octets of IP that the link carries. */
    uint32_t mtu;
    /* Bits per second, for the rate of probes; 0: unknown. */
    uint64_t capacity_bps;
};

struct overlay_route {
    uint8_t colour;
    /* Flows that enter the overlay here may take it: of two or more, of which all but this may have failed. */
    bool choice;
    /* Of the weakest link of the path, bits per second; 0: unknown. */
    uint64_t capacity_bps;
    /* Of a choice: the ids of all links of the path; a grant that has them takes it. */
    char (*link_ids)[OVERLAY_NAME_LEN];
    size_t n_link_ids;
    uint8_t n_hops;
    /* Places in the table's links, the preferred one first. */
    uint8_t hops[CHART_OVERLAY_HOPS_MAX];
};

struct overlay_owner {
    char node[OVERLAY_NAME_LEN];
    struct decide_prefix *prefixes;
    size_t n_prefixes;
    struct overlay_route *routes;
    size_t n_routes;
};

struct overlay_table {
    uint16_t port;
    struct overlay_link *links;
    size_t n_links;
    struct overlay_owner *owners;
    size_t n_owners;
};

/* 0, or -EINVAL with a sentence: links whose ends are of two families or whose other end stands twice, owners named
 * twice, prefixes of two owners, more prefixes or routes than the kernel's table holds. */
int overlay_table_check(const struct overlay_table *table, char error[OVERLAY_ERROR_LEN]);

/* The largest IP packet that fits every link, octets; 0 without links. */
uint32_t overlay_table_mtu(const struct overlay_table *table);

/* How many owners beside this node there are of whose next hops, of any colour, none is alive. `alive`: of each link.
 */
size_t overlay_table_unreachable(const struct overlay_table *table, const char *self, const bool *alive);

void overlay_table_free(struct overlay_table *table);

/* What the kernel's LPM trie has for a prefix. */
struct chart_overlay_prefix overlay_prefix_to_kernel(const struct decide_prefix *prefix);

/* A table from a JSON file; unknown fields are refused.
 *
 *   {"port": 18480,
 *    "links": [{"name": "north", "local": "10.0.1.1", "remote": "10.0.1.2", "interface": "to-north", "mtu": 1500,
 *               "capacity_bps": 100000000}],
 *    "owners": [{"node": "egress", "prefixes": ["10.3.0.0/16"],
 *                "paths": [{"colour": 0, "next_hops": ["north", "south"]},
 *                          {"colour": 1, "next_hops": ["north"], "choice": true, "capacity_bps": 60000000},
 *                          {"colour": 2, "next_hops": ["south"], "choice": true, "capacity_bps": 30000000}]},
 *               {"node": "ingress", "prefixes": ["10.2.0.0/16"]}]}
 *
 * The owner with this node's name has no paths: its prefixes are those behind this node. Pure. 0, -ENOMEM, or -EINVAL
 * with a sentence that names the place. */
int overlay_file_parse(const char *text, size_t length, struct overlay_table *ret, char error[OVERLAY_ERROR_LEN]);

/* Such a text of a table; NULL: no memory. The caller frees it. */
char *overlay_file_print(const struct overlay_table *table);
