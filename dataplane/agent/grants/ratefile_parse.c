/* See ratefile.h. This file: the JSON. Unknown fields are refused, a misspelt one would otherwise match everything. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grants/ratefile.h"
#include "maps.h"

#define MAX_EXACT_NUMBER 9007199254740992.0 /* 2^53 */

static int fail(char *error, const char *place, const char *what) {
    snprintf(error, RATEFILE_ERROR_LEN, "%s: %s", place, what);
    return -EINVAL;
}

static int check_names(const cJSON *object, const char *const *names, const char *place, char *error) {
    if (!cJSON_IsObject(object))
        return fail(error, place, "expected an object");
    for (const cJSON *field = object->child; field; field = field->next) {
        bool known = false;
        for (size_t i = 0; names[i]; i++)
            known |= strcmp(names[i], field->string) == 0;
        if (!known) {
            snprintf(error, RATEFILE_ERROR_LEN, "%s: unknown field %.60s", place, field->string);
            return -EINVAL;
        }
    }
    return 0;
}

static int read_number(const cJSON *object, const char *name, double most, const char *place, char *error,
                       uint64_t *ret) {
    const cJSON *field = cJSON_GetObjectItemCaseSensitive(object, name);
    *ret = 0;
    if (!field || cJSON_IsNull(field))
        return 0;
    if (!cJSON_IsNumber(field) || field->valuedouble < 0 || field->valuedouble > most ||
        floor(field->valuedouble) != field->valuedouble) {
        snprintf(error, RATEFILE_ERROR_LEN, "%s.%s: expected a whole number from 0 to %.0f", place, name, most);
        return -EINVAL;
    }
    *ret = (uint64_t)field->valuedouble;
    return 0;
}

static int read_prefix(const cJSON *object, const char *name, const char *place, char *error,
                       struct decide_prefix *ret) {
    const cJSON *field = cJSON_GetObjectItemCaseSensitive(object, name);
    if (!field || cJSON_IsNull(field))
        return decide_parse_prefix("", ret);
    if (!cJSON_IsString(field) || decide_parse_prefix(field->valuestring, ret)) {
        snprintf(error, RATEFILE_ERROR_LEN, "%s.%s: expected a prefix such as \"10.0.0.0/8\"", place, name);
        return -EINVAL;
    }
    return 0;
}

static int read_protocol(const cJSON *object, const char *place, char *error, uint8_t *ret) {
    const cJSON *field = cJSON_GetObjectItemCaseSensitive(object, "protocol");
    uint64_t number = 0;
    int status = 0;
    if (cJSON_IsString(field) && strcmp(field->valuestring, "tcp") == 0)
        number = IPPROTO_TCP;
    else if (cJSON_IsString(field) && strcmp(field->valuestring, "udp") == 0)
        number = IPPROTO_UDP;
    else if (cJSON_IsString(field))
        return fail(error, place, "protocol: expected \"tcp\", \"udp\" or a number");
    else
        status = read_number(object, "protocol", 255, place, error, &number);
    *ret = (uint8_t)number;
    return status;
}

static int read_selector(const cJSON *object, const char *place, char *error, struct decide_selector *ret) {
    static const char *const names[] = {
        "source_prefix", "destination_prefix", "protocol", "source_port", "destination_port",
        "dscp",          "cgroup_id",          NULL};
    uint64_t source_port, destination_port, dscp, cgroup_id;
    int status = check_names(object, names, place, error);
    status = status ? status : read_prefix(object, "source_prefix", place, error, &ret->source);
    status = status ? status : read_prefix(object, "destination_prefix", place, error, &ret->destination);
    status = status ? status : read_protocol(object, place, error, &ret->protocol);
    status = status ? status : read_number(object, "source_port", 65535, place, error, &source_port);
    status = status ? status : read_number(object, "destination_port", 65535, place, error, &destination_port);
    status = status ? status : read_number(object, "dscp", 63, place, error, &dscp);
    status = status ? status : read_number(object, "cgroup_id", MAX_EXACT_NUMBER, place, error, &cgroup_id);
    if (status)
        return status;
    ret->source_port = (uint16_t)source_port;
    ret->destination_port = (uint16_t)destination_port;
    ret->dscp_plus_one = cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(object, "dscp")) ? (uint8_t)(dscp + 1) : 0;
    ret->cgroup_id = cgroup_id;
    return 0;
}

