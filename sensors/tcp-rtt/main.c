/* tcp-rtt, the program; see tcp_rtt.h. */
#include "sensor.h"
#include "tcp_rtt.h"

static void defaults(void *parameters) {
    tcp_rtt_defaults(parameters);
}

static int check(const void *parameters, struct failure *failure) {
    return tcp_rtt_check(parameters, failure);
}

static void declare(const void *parameters, uint64_t *ret_bytes, uint64_t *ret_duration_ms) {
    tcp_rtt_declare(parameters, ret_bytes, ret_duration_ms);
}

static int run(const void *parameters, const struct keyring *keyring, struct sensor_answer *answer,
               struct failure *failure) {
    (void)keyring;
    return tcp_rtt_run(parameters, &answer->record, failure);
}

int main(int argc, char **argv) {
    static const struct sensor SENSOR = {
        .options = &TCP_RTT_OPTIONS,
        .parameters_bytes = sizeof(struct tcp_rtt_parameters),
        .defaults = defaults,
        .check = check,
        .declare = declare,
        .run = run,
        .runs_at_once = SENSOR_RUNS_MAX,
    };

    return sensor_main(&SENSOR, argc, argv);
}
