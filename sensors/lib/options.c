/* Options declared as tables; see options.h. */
#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wire.h"

#define FIELD(name) offsetof(struct common_parameters, name)
static const struct option_spec DESTINATION[] = {
    {"destination", OPTION_TEXT, OPTION_ANYWHERE, FIELD(destination), 0, 0, "ADDRESS", "whom to measure"},
};
static const struct option_spec RESPONDER[] = {
    {"port", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(port), 1, 65535, "PORT", "of the sensor-responder there (18300)"},
    {"key-file", OPTION_TEXT, OPTION_COMMAND_LINE, FIELD(key_file), 0, 0, "FILE",
     "keys shared with it ($CHART_SENSOR_KEY_FILE, else " OPTIONS_KEY_FILE ")"},
};
static const struct option_spec RUN[] = {
    {"declare", OPTION_FLAG, OPTION_ANYWHERE, FIELD(declare), 0, 0, NULL,
     "print the most bytes and time the run may take, send nothing"},
    {"json", OPTION_FLAG, OPTION_ANYWHERE, FIELD(json), 0, 0, NULL, "print JSON lines"},
    {"verbose", OPTION_FLAG, OPTION_ANYWHERE, FIELD(verbose), 0, 0, NULL, "also print what the result is made of"},
    {"serve", OPTION_FLAG, OPTION_COMMAND_LINE, FIELD(serve), 0, 0, NULL,
     "answer JSON requests, one per line of standard input"},
};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* The options of a program in the order of its --help; NULL after the last. */
static const struct option_spec *spec_at(const struct option_table *table, size_t index) {
    const struct {
        bool present;
        const struct option_spec *specs;
        size_t count;
    } sections[] = {
        {table->common & OPTIONS_DESTINATION, DESTINATION, COUNT(DESTINATION)},
        {table->common & OPTIONS_RESPONDER, RESPONDER, COUNT(RESPONDER)},
        {true, table->specs, table->count},
        {table->common & OPTIONS_RUN, RUN, COUNT(RUN)},
    };

    for (size_t i = 0; i < COUNT(sections); i++) {
        if (!sections[i].present)
            continue;
        if (index < sections[i].count)
            return &sections[i].specs[index];
        index -= sections[i].count;
    }
    return NULL;
}

void options_default_key_file(char ret_path[OPTION_TEXT_BYTES]) {
    const char *key_file = getenv("CHART_SENSOR_KEY_FILE");

    if (!key_file)
        key_file = access(OPTIONS_KEY_FILE, R_OK) == 0 ? OPTIONS_KEY_FILE : "";
    snprintf(ret_path, OPTION_TEXT_BYTES, "%s", key_file);
}

int options_no_key(const char *how, struct failure *failure) {
    if (access(OPTIONS_KEY_FILE, R_OK) < 0 && errno == EACCES)
        return failure_set(failure, FAILURE_PERMISSION,
                           OPTIONS_KEY_FILE
                           ": only its owner may read it: run as that user, or name a copy by --key-file");
    return failure_set(failure, FAILURE_USAGE, "no key: %s, or name a key file by --key-file", how);
}

void options_common_defaults(struct common_parameters *common) {
    *common = (struct common_parameters){.port = WIRE_DEFAULT_PORT};
    options_default_key_file(common->key_file);
}

static int store_number(const struct option_spec *spec, double value, void *field, struct failure *failure) {
    if (isnan(value) || value < spec->minimum || value > spec->maximum)
        return failure_set(failure, FAILURE_USAGE, "%s must lie between %g and %g", spec->name, spec->minimum,
                           spec->maximum);
    if (spec->type == OPTION_UNSIGNED) {
        if (value != floor(value))
            return failure_set(failure, FAILURE_USAGE, "%s must be a whole number", spec->name);
        *(uint64_t *)field = (uint64_t)value;
    } else {
        *(double *)field = value;
    }
    return 0;
}

static int store_flag(const struct option_spec *spec, const char *text, void *field, struct failure *failure) {
    if (strcmp(text, "true") == 0 || strcmp(text, "1") == 0)
        *(bool *)field = true;
    else if (strcmp(text, "false") == 0 || strcmp(text, "0") == 0)
        *(bool *)field = false;
    else
        return failure_set(failure, FAILURE_USAGE, "%s must be true or false", spec->name);
    return 0;
}

static int store_list(const struct option_spec *spec, const char *text, struct option_list *list,
                      struct failure *failure) {
    if (list->count == OPTION_LIST_MAX)
        return failure_set(failure, FAILURE_USAGE, "%s may be given %d times at most", spec->name, OPTION_LIST_MAX);
    memcpy(list->items[list->count++], text, strlen(text) + 1);
    return 0;
}

