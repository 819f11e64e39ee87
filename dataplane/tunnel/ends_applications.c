/* What an end's applications lack, see ends_applications.h. */
#include "ends_applications.h"

#include <stdio.h>
#include <string.h>

static const char *text_of(const cJSON *object, const char *name) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
    return text ? text : "";
}

static cJSON *find(const cJSON *list, const char *name) {
    cJSON *item;
    cJSON_ArrayForEach(item, list) {
        if (strcmp(text_of(item, "name"), name) == 0)
            return item;
    }
    return NULL;
}

static cJSON *command(cJSON *plan, const char *action, const char *name) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "command", "application");
    cJSON_AddStringToObject(object, "action", action);
    cJSON_AddStringToObject(object, "name", name);
    cJSON_AddItemToArray(plan, object);
    return object;
}

static void start(cJSON *plan, const char *action, const struct end_application *wanted, const char *file) {
    cJSON *object = command(plan, action, wanted->name);
    cJSON_AddStringToObject(object, "file", file);
    cJSON_AddStringToObject(object, "argument", wanted->argument);
    cJSON_AddNumberToObject(object, "limit_ms", wanted->limit_ms);
}

static bool on_its_way(const cJSON *has) {
    return strcmp(text_of(has, "state"), "starting") == 0 ||
           cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(has, "replacing"));
}

static void change(cJSON *plan, const struct end_application *wanted, const char *file, const cJSON *has) {
    const char *state = text_of(has, "state");
    const cJSON *limit = cJSON_GetObjectItemCaseSensitive(has, "limit_us");
    bool failed = strcmp(state, "failed") == 0;
    bool other_argument = strcmp(text_of(has, "argument"), wanted->argument) != 0;
    if (on_its_way(has))
        return;
    if (strcmp(text_of(has, "file"), file) != 0 || !cJSON_IsNumber(limit) ||
        limit->valuedouble != wanted->limit_ms * 1000.0 || (failed && other_argument))
        start(plan, "replace", wanted, file);
    else if (other_argument)
        cJSON_AddStringToObject(command(plan, "configure", wanted->name), "argument", wanted->argument);
    if (!failed && wanted->off != (strcmp(state, "off") == 0))
        (void)command(plan, wanted->off ? "off" : "on", wanted->name);
}

cJSON *ends_applications_plan(const struct end *wanted, const char *directory, const cJSON *state) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(state, "applications"), *has;
    char file[PATH_MAX];
    if (!cJSON_IsArray(list))
        return NULL;
    cJSON *plan = cJSON_CreateArray();
    cJSON_ArrayForEach(has, list) {
        bool stays = false;
        for (size_t i = 0; i < wanted->application_count; i++)
            stays |= strcmp(wanted->applications[i].name, text_of(has, "name")) == 0;
        if (!stays)
            (void)command(plan, "unload", text_of(has, "name"));
    }
    for (size_t i = 0; i < wanted->application_count; i++) {
        const struct end_application *application = &wanted->applications[i];
        if (snprintf(file, sizeof(file), "%s/%s", directory, application->file) >= (int)sizeof(file))
            continue;
        has = find(list, application->name);
        if (has)
            change(plan, application, file, has);
        else
            start(plan, "load", application, file);
    }
    return plan;
}

bool ends_applications_moving(const cJSON *state) {
    const cJSON *has;
    cJSON_ArrayForEach(has, cJSON_GetObjectItemCaseSensitive(state, "applications")) {
        if (on_its_way(has))
            return true;
    }
    return false;
}
