/* traceroute, the program; see trace.h. */
#include "sensor.h"
#include "trace.h"

SENSOR_ADAPTERS(trace)

static int run(const void *parameters, const struct keyring *keyring, struct sensor_answer *answer,
               struct failure *failure) {
    (void)keyring;
    return trace_run(parameters, &answer->record, &answer->details, failure);
}

int main(int argc, char **argv) {
    static const struct sensor SENSOR = {
        .options = &TRACE_OPTIONS,
        .parameters_bytes = sizeof(struct trace_parameters),
        .defaults = defaults,
        .check = check,
        .declare = declare,
        .run = run,
        .runs_at_once = SENSOR_RUNS_MAX,
    };

    return sensor_main(&SENSOR, argc, argv);
}
