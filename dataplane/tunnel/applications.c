/* Loading, configuring, switching, replacing and removing applications, see applications.h. */
#include "applications.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "applications_state.h"
#include "loop.h"

void applications_init(struct applications *applications) {
    memset(applications, 0, sizeof(*applications));
    applications->arena = -1;
}

static void end_both(struct application *application) {
    process_end(&application->source.process);
    if (application->replacing)
        process_end(&application->next.process);
    application->replacing = false;
}

void applications_close(struct applications *applications) {
    for (size_t i = 0; i < applications->count; i++)
        end_both(&applications->all[i]);
    applications->count = 0;
    pacer_free(&applications->pacer);
    if (applications->arena >= 0) {
        close(applications->arena);
        munmap(applications->packets, EXCHANGE_ARENA_BYTES);
    }
    applications->arena = -1;
}

struct application *applications_find(struct applications *applications, const char *name) {
    for (size_t i = 0; i < applications->count; i++)
        if (strcmp(applications->all[i].name, name) == 0)
            return &applications->all[i];
    return NULL;
}

static int open_arena(struct applications *applications) {
    if (applications->arena >= 0)
        return 0;
    int arena = process_arena(&applications->packets);
    if (arena < 0)
        return arena;
    applications->arena = arena;
    return 0;
}

/* Fills in a source and starts its process. */
static int start(struct applications *applications, struct application_source *source, const char *file,
                 const char *argument, uint64_t limit_us, uint64_t now_us) {
    if (!file[0] || strlen(file) >= sizeof(source->file) || strlen(argument) >= sizeof(source->argument) ||
        (limit_us && (limit_us < GUARD_LIMIT_LEAST_US || limit_us > GUARD_LIMIT_MOST_US)))
        return -EINVAL;
    int error = open_arena(applications);
    if (error)
        return error;
    snprintf(source->file, sizeof(source->file), "%s", file);
    snprintf(source->argument, sizeof(source->argument), "%s", argument);
    source->limit_us = limit_us ? limit_us : GUARD_LIMIT_US;
    source->started_us = now_us;
    return process_start(&source->process, file, argument, applications->arena);
}

int applications_load(struct applications *applications, const char *name, const char *file, const char *argument,
                      uint64_t limit_us, uint64_t now_us) {
    if (!name[0] || strlen(name) >= EXCHANGE_NAME_BYTES)
        return -EINVAL;
    if (applications_find(applications, name))
        return -EEXIST;
    if (applications->count == APPLICATIONS_MAX)
        return -ENOSPC;
    struct application *application = &applications->all[applications->count];
    memset(application, 0, sizeof(*application));
    int error = start(applications, &application->source, file, argument, limit_us, now_us);
    if (error)
        return error;
    snprintf(application->name, sizeof(application->name), "%s", name);
    application->timer_next_us = ITM_NEVER_US;
    applications->count++;
    return 0;
}

int applications_replace(struct applications *applications, const char *name, const char *file, const char *argument,
                         uint64_t limit_us, uint64_t now_us) {
    struct application *application = applications_find(applications, name);
    if (!application)
        return -ENOENT;
    if (application->replacing || application->state == APPLICATION_STARTING)
        return -EALREADY;
    int error = start(applications, &application->next, file, argument, limit_us, now_us);
    application->replacing = !error;
    return error;
}

static bool runs(const struct application *application) {
    return application->state == APPLICATION_ON || application->state == APPLICATION_OFF;
}

int applications_configure(struct applications *applications, const char *name, const char *argument) {
    struct application *application = applications_find(applications, name);
    struct exchange_request *request = &applications->request;
    if (!application)
        return -ENOENT;
    if (!runs(application))
        return -ENOTCONN;
    if (strlen(argument) >= sizeof(request->argument))
        return -EINVAL;
    memset(request, 0, sizeof(*request));
    request->kind = EXCHANGE_CONFIGURE;
    snprintf(request->argument, sizeof(request->argument), "%s", argument);
    if (!application_ask(applications, application))
        return -ENOTCONN;
    if (applications->answer.kind == EXCHANGE_REFUSED) {
        snprintf(application->fault, sizeof(application->fault), "%s", applications->answer.sentence);
        return -EINVAL;
    }
    snprintf(application->source.argument, sizeof(application->source.argument), "%s", argument);
    application->fault[0] = '\0';
    return 0;
}

int applications_switch(struct applications *applications, const char *name, bool on, uint64_t now_us) {
    struct application *application = applications_find(applications, name);
    if (!application)
        return -ENOENT;
    if (!runs(application))
        return -ENOTCONN;
    application->state = on ? APPLICATION_ON : APPLICATION_OFF;
    application_set_timer(application, now_us);
    return 0;
}

int applications_unload(struct applications *applications, const char *name) {
    struct application *application = applications_find(applications, name);
    if (!application)
        return -ENOENT;
    end_both(application);
    size_t index = (size_t)(application - applications->all);
    applications->count--;
    memmove(application, application + 1, (applications->count - index) * sizeof(*application));
    return 0;
}

int applications_await(struct applications *applications) {
    static const struct timespec MOMENT = {.tv_nsec = 1000000};
    for (size_t i = 0; i < applications->count; i++) {
        struct application *application = &applications->all[i];
        while (application->state == APPLICATION_STARTING) {
            application_follow_start(application, loop_now_us());
            (void)nanosleep(&MOMENT, NULL);
        }
        if (application->state == APPLICATION_FAILED)
            return -ECANCELED;
    }
    return 0;
}
