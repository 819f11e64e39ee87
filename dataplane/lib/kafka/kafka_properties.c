/* See kafka_properties.h. */
#include "lib/kafka/kafka_properties.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char *const allowed_prefixes[] = {"security.",       "ssl.",       "sasl.", "enable.ssl.",
                                               "broker.address.", "client.rack"};

static bool is_allowed(const char *name) {
    for (size_t i = 0; i < sizeof(allowed_prefixes) / sizeof(allowed_prefixes[0]); i++)
        if (strncmp(name, allowed_prefixes[i], strlen(allowed_prefixes[i])) == 0)
            return true;
    return false;
}

/* Without white space at either end; changes the text. */
static char *trim(char *text) {
    char *end = text + strlen(text);
    while (isspace((unsigned char)*text))
        text++;
    while (end > text && isspace((unsigned char)end[-1]))
        *--end = '\0';
    return text;
}

static int take(char *line, const char *where, rd_kafka_conf_t *conf, FILE *errors) {
    char error[256];
    char *stripped = trim(line), *equals = strchr(stripped, '=');
    if (!*stripped || *stripped == '#')
        return 0;
    if (!equals || equals == stripped) {
        fprintf(errors, "%s: expected name=value\n", where);
        return -EINVAL;
    }
    *equals = '\0';
    const char *name = trim(stripped), *value = trim(equals + 1);
    if (!is_allowed(name)) {
        fprintf(errors, "%s: %s may not be set here, only what begins with security. ssl. or sasl.\n", where, name);
        return -EINVAL;
    }
    if (rd_kafka_conf_set(conf, name, value, error, sizeof(error)) != RD_KAFKA_CONF_OK) {
        fprintf(errors, "%s: %s\n", where, error);
        return -EINVAL;
    }
    return 0;
}

int kafka_properties_read(FILE *file, const char *name, rd_kafka_conf_t *conf, FILE *errors) {
    char *line = NULL, where[256];
    size_t size = 0;
    int number = 0, result = 0;
    while (!result && getline(&line, &size, file) >= 0) {
        snprintf(where, sizeof(where), "%s:%d", name, ++number);
        result = take(line, where, conf, errors);
    }
    if (!result && ferror(file)) {
        fprintf(errors, "cannot read %s\n", name);
        result = -EIO;
    }
    free(line);
    return result;
}

int kafka_properties_apply(rd_kafka_conf_t *conf, FILE *errors) {
    const char *name = getenv(KAFKA_PROPERTIES_VARIABLE);
    if (!name || !*name)
        return 0;
    FILE *file = fopen(name, "re");
    if (!file) {
        int error = errno;
        fprintf(errors, "%s: cannot read %s: %s\n", KAFKA_PROPERTIES_VARIABLE, name, strerror(error));
        return -error;
    }
    int result = kafka_properties_read(file, name, conf, errors);
    fclose(file);
    return result;
}

int kafka_properties_value(const char *name, char *ret, size_t size) {
    const char *path = getenv(KAFKA_PROPERTIES_VARIABLE);
    char *line = NULL;
    size_t line_size = 0;
    int result = -ENOENT;
    FILE *file = path && *path ? fopen(path, "re") : NULL;

    if (!file)
        return path && *path ? -errno : -ENOENT;
    while (result == -ENOENT && getline(&line, &line_size, file) >= 0) {
        char *stripped = trim(line), *equals = strchr(stripped, '=');

        if (*stripped == '#' || !equals)
            continue;
        *equals = '\0';
        if (strcmp(trim(stripped), name) != 0)
            continue;
        result = snprintf(ret, size, "%s", trim(equals + 1)) < (int)size ? 0 : -ENAMETOOLONG;
    }
    free(line);
    fclose(file);
    return result;
}
