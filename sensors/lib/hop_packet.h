/* Probes with a limited TTL and what routers answer to them (IPv4). Pure.
 *
 * All probes of a run belong to one flow, as load balancers see it: the same addresses, protocol and ports (or ICMP
 * identifier, code and checksum), so that they take one path (Augustin et al., "Avoiding traceroute anomalies with
 * Paris traceroute", IMC 2006). What tells them apart is the UDP checksum or the ICMP sequence, which the payload makes
 * up for. A router quotes at least the first 8 bytes behind the IP header, and there both stand. */
#ifndef CHART_SENSORS_HOP_PACKET_H
#define CHART_SENSORS_HOP_PACKET_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* IP header, UDP or ICMP header, and two bytes that make up for the tag. */
#define HOP_PACKET_MIN_BYTES 30u
#define HOP_PACKET_MAX_BYTES 1500u
#define HOP_DEFAULT_PORT 33434

enum hop_protocol { HOP_UDP, HOP_ICMP };

struct hop_flow {
    enum hop_protocol protocol;
    struct in_addr source;
    struct in_addr destination;
    uint16_t source_port; /* ICMP: identifier */
    uint16_t destination_port;
};

enum hop_answer {
    HOP_EXPIRED,     /* a router on the way: the TTL ended there */
    HOP_REACHED,     /* the destination itself */
    HOP_UNREACHABLE, /* somebody says that it goes no further */
};

struct hop_reply {
    enum hop_answer answer;
    struct in_addr address; /* who answers */
    uint16_t tag;           /* of the probe */
    uint16_t ip_id;         /* of the answer itself */
    uint8_t code;           /* of the ICMP error */
};

/* Write a probe of `length` bytes (HOP_PACKET_MIN_BYTES..HOP_PACKET_MAX_BYTES), IP header included; `tag` is not 0. The
 * header's checksum is the kernel's. */
void hop_packet_make(const struct hop_flow *flow, uint8_t ttl, uint16_t tag, uint8_t *bytes, size_t length);
/* Read a packet as a raw ICMP socket delivers it; false when it does not answer a probe of this flow. */
bool hop_packet_read(const struct hop_flow *flow, const uint8_t *bytes, size_t length, struct hop_reply *ret_reply);

#endif
