/* The program around a sensor: command line, --declare, --serve, results and failures. A sensor brings its options and
 * one function that measures; everything else is the same for all. */
#ifndef CHART_SENSORS_SENSOR_H
#define CHART_SENSORS_SENSOR_H

#include <cjson/cJSON.h>
#include <stdint.h>

#include "failure.h"
#include "keyring.h"
#include "options.h"
#include "record.h"

/* More runs at once than this are refused by no sensor, but wait for their turn. */
#define SENSOR_RUNS_MAX 128

struct sensor_answer {
    struct record record;
    cJSON *details; /* an object whose members are added to the result, also to that of a failed run */
};

struct sensor {
    const struct option_table *options;
    size_t parameters_bytes; /* of a structure that begins with struct common_parameters */
    void (*defaults)(void *parameters);
    int (*check)(const void *parameters, struct failure *failure);
    void (*declare)(const void *parameters, uint64_t *ret_bytes, uint64_t *ret_duration_ms);
    /* Blocks until it has measured; called from several threads when runs_at_once > 1. */
    int (*run)(const void *parameters, const struct keyring *keyring, struct sensor_answer *answer,
               struct failure *failure);
    unsigned runs_at_once; /* with --serve; a sensor that uses the keyring has 1, which its code contexts need */
};

/* What a sensor's PREFIX_defaults, PREFIX_check and PREFIX_declare are as members of struct sensor, which knows no
 * sensor's parameters: defaults, check, declare. */
#define SENSOR_ADAPTERS(PREFIX)                                                                                        \
    static void defaults(void *parameters) {                                                                           \
        PREFIX##_defaults(parameters);                                                                                 \
    }                                                                                                                  \
    static int check(const void *parameters, struct failure *failure) {                                                \
        return PREFIX##_check(parameters, failure);                                                                    \
    }                                                                                                                  \
    static void declare(const void *parameters, uint64_t *ret_bytes, uint64_t *ret_duration_ms) {                      \
        PREFIX##_declare(parameters, ret_bytes, ret_duration_ms);                                                      \
    }

/* Exit status of the program. */
int sensor_main(const struct sensor *sensor, int argc, char **argv);

/* The check that all two-ended sensors share: a destination, and keys unless nothing will be sent. */
int sensor_check_peer(const struct common_parameters *common, struct failure *failure);

#endif
