/* pathchirp, the program; see chirp.h. */
#include "chirp.h"
#include "sensor.h"

static void defaults(void *parameters) {
    chirp_defaults(parameters);
}

static int check(const void *parameters, struct failure *failure) {
    return chirp_check(parameters, failure);
}

static void declare(const void *parameters, uint64_t *ret_bytes, uint64_t *ret_duration_ms) {
    chirp_declare(parameters, ret_bytes, ret_duration_ms);
}

static int run(const void *parameters, const struct keyring *keyring, struct sensor_answer *answer,
               struct failure *failure) {
    const char *range = "within";
    int result = chirp_run(parameters, keyring, &answer->record, &range, failure);

    if (result == 0) {
        answer->details = cJSON_CreateObject();
        cJSON_AddStringToObject(answer->details, "range", range);
    }
    return result;
}

int main(int argc, char **argv) {
    static const struct sensor SENSOR = {
        .options = &CHIRP_OPTIONS,
        .parameters_bytes = sizeof(struct chirp_parameters),
        .defaults = defaults,
        .check = check,
        .declare = declare,
        .run = run,
        .runs_at_once = 1,
    };

    return sensor_main(&SENSOR, argc, argv);
}
