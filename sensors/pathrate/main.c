/* pathrate, the program; see pathrate.h. */
#include "pathrate.h"
#include "sensor.h"

SENSOR_ADAPTERS(pathrate)

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
