/* See ends_file.h. */
#define _GNU_SOURCE
#include "ends_file.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reading {
    const struct ends_node *node;
    struct end *end;
    char *fault;
    int error;
};

__attribute__((format(printf, 2, 3))) static void fail(struct reading *reading, const char *format, ...) {
    va_list arguments;
    if (reading->error)
        return;
    reading->error = -EINVAL;
    va_start(arguments, format);
    vsnprintf(reading->fault, ENDS_FAULT_BYTES, format, arguments);
    va_end(arguments);
}

__attribute__((format(printf, 2, 3))) static void add(struct reading *reading, const char *format, ...) {
    va_list arguments;
    char *text = NULL;
    if (reading->error)
        return;
    if (reading->end->count == ENDS_ARGUMENTS) {
        fail(reading, "the end of %.63s has more classes and prefixes than fit", reading->end->tunnel);
        return;
    }
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0)
        reading->error = -ENOMEM;
    else
        reading->end->arguments[reading->end->count++] = text;
    va_end(arguments);
}

static void add_option(struct reading *reading, const char *name, const char *value) {
    add(reading, "%s", name);
    add(reading, "%s", value);
}

/* A text that is no longer than ENDS_NAME_BYTES; "" after a fault. */
static const char *text_of(struct reading *reading, const cJSON *object, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (cJSON_IsString(item) && item->valuestring[0] && strlen(item->valuestring) < ENDS_NAME_BYTES)
        return item->valuestring;
    fail(reading, "an end has no %s", name);
    return "";
}

static unsigned number_of(struct reading *reading, const cJSON *object, const char *name, unsigned most) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (cJSON_IsNumber(item) && item->valuedouble >= 1 && item->valuedouble <= most)
        return (unsigned)item->valuedouble;
    fail(reading, "an end has no %s from 1 to %u", name, most);
    return 1;
}

static void add_tls(struct reading *reading, const char *peer_node) {
    add_option(reading, "--tls-certificate", reading->node->certificate);
    add_option(reading, "--tls-key", reading->node->key);
    add_option(reading, "--tls-authority", reading->node->authority_ca);
    /* The name that the authority gives to who serves as a node. */
    add(reading, "--tls-name");
    add(reading, "%s.node.%s", peer_node, reading->node->domain);
}

static void add_streams(struct reading *reading) {
    const struct ends_node *node = reading->node;
    if (!node->broker)
        return;
    add_option(reading, "--broker", node->broker);
    for (size_t i = 0; i < node->broker_setting_count; i++)
        add_option(reading, "--broker-setting", node->broker_settings[i]);
    if (!node->authority)
        return;
    add_option(reading, "--authority", node->authority);
    add_option(reading, "--authority-ca", node->authority_ca);
}

static void add_origin(struct reading *reading, const cJSON *object) {
    const cJSON *item;
    add(reading, "--period-ms");
    add(reading, "%u", number_of(reading, object, "period_ms", 60000));
    add_option(reading, "--congestion", text_of(reading, object, "congestion"));
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(object, "classes")) {
        add(reading, "--class");
        add(reading, "%s=%u:%s", text_of(reading, item, "name"), number_of(reading, item, "weight", 10000),
            text_of(reading, item, "selector"));
    }
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(object, "prefixes")) {
        if (!cJSON_IsString(item))
            fail(reading, "a prefix of the end of %.63s is no text", reading->end->tunnel);
        else
            add_option(reading, "--route", item->valuestring);
    }
    add_streams(reading);
}

/* A text shorter than `bytes` that may be empty or absent. */
static void copy_text(struct reading *reading, const cJSON *object, const char *name, char *ret, size_t bytes) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    const char *text = item ? cJSON_GetStringValue(item) : "";
    if (!text || strlen(text) >= bytes)
        fail(reading, "the %s of an application of %.63s cannot be", name, reading->end->tunnel);
    else
        memcpy(ret, text, strlen(text) + 1);
}

static void read_application(struct reading *reading, const cJSON *object) {
    struct end *end = reading->end;
    if (end->application_count == APPLICATIONS_MAX) {
        fail(reading, "the end of %.63s has more than %d applications", end->tunnel, APPLICATIONS_MAX);
        return;
    }
    struct end_application *application = &end->applications[end->application_count++];
    copy_text(reading, object, "name", application->name, sizeof(application->name));
    copy_text(reading, object, "file", application->file, sizeof(application->file));
    copy_text(reading, object, "argument", application->argument, sizeof(application->argument));
    application->limit_ms = number_of(reading, object, "limit_ms", GUARD_LIMIT_MOST_US / 1000);
    application->off = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(object, "off"));
    /* A file of the applications' directory: the registry does not choose among all files of the node. */
    if (!application->name[0] || !application->file[0] || application->file[0] == '.' || strchr(application->file, '/'))
        fail(reading, "an application of %.63s wants a name, and a file without a folder", end->tunnel);
}

