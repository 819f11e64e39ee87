/* Applications over the control socket and the command line, see application_control.h. */
#include "application_control.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "control.h"
#include "state.h"

static char complaint[EXCHANGE_NAME_BYTES + APPLICATIONS_FAULT_BYTES + 64];

static const char *text_of(const cJSON *command, const char *member, const char *absent) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(command, member);
    if (!item)
        return absent;
    return cJSON_IsString(item) ? item->valuestring : NULL;
}

static const char *sentence(int error, const char *name, const char *fault) {
    switch (error) {
    case -EEXIST:
        return "there is an application of that name: use replace";
    case -ENOENT:
        return "there is no application of that name; get lists them";
    case -EALREADY:
        return "it is starting already: wait until get says on";
    case -ENOSPC:
        return "there are 8 applications: unload one first";
    case -ENOTCONN:
        snprintf(complaint, sizeof(complaint), "%s does not run: %s", name, fault[0] ? fault : "it is starting");
        return complaint;
    case -EINVAL:
        if (fault[0])
            snprintf(complaint, sizeof(complaint), "%s: %s", name, fault);
        else
            snprintf(complaint, sizeof(complaint),
                     "an application wants a name of 1 to %d bytes, a file, an argument of at most %d bytes and a "
                     "limit_ms from %u to %u",
                     EXCHANGE_NAME_BYTES - 1, EXCHANGE_TEXT_BYTES - 1, GUARD_LIMIT_LEAST_US / 1000,
                     GUARD_LIMIT_MOST_US / 1000);
        return complaint;
    default:
        snprintf(complaint, sizeof(complaint), "%s cannot be started: %s", name, strerror(-error));
        return complaint;
    }
}

/* Microseconds, 0 when absent; false when it is no number in range. */
static bool limit_of(const cJSON *command, uint64_t *ret) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(command, "limit_ms");
    *ret = 0;
    if (!item)
        return true;
    if (!cJSON_IsNumber(item) || item->valuedouble * 1000 < GUARD_LIMIT_LEAST_US ||
        item->valuedouble * 1000 > GUARD_LIMIT_MOST_US)
        return false;
    *ret = (uint64_t)(item->valuedouble * 1000);
    return true;
}

static int load_or_replace(struct applications *applications, const cJSON *command, const char *name, bool replace,
                           uint64_t now_us) {
    const struct application *before = applications_find(applications, name);
    const char *file = text_of(command, "file", replace && before ? before->source.file : "");
    const char *argument = text_of(command, "argument", replace && before ? before->source.argument : "");
    uint64_t limit_us;
    if (replace && !before)
        return -ENOENT;
    if (!file || !argument || !limit_of(command, &limit_us))
        return -EINVAL;
    if (!replace)
        return applications_load(applications, name, file, argument, limit_us, now_us);
    if (!limit_us)
        limit_us = before->source.limit_us;
    return applications_replace(applications, name, file, argument, limit_us, now_us);
}

void application_answer(struct applications *applications, const cJSON *command, uint64_t now_us,
                        const char **ret_error) {
    const char *name = text_of(command, "name", ""), *action = text_of(command, "action", "");
    const char *argument = text_of(command, "argument", "");
    int error = -EINVAL;
    bool configured = false;
    if (!name || !action || !argument)
        error = -EINVAL;
    else if (strcmp(action, "load") == 0 || strcmp(action, "replace") == 0)
        error = load_or_replace(applications, command, name, action[0] == 'r', now_us);
    else if ((configured = strcmp(action, "configure") == 0))
        error = applications_configure(applications, name, argument);
    else if (strcmp(action, "on") == 0 || strcmp(action, "off") == 0)
        error = applications_switch(applications, name, action[1] == 'n', now_us);
    else if (strcmp(action, "unload") == 0)
        error = applications_unload(applications, name);
    else
        *ret_error = "action must be load, replace, configure, on, off or unload";
    if (!error || *ret_error)
        return;
    const struct application *found = name ? applications_find(applications, name) : NULL;
    bool own_fault = found && (configured || error == -ENOTCONN);
    *ret_error = sentence(error, name ? name : "", own_fault ? found->fault : "");
}

static const char *const STATES[] = {
    [APPLICATION_STARTING] = "starting",
    [APPLICATION_ON] = "on",
    [APPLICATION_OFF] = "off",
    [APPLICATION_FAILED] = "failed",
};

void application_add_state(cJSON *answer, const struct applications *applications) {
    cJSON *array = cJSON_AddArrayToObject(answer, "applications");
    for (size_t i = 0; i < applications->count; i++) {
        const struct application *application = &applications->all[i];
        cJSON *object = cJSON_CreateObject();
        cJSON_AddStringToObject(object, "name", application->name);
        cJSON_AddStringToObject(object, "state", STATES[application->state]);
        cJSON_AddBoolToObject(object, "replacing", application->replacing);
        cJSON_AddStringToObject(object, "file", application->source.file);
        cJSON_AddStringToObject(object, "argument", application->source.argument);
        state_add(object, "limit_us", application->source.limit_us);
        state_add(object, "pid", (uint64_t)application->source.process.pid);
        state_add_verdicts(object, &application->counters);
        state_add(object, "replacements", application->replacements);
        state_add(object, "failures", application->failures);
        state_add(object, "longest_us", application->longest_us);
        cJSON_AddStringToObject(object, "fault", application->fault);
        cJSON_AddItemToArray(array, object);
    }
    state_add(answer, "paced_packets", applications->pacer.count);
    state_add(answer, "unpaced_packets", applications->pacer.unpaced_packets);
}

/* The file's name without folder and `.so`. */
static void name_of(const char *file, char ret[EXCHANGE_NAME_BYTES]) {
    const char *slash = strrchr(file, '/');
    snprintf(ret, EXCHANGE_NAME_BYTES, "%.*s", EXCHANGE_NAME_BYTES - 1, slash ? slash + 1 : file);
    size_t length = strlen(ret);
    if (length > 3 && strcmp(ret + length - 3, ".so") == 0)
        ret[length - 3] = '\0';
}

int application_load_options(struct applications *applications, const struct options *options, uint64_t now_us) {
    for (size_t i = 0; i < options->application_count; i++) {
        char file[PATH_MAX], name[EXCHANGE_NAME_BYTES];
        const char *text = options->applications[i], *equals = strchr(text, '=');
        snprintf(file, sizeof(file), "%.*s", equals ? (int)(equals - text) : (int)strlen(text), text);
        name_of(file, name);
        int error = applications_load(applications, name, file, equals ? equals + 1 : "", 0, now_us);
        if (error) {
            fprintf(stderr, "chart-tunnel: application %s: %s\n", text, sentence(error, name, ""));
            return error;
        }
    }
    /* Why one did not start was told with the file's name. */
    return applications_await(applications);
}
