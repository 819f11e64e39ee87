/* Applications and events: asking, and taking out who does not answer; see applications.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "applications.h"
#include "applications_state.h"
#include "loop.h"
#include "mark.h"

/* How often a process that starts is looked at. */
#define START_LOOK_US 2000U
/* The end's clock ticks in milliseconds. */
#define SHORTEST_PERIOD_US 1000U

static void take_out(struct application *application, int error, bool slow_in_sum) {
    char how[PROCESS_FAULT_BYTES] = "";
    if (error == -ECONNRESET)
        process_how(&application->source.process, how);
    process_end(&application->source.process);
    application->state = APPLICATION_FAILED;
    application->timer_next_us = ITM_NEVER_US;
    application->failures++;
    if (error == -ETIME)
        snprintf(application->fault, sizeof(application->fault), "it gave no answer within %u ms",
                 (unsigned)(application->source.limit_us / 1000));
    else if (slow_in_sum)
        snprintf(application->fault, sizeof(application->fault), "the tunnel waited for it more than half of the time");
    else if (error == -ECONNRESET)
        snprintf(application->fault, sizeof(application->fault), "its process ended%s%s", how[0] ? ": " : "", how);
    else
        snprintf(application->fault, sizeof(application->fault), "its answer is none: %s", strerror(-error));
    fprintf(stderr, "chart-tunnel: application %s was taken out: %s; packets pass without it\n", application->name,
            application->fault);
}

bool application_ask(struct applications *applications, struct application *application) {
    uint64_t asked_us = loop_now_us();
    int error = process_ask(&application->source.process, &applications->request, application->source.limit_us,
                            &applications->answer);
    uint64_t answered_us = loop_now_us();
    if (answered_us - asked_us > application->longest_us)
        application->longest_us = answered_us - asked_us;
    bool slow_in_sum = guard_too_slow(&application->guard, asked_us, answered_us);
    if (error || slow_in_sum)
        take_out(application, error, slow_in_sum);
    return !error;
}

void application_set_timer(struct application *application, uint64_t now_us) {
    application->timer_last_us = now_us;
    application->timer_next_us =
        application->state == APPLICATION_ON && application->period_us ? now_us + application->period_us : ITM_NEVER_US;
}

/* The process is open: it has the place from now on. */
static void take_in(struct application *application, const struct exchange_answer *answer, uint64_t now_us) {
    if (application->replacing) {
        process_end(&application->source.process);
        application->source = application->next;
        application->replacing = false;
        application->replacements++;
    }
    application->events = answer->events;
    application->period_us =
        answer->period_us && answer->period_us < SHORTEST_PERIOD_US ? SHORTEST_PERIOD_US : answer->period_us;
    application->guard = (struct guard){0};
    application->fault[0] = '\0';
    if (application->state != APPLICATION_OFF)
        application->state = APPLICATION_ON;
    application_set_timer(application, now_us);
}

static void give_up_start(struct application *application, const char *why) {
    process_end(application->replacing ? &application->next.process : &application->source.process);
    snprintf(application->fault, sizeof(application->fault), "%s: %s",
             application->replacing ? "it was not replaced" : "it did not start", why);
    if (!application->replacing)
        application->state = APPLICATION_FAILED;
    application->replacing = false;
    application->failures++;
    fprintf(stderr, "chart-tunnel: application %s: %s\n", application->name, application->fault);
}

void application_follow_start(struct application *application, uint64_t now_us) {
    struct application_source *source = application->replacing ? &application->next : &application->source;
    struct exchange_answer answer;
    char how[PROCESS_FAULT_BYTES];
    int error = process_started(&source->process, &answer);
    if (!error && answer.kind == EXCHANGE_READY) {
        take_in(application, &answer, now_us);
    } else if (!error) {
        give_up_start(application, answer.sentence);
    } else if (error == -ECONNRESET) {
        process_how(&source->process, how);
        give_up_start(application, how[0] ? how : "its process ended");
    } else if (error != -EAGAIN || now_us - source->started_us > APPLICATIONS_START_US) {
        give_up_start(application, error == -EAGAIN ? "it did not open in time" : "its answer is none");
    }
}

static bool wants(const struct application *application, enum itm_event_kind kind) {
    return application->state == APPLICATION_ON && application->events & 1U << kind;
}

bool applications_want(const struct applications *applications, enum itm_event_kind kind) {
    for (size_t i = 0; i < applications->count; i++)
        if (wants(&applications->all[i], kind))
            return true;
    return false;
}

uint8_t *applications_slot(struct applications *applications, uint32_t slot) {
    return applications->packets + (size_t)slot * EXCHANGE_SLOT_BYTES + EXCHANGE_SLOT_PACKET;
}

void applications_put(struct applications *applications, size_t bytes, const struct offload *offload) {
    struct applications_batch *batch = &applications->batch;
    batch->bytes[batch->count] = bytes;
    batch->offloads[batch->count] = *offload;
    batch->actions[batch->count] = (struct itm_action){ITM_PASS, 0};
    batch->count++;
}

