/* The interfaces by which this node's kernel sends packets to the addresses of other registered nodes: the forwarding
 * tables are asked for each (RTM_GETROUTE, both families, several next hops), and asked anew when the kernel tells of
 * routes, rules, next hops or interfaces that changed. What the question does not name (marks, the interface a packet
 * came in by, redirects by tc or BPF) is not seen. */
#pragma once

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/netlink.h"
#include "grants/decide.h"

/* Of all other nodes together; what is beyond is left out and counted. */
#define ROUTES_MAX 2048
#define ROUTES_HOPS_MAX 8
/* "ffff:...:ffff/128" of IPv6 and its end. */
#define ROUTES_PREFIX_LEN 50
#define ROUTES_NODE_LEN 64

enum route_state {
    /* Not asked yet, or the kernel's answer was none; nothing is said of it. */
    ROUTE_UNKNOWN,
    /* An address of this node itself. */
    ROUTE_LOCAL,
    /* Packets go no further than here. */
    ROUTE_NONE,
    ROUTE_FORWARDED,
};

struct route {
    char node[ROUTES_NODE_LEN];
    /* As it is registered. */
    char prefix[ROUTES_PREFIX_LEN];
    /* An address in it, in network byte order. */
    uint8_t family;
    uint8_t address[16];
    enum route_state state;
    /* The kernel's last answer was another one than that before. */
    bool changed;
    /* Outgoing interfaces in ascending order, each once; packets may take any of them. */
    uint8_t n_hops;
    uint32_t hops[ROUTES_HOPS_MAX];
};

struct routes {
    struct route *routes;
    size_t n;
    size_t room;
    size_t left_out;
    /* Told by the kernel of changes; NULL: not open. */
    struct mnl_socket *monitor;
    /* Something may be different. */
    bool stale;
    /* When the tables were asked last, and not before when they are asked again. */
    int64_t looked_at_us;
    int64_t rest_until_us;
};

/* 0 or a negative errno. */
int routes_open(struct routes *ret);
void routes_close(struct routes *routes);

/* Readable when something changed; routes_heard takes it in. */
int routes_fd(const struct routes *routes);
void routes_heard(struct routes *routes);

/* Whether the answers are those that the kernel would give now, as far as it told; takes in what it told. */
bool routes_are_current(struct routes *routes);

/* The addresses of another node, in place of those that it had; none removes it. An address that cannot be read is left
 * out. 0 or -ENOMEM. */
int routes_put(struct routes *routes, const char *node, char *const *prefixes, size_t n);

/* Ask the kernel when something may be different, and every few seconds. Whether an answer is another one. */
bool routes_look(struct routes *routes, struct netlink *netlink, int64_t now_us);

/* Whether the kernel's answers send packets of a selector to an interface: for an address that the selector's
 * destination has part in. False also when none was asked for. */
bool routes_lead_to(const struct routes *routes, const struct decide_selector *selector, uint32_t ifindex);

/* Whether the kernel's last answer was another one for an address that the selector's destination has part in. */
bool routes_changed_towards(const struct routes *routes, const struct decide_selector *selector);

/* An address in a stated prefix: "10.1.1.1/30" is the address 10.1.1.1, of "10.1.0.0/16" the first host is asked for. 0
 * or -EINVAL. */
int routes_parse(const char *text, uint8_t *ret_family, uint8_t ret_address[16]);
