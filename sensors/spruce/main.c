/* spruce, the program; see spruce.h. */
#include "sensor.h"
#include "spruce.h"

SENSOR_ADAPTERS(spruce)

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
