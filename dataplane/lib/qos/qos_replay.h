/* The replay window: RFC 6479's ring of blocks, 4,096 sequences wide (docs/signalling.md).
 *
 * Checking and accepting are apart, because the window moves only after the tag verified. Accepting checks again; where
 * several processors share a window, that call needs a lock around it, the first check does not.
 */
#ifndef CHART_QOS_REPLAY_H
#define CHART_QOS_REPLAY_H

#include "qos_types.h"

/* All zeros is the start of an epoch. */
struct chart_replay {
    __u32 highest; /* sequence accepted so far, 0 before the first */
    __u32 unused;
    __u64 blocks[CHART_REPLAY_BLOCKS]; /* bit s % 64 of block (s / 64) % 128 */
};

CHART_INLINE int chart_replay_check(const struct chart_replay *replay, __u32 sequence) {
    if (sequence == 0 || sequence > CHART_SEQUENCE_MAX)
        return CHART_QOS_TOO_OLD;
    if (sequence > replay->highest)
        return CHART_QOS_OK;
    if (replay->highest - sequence >= CHART_REPLAY_WINDOW)
        return CHART_QOS_TOO_OLD;
    return (replay->blocks[(sequence / 64) & (CHART_REPLAY_BLOCKS - 1)] >> (sequence % 64)) & 1 ? CHART_QOS_REPLAYED
                                                                                                : CHART_QOS_OK;
}

CHART_INLINE int chart_replay_accept(struct chart_replay *replay, __u32 sequence) {
    __u32 block = sequence / 64, ahead, i;
    int error = chart_replay_check(replay, sequence);

    if (error)
        return error;
    if (sequence > replay->highest) {
        ahead = block - replay->highest / 64;
        for (i = 0; i < CHART_REPLAY_BLOCKS; i++) {
            if (i >= ahead)
                break;
            replay->blocks[(block - i) & (CHART_REPLAY_BLOCKS - 1)] = 0;
        }
        replay->highest = sequence;
    }
    replay->blocks[block & (CHART_REPLAY_BLOCKS - 1)] |= 1ull << (sequence % 64);
    return CHART_QOS_OK;
}

/* The sequence after `last` (0 before the first), or EXHAUSTED. */
CHART_INLINE int chart_sequence_next(__u32 *ret_sequence, __u32 last) {
    if (last >= CHART_SEQUENCE_MAX)
        return CHART_QOS_EXHAUSTED;
    *ret_sequence = last + 1;
    return CHART_QOS_OK;
}

/* Whether a sender that last used `last` should ask for a new epoch: half of the sequences are left to get it in. */
CHART_INLINE int chart_epoch_due(__u32 last) {
    return last >= CHART_SEQUENCE_RENEW;
}

#endif