static int read_grant(const cJSON *object, const char *place, char *error, struct decide_applied *ret,
                      uint64_t *ret_valid_for_us) {
    static const char *const names[] = {"request_id",   "selector", "guaranteed_bps", "available_bps",
                                        "valid_for_ms", "sending",  "expedited",      NULL};
    uint64_t valid_for_ms;
    int status = check_names(object, names, place, error);
    if (status)
        return status;
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(object, "request_id");
    const cJSON *selector = cJSON_GetObjectItemCaseSensitive(object, "selector");
    const cJSON *sending = cJSON_GetObjectItemCaseSensitive(object, "sending");
    const cJSON *expedited = cJSON_GetObjectItemCaseSensitive(object, "expedited");
    if (!cJSON_IsString(id) || !id->valuestring[0] || strlen(id->valuestring) >= sizeof(ret->request_id))
        return fail(error, place, "request_id: expected 1 to 79 characters");
    if (sending && !cJSON_IsBool(sending))
        return fail(error, place, "sending: expected true or false");
    if (expedited && !cJSON_IsBool(expedited))
        return fail(error, place, "expedited: expected true or false");
    strcpy(ret->request_id, id->valuestring);
    ret->sending = !cJSON_IsFalse(sending);
    ret->class = cJSON_IsTrue(expedited) ? DECIDE_CLASS_EXPEDITED : DECIDE_CLASS_EXPLICIT_RATE;
    if (selector)
        status = read_selector(selector, place, error, &ret->selector);
    status = status ? status : read_number(object, "guaranteed_bps", 1e13, place, error, &ret->gr_bps);
    status = status ? status : read_number(object, "available_bps", 1e13, place, error, &ret->ar_bps);
    status = status ? status : read_number(object, "valid_for_ms", 86400e3, place, error, &valid_for_ms);
    if (status)
        return status;
    *ret_valid_for_us = valid_for_ms * 1000;
    return 0;
}

static int read_mode(const cJSON *root, char *error, enum decide_mode *ret) {
    const cJSON *field = cJSON_GetObjectItemCaseSensitive(root, "enforcement");
    const char *text = cJSON_IsString(field) ? field->valuestring : (field ? "" : "enforce");
    if (strcmp(text, "enforce") == 0)
        *ret = DECIDE_MODE_ENFORCE;
    else if (strcmp(text, "observe") == 0)
        *ret = DECIDE_MODE_OBSERVE;
    else if (strcmp(text, "off") == 0)
        *ret = DECIDE_MODE_OFF;
    else
        return fail(error, "enforcement", "expected \"enforce\", \"observe\" or \"off\"");
    return 0;
}

static int read_grants(const cJSON *grants, char *error, struct ratefile *ret) {
    size_t count = (size_t)cJSON_GetArraySize(grants), index = 0;
    const cJSON *item;
    if (count > CHART_SELECTORS_MAX) {
        snprintf(error, RATEFILE_ERROR_LEN, "grants: %zu, at most %d", count, CHART_SELECTORS_MAX);
        return -EINVAL;
    }
    ret->grants = calloc(count ? count : 1, sizeof(*ret->grants));
    ret->valid_for_us = calloc(count ? count : 1, sizeof(*ret->valid_for_us));
    if (!ret->grants || !ret->valid_for_us)
        return -ENOMEM;
    cJSON_ArrayForEach(item, grants) {
        char place[32];
        snprintf(place, sizeof(place), "grants[%zu]", index);
        int status = read_grant(item, place, error, &ret->grants[index], &ret->valid_for_us[index]);
        if (status)
            return status;
        for (size_t i = 0; i < index; i++)
            if (strcmp(ret->grants[i].request_id, ret->grants[index].request_id) == 0)
                return fail(error, place, "request_id stands twice");
        index++;
    }
    ret->n_grants = index;
    return 0;
}

int ratefile_parse(const char *text, size_t length, struct ratefile *ret, char error[RATEFILE_ERROR_LEN]) {
    static const char *const names[] = {"enforcement", "grants", NULL};
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
    status = check_names(root, names, "file", error);
    status = status ? status : read_mode(root, error, &ratefile.mode);
    if (!status && grants && !cJSON_IsArray(grants))
        status = fail(error, "grants", "expected an array");
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
