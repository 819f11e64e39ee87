/* spruce, the program; see spruce.h. */
#include "sensor.h"
#include "spruce.h"

static void defaults(void *parameters) {
    spruce_defaults(parameters);
}

static int check(const void *parameters, struct failure *failure) {
    return spruce_check(parameters, failure);
}

static void declare(const void *parameters, uint64_t *ret_bytes, uint64_t *ret_duration_ms) {
    spruce_declare(parameters, ret_bytes, ret_duration_ms);
}

static int run(const void *parameters, const struct keyring *keyring, struct sensor_answer *answer,
               struct failure *failure) {
    return spruce_run(parameters, keyring, &answer->record, &answer->details, failure);
}

int main(int argc, char **argv) {
    static const struct sensor SENSOR = {
        .options = &SPRUCE_OPTIONS,
        .parameters_bytes = sizeof(struct spruce_parameters),
        .defaults = defaults,
        .check = check,
        .declare = declare,
        .run = run,
        .runs_at_once = 1,
    };

    return sensor_main(&SENSOR, argc, argv);
}
