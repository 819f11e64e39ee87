/* What must hold for whatever bytes a parser accepts; shared by the three fuzz targets. */
#ifndef CHART_FUZZ_QOS_CHECK_H
#define CHART_FUZZ_QOS_CHECK_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "qos.h"

static inline void must(int condition) {
    if (!condition)
        abort();
}

/* The signal packs back to the same octets, a zero key does not fit by chance, and a signature of ours verifies once.
 */
static inline void check_signal(const struct chart_parsed *parsed, const uint8_t *octets, size_t size) {
    static struct chart_pair pair;
    struct chart_hmac_scratch scratch;
    struct chart_hmac_key key;
    struct chart_parsed own = *parsed;
    uint8_t packed[CHART_SIGNAL_OCTETS], zero[CHART_KEY_OCTETS] = {0};

    must(parsed->signal_offset + CHART_SIGNAL_OCTETS <= size);
    must(parsed->transport_offset <= size + 2048);
    must(parsed->flow.family == 4 || parsed->flow.family == 6);
    chart_signal_pack(packed, &parsed->signal);
    must(!memcmp(packed, octets + parsed->signal_offset, sizeof(packed)));

    memset(&pair, 0, sizeof(pair));
    chart_hmac_key_set(&key, zero, &scratch);
    must(chart_pair_install(&pair, own.signal.epoch, &key) == CHART_QOS_OK);
    own.signal.sequence = own.signal.sequence ? own.signal.sequence : 1;
    chart_signal_tag(own.signal.tag, &own.signal, &own.flow, &key, &scratch);
    own.signal.tag[0] ^= 1;
    must(chart_pair_verify(&pair, &own.signal, &own.flow, &scratch) == CHART_QOS_BAD_TAG);
    own.signal.tag[0] ^= 1;
    must(chart_pair_verify(&pair, &own.signal, &own.flow, &scratch) == CHART_QOS_OK);
    must(chart_pair_verify(&pair, &own.signal, &own.flow, &scratch) == CHART_QOS_REPLAYED);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
