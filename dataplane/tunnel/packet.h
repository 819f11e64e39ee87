/* What the tunnel looks at in a user's packet, IPv4 (RFC 791) or IPv6 (RFC 8200), and which customer it belongs to.
 * Pure. Extension headers of IPv6 are not walked: ports are known only where TCP or UDP follows the fixed header. */
#ifndef ITM_PACKET_H
#define ITM_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct packet_key {
    uint8_t version; /* 4 or 6 */
    uint8_t dscp;
    uint8_t protocol;
    bool has_ports;
    uint8_t source[16], destination[16]; /* IPv4: the first four bytes */
    uint16_t source_port, destination_port;
};

struct prefix {
    uint8_t version; /* 0: any address of either version */
    uint8_t bits;
    uint8_t address[16];
};

/* Members that are not set match everything. */
struct selector {
    struct prefix source, destination;
    int dscp, protocol, source_port, destination_port; /* -1: any */
};

/* 0, or -EBADMSG when this is no whole IP packet. */
int packet_parse(const uint8_t *packet, size_t bytes, struct packet_key *ret);
/* `address` or `address/bits`, either version: 0, or -EINVAL with *ret untouched. */
int prefix_parse(const char *text, struct prefix *ret);
/* `any`, or `name=value` with commas between: from=PREFIX to=PREFIX dscp=N protocol=tcp|udp|icmp|N sport=N dport=N.
 * 0, or -EINVAL with *ret untouched. */
int selector_parse(const char *text, struct selector *ret);
bool selector_matches(const struct selector *selector, const struct packet_key *key);

#endif
