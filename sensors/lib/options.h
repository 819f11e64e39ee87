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

struct option_table {
    const char *program;
    const char *synopsis;
    const char *description;
    const struct option_spec *specs;
    size_t count;
};

enum option_result {
    OPTIONS_FAILED = -1,
    OPTIONS_READ = 0,
    OPTIONS_HELP = 1, /* --help was given and answered */
};

/* Read the command line into `parameters`, which holds the defaults. */
int options_read_arguments(const struct option_table *table, int argc, char **argv, void *parameters,
                           struct failure *failure);
/* Read the members of a JSON object into `parameters`; members `id` and `sensor` are the caller's, unknown ones are
 * a failure. Numbers may come as text, because stored configurations map text to text. */
int options_read_json(const struct option_table *table, const cJSON *request, void *parameters,
                      struct failure *failure);
void options_print_help(const struct option_table *table, FILE *out);

#endif
