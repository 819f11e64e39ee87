/* Applications of a node's ends, see node_applications.h. */
#include "node_applications.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control.h"
#include "ends_applications.h"

#define PAUSE_FIRST_US 200000U
#define PAUSE_MOST_US 60000000U

void node_applications_changed(struct node_applications *applications) {
    *applications = (struct node_applications){0};
}

/* The answer to a line, or NULL. */
static cJSON *ask(const char *path, const char *line) {
    char *text = control_ask(path, line);
    cJSON *answer = text ? cJSON_Parse(text) : NULL;
    free(text);
    return answer;
}

static bool send_command(const struct end *end, cJSON *command) {
    char *line = cJSON_PrintUnformatted(command);
    cJSON *answer = line ? ask(end->control, line) : NULL;
    bool done = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(answer, "ok"));
    const char *error = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(answer, "error"));
    if (!done)
        fprintf(stderr, "chart-tunnel: the end of %s refuses an application: %s\n", end->tunnel,
                error ? error : "it gives no answer");
    cJSON_Delete(answer);
    free(line);
    return done;
}

/* Parameters that a running application does not take are those of a new one. */
static bool configure_or_replace(const struct end *end, cJSON *command) {
    const char *action = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(command, "action"));
    if (send_command(end, command))
        return true;
    if (!action || strcmp(action, "configure") != 0)
        return false;
    cJSON_ReplaceItemInObjectCaseSensitive(command, "action", cJSON_CreateString("replace"));
    return send_command(end, command);
}

void node_applications_follow(struct node_applications *applications, const struct end *end, const char *directory,
                              uint64_t now_us) {
    if (applications->settled || now_us < applications->look_at_us)
        return;
    uint64_t pause_us = 2 * applications->pause_us;
    applications->pause_us = pause_us < PAUSE_FIRST_US ? PAUSE_FIRST_US : pause_us;
    if (applications->pause_us > PAUSE_MOST_US)
        applications->pause_us = PAUSE_MOST_US;
    applications->look_at_us = now_us + applications->pause_us;
    cJSON *state = ask(end->control, CONTROL_GET), *command;
    cJSON *plan = ends_applications_plan(end, directory, state);
    applications->settled = plan && !cJSON_GetArraySize(plan) && !ends_applications_moving(state);
    cJSON_ArrayForEach(command, plan) {
        (void)configure_or_replace(end, command);
    }
    cJSON_Delete(plan);
    cJSON_Delete(state);
}
