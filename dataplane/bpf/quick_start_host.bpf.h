/* Quick-Start at the ends of TCP connections, IPv4 (RFC 4782, section 4): the SYN of a connection that begins here asks
 * for the node's rate, the listener returns in a TCP option what arrived of it, and what all routers approved paces the
 * first round trip. The classifier writes IP options, attach reads and writes the TCP option. */
#pragma once

#include "select.bpf.h"

#include "lib/advice/quick_start.h"

/* A function of its own, which the verifier looks at once and not on every path to it. */
#define QS_FUNCTION __attribute__((noinline, weak))
#define QS_FLOWS_MAX 16384
#define QS_DROPPERS_MAX 4096
/* The response: kind, length, rate, TTL difference, nonce (section 4.2). */
#define QS_TCP_KIND 27
#define QS_TCP_OCTETS 8
#define IPV4_BYTES 20
#define IPV4_HEADER_MAX 60
#define IPV4_END 0
#define IPV4_NOP 1
#define OPTIONS_MAX 24 /* that are walked over to find ours */

struct qs_flow_key {
    __u32 source[4];
    __u32 destination[4];
    __u16 source_port;
    __u16 destination_port;
};

enum qs_flow_state { QS_ASKED, QS_ANSWERED, QS_REPORTED };

struct qs_flow {
    __u32 nonce;
    __u8 state; /* enum qs_flow_state */
    __u8 asked;
    __u8 approved;
    __u8 ttl_difference;
};

/* Connections that asked (LRU hash). Made by the classifier, answered by attach. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, QS_FLOWS_MAX);
    __type(key, struct qs_flow_key);
    __type(value, struct qs_flow);
} qs_flows SEC(".maps");
