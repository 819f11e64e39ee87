/* Any bytes as a Quick-Start option, with a link's spare rate in front (8 octets): what a router does to it. */
#include <stdlib.h>
#include <string.h>

#include "lib/advice/quick_start.h"

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size);

static void must(int condition) {
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size) {
    __u8 before[CHART_QS_OCTETS], after[CHART_QS_OCTETS];
    struct chart_qs_approvals approvals = {0};
    __u64 spare_bps;
    __u32 asked, rate;

    if (size < sizeof(spare_bps) + sizeof(before))
        return 0;
    memcpy(&spare_bps, data, sizeof(spare_bps));
    memcpy(before, data + sizeof(spare_bps), sizeof(before));
    if (chart_qs_kind(before, 0) != CHART_QS_REQUEST && chart_qs_kind(before, 1) != CHART_QS_REQUEST)
        return 0;
    memcpy(after, before, sizeof(after));
    asked = chart_qs_rate(before);
    rate = chart_qs_take(&approvals, asked, spare_bps, 0);
    must(rate <= asked && chart_qs_bps(rate) <= spare_bps && approvals.approved_bps == chart_qs_bps(rate));
    if (rate)
        chart_qs_approve(after, rate, 1, 0x2aaaaaaa);
    else
        chart_qs_refuse(after);
    /* Type, length, function and the reserved bits stay; the rate is never raised, and what of the nonce it does not
     * cover is as it was. */
    must(!memcmp(after, before, 2) && after[2] >> 4 == before[2] >> 4 && chart_qs_rate(after) == rate);
    must((after[7] & 3) == (before[7] & 3));
    must(!rate || !((chart_qs_nonce(after) ^ chart_qs_nonce(before)) & ((1u << 2 * rate) - 1)));
    must(rate < asked || chart_qs_nonce(after) == chart_qs_nonce(before));
    must(rate ? (__u8)(before[3] - after[3]) == 1 : !after[3] && !chart_qs_nonce(after));
    return 0;
}
