/* The event API of traffic controllers, see event.h. */
#include "event.h"

#include <errno.h>
#include <string.h>

/* The timer is wanted by its period. */
#define ITM_WANTED ((1U << ITM_TIMER) - 1)

void itm_dispatcher_init(struct itm_dispatcher *dispatcher) {
    memset(dispatcher, 0, sizeof(*dispatcher));
}

static size_t find(const struct itm_dispatcher *dispatcher, const char *name) {
    size_t index = 0;
    while (index < dispatcher->count && strcmp(dispatcher->registrations[index].application.name, name) != 0)
        index++;
    return index;
}

static uint64_t due_us(const struct itm_application *application, uint64_t now_us) {
    return application->period_us ? now_us + application->period_us : ITM_NEVER_US;
}

int itm_register(struct itm_dispatcher *dispatcher, const struct itm_application *application, uint64_t now_us) {
    if (!application->name || !application->name[0] || (application->events & ~ITM_WANTED) ||
        (!application->events && !application->period_us))
        return -EINVAL;
    if (find(dispatcher, application->name) < dispatcher->count)
        return -EEXIST;
    if (dispatcher->count == ITM_APPLICATIONS)
        return -ENOSPC;
    dispatcher->registrations[dispatcher->count++] = (struct itm_registration){
        .application = *application,
        .last_us = now_us,
        .next_us = due_us(application, now_us),
    };
    return 0;
}

int itm_unregister(struct itm_dispatcher *dispatcher, const char *name) {
    size_t index = find(dispatcher, name);
    if (index == dispatcher->count)
        return -ENOENT;
    dispatcher->count--;
    memmove(&dispatcher->registrations[index], &dispatcher->registrations[index + 1],
            (dispatcher->count - index) * sizeof(dispatcher->registrations[0]));
    return 0;
}

int itm_set_period(struct itm_dispatcher *dispatcher, const char *name, uint64_t period_us, uint64_t now_us) {
    size_t index = find(dispatcher, name);
    if (index == dispatcher->count)
        return -ENOENT;
    struct itm_registration *registration = &dispatcher->registrations[index];
    registration->application.period_us = period_us;
    registration->last_us = now_us;
    registration->next_us = due_us(&registration->application, now_us);
    return 0;
}

bool itm_ask(const struct itm_application *application, const struct itm_event *event, struct itm_action *ret) {
    uint32_t class_id = application->classify ? application->classify(application->state, event) : 0;
    *ret = (struct itm_action){ITM_PASS, 0};
    if (class_id == ITM_CLASS_NONE)
        return false;
    if (application->log)
        application->log(application->state, event, class_id);
    if (application->process)
        *ret = application->process(application->state, event, class_id);
    if (application->class_update)
        application->class_update(application->state, event, class_id);
    if (application->controller_update)
        application->controller_update(application->state, event);
    return true;
}

void itm_inform(const struct itm_application *application, const struct itm_event *event) {
    if (application->log)
        application->log(application->state, event, ITM_CLASS_NONE);
    if (application->class_update)
        application->class_update(application->state, event, ITM_CLASS_NONE);
    if (application->controller_update)
        application->controller_update(application->state, event);
}

struct itm_action itm_packet(struct itm_dispatcher *dispatcher, const struct itm_event *event) {
    struct itm_action action = {ITM_PASS, 0};
    for (size_t i = 0; i < dispatcher->count && (action.verdict == ITM_PASS || action.verdict == ITM_MARK); i++) {
        struct itm_registration *registration = &dispatcher->registrations[i];
        struct itm_action own;
        if (!(registration->application.events & 1U << event->kind) ||
            !itm_ask(&registration->application, event, &own))
            continue;
        registration->counters.packets++;
        registration->counters.verdicts[own.verdict]++;
        if (own.verdict != ITM_PASS)
            action = own;
    }
    return action;
}

static void raise_timer(struct itm_registration *registration, uint64_t now_us) {
    const struct itm_application *application = &registration->application;
    struct itm_event event = {.kind = ITM_TIMER, .now_us = now_us, .elapsed_us = now_us - registration->last_us};

    registration->last_us = now_us;
    /* Keeps the beat; whoever is a whole period late starts a new one. */
    registration->next_us += application->period_us;
    if (registration->next_us <= now_us)
        registration->next_us = now_us + application->period_us;
    registration->counters.events++;
    itm_inform(application, &event);
}

uint64_t itm_tick(struct itm_dispatcher *dispatcher, uint64_t now_us) {
    uint64_t next_us = ITM_NEVER_US;
    for (size_t i = 0; i < dispatcher->count; i++) {
        if (dispatcher->registrations[i].next_us <= now_us)
            raise_timer(&dispatcher->registrations[i], now_us);
        if (dispatcher->registrations[i].next_us < next_us)
            next_us = dispatcher->registrations[i].next_us;
    }
    return next_us;
}

const struct itm_counters *itm_counters(const struct itm_dispatcher *dispatcher, const char *name) {
    size_t index = find(dispatcher, name);
    return index < dispatcher->count ? &dispatcher->registrations[index].counters : NULL;
}
