/* Options declared as tables. One table serves the command line, its --help and the JSON requests of --serve, so that
 * the three cannot differ: `--interval-ms 20` and {"interval_ms": 20} set the same field. */
#ifndef CHART_SENSORS_OPTIONS_H
#define CHART_SENSORS_OPTIONS_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "failure.h"

#define OPTION_TEXT_BYTES 256
#define OPTION_LIST_MAX 16
/* Keys of a machine whose sensors are used from the shell. */
#define OPTIONS_KEY_FILE "/etc/chart/sensor.keys"
/* How a sensor gets its key. */
#define OPTIONS_COPY_KEY "copy the responder's file to " OPTIONS_KEY_FILE " (mode 0600)"

enum option_type {
    OPTION_FLAG,     /* bool */
    OPTION_UNSIGNED, /* uint64_t, within minimum..maximum */
    OPTION_NUMBER,   /* double, within minimum..maximum */
    OPTION_TEXT,     /* char[OPTION_TEXT_BYTES] */
    OPTION_LIST,     /* struct option_list; may be given several times */
};

/* Where an option may be given. */
enum option_scope {
    OPTION_ANYWHERE,
    OPTION_COMMAND_LINE,
};

struct option_list {
    size_t count;
    char items[OPTION_LIST_MAX][OPTION_TEXT_BYTES];
};

struct option_spec {
    const char *name; /* as on the command line, words joined by '-' */
    enum option_type type;
    enum option_scope scope;
    size_t offset; /* of the field in the parameters */
    double minimum;
    double maximum;
    const char *argument; /* shown in --help, NULL for flags */
    const char *help;     /* one line, with unit and default */
};

/* What every sensor is told; the first member of its own parameters, so that one table serves all of them. */
struct common_parameters {
    char destination[OPTION_TEXT_BYTES];
    uint64_t port; /* of the sensor-responder */
    char key_file[OPTION_TEXT_BYTES];
    bool declare;
    bool json;
    bool verbose;
    bool serve;
};

/* Which of the common options a program has. */
enum option_sections {
    OPTIONS_NONE = 0,
    OPTIONS_DESTINATION = 1, /* --destination, or the one argument that is no option */
    OPTIONS_RESPONDER = 2,   /* --port, --key-file */
    OPTIONS_RUN = 4,         /* --declare, --json, --verbose, --serve */
    OPTIONS_ONE_ENDED = OPTIONS_DESTINATION | OPTIONS_RUN,
    OPTIONS_TWO_ENDED = OPTIONS_ONE_ENDED | OPTIONS_RESPONDER,
};

struct option_table {
    const char *program;
    const char *synopsis;
    const char *description;
    const struct option_spec *specs;
    size_t count;
    unsigned common; /* enum option_sections */
};

enum option_result {
    OPTIONS_FAILED = -1,
    OPTIONS_READ = 0,
    OPTIONS_HELP = 1, /* --help was given and answered */
};

/* The key file that the environment names, else that of the machine if it can be read; else empty. */
void options_default_key_file(char ret_path[OPTION_TEXT_BYTES]);
/* Say that there is no key, and `how` to get one into the machine's file; returns -1. */
int options_no_key(const char *how, struct failure *failure);
/* The usual port, and the default key file. */
void options_common_defaults(struct common_parameters *common);
/* Read the command line into `parameters`, which holds the defaults. */
int options_read_arguments(const struct option_table *table, int argc, char **argv, void *parameters,
                           struct failure *failure);
/* Read the members of a JSON object into `parameters`; members `id` and `sensor` are the caller's, unknown ones are
 * a failure. Numbers may come as text, because stored configurations map text to text. */
int options_read_json(const struct option_table *table, const cJSON *request, void *parameters,
                      struct failure *failure);
void options_print_help(const struct option_table *table, FILE *out);

#endif
