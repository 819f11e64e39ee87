/* The origin's control socket, see origin.h and control.h. */
#include <stdio.h>
#include <string.h>

#include "application_control.h"
#include "loop.h"
#include "origin.h"

void origin_apply_weights(struct origin *origin) {
    for (uint32_t i = 0; i < origin->options->class_count; i++)
        (void)scheduler_set_weight(&origin->elastic.scheduler, i, orders_effective(&origin->orders, i));
}

void origin_elastic(struct origin *origin, uint32_t connections, uint64_t lease_us, uint64_t limit_bps) {
    uint64_t now_us = loop_now_us();
    (void)elasticity_set(&origin->elastic.elasticity, connections, lease_us, now_us);
    shaper_set(&origin->pool.shaper, limit_bps < SHAPER_RATE_MAX_BPS ? limit_bps : SHAPER_RATE_MAX_BPS, now_us);
}

/* Index of a class by name, -1 when there is none. */
static int class_named(const struct origin *origin, const char *name) {
    for (uint32_t i = 0; i < origin->options->class_count; i++)
        if (strcmp(origin->options->classes[i].name, name) == 0)
            return (int)i;
    return -1;
}

static bool whole_between(const cJSON *item, double minimum, double maximum) {
    return cJSON_IsNumber(item) && item->valuedouble >= minimum && item->valuedouble <= maximum &&
           item->valuedouble == (double)(uint64_t)item->valuedouble;
}

/* All is checked before anything is changed. */
static void answer_set(struct origin *origin, const cJSON *command, const char **ret_error) {
    const cJSON *connections = cJSON_GetObjectItemCaseSensitive(command, "connections");
    const cJSON *lease = cJSON_GetObjectItemCaseSensitive(command, "lease_ms");
    const cJSON *limit = cJSON_GetObjectItemCaseSensitive(command, "limit_bps");
    const cJSON *weights = cJSON_GetObjectItemCaseSensitive(command, "weights"), *weight;
    if (!connections && !weights)
        *ret_error = "set wants connections or weights";
    else if (connections && !whole_between(connections, 1, TUNNEL_CONNECTIONS_MAX))
        *ret_error = "connections must be a whole number from 1 to 256";
    else if (lease && !whole_between(lease, 0, 1e9))
        *ret_error = "lease_ms must be a whole number of milliseconds, 0 for no lease";
    else if (limit && (!connections || !whole_between(limit, 0, (double)SHAPER_RATE_MAX_BPS)))
        *ret_error = "limit_bps goes with connections: whole bits per second up to 1e12, 0 for no limit";
    else if (weights && !cJSON_IsObject(weights))
        *ret_error = "weights must be an object of class names and weights";
    cJSON_ArrayForEach(weight, weights) {
        if (class_named(origin, weight->string) < 0 || !whole_between(weight, 1, SCHEDULER_WEIGHT_MAX)) {
            snprintf(origin->complaint, sizeof(origin->complaint), "no such class, or no weight from 1 to %d: %.30s",
                     SCHEDULER_WEIGHT_MAX, weight->string);
            *ret_error = origin->complaint;
        }
    }
    if (*ret_error)
        return;
    cJSON_ArrayForEach(weight, weights) {
        orders_weight(&origin->orders, (uint32_t)class_named(origin, weight->string), (uint32_t)weight->valuedouble);
    }
    origin_apply_weights(origin);
    if (connections)
        origin_elastic(origin, (uint32_t)connections->valuedouble, lease ? (uint64_t)lease->valuedouble * 1000 : 0,
                       limit ? (uint64_t)limit->valuedouble : 0);
}

void origin_answer(void *context, const cJSON *command, cJSON *answered, const char **ret_error) {
    if (control_names(command, "command", "get"))
        origin_add_state(context, answered);
    else if (control_names(command, "command", "set"))
        answer_set(context, command, ret_error);
    else if (control_names(command, "command", "application"))
        application_answer(&((struct origin *)context)->applications, command, loop_now_us(), ret_error);
    else if (control_names(command, "command", "quit"))
        loop_end();
    else
        *ret_error = "command must be get, set, application or quit";
}
