/* Fuzz target: any bytes as an IPv6 packet. */
#include "check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct chart_parsed parsed, again;
    uint8_t copy[CHART_PARSE_MAX];

    if (chart_ipv6_parse(&parsed, data, (uint32_t)size))
        return 0;
    check_signal(&parsed, data, size);
    /* What an element on the way does leaves a packet that reads the same. */
    size = size < sizeof(copy) ? size : sizeof(copy);
    memcpy(copy, data, size);
    parsed.signal.qos.lowered ^= 1;
    must(chart_ipv6_rewrite(copy, parsed.signal_offset, &parsed.signal) == CHART_QOS_OK);
    must(chart_ipv6_parse(&again, copy, (uint32_t)size) == CHART_QOS_OK);
    must(again.signal_offset == parsed.signal_offset && again.transport_offset == parsed.transport_offset);
    must(again.signal.qos.lowered == parsed.signal.qos.lowered);
    return 0;
}
