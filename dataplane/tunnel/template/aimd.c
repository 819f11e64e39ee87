/* A controller of one's own, the example of docs/traffic-controllers.md: all packets together are paced at a rate that
 * grows by a step per report without loss and halves at a loss (additive increase, multiplicative decrease: Chiu and
 * Jain, 1989). A packet that would have to wait longer than 50 ms is marked with congestion experienced instead, so
 * that a sender that takes part in ECN slows down. Argument: START_BPS,STEP_BPS,LEAST_BPS. */
#include <errno.h>
#include <stdio.h>

#include "event.h"

#define LONGEST_WAIT_US 50000U
/* One loss event per round trip counts; while the RTT is not known, this long. */
#define DEFAULT_RTT_US 100000U
#define RATE_MOST_BPS 1000000000000ULL

struct aimd {
    uint64_t rate_bps, step_bps, least_bps;
    uint64_t free_us;   /* when the next packet may go */
    uint64_t halved_us; /* 0: never */
    bool lost;          /* since the last report */
};

static void log_event(void *state, const struct itm_event *event, uint32_t class_id) {
    struct aimd *aimd = state;
    (void)class_id;
    if (event->kind == ITM_LOSS)
        aimd->lost = true;
}

static struct itm_action process(void *state, const struct itm_event *event, uint32_t class_id) {
    struct aimd *aimd = state;
    (void)class_id;
    if (aimd->free_us < event->now_us)
        aimd->free_us = event->now_us;
    uint64_t wait_us = aimd->free_us - event->now_us;
    if (wait_us > LONGEST_WAIT_US)
        return (struct itm_action){ITM_MARK, (event->packet[1] & 0xfcU) | ITM_MARK_CE};
    aimd->free_us += event->packet_bytes * 8000000 / aimd->rate_bps;
    if (!wait_us)
        return (struct itm_action){ITM_PASS, 0};
    return (struct itm_action){ITM_PACE, (uint32_t)wait_us};
}

static void controller_update(void *state, const struct itm_event *event) {
    struct aimd *aimd = state;
    uint64_t rtt_us = event->inputs && event->inputs->rtt_us ? event->inputs->rtt_us : DEFAULT_RTT_US;
    if (event->kind == ITM_LOSS && (!aimd->halved_us || event->now_us - aimd->halved_us >= rtt_us)) {
        aimd->rate_bps = aimd->rate_bps / 2 > aimd->least_bps ? aimd->rate_bps / 2 : aimd->least_bps;
        aimd->halved_us = event->now_us;
    } else if (event->kind == ITM_FEEDBACK) {
        if (!aimd->lost && aimd->rate_bps + aimd->step_bps <= RATE_MOST_BPS)
            aimd->rate_bps += aimd->step_bps;
        aimd->lost = false;
    }
}

/* The present rate stays inside of the new bounds; a new START_BPS holds at once. */
static int configure(void *state, const char *argument) {
    unsigned long long start_bps, step_bps, least_bps;
    char rest;
    struct aimd *aimd = state;
    if (sscanf(argument, "%llu,%llu,%llu%c", &start_bps, &step_bps, &least_bps, &rest) != 3 || !least_bps ||
        start_bps < least_bps || start_bps > RATE_MOST_BPS || step_bps > RATE_MOST_BPS)
        return -EINVAL;
    aimd->rate_bps = start_bps;
    aimd->step_bps = step_bps;
    aimd->least_bps = least_bps;
    return 0;
}

int itm_application_open(const char *argument, struct itm_application *ret);
int itm_application_open(const char *argument, struct itm_application *ret) {
    static struct aimd state;
    *ret = (struct itm_application){
        .name = "aimd",
        .state = &state,
        .events = 1U << ITM_ARRIVAL | 1U << ITM_LOSS | 1U << ITM_FEEDBACK,
        .log = log_event,
        .process = process,
        .controller_update = controller_update,
        .configure = configure,
    };
    return configure(&state, argument);
}
