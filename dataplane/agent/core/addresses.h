/* The addresses of this node's interfaces, as text in CIDR notation. */
#pragma once

#include <stddef.h>

/* "ffff:...:ffff/128" of IPv6 and its end. */
#define ADDRESSES_TEXT_LEN 50
#define ADDRESSES_PER_INTERFACE 8

struct addresses {
    char texts[ADDRESSES_PER_INTERFACE][ADDRESSES_TEXT_LEN];
    size_t n;
};

/* Those of each named interface, without those of link scope, in the kernel's order; more than there is room for are
 * left out. 0 or a negative errno, *ret then empty. */
int addresses_read(const char *const *interfaces, size_t n, struct addresses *ret);
