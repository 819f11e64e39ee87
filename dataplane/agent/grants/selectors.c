/* See selectors.h. */
#include "grants/selectors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define IPV4_BITS 32u
#define IPV6_BITS 128u

/* An application's own port or cgroup says more than any prefix. */
#define WEIGHT_CGROUP 2048u
#define WEIGHT_PORT 512u
#define WEIGHT_PROTOCOL 2u
#define WEIGHT_DSCP 2u

static int prefix_to_kernel(const struct decide_prefix *prefix, uint32_t *ret_address, uint32_t *ret_mask) {
    uint8_t address[16] = {0}, mask[16] = {0};
    unsigned bits = prefix->bits;
    if (prefix->family == AF_INET) {
        if (bits > IPV4_BITS)
            return -EINVAL;
        address[10] = address[11] = 0xff;
        memcpy(address + 12, prefix->address, 4);
        bits += IPV6_BITS - IPV4_BITS;
    } else if (prefix->family == AF_INET6) {
        if (bits > IPV6_BITS)
            return -EINVAL;
        memcpy(address, prefix->address, sizeof(address));
    } else if (prefix->family == 0) {
        bits = 0;
    } else {
        return -EINVAL;
    }
    for (unsigned i = 0; i < sizeof(mask); i++) {
        unsigned left = bits > 8 * i ? bits - 8 * i : 0;
        mask[i] = left >= 8 ? 0xff : (uint8_t)(0xff00 >> left);
        address[i] &= mask[i];
    }
    memcpy(ret_address, address, sizeof(address));
    memcpy(ret_mask, mask, sizeof(mask));
    return 0;
}

int selector_to_kernel(const struct decide_selector *selector, struct chart_selector *ret) {
    struct chart_selector kernel = {
        .cgroup_id = selector->cgroup_id,
        .source_port = selector->source_port,
        .destination_port = selector->destination_port,
        .protocol = selector->protocol,
        .dscp_plus_one = selector->dscp_plus_one,
    };
    int error = prefix_to_kernel(&selector->source, kernel.source, kernel.source_mask);
    if (!error)
        error = prefix_to_kernel(&selector->destination, kernel.destination, kernel.destination_mask);
    if (!error)
        *ret = kernel;
    return error;
}

static const struct decide_prefix *prefix_at(const struct decide_prefix *first, const struct decide_prefix *more,
                                             size_t place) {
    return place == 0 ? first : &more[place - 1];
}

int selector_pairs_to_kernel(const struct decide_selector *selector, struct chart_selector *ret, size_t size) {
    size_t n = 0;
    for (size_t i = 0; i <= selector->n_more_sources; i++) {
        for (size_t j = 0; j <= selector->n_more_destinations; j++) {
            struct decide_selector pair = *selector;
            pair.source = *prefix_at(&selector->source, selector->more_sources, i);
            pair.destination = *prefix_at(&selector->destination, selector->more_destinations, j);
            if (pair.source.family && pair.destination.family && pair.source.family != pair.destination.family)
                continue;
            if (n == size)
                return -ENOSPC;
            int error = selector_to_kernel(&pair, &ret[n]);
            if (error)
                return error;
            n++;
        }
    }
    return n ? (int)n : -EINVAL;
}

static unsigned mask_bits(const uint32_t *mask) {
    unsigned bits = 0;
    for (int i = 0; i < 4; i++)
        bits += (unsigned)__builtin_popcount(mask[i]);
    return bits;
}

unsigned selector_specificity(const struct chart_selector *selector) {
    return (selector->cgroup_id ? WEIGHT_CGROUP : 0) + (selector->source_port ? WEIGHT_PORT : 0) +
           (selector->destination_port ? WEIGHT_PORT : 0) + (selector->protocol ? WEIGHT_PROTOCOL : 0) +
           (selector->dscp_plus_one ? WEIGHT_DSCP : 0) + mask_bits(selector->source_mask) +
           mask_bits(selector->destination_mask);
}

static int compare(const void *left, const void *right) {
    const struct chart_selector *a = left, *b = right;
    unsigned more = selector_specificity(a), less = selector_specificity(b);
    if (more != less)
        return more > less ? -1 : 1;
    return a->grant < b->grant ? -1 : a->grant > b->grant;
}

void selector_sort(struct chart_selector *selectors, size_t n_selectors) {
    qsort(selectors, n_selectors, sizeof(*selectors), compare);
}
