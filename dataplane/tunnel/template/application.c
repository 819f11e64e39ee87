/* A first application of the event API, see application.h: copy it and change the five functions. */
#include "application.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* 1. Which class? Here: a hash of source and destination of an IPv4 packet. */
static uint32_t classify(void *state, const struct itm_event *event) {
    (void)state;
    if (event->packet_bytes < 20 || event->packet[0] >> 4 != 4)
        return ITM_CLASS_NONE;
    uint32_t hash = 2166136261U;
    for (size_t i = 12; i < 20; i++)
        hash = (hash ^ event->packet[i]) * 16777619U;
    return hash % TEMPLATE_CLASSES;
}

/* 2. What is to be remembered of this event? A periodic one belongs to no class. */
static void log_event(void *state, const struct itm_event *event, uint32_t class_id) {
    struct template_state *own = state;
    if (class_id != ITM_CLASS_NONE)
        own->classes[class_id].bytes += event->packet_bytes;
}

/* 3. What becomes of the packet? */
static struct itm_action process(void *state, const struct itm_event *event, uint32_t class_id) {
    const struct template_state *own = state;
    (void)event;
    return (struct itm_action){ITM_DIVERT, own->classes[class_id].path};
}

/* 4. How does a class change by what was logged? Decided per period, so that a flow does not move in mid-burst. */
static void class_update(void *state, const struct itm_event *event, uint32_t class_id) {
    struct template_state *own = state;
    (void)class_id;
    if (event->kind != ITM_TIMER)
        return;
    for (size_t i = 0; i < TEMPLATE_CLASSES; i++) {
        struct template_class *flow = &own->classes[i];
        if (flow->bytes == flow->bytes_seen)
            flow->bytes = 0; /* quiet for a period: what comes next is a new flow */
        flow->bytes_seen = flow->bytes;
        flow->path = flow->bytes >= own->threshold_bytes;
    }
}

/* 5. How do the controller's own parameters follow the state of the system? */
static void controller_update(void *state, const struct itm_event *event) {
    struct template_state *own = state;
    if (event->kind != ITM_TIMER)
        return;
    own->long_flows = 0;
    for (size_t i = 0; i < TEMPLATE_CLASSES; i++)
        own->long_flows += own->classes[i].path;
}

/* New parameters while it runs: the threshold. */
static int configure(void *state, const char *argument) {
    struct template_state *own = state;
    char *end;
    errno = 0;
    unsigned long long threshold_bytes = strtoull(argument, &end, 10);
    if (end == argument || *end || errno)
        return -EINVAL;
    own->threshold_bytes = threshold_bytes;
    return 0;
}

struct itm_application template_application(struct template_state *state, uint64_t threshold_bytes,
                                            uint64_t period_us) {
    memset(state, 0, sizeof(*state));
    state->threshold_bytes = threshold_bytes;
    return (struct itm_application){
        .name = "template",
        .state = state,
        .events = 1U << ITM_ARRIVAL,
        .period_us = period_us,
        .classify = classify,
        .log = log_event,
        .process = process,
        .class_update = class_update,
        .controller_update = controller_update,
        .configure = configure,
    };
}

/* What chart-tunnel calls (loader.h). */
int itm_application_open(const char *argument, struct itm_application *ret) {
    static struct template_state state;
    struct itm_application application = template_application(&state, 0, TEMPLATE_PERIOD_US);
    int error = configure(&state, argument);
    if (!error)
        *ret = application;
    return error;
}
