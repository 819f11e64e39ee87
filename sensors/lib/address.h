/* Socket addresses of both families: resolving, printing, comparing. */
#ifndef CHART_SENSORS_ADDRESS_H
#define CHART_SENSORS_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "failure.h"

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* Room for "[ipv6]:65535" and the terminating zero. */
#define ADDRESS_TEXT_BYTES 64
/* Length of address_canonical(): family, 16 bytes of address, port. */
#define ADDRESS_CANONICAL_BYTES 19

/* Resolve a literal or a host name; failure is `usage` for a malformed name and `unreachable` when no one knows it. */
int address_resolve(const char *name, uint16_t port, union address *ret_address, struct failure *failure);
socklen_t address_length(const union address *address);
uint16_t address_port(const union address *address);
void address_set_port(union address *address, uint16_t port);
bool address_equal(const union address *a, const union address *b);
/* Same host, whatever the port. */
bool address_same_host(const union address *a, const union address *b);
/* Fixed form for authentication: family (4 or 6), address padded to 16 bytes, port in network order. */
void address_canonical(const union address *address, uint8_t ret_bytes[ADDRESS_CANONICAL_BYTES]);
const char *address_text(const union address *address, char *buffer, size_t size);

#endif