static int store_text(const struct option_spec *spec, const char *text, void *parameters, struct failure *failure) {
    void *field = (char *)parameters + spec->offset;
    char *end;
    double value;

    if (strlen(text) >= OPTION_TEXT_BYTES)
        return failure_set(failure, FAILURE_USAGE, "%s is too long", spec->name);
    switch (spec->type) {
    case OPTION_FLAG:
        return store_flag(spec, text, field, failure);
    case OPTION_TEXT:
        memcpy(field, text, strlen(text) + 1);
        return 0;
    case OPTION_LIST:
        return store_list(spec, text, field, failure);
    case OPTION_UNSIGNED:
    case OPTION_NUMBER:
        break;
    }
    errno = 0;
    value = strtod(text, &end);
    if (end == text || *end != '\0' || errno)
        return failure_set(failure, FAILURE_USAGE, "%s must be a number, not \"%.40s\"", spec->name, text);
    return store_number(spec, value, field, failure);
}

/* JSON names are joined by '_', command line names by '-'. */
static bool name_matches(const char *name, const char *given, size_t length) {
    if (strlen(name) != length)
        return false;
    for (size_t i = 0; i < length; i++)
        if (name[i] != (given[i] == '_' ? '-' : given[i]))
            return false;
    return true;
}

static const struct option_spec *find(const struct option_table *table, const char *name, size_t length) {
    const struct option_spec *spec;

    for (size_t i = 0; (spec = spec_at(table, i)); i++)
        if (name_matches(spec->name, name, length))
            return spec;
    return NULL;
}

int options_read_arguments(const struct option_table *table, int argc, char **argv, void *parameters,
                           struct failure *failure) {
    int host = 0;

    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        const struct option_spec *spec;
        const char *value;
        size_t length;

        if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
            options_print_help(table, stdout);
            return OPTIONS_HELP;
        }
        if (strncmp(argument, "--", 2) != 0) {
            if (!(table->common & OPTIONS_DESTINATION) || host++)
                return failure_set(failure, FAILURE_USAGE, "unexpected argument \"%.60s\" (try --help)", argument);
            if (store_text(&DESTINATION[0], argument, parameters, failure) < 0)
                return OPTIONS_FAILED;
            continue;
        }
        length = strcspn(argument + 2, "=");
        spec = find(table, argument + 2, length);
        if (!spec)
            return failure_set(failure, FAILURE_USAGE, "unknown option %.60s (try --help)", argument);
        value = argument[2 + length] == '=' ? argument + 2 + length + 1 : NULL;
        if (spec->type == OPTION_FLAG) {
            if (store_text(spec, value ? value : "true", parameters, failure) < 0)
                return OPTIONS_FAILED;
            continue;
        }
        if (!value && ++i < argc)
            value = argv[i];
        if (!value)
            return failure_set(failure, FAILURE_USAGE, "--%s needs a value", spec->name);
        if (store_text(spec, value, parameters, failure) < 0)
            return OPTIONS_FAILED;
    }
    return OPTIONS_READ;
}

static int read_member(const struct option_spec *spec, const cJSON *member, void *parameters, struct failure *failure) {
    void *field = (char *)parameters + spec->offset;

    if (cJSON_IsString(member))
        return store_text(spec, member->valuestring, parameters, failure);
    if (cJSON_IsBool(member) && spec->type == OPTION_FLAG) {
        *(bool *)field = cJSON_IsTrue(member);
        return 0;
    }
    if (cJSON_IsNumber(member) && (spec->type == OPTION_UNSIGNED || spec->type == OPTION_NUMBER))
        return store_number(spec, member->valuedouble, field, failure);
    if (cJSON_IsNull(member))
        return 0;
    return failure_set(failure, FAILURE_USAGE, "%s has the wrong type", spec->name);
}

int options_read_json(const struct option_table *table, const cJSON *request, void *parameters,
                      struct failure *failure) {
    const cJSON *member;

    if (!cJSON_IsObject(request))
        return failure_set(failure, FAILURE_USAGE, "a request is a JSON object");
    cJSON_ArrayForEach(member, request) {
        const struct option_spec *spec;

        if (strcmp(member->string, "id") == 0 || strcmp(member->string, "sensor") == 0)
            continue;
        spec = find(table, member->string, strlen(member->string));
        if (!spec || spec->scope == OPTION_COMMAND_LINE)
            return failure_set(failure, FAILURE_USAGE, "unknown parameter \"%.60s\"", member->string);
        if (read_member(spec, member, parameters, failure) < 0)
            return -1;
    }
    return 0;
}

void options_print_help(const struct option_table *table, FILE *out) {
    const struct option_spec *spec;

    fprintf(out, "usage: %s %s\n\n%s\n\noptions:\n", table->program, table->synopsis, table->description);
    for (size_t i = 0; (spec = spec_at(table, i)); i++) {
        char left[64];

        snprintf(left, sizeof(left), "--%s%s%s", spec->name, spec->argument ? " " : "",
                 spec->argument ? spec->argument : "");
        fprintf(out, "  %-28s %s\n", left, spec->help);
    }
    fprintf(out, "  %-28s %s\n", "--help", "show this text");
    fprintf(out, "\nexit status: 0 done, 1 other error, 2 usage, 3 peer unreachable, 4 permission missing\n");
}
