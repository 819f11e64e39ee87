/* Socket addresses of both families; see address.h. */
#include "address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

int address_resolve(const char *name, uint16_t port, union address *ret_address, struct failure *failure) {
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_family = AF_UNSPEC};
    struct addrinfo *found = NULL;
    int error;

    if (name[0] == '\0')
        return failure_set(failure, FAILURE_USAGE, "an address is missing");
    error = getaddrinfo(name, NULL, &hints, &found);
    if (error)
        return failure_set(failure, FAILURE_UNREACHABLE, "cannot resolve %s: %s", name, gai_strerror(error));
    memset(ret_address, 0, sizeof(*ret_address));
    memcpy(ret_address, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    address_set_port(ret_address, port);
    return 0;
}

socklen_t address_length(const union address *address) {
    return address->any.sa_family == AF_INET6 ? sizeof(address->v6) : sizeof(address->v4);
}

uint16_t address_port(const union address *address) {
    return ntohs(address->any.sa_family == AF_INET6 ? address->v6.sin6_port : address->v4.sin_port);
}

void address_set_port(union address *address, uint16_t port) {
    if (address->any.sa_family == AF_INET6)
        address->v6.sin6_port = htons(port);
    else
        address->v4.sin_port = htons(port);
}

bool address_same_host(const union address *a, const union address *b) {
    if (a->any.sa_family != b->any.sa_family)
        return false;
    if (a->any.sa_family == AF_INET6)
        return memcmp(&a->v6.sin6_addr, &b->v6.sin6_addr, sizeof(a->v6.sin6_addr)) == 0;
    return a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
}

bool address_equal(const union address *a, const union address *b) {
    return address_same_host(a, b) && address_port(a) == address_port(b);
}

void address_canonical(const union address *address, uint8_t ret_bytes[ADDRESS_CANONICAL_BYTES]) {
    uint16_t port = htons(address_port(address));

    memset(ret_bytes, 0, ADDRESS_CANONICAL_BYTES);
    if (address->any.sa_family == AF_INET6) {
        ret_bytes[0] = 6;
        memcpy(ret_bytes + 1, &address->v6.sin6_addr, 16);
    } else {
        ret_bytes[0] = 4;
        memcpy(ret_bytes + 1, &address->v4.sin_addr, 4);
    }
    memcpy(ret_bytes + 17, &port, sizeof(port));
}

const char *address_text(const union address *address, char *buffer, size_t size) {
    char host[INET6_ADDRSTRLEN] = "?";

    if (address->any.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &address->v6.sin6_addr, host, sizeof(host));
        snprintf(buffer, size, "[%s]:%u", host, address_port(address));
    } else {
        inet_ntop(AF_INET, &address->v4.sin_addr, host, sizeof(host));
        snprintf(buffer, size, "%s:%u", host, address_port(address));
    }
    return buffer;
}
