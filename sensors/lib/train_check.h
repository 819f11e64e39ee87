/* Whether a train of packets may be believed. Pure.
 *
 * Trains are read by gaps of tens of microseconds, and a processor that was away for a millisecond, at the sender, at
 * the receiver or in between, changes them more than any link does. A train that was spoilt so is thrown away:
 * - at the sender, when a gap between two departures (the kernel's timestamps) is not the planned one;
 * - when packets that left well apart were handed over in one go, faster than the path carries them: somebody held
 *   them, and the delays before and after that do not belong together;
 * - when the delay jumps, from one packet to the next, by more than any burst of other traffic adds.
 * The original pathChirp cuts chirps at two coalesced packets and skips pairs late by 500 us (Spruce); neither judges
 * the whole train. */
#ifndef CHART_SENSORS_TRAIN_CHECK_H
#define CHART_SENSORS_TRAIN_CHECK_H

#include <stdbool.h>
#include <stddef.h>

#include "exchange.h"

enum train_state {
    TRAIN_CLEAN,
    TRAIN_OFF_PLAN, /* did not leave as planned */
    TRAIN_HELD,     /* was held up and handed over in one go, or delayed by a jump */
};

/* A gap of a train may differ from the plan by this share of it, or by this long, whichever is more. */
#define TRAIN_GAP_SHARE 0.5
#define TRAIN_GAP_US 50.0
/* Packets closer than this at the far end were handed over together; less on fast paths, see train_judge(). */
#define TRAIN_HANDOVER_US 15.0
#define TRAIN_HANDOVER_SHARE 0.3
/* Batches of a device are shorter than this: the first packet of one waited so much longer than the last. */
#define TRAIN_HELD_US 100.0
#define TRAIN_HELD_GAPS 2u
/* A burst of other traffic adds at most so many full packets, or this long. */
#define TRAIN_BURST_PACKETS 24.0
#define TRAIN_JUMP_US 2000.0

const char *train_state_name(enum train_state state);
/* Judge a train whose packets were planned apart. `expected_bps` is about what the path has free: packets handed over
 * several times as fast as it carries them were held. */
enum train_state train_judge(const struct train_plan *plan, const struct train_packet *packets, double expected_bps);
/* Judge `count` packets that were to leave back to back and all arrived in order: the queue behind
 * the bottleneck must never have run empty for want of the next packet, and no packet may have come much faster than
 * the others. */
enum train_state train_judge_burst(const struct train_packet *packets, size_t count);
/* Time that a full packet (1500 bytes) takes behind the bottleneck as the last third of the train shows it, us; 0 when
 * too few arrived. */
double train_packet_us(const struct train_plan *plan, const struct train_packet *packets);

#endif
