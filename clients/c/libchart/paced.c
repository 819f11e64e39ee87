/* Datagrams at the rate of their flow. The rate is looked at every 10 ms; a look costs half a microsecond. */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "chart.h"
#include "clock.h"
#include "pacer.h"

#define IPV4_HEADER 20u
#define IPV6_HEADER 40u

struct chart_paced {
    int fd;
    struct chart_paced_options options;
    struct chart_pacer pacer;
    struct chart_rate rate;
    uint64_t look_ns;
    uint32_t ip_header_bytes;
    uint32_t mtu_bytes;
};

/* Where the flow goes: which IP header it has, and how large its packets may be (asked again, it may have shrunk). */
static int look_at_path(struct chart_paced *paced) {
    struct sockaddr_storage peer;
    socklen_t size = sizeof(peer);
    int mtu = 0;
    if (getpeername(paced->fd, (struct sockaddr *)&peer, &size))
        return -errno;
    bool six = peer.ss_family == AF_INET6 && !IN6_IS_ADDR_V4MAPPED(&((const struct sockaddr_in6 *)&peer)->sin6_addr);
    paced->ip_header_bytes = six ? IPV6_HEADER : IPV4_HEADER;
    size = sizeof(mtu);
    if (getsockopt(paced->fd, six ? IPPROTO_IPV6 : IPPROTO_IP, six ? IPV6_MTU : IP_MTU, &mtu, &size) == 0 && mtu > 0)
        paced->mtu_bytes = (uint32_t)mtu;
    return 0;
}

static void look_at_rate(struct chart_paced *paced, uint64_t now_ns) {
    struct chart_rate rate = {0};
    if (now_ns < paced->look_ns)
        return;
    paced->look_ns = now_ns + CHART_LOOK_NS;
    chart_get_rate(paced->fd, &rate); /* without an agent: no rate */
    bool changed = rate.changes != paced->rate.changes || rate.state != paced->rate.state ||
                   (rate.bps == 0) != (paced->rate.bps == 0);
    paced->rate = rate;
    chart_pacer_rate(&paced->pacer, rate.bps ? rate.bps : paced->options.fallback_bps, now_ns);
    if (changed && paced->options.changed)
        paced->options.changed(paced->options.context, &paced->rate);
}

int chart_paced_open(int fd, const struct chart_paced_options *options, struct chart_paced **ret) {
    if (!options || !options->fallback_bps)
        return -EINVAL;
    struct chart_paced *paced = calloc(1, sizeof(*paced));
    if (!paced)
        return -ENOMEM;
    paced->fd = fd;
    paced->options = *options;
    chart_pacer_rate(&paced->pacer, options->fallback_bps, chart_now_ns());
    int error = look_at_path(paced);
    if (error) {
        free(paced);
        return error;
    }
    *ret = paced;
    return 0;
}

void chart_paced_close(struct chart_paced *paced) {
    free(paced);
}

uint64_t chart_paced_wait_ns(struct chart_paced *paced) {
    uint64_t now_ns = chart_now_ns();
    look_at_rate(paced, now_ns);
    uint64_t wait_ns = chart_pacer_wait_ns(&paced->pacer, now_ns);
    return wait_ns < CHART_LOOK_NS ? wait_ns : CHART_LOOK_NS;
}

int64_t chart_paced_send(struct chart_paced *paced, const void *data, size_t length, int flags) {
    uint64_t wait_ns;
    while ((wait_ns = chart_paced_wait_ns(paced)) > 0) {
        const struct timespec wait = {.tv_nsec = (long)wait_ns};
        int error = clock_nanosleep(CLOCK_MONOTONIC, 0, &wait, NULL);
        if (error)
            return -error;
    }
    ssize_t sent = send(paced->fd, data, length, flags);
    if (sent < 0) {
        int error = -errno;
        if (error == -EMSGSIZE)
            look_at_path(paced);
        return error;
    }
    chart_pacer_sent(&paced->pacer, chart_wire_octets((uint64_t)sent, paced->ip_header_bytes, paced->mtu_bytes),
                     chart_now_ns());
    return sent;
}

struct chart_rate chart_paced_rate(const struct chart_paced *paced) {
    return paced->rate;
}
