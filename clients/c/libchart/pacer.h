/* When the next datagram may go: pure arithmetic on a clock that the caller reads. */
#ifndef CHART_PACER_H
#define CHART_PACER_H

#include <stdint.h>

/* A sender that wakes late makes up for this much of it; later than that the time is lost, not sent in a burst. */
#define CHART_CATCH_UP_NS 1000000ull

struct chart_pacer {
    uint64_t rate_bps;
    uint64_t due_ns;    /* when the next datagram may go */
    uint64_t remainder; /* of the division by the rate, carried on so that the rate is exact */
};

/* A new rate, above 0. What is left to wait shrinks or grows with it. */
void chart_pacer_rate(struct chart_pacer *pacer, uint64_t rate_bps, uint64_t now_ns);
/* 0: it may go now. */
uint64_t chart_pacer_wait_ns(const struct chart_pacer *pacer, uint64_t now_ns);
/* A datagram of so many octets on the wire was sent. */
void chart_pacer_sent(struct chart_pacer *pacer, uint64_t octets, uint64_t now_ns);

/* Octets that a datagram takes on the wire: with UDP header and the IP header of every fragment. mtu_bytes 0: not
 * known, one packet. */
uint64_t chart_wire_octets(uint64_t payload_bytes, uint32_t ip_header_bytes, uint32_t mtu_bytes);

#endif
