/* See shim_address.h. */
#include "signal/shim_address.h"

#include <linux/bpf.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "qos.h"

/* A datagram socket that is connected knows the address that its route would use; nothing is sent. */
static bool local_towards(const struct decide_prefix *far, struct decide_prefix *ret) {
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(CHART_SHIM_PORT)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(CHART_SHIM_PORT)};
    bool is_four = far->family == AF_INET;
    struct sockaddr *address = is_four ? (struct sockaddr *)&four : (struct sockaddr *)&six;
    socklen_t length = is_four ? sizeof(four) : sizeof(six);
    int fd = socket(far->family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool known = false;
    memcpy(&four.sin_addr, far->address, sizeof(four.sin_addr));
    memcpy(&six.sin6_addr, far->address, sizeof(six.sin6_addr));
    if (fd >= 0)
        known = !connect(fd, address, length) && !getsockname(fd, address, &length);
    if (known) {
        *ret = (struct decide_prefix){.family = far->family, .bits = is_four ? 32 : 128};
        memcpy(ret->address, is_four ? (void *)&four.sin_addr : (void *)&six.sin6_addr, is_four ? 4 : 16);
    }
    if (fd >= 0)
        close(fd);
    return known;
}

void shim_address_fill(const struct signal_hop *hops, size_t n_hops, struct signal_policy *policy) {
    for (size_t i = 0; i < n_hops; i++) {
        const struct decide_prefix *far = &hops[i].shim;
        struct decide_prefix *own = far->family == AF_INET ? &policy->shim4 : &policy->shim6;
        if (far->family && !own->family)
            (void)local_towards(far, own);
    }
}
