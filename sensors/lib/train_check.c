/* Whether a train of packets may be believed; see train_check.h. */
#include "train_check.h"

#include <math.h>

#include "statistics.h"

#define FULL_PACKET_BYTES 1500.0
#define TAIL_GAPS_MIN 3u
/* A train that shall fill a queue: the next packet leaves before this share of the time after which the path is done
 * with those before it. */
#define AHEAD_SHARE 0.9
/* Fewer packets do not show what is usual among them. */
#define BURST_PACKETS_MIN 4u

const char *train_state_name(enum train_state state) {
    static const char *const NAMES[] = {"clean", "off plan", "held"};

    return NAMES[state];
}

static enum train_state judge_departures(const struct train_plan *plan, const struct train_packet *packets) {
    for (size_t k = 1; k < plan->packets; k++) {
        double planned_us = plan->departures_us[k] - plan->departures_us[k - 1];
        double sent_us = packets[k].sent_us - packets[k - 1].sent_us;

        if (fabs(sent_us - planned_us) > fmax(TRAIN_GAP_US, TRAIN_GAP_SHARE * planned_us))
            return TRAIN_OFF_PLAN;
    }
    return TRAIN_CLEAN;
}

double train_packet_us(const struct train_plan *plan, const struct train_packet *packets) {
    double gaps_us[TRAIN_PACKETS_MAX];
    size_t count = 0;

    for (size_t k = plan->packets - plan->packets / 3; k < plan->packets; k++)
        if (k > 0 && packets[k].arrived && packets[k - 1].arrived)
            gaps_us[count++] = packets[k].arrived_us - packets[k - 1].arrived_us;
    if (count < TAIL_GAPS_MIN)
        return 0;
    return statistics_percentile(gaps_us, count, 0.5) * FULL_PACKET_BYTES / plan->packet_bytes;
}

/* Runs of packets that came in one go though they left well apart. */
static bool was_held(const struct train_packet *packets, size_t count, double handover_us) {
    double held_us = 0;
    unsigned gaps = 0;
    size_t previous = 0;

    for (size_t k = 1; k < count; k++) {
        double sent_us, arrived_us;

        if (!packets[k].arrived)
            continue;
        sent_us = packets[k].sent_us - packets[previous].sent_us;
        arrived_us = packets[k].arrived_us - packets[previous].arrived_us;
        if (packets[previous].arrived && arrived_us >= 0 && arrived_us <= fmin(handover_us, sent_us / 2)) {
            held_us += sent_us - arrived_us;
            gaps++;
        } else {
            held_us = 0;
            gaps = 0;
        }
        if (gaps >= TRAIN_HELD_GAPS && held_us >= TRAIN_HELD_US)
            return true;
        previous = k;
    }
    return false;
}

static bool has_jump(const struct train_packet *packets, size_t count, double limit_us) {
    size_t previous = 0;

    for (size_t k = 1; k < count; k++) {
        if (!packets[k].arrived)
            continue;
        if (packets[previous].arrived &&
            (packets[k].arrived_us - packets[previous].arrived_us) - (packets[k].sent_us - packets[previous].sent_us) >
                limit_us)
            return true;
        previous = k;
    }
    return false;
}

enum train_state train_judge(const struct train_plan *plan, const struct train_packet *packets, double expected_bps) {
    double handover_us =
        fmin(TRAIN_HANDOVER_US, TRAIN_HANDOVER_SHARE * 8e6 * plan->packet_bytes / fmax(expected_bps, 1));
    double packet_us = train_packet_us(plan, packets);

    if (judge_departures(plan, packets) != TRAIN_CLEAN)
        return TRAIN_OFF_PLAN;
    if (was_held(packets, plan->packets, handover_us))
        return TRAIN_HELD;
    if (has_jump(packets, plan->packets, fmax(TRAIN_JUMP_US, TRAIN_BURST_PACKETS * packet_us)))
        return TRAIN_HELD;
    return TRAIN_CLEAN;
}

enum train_state train_judge_burst(const struct train_packet *packets, size_t count) {
    double gaps_us[TRAIN_PACKETS_MAX];
    double least_us = INFINITY;

    for (size_t k = 1; k < count; k++) {
        double sent_us = packets[k].sent_us - packets[0].sent_us;

        gaps_us[k - 1] = packets[k].arrived_us - packets[k - 1].arrived_us;
        least_us = fmin(least_us, gaps_us[k - 1]);
        if (sent_us > TRAIN_GAP_US && sent_us > AHEAD_SHARE * (packets[k].arrived_us - packets[0].arrived_us))
            return TRAIN_OFF_PLAN;
    }
    if (count < BURST_PACKETS_MIN)
        return TRAIN_CLEAN;
    if (least_us <= fmin(TRAIN_HANDOVER_US, TRAIN_HANDOVER_SHARE * statistics_percentile(gaps_us, count - 1, 0.5)))
        return TRAIN_HELD;
    return TRAIN_CLEAN;
}
