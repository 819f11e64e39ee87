/* See addresses.h. */
#include "core/addresses.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static unsigned prefix_bits(const uint8_t *mask, size_t octets) {
    unsigned bits = 0;

    for (size_t i = 0; i < octets; i++)
        bits += (unsigned)__builtin_popcount(mask[i]);
    return bits;
}

/* False: an address of link scope, or none at all. */
static bool print(const struct ifaddrs *from, char ret[ADDRESSES_TEXT_LEN]) {
    char address[INET6_ADDRSTRLEN];
    const void *octets, *mask;
    size_t n;

    if (!from->ifa_addr || !from->ifa_netmask)
        return false;
    if (from->ifa_addr->sa_family == AF_INET) {
        octets = &((const struct sockaddr_in *)(const void *)from->ifa_addr)->sin_addr;
        mask = &((const struct sockaddr_in *)(const void *)from->ifa_netmask)->sin_addr;
        n = 4;
    } else if (from->ifa_addr->sa_family == AF_INET6) {
        octets = &((const struct sockaddr_in6 *)(const void *)from->ifa_addr)->sin6_addr;
        mask = &((const struct sockaddr_in6 *)(const void *)from->ifa_netmask)->sin6_addr;
        n = 16;
        if (IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)octets))
            return false;
    } else {
        return false;
    }
    inet_ntop(from->ifa_addr->sa_family, octets, address, sizeof(address));
    snprintf(ret, ADDRESSES_TEXT_LEN, "%s/%u", address, prefix_bits(mask, n));
    return true;
}

int addresses_read(const char *const *interfaces, size_t n, struct addresses *ret) {
    struct ifaddrs *all;

    memset(ret, 0, n * sizeof(*ret));
    if (getifaddrs(&all))
        return -errno;
    for (const struct ifaddrs *one = all; one; one = one->ifa_next)
        for (size_t i = 0; i < n; i++)
            if (strcmp(one->ifa_name, interfaces[i]) == 0 && ret[i].n < ADDRESSES_PER_INTERFACE)
                ret[i].n += print(one, ret[i].texts[ret[i].n]);
    freeifaddrs(all);
    return 0;
}
