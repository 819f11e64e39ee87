/* See ratefile.h. This file: the JSON. Unknown fields are refused, a misspelt one would otherwise match everything. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json_reader.h"
#include "grants/ratefile.h"

#define N_ITEMS(array) (sizeof(array) / sizeof((array)[0]))

static int fail(const struct json_reader *reader, const char *what) {
    snprintf(reader->error, reader->error_size, "%s: %s", reader->place, what);
    return -EINVAL;
}

static int read_prefix(const struct json_reader *reader, const cJSON *object, const char *name,
                       struct decide_prefix *ret) {
    const cJSON *field = cJSON_GetObjectItemCaseSensitive(object, name);
    if (!field || cJSON_IsNull(field))
        return decide_parse_prefix("", ret);
    if (!cJSON_IsString(field) || decide_parse_prefix(field->valuestring, ret))
        return json_reader_fail(reader, name, "expected a prefix such as \"10.0.0.0/8\"");
    return 0;
}

static int read_protocol(const struct json_reader *reader, const cJSON *object, uint8_t *ret) {
    const cJSON *field = cJSON_GetObjectItemCaseSensitive(object, "protocol");
    uint64_t number = 0;
    int status = 0;
    if (cJSON_IsString(field) && strcmp(field->valuestring, "tcp") == 0)
        number = IPPROTO_TCP;
    else if (cJSON_IsString(field) && strcmp(field->valuestring, "udp") == 0)
        number = IPPROTO_UDP;
    else if (cJSON_IsString(field))
        return fail(reader, "protocol: expected \"tcp\", \"udp\" or a number");
    else
        status = json_reader_number(reader, object, "protocol", 255, &number);
    *ret = (uint8_t)number;
    return status;
}

static int read_selector(const struct json_reader *reader, const cJSON *object, struct decide_selector *ret) {
    static const char *const names[] = {
        "source_prefix", "destination_prefix", "protocol", "source_port", "destination_port", "dscp", "cgroup_id"};
    uint64_t source_port, destination_port, dscp, cgroup_id;
    int status = json_reader_names(reader, object, names, N_ITEMS(names));
    status = status ? status : read_prefix(reader, object, "source_prefix", &ret->source);
    status = status ? status : read_prefix(reader, object, "destination_prefix", &ret->destination);
    status = status ? status : read_protocol(reader, object, &ret->protocol);
    status = status ? status : json_reader_number(reader, object, "source_port", 65535, &source_port);
    status = status ? status : json_reader_number(reader, object, "destination_port", 65535, &destination_port);
    status = status ? status : json_reader_number(reader, object, "dscp", 63, &dscp);
    status = status ? status : json_reader_number(reader, object, "cgroup_id", JSON_READER_MAX_EXACT, &cgroup_id);
    if (status)
        return status;
    ret->source_port = (uint16_t)source_port;
    ret->destination_port = (uint16_t)destination_port;
    ret->dscp_plus_one = cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(object, "dscp")) ? (uint8_t)(dscp + 1) : 0;
    ret->cgroup_id = cgroup_id;
    return 0;
}

static int read_grant(const struct json_reader *reader, const cJSON *object, struct decide_applied *ret,
                      uint64_t *ret_valid_for_us) {
    static const char *const names[] = {"request_id",   "selector", "guaranteed_bps", "available_bps",
                                        "valid_for_ms", "sending",  "expedited"};
    uint64_t valid_for_ms;
    int status = json_reader_names(reader, object, names, N_ITEMS(names));
    if (status)
        return status;
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(object, "request_id");
    const cJSON *selector = cJSON_GetObjectItemCaseSensitive(object, "selector");
    const cJSON *sending = cJSON_GetObjectItemCaseSensitive(object, "sending");
    const cJSON *expedited = cJSON_GetObjectItemCaseSensitive(object, "expedited");
    if (!cJSON_IsString(id) || !id->valuestring[0] || strlen(id->valuestring) >= sizeof(ret->request_id))
        return fail(reader, "request_id: expected 1 to 79 characters");
    if (sending && !cJSON_IsBool(sending))
        return fail(reader, "sending: expected true or false");
    if (expedited && !cJSON_IsBool(expedited))
        return fail(reader, "expedited: expected true or false");
    strcpy(ret->request_id, id->valuestring);
    ret->sending = !cJSON_IsFalse(sending);
    ret->class = cJSON_IsTrue(expedited) ? DECIDE_CLASS_EXPEDITED : DECIDE_CLASS_EXPLICIT_RATE;
    if (selector)
        status = read_selector(reader, selector, &ret->selector);
    status =
        status ? status : json_reader_number(reader, object, "guaranteed_bps", JSON_READER_MAX_RATE_BPS, &ret->gr_bps);
    status =
        status ? status : json_reader_number(reader, object, "available_bps", JSON_READER_MAX_RATE_BPS, &ret->ar_bps);
    status = status ? status : json_reader_number(reader, object, "valid_for_ms", 86400e3, &valid_for_ms);
    if (status)
        return status;
    *ret_valid_for_us = valid_for_ms * 1000;
    return 0;
}

static int read_mode(const cJSON *root, char *error, enum decide_mode *ret) {
    const cJSON *field = cJSON_GetObjectItemCaseSensitive(root, "enforcement");
    const struct json_reader reader = {.error = error, .error_size = RATEFILE_ERROR_LEN, .place = "enforcement"};
    const char *text = cJSON_IsString(field) ? field->valuestring : (field ? "" : "observe");
    if (strcmp(text, "enforce") == 0)
        *ret = DECIDE_MODE_ENFORCE;
    else if (strcmp(text, "observe") == 0)
        *ret = DECIDE_MODE_OBSERVE;
    else if (strcmp(text, "off") == 0)
        *ret = DECIDE_MODE_OFF;
    else
        return fail(&reader, "expected \"enforce\", \"observe\" or \"off\"");
    return 0;
}

static int read_grants(const cJSON *grants, char *error, struct ratefile *ret) {
    size_t count = (size_t)cJSON_GetArraySize(grants), index = 0;
    const cJSON *item;
    if (count > DATAPATH_GRANTS_MAX) {
        snprintf(error, RATEFILE_ERROR_LEN, "grants: %zu, at most %d", count, DATAPATH_GRANTS_MAX);
        return -EINVAL;
    }
    ret->grants = calloc(count ? count : 1, sizeof(*ret->grants));
    ret->valid_for_us = calloc(count ? count : 1, sizeof(*ret->valid_for_us));
    if (!ret->grants || !ret->valid_for_us)
        return -ENOMEM;
    cJSON_ArrayForEach(item, grants) {
        char place[32];
        const struct json_reader reader = {.error = error, .error_size = RATEFILE_ERROR_LEN, .place = place};
        snprintf(place, sizeof(place), "grants[%zu]", index);
        int status = read_grant(&reader, item, &ret->grants[index], &ret->valid_for_us[index]);
        if (status)
            return status;
        for (size_t i = 0; i < index; i++)
            if (strcmp(ret->grants[i].request_id, ret->grants[index].request_id) == 0)
                return fail(&reader, "request_id stands twice");
        index++;
    }
    ret->n_grants = index;
    return 0;
}

int ratefile_parse(const char *text, size_t length, struct ratefile *ret, char error[RATEFILE_ERROR_LEN]) {
    static const char *const names[] = {"enforcement", "grants"};
    const struct json_reader file = {.error = error, .error_size = RATEFILE_ERROR_LEN, .place = "file"};
    struct ratefile ratefile = {0};
    const char *end = NULL;
    cJSON *root = cJSON_ParseWithLengthOpts(text, length, &end, 0);
    int status;
    error[0] = '\0';
    if (!root) {
        snprintf(error, RATEFILE_ERROR_LEN, "not JSON near octet %zu", end ? (size_t)(end - text) : (size_t)0);
        return -EINVAL;
    }
    const cJSON *grants = cJSON_GetObjectItemCaseSensitive(root, "grants");
    status = json_reader_names(&file, root, names, N_ITEMS(names));
    status = status ? status : read_mode(root, error, &ratefile.mode);
    if (!status && grants && !cJSON_IsArray(grants)) {
        snprintf(error, RATEFILE_ERROR_LEN, "grants: expected an array");
        status = -EINVAL;
    }
    status = status ? status : read_grants(grants, error, &ratefile);
    cJSON_Delete(root);
    if (status)
        ratefile_free(&ratefile);
    else
        *ret = ratefile;
    return status;
}

void ratefile_free(struct ratefile *ratefile) {
    free(ratefile->grants);
    free(ratefile->valid_for_us);
    *ratefile = (struct ratefile){0};
}
