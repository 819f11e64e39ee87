/* See pacer.h. */
#include "pacer.h"

#include "clock.h"

#define UDP_HEADER 8u

void chart_pacer_rate(struct chart_pacer *pacer, uint64_t rate_bps, uint64_t now_ns) {
    if (pacer->rate_bps == rate_bps)
        return;
    if (!pacer->rate_bps)
        pacer->due_ns = now_ns; /* nothing to make up for yet */
    else if (pacer->due_ns > now_ns)
        pacer->due_ns =
            now_ns + (uint64_t)((double)(pacer->due_ns - now_ns) * (double)pacer->rate_bps / (double)rate_bps);
    pacer->rate_bps = rate_bps;
    pacer->remainder = 0;
}

uint64_t chart_pacer_wait_ns(const struct chart_pacer *pacer, uint64_t now_ns) {
    return pacer->due_ns > now_ns ? pacer->due_ns - now_ns : 0;
}

void chart_pacer_sent(struct chart_pacer *pacer, uint64_t octets, uint64_t now_ns) {
    uint64_t earliest_ns = now_ns > CHART_CATCH_UP_NS ? now_ns - CHART_CATCH_UP_NS : 0;
    uint64_t from_ns = pacer->due_ns > earliest_ns ? pacer->due_ns : earliest_ns;
    uint64_t scaled = octets * 8 * CHART_NS_PER_S + pacer->remainder;
    if (!pacer->rate_bps)
        return;
    pacer->due_ns = from_ns + scaled / pacer->rate_bps;
    pacer->remainder = scaled % pacer->rate_bps;
}

uint64_t chart_wire_octets(uint64_t payload_bytes, uint32_t ip_header_bytes, uint32_t mtu_bytes) {
    uint64_t octets = payload_bytes + UDP_HEADER, packets = 1;
    if (mtu_bytes > ip_header_bytes + UDP_HEADER && octets > mtu_bytes - ip_header_bytes) {
        uint64_t room = (mtu_bytes - ip_header_bytes) / 8 * 8; /* fragments are multiples of 8 octets */
        packets = (octets + room - 1) / room;
    }
    return octets + packets * ip_header_bytes;
}