static void read_end(struct reading *reading, const cJSON *object) {
    const char *tunnel = text_of(reading, object, "tunnel"), *peer_node = text_of(reading, object, "peer_node");
    const char *address = text_of(reading, object, "address"), *role = text_of(reading, object, "role");
    unsigned port = number_of(reading, object, "port", 65535);
    bool origin = strcmp(role, "origin") == 0;
    const cJSON *item;
    if (!origin && strcmp(role, "destination") != 0)
        fail(reading, "the role of an end is origin or destination, not %.40s", role);
    /* The name stands in that of its control socket. */
    if (strchr(tunnel, '/'))
        fail(reading, "a tunnel is not called %.63s", tunnel);
    snprintf(reading->end->tunnel, ENDS_NAME_BYTES, "%s", tunnel);
    add(reading, "%s", reading->node->program);
    add(reading, "%s", role);
    add(reading, "%s", origin ? "--destination" : "--listen");
    add(reading, strchr(address, ':') ? "[%s]:%u" : "%s:%u", address, port);
    add_option(reading, "--tunnel", tunnel);
    add_option(reading, "--node", reading->node->name);
    add_option(reading, "--peer-node", peer_node);
    add_option(reading, "--tun", text_of(reading, object, "interface"));
    add_option(reading, "--user", reading->node->user);
    add(reading, "--control");
    add(reading, "%s/tunnel-%s.sock", reading->node->control_directory, tunnel);
    if (!reading->error)
        reading->end->control = reading->end->arguments[reading->end->count - 1];
    add_tls(reading, peer_node);
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(object, "applications")) {
        read_application(reading, item);
    }
    if (origin)
        add_origin(reading, object);
}

static void read_all(struct reading *reading, const cJSON *object, struct ends *ret) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(object, "tunnel_ends"), *item;
    const char *name = text_of(reading, object, "node");
    if (!cJSON_IsArray(list))
        fail(reading, "there is no list tunnel_ends");
    if (!reading->error && strcmp(name, reading->node->name) != 0)
        fail(reading, "it is for node %.60s, the certificate is of node %.60s", name, reading->node->name);
    if (reading->error)
        return;
    cJSON_ArrayForEach(item, list) {
        if (ret->count == ENDS_MAX)
            fail(reading, "a node has at most %d ends", ENDS_MAX);
        if (reading->error)
            return;
        reading->end = &ret->ends[ret->count++];
        read_end(reading, item);
        for (size_t i = 0; i + 1 < ret->count; i++)
            if (strcmp(ret->ends[i].tunnel, reading->end->tunnel) == 0)
                fail(reading, "tunnel %.63s has two ends here", reading->end->tunnel);
    }
}

int ends_read(const char *text, const struct ends_node *node, struct ends *ret, char fault[ENDS_FAULT_BYTES]) {
    struct reading reading = {.node = node, .fault = fault};
    cJSON *object = cJSON_Parse(text);
    memset(ret, 0, sizeof(*ret));
    if (!object)
        fail(&reading, "it is no JSON");
    else
        read_all(&reading, object, ret);
    cJSON_Delete(object);
    if (reading.error)
        ends_free(ret);
    return reading.error;
}

void end_free(struct end *end) {
    for (size_t i = 0; i < end->count; i++)
        free(end->arguments[i]);
    memset(end, 0, sizeof(*end));
}

void ends_free(struct ends *ends) {
    for (size_t i = 0; i < ends->count; i++)
        end_free(&ends->ends[i]);
    ends->count = 0;
}

bool end_same(const struct end *one, const struct end *other) {
    bool same = one->count == other->count;
    for (size_t i = 0; same && i < one->count; i++)
        same = strcmp(one->arguments[i], other->arguments[i]) == 0;
    return same;
}

bool end_same_applications(const struct end *one, const struct end *other) {
    bool same = one->application_count == other->application_count;
    for (size_t i = 0; same && i < one->application_count; i++) {
        const struct end_application *first = &one->applications[i], *second = &other->applications[i];
        same = strcmp(first->name, second->name) == 0 && strcmp(first->file, second->file) == 0 &&
               strcmp(first->argument, second->argument) == 0 && first->limit_ms == second->limit_ms &&
               first->off == second->off;
    }
    return same;
}

struct end *ends_find(struct ends *ends, const char *tunnel) {
    for (size_t i = 0; i < ends->count; i++)
        if (strcmp(ends->ends[i].tunnel, tunnel) == 0)
            return &ends->ends[i];
    return NULL;
}
