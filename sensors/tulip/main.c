/* tulip, the program; see tulip.h. */
#include "sensor.h"
#include "tulip.h"

SENSOR_ADAPTERS(tulip)

static int run(const void *parameters, const struct keyring *keyring, struct sensor_answer *answer,
               struct failure *failure) {
    (void)keyring;
    return tulip_run(parameters, &answer->record, &answer->details, failure);
}

int main(int argc, char **argv) {
    static const struct sensor SENSOR = {
        .options = &TULIP_OPTIONS,
        .parameters_bytes = sizeof(struct tulip_parameters),
        .defaults = defaults,
        .check = check,
        .declare = declare,
        .run = run,
        .runs_at_once = SENSOR_RUNS_MAX,
    };

    return sensor_main(&SENSOR, argc, argv);
}