static void begin(struct applications *applications, enum itm_event_kind kind, uint64_t now_us) {
    struct exchange_request *request = &applications->request;
    request->kind = EXCHANGE_EVENT;
    request->event = kind;
    request->count = 0;
    request->now_us = now_us;
    request->elapsed_us = request->lost_packets = 0;
    request->inputs = applications->inputs;
}

/* Asks one application about the packets that are still to be decided. */
static void ask_about(struct applications *applications, struct application *application, enum itm_event_kind kind,
                      uint64_t now_us) {
    struct applications_batch *batch = &applications->batch;
    struct exchange_request *request = &applications->request;
    begin(applications, kind, now_us);
    for (uint32_t slot = 0; slot < batch->count; slot++)
        if (batch->actions[slot].verdict == ITM_PASS)
            request->packets[request->count++] =
                (struct exchange_packet){slot, (uint32_t)batch->bytes[slot], batch->offloads[slot]};
    if (!request->count || !application_ask(applications, application))
        return;
    application->counters.packets += request->count;
    for (uint32_t i = 0; i < request->count; i++) {
        struct itm_action action = applications->answer.actions[i];
        uint32_t slot = request->packets[i].slot;
        application->counters.verdicts[action.verdict]++;
        if (action.verdict == ITM_MARK)
            (void)mark_packet(applications_slot(applications, slot), batch->bytes[slot], action.value);
        else
            batch->actions[slot] = action;
    }
}

void applications_decide(struct applications *applications, enum itm_event_kind kind, uint64_t now_us) {
    struct applications_batch *batch = &applications->batch;
    for (size_t i = 0; i < applications->count; i++)
        if (wants(&applications->all[i], kind))
            ask_about(applications, &applications->all[i], kind, now_us);
    for (uint32_t slot = 0; slot < batch->count; slot++) {
        struct itm_action *action = &batch->actions[slot];
        if (action->verdict != ITM_PACE)
            continue;
        uint64_t wait_us = action->value < ITM_PACE_LONGEST_US ? action->value : ITM_PACE_LONGEST_US;
        int error = pacer_put(&applications->pacer, applications_slot(applications, slot), batch->bytes[slot],
                              &batch->offloads[slot], now_us + wait_us);
        *action = (struct itm_action){error ? ITM_PASS : ITM_TAKE, 0};
    }
}

static void inform(struct applications *applications, struct application *application) {
    if (application_ask(applications, application))
        application->counters.events++;
}

void applications_feedback(struct applications *applications, uint64_t now_us) {
    for (size_t i = 0; i < applications->count; i++) {
        if (!wants(&applications->all[i], ITM_FEEDBACK))
            continue;
        begin(applications, ITM_FEEDBACK, now_us);
        inform(applications, &applications->all[i]);
    }
}

void applications_lost(struct applications *applications, uint64_t packets) {
    applications->lost_packets += packets;
}

/* Returns when losses that wait may be told. */
static uint64_t tell_losses(struct applications *applications, uint64_t now_us) {
    if (!applications->lost_packets)
        return ITM_NEVER_US;
    if (applications->lost_told_us && now_us - applications->lost_told_us < APPLICATIONS_LOSS_US)
        return applications->lost_told_us + APPLICATIONS_LOSS_US;
    for (size_t i = 0; i < applications->count; i++) {
        if (!wants(&applications->all[i], ITM_LOSS))
            continue;
        begin(applications, ITM_LOSS, now_us);
        applications->request.lost_packets = applications->lost_packets;
        inform(applications, &applications->all[i]);
    }
    applications->lost_packets = 0;
    applications->lost_told_us = now_us;
    return ITM_NEVER_US;
}

/* Like itm_tick: keeps the beat; whoever is a whole period late starts a new one. */
static void raise_timer(struct applications *applications, struct application *application, uint64_t now_us) {
    begin(applications, ITM_TIMER, now_us);
    applications->request.elapsed_us = now_us - application->timer_last_us;
    application->timer_last_us = now_us;
    application->timer_next_us += application->period_us;
    if (application->timer_next_us <= now_us)
        application->timer_next_us = now_us + application->period_us;
    inform(applications, application);
}

uint64_t applications_tick(struct applications *applications, uint64_t now_us, pacer_go *go, void *context) {
    uint64_t next_us = ITM_NEVER_US;
    if (!applications->count && !applications->pacer.count)
        return next_us;
    for (size_t i = 0; i < applications->count; i++) {
        struct application *application = &applications->all[i];
        if (application->state == APPLICATION_STARTING || application->replacing)
            application_follow_start(application, now_us);
        if (application->timer_next_us <= now_us)
            raise_timer(applications, application, now_us);
        if (application->timer_next_us < next_us)
            next_us = application->timer_next_us;
        if ((application->state == APPLICATION_STARTING || application->replacing) && now_us + START_LOOK_US < next_us)
            next_us = now_us + START_LOOK_US;
    }
    uint64_t losses_us = tell_losses(applications, now_us);
    uint64_t paced_us = pacer_run(&applications->pacer, now_us, go, context);
    next_us = losses_us < next_us ? losses_us : next_us;
    return paced_us < next_us ? paced_us : next_us;
}
