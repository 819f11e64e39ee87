/* Any bytes as UDP's data, with a rate in front (8 octets): what a router does to it. */
#include <stdlib.h>
#include <string.h>

#include "lib/advice/scone.h"

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size);

static void must(int condition) {
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size) {
    __u8 before[CHART_SCONE_OCTETS], after[CHART_SCONE_OCTETS];
    __u64 rate_bps;
    __u32 signal;

    if (size < sizeof(rate_bps) + sizeof(before))
        return 0;
    memcpy(&rate_bps, data, sizeof(rate_bps));
    memcpy(before, data + sizeof(rate_bps), sizeof(before));
    memcpy(after, before, sizeof(after));
    signal = chart_scone_encode(rate_bps);
    must(signal <= CHART_SCONE_HIGHEST);
    must(!signal || chart_scone_rates[signal] <= rate_bps);
    must(signal == CHART_SCONE_HIGHEST || chart_scone_rates[signal + 1] > rate_bps);
    if (!chart_scone_is(before))
        return 0;
    must(chart_scone_signal(before) <= CHART_SCONE_UNKNOWN);
    chart_scone_write(after, signal);
    must(chart_scone_is(after) && chart_scone_signal(after) == signal);
    /* Not a bit beside the signal. */
    must((after[0] & 0xc0) == (before[0] & 0xc0) && (after[1] & 0x7f) == (before[1] & 0x7f));
    must(!memcmp(after + CHART_SCONE_CHANGED, before + CHART_SCONE_CHANGED, sizeof(after) - CHART_SCONE_CHANGED));
    return 0;
}
