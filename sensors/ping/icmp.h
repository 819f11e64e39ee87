/* ICMP echo packets (RFC 792, RFC 4443 section 4). */
#ifndef CHART_SENSORS_ICMP_H
#define CHART_SENSORS_ICMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ICMP_ECHO_HEADER_BYTES 8u
/* Header and the random mark by which we know our own probes. */
#define ICMP_ECHO_MIN_BYTES 16u

struct icmp_echo {
    uint16_t identifier;
    uint16_t sequence;
    uint64_t mark;
};

/* Write an echo request of `length` bytes; the checksum of IPv6 is the kernel's. */
void icmp_make_request(int family, const struct icmp_echo *echo, uint8_t *bytes, size_t length);
/* Read an echo reply as a socket delivers it (`raw` IPv4 sockets put the IP header first); false for anything else. */
bool icmp_read_reply(int family, bool raw, const uint8_t *bytes, size_t length, struct icmp_echo *ret_echo);

#endif
