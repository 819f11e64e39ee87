/* Reading files of JSON that operators write: unknown fields are refused, and a fault is told with its place. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Rates are not greater (bit/s); numbers are exact up to 2^53. */
#define JSON_READER_MAX_RATE_BPS 1e13
#define JSON_READER_MAX_EXACT 9007199254740992.0

struct cJSON;

/* Where a fault is told, and the place that it is about. */
struct json_reader {
    char *error;
    size_t error_size;
    const char *place;
};

/* Tells "PLACE.NAME: WHAT"; -EINVAL. */
int json_reader_fail(const struct json_reader *reader, const char *name, const char *what);
/* 0, or -EINVAL unless `object` is an object with no other fields than these. */
int json_reader_names(const struct json_reader *reader, const struct cJSON *object, const char *const *names,
                      size_t n_names);
/* A whole number from 0 to `most`; 0 when it is absent or null. 0 or -EINVAL. */
int json_reader_number(const struct json_reader *reader, const struct cJSON *object, const char *name, double most,
                       uint64_t *ret);

/* A string of 1 to size - 1 octets. 0 or -EINVAL. */
int json_reader_text(const struct json_reader *reader, const struct cJSON *object, const char *name, char *ret,
                     size_t size);
/* An array of at most `most` objects; each is read by `read` into one of *ret_items, which is allocated here and is the
 * caller's also after an error. The fault of an item is told at "NAME[INDEX]". None when it is absent. 0, -EINVAL or
 * -ENOMEM. */
int json_reader_list(const struct json_reader *reader, const struct cJSON *object, const char *name, size_t item_size,
                     size_t most, int (*read)(const struct json_reader *reader, const struct cJSON *object, void *item),
                     void **ret_items, size_t *ret_n);
