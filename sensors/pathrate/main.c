/* pathrate, the program; see pathrate.h. */
#include "pathrate.h"
#include "sensor.h"

static void defaults(void *parameters) {
    pathrate_defaults(parameters);
}

static int check(const void *parameters, struct failure *failure) {
    return pathrate_check(parameters, failure);
}

static void declare(const void *parameters, uint64_t *ret_bytes, uint64_t *ret_duration_ms) {
    pathrate_declare(parameters, ret_bytes, ret_duration_ms);
}

static int run(const void *parameters, const struct keyring *keyring, struct sensor_answer *answer,
               struct failure *failure) {
    return pathrate_run(parameters, keyring, &answer->record, &answer->details, failure);
}

int main(int argc, char **argv) {
    static const struct sensor SENSOR = {
        .options = &PATHRATE_OPTIONS,
        .parameters_bytes = sizeof(struct pathrate_parameters),
        .defaults = defaults,
        .check = check,
        .declare = declare,
        .run = run,
        .runs_at_once = 1,
    };

    return sensor_main(&SENSOR, argc, argv);
}
