/* What an element keeps per neighbour that sends to it: the accepted key epochs with their windows
 * (docs/signalling.md).
 *
 * Two epochs are accepted at a time, so that a change of key loses no signal. A new one takes the place of the older.
 */
#ifndef CHART_QOS_PAIR_H
#define CHART_QOS_PAIR_H

#include "qos_hmac.h"
#include "qos_replay.h"

#define CHART_PAIR_EPOCHS 2

struct chart_pair_epoch {
    struct chart_hmac_key key;
    struct chart_replay replay;
    __u8 epoch;
    __u8 accepted;
    __u8 unused[6];
};

/* All zeros: no epoch is accepted. */
struct chart_pair {
    struct chart_pair_epoch epochs[CHART_PAIR_EPOCHS];
    __u32 newest; /* index of the epoch installed last */
    __u32 unused;
};

/* The accepted epoch of this number, or null. */
CHART_INLINE struct chart_pair_epoch *chart_pair_find(struct chart_pair *pair, __u8 epoch) {
    if (pair->epochs[0].accepted && pair->epochs[0].epoch == epoch)
        return &pair->epochs[0];
    if (pair->epochs[1].accepted && pair->epochs[1].epoch == epoch)
        return &pair->epochs[1];
    return 0;
}

/* Accept signals of a new epoch with a fresh window; EPOCH_IN_USE if the number is still accepted. */
CHART_INLINE int chart_pair_install(struct chart_pair *pair, __u8 epoch, const struct chart_hmac_key *key) {
    __u32 index = pair->epochs[pair->newest & 1].accepted ? !(pair->newest & 1) : (pair->newest & 1);
    struct chart_pair_epoch *slot = &pair->epochs[index];

    if (chart_pair_find(pair, epoch))
        return CHART_QOS_EPOCH_IN_USE;
    __builtin_memset(slot, 0, sizeof(*slot));
    slot->key = *key;
    slot->epoch = epoch;
    slot->accepted = 1;
    pair->newest = index;
    return CHART_QOS_OK;
}

/* Accept an epoch no longer; UNKNOWN_EPOCH if it was not accepted. */
CHART_INLINE int chart_pair_retire(struct chart_pair *pair, __u8 epoch) {
    struct chart_pair_epoch *slot = chart_pair_find(pair, epoch);

    if (!slot)
        return CHART_QOS_UNKNOWN_EPOCH;
    slot->accepted = 0;
    return CHART_QOS_OK;
}

/* A number for the next epoch: the one after the newest that is not accepted. */
CHART_INLINE __u8 chart_pair_next_epoch(struct chart_pair *pair) {
    __u8 epoch = pair->epochs[pair->newest & 1].epoch + 1;

    return chart_pair_find(pair, epoch) ? (__u8)(epoch + 1) : epoch;
}

/* Verify a signal and take its sequence: epoch, window, tag, in this order; the window moves only if the tag is right.
 */
CHART_INLINE int chart_pair_verify(struct chart_pair *pair, const struct chart_signal *signal,
                                   const struct chart_flow *flow, struct chart_hmac_scratch *scratch) {
    struct chart_pair_epoch *slot = chart_pair_find(pair, signal->epoch);
    __u8 tag[CHART_TAG_OCTETS];
    int error;

    if (!slot)
        return CHART_QOS_UNKNOWN_EPOCH;
    error = chart_replay_check(&slot->replay, signal->sequence);
    if (error)
        return error;
    chart_signal_tag(tag, signal, flow, &slot->key, scratch);
    if (!chart_tag_equal(tag, signal->tag))
        return CHART_QOS_BAD_TAG;
    return chart_replay_accept(&slot->replay, signal->sequence);
}

#endif
