/* See json_reader.h. */
#include "core/json_reader.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int json_reader_fail(const struct json_reader *reader, const char *name, const char *what) {
    snprintf(reader->error, reader->error_size, "%s.%s: %s", reader->place, name, what);
    return -EINVAL;
}

int json_reader_names(const struct json_reader *reader, const cJSON *object, const char *const *names, size_t n_names) {
    if (!cJSON_IsObject(object)) {
        snprintf(reader->error, reader->error_size, "%s: expected an object", reader->place);
        return -EINVAL;
    }
    for (const cJSON *field = object->child; field; field = field->next) {
        bool known = false;
        for (size_t i = 0; i < n_names; i++)
            known |= strcmp(names[i], field->string) == 0;
        if (!known) {
            snprintf(reader->error, reader->error_size, "%s: unknown field %.60s", reader->place, field->string);
            return -EINVAL;
        }
    }
    return 0;
}

int json_reader_number(const struct json_reader *reader, const cJSON *object, const char *name, double most,
                       uint64_t *ret) {
    const cJSON *field = cJSON_GetObjectItemCaseSensitive(object, name);
    char what[80];
    *ret = 0;
    if (!field || cJSON_IsNull(field))
        return 0;
    if (cJSON_IsNumber(field) && field->valuedouble >= 0 && field->valuedouble <= most &&
        floor(field->valuedouble) == field->valuedouble) {
        *ret = (uint64_t)field->valuedouble;
        return 0;
    }
    snprintf(what, sizeof(what), "expected a whole number from 0 to %.0f", most);
    return json_reader_fail(reader, name, what);
}

int json_reader_text(const struct json_reader *reader, const cJSON *object, const char *name, char *ret, size_t size) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
    char what[60];
    if (text && *text && strlen(text) < size) {
        strcpy(ret, text);
        return 0;
    }
    snprintf(what, sizeof(what), "expected a text of 1 to %zu characters", size - 1);
    return json_reader_fail(reader, name, what);
}

int json_reader_list(const struct json_reader *reader, const cJSON *object, const char *name, size_t item_size,
                     size_t most, int (*read)(const struct json_reader *, const cJSON *, void *), void **ret_items,
                     size_t *ret_n) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(object, name), *one;
    size_t n = list ? (size_t)cJSON_GetArraySize(list) : 0, index = 0;
    char place[48];
    const struct json_reader inner = {.error = reader->error, .error_size = reader->error_size, .place = place};
    if (!list)
        return 0;
    if (!cJSON_IsArray(list) || n > most) {
        snprintf(reader->error, reader->error_size, "%s: expected an array of at most %zu", name, most);
        return -EINVAL;
    }
    *ret_items = calloc(n ? n : 1, item_size);
    if (!*ret_items)
        return -ENOMEM;
    cJSON_ArrayForEach(one, list) {
        snprintf(place, sizeof(place), "%s[%zu]", name, index);
        int status = read(&inner, one, (char *)*ret_items + index * item_size);
        /* What is half read is the caller's to release. */
        index++;
        *ret_n = index;
        if (status)
            return status;
    }
    return 0;
}
