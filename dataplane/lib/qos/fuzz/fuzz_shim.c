/* Fuzz target: any bytes as the shim's datagram. */
#include "check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct chart_parsed parsed;
    uint8_t built[CHART_SHIM_IPV6_OCTETS];

    if (chart_shim_parse(&parsed, data, (uint32_t)size))
        return 0;
    check_signal(&parsed, data, size);
    chart_shim_build(built, &parsed.signal, &parsed.flow);
    must(chart_shim_octets(parsed.flow.family) == size && !memcmp(built, data, size));
    return 0;
}
