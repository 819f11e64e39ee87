/* An application that does what its argument says, for tests of what the tunnel makes of it:
 *
 *   pass | drop | take | divert=PATH | mark=VALUE | pace=US   this verdict on every packet
 *   crash=N | end=N        a fault of memory, or the end of the process, at the Nth packet
 *   slow=MS                every answer takes so long
 *   timer-crash            at the first timer
 *   nonsense               verdicts that there are not
 *   deaf                   never opens */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "event.h"

enum deed { DEED_VERDICT, DEED_CRASH, DEED_END, DEED_SLOW, DEED_TIMER_CRASH, DEED_NONSENSE };

static const struct {
    const char *word;
    enum deed deed;
    enum itm_verdict verdict;
} DEEDS[] = {
    {"pass", DEED_VERDICT, ITM_PASS},      {"drop", DEED_VERDICT, ITM_DROP},
    {"take", DEED_VERDICT, ITM_TAKE},      {"divert", DEED_VERDICT, ITM_DIVERT},
    {"mark", DEED_VERDICT, ITM_MARK},      {"pace", DEED_VERDICT, ITM_PACE},
    {"crash", DEED_CRASH, ITM_PASS},       {"end", DEED_END, ITM_PASS},
    {"slow", DEED_SLOW, ITM_PASS},         {"timer-crash", DEED_TIMER_CRASH, ITM_PASS},
    {"nonsense", DEED_NONSENSE, ITM_PASS},
};

static struct {
    enum deed deed;
    enum itm_verdict verdict;
    uint32_t value;
    uint64_t packets;
    volatile int *nowhere;
} own;

/* The kernel's own handling, under a sanitizer too. */
static void crash(void) {
    (void)signal(SIGSEGV, SIG_DFL);
    *own.nowhere = 1;
}

static void sleep_ms(uint32_t ms) {
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)nanosleep(&time, NULL);
}

static struct itm_action process(void *state, const struct itm_event *event, uint32_t class_id) {
    (void)state;
    (void)event;
    (void)class_id;
    own.packets++;
    if (own.deed == DEED_CRASH && own.packets >= own.value)
        crash();
    if (own.deed == DEED_END && own.packets >= own.value)
        exit(7);
    if (own.deed == DEED_SLOW)
        sleep_ms(own.value);
    if (own.deed == DEED_NONSENSE)
        return (struct itm_action){(enum itm_verdict)99, 0};
    return (struct itm_action){own.verdict, own.value};
}

static void controller_update(void *state, const struct itm_event *event) {
    (void)state;
    if (event->kind == ITM_TIMER && own.deed == DEED_TIMER_CRASH)
        crash();
}

static int configure(void *state, const char *argument) {
    const char *equals = strchr(argument, '=');
    size_t length = equals ? (size_t)(equals - argument) : strlen(argument);
    (void)state;
    for (size_t i = 0; i < sizeof(DEEDS) / sizeof(DEEDS[0]); i++) {
        if (strlen(DEEDS[i].word) != length || strncmp(argument, DEEDS[i].word, length) != 0)
            continue;
        own.deed = DEEDS[i].deed;
        own.verdict = DEEDS[i].verdict;
        own.value = equals ? (uint32_t)strtoul(equals + 1, NULL, 0) : 0;
        return 0;
    }
    return -EINVAL;
}

int itm_application_open(const char *argument, struct itm_application *ret);
int itm_application_open(const char *argument, struct itm_application *ret) {
    if (strcmp(argument, "deaf") == 0)
        for (;;)
            sleep_ms(1000);
    *ret = (struct itm_application){
        .name = "faulty",
        .events = 1U << ITM_ARRIVAL | 1U << ITM_DEPARTURE | 1U << ITM_LOSS | 1U << ITM_FEEDBACK,
        .period_us = 10000,
        .process = process,
        .controller_update = controller_update,
        .configure = configure,
    };
    return configure(NULL, argument);
}
