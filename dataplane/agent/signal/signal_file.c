/* See signal_file.h. */
#include "signal/signal_file.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <linux/bpf.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "core/json_reader.h"
#include "signal/default_asks.h"
#include "signal_maps.h"

#define MAX_DURATION_MS 86400e3
#define N_ITEMS(array) (sizeof(array) / sizeof((array)[0]))

static const char *const services[] = {"available", "guaranteed", "maximum", "variable"};

static int read_octet(const struct json_reader *reader, const cJSON *object, const char *name, double most,
                      uint8_t *ret) {
    uint64_t value;
    int status = json_reader_number(reader, object, name, most, &value);
    *ret = (uint8_t)value;
    return status;
}

static int read_prefix(const struct json_reader *reader, const cJSON *object, const char *name, bool needed,
                       struct decide_prefix *ret) {
    const cJSON *field = cJSON_GetObjectItemCaseSensitive(object, name);
    *ret = (struct decide_prefix){0};
    if (!needed && (!field || cJSON_IsNull(field)))
        return 0;
    if (cJSON_IsString(field) && (!needed || field->valuestring[0]) &&
        decide_parse_prefix(field->valuestring, ret) == 0)
        return 0;
    return json_reader_fail(reader, name, "expected a prefix such as \"10.0.0.0/8\" or an address");
}

static int read_service(const struct json_reader *reader, const cJSON *field, const char *name, uint8_t *ret) {
    for (size_t i = 0; cJSON_IsString(field) && i < N_ITEMS(services); i++) {
        if (strcmp(field->valuestring, services[i]) == 0) {
            *ret = (uint8_t)i;
            return 0;
        }
    }
    return json_reader_fail(reader, name, "expected \"available\", \"guaranteed\", \"maximum\" or \"variable\"");
}

static int hex_digit(char digit) {
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

static int read_hex(const struct json_reader *reader, const cJSON *object, uint8_t ret[32]) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "key"));
    if (!text || strlen(text) != 64)
        return json_reader_fail(reader, "key", "expected 64 hexadecimal digits");
    for (size_t i = 0; i < 32; i++) {
        int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return json_reader_fail(reader, "key", "expected 64 hexadecimal digits");
        ret[i] = (uint8_t)(high << 4 | low);
    }
    return 0;
}

static int read_times(const struct json_reader *reader, const cJSON *object, int64_t *ret_from_us,
                      int64_t *ret_until_us) {
    uint64_t from_ms, until_ms;
    int status = json_reader_number(reader, object, "from", JSON_READER_MAX_EXACT / 1000, &from_ms);
    status = status ? status : json_reader_number(reader, object, "until", JSON_READER_MAX_EXACT / 1000, &until_ms);
    if (status)
        return status;
    *ret_from_us = (int64_t)from_ms * 1000;
    *ret_until_us = (int64_t)until_ms * 1000;
    return 0;
}

static int read_key(const struct json_reader *reader, const cJSON *object, void *item) {
    static const char *const names[] = {"sender", "receiver", "epoch", "key", "from", "until"};
    struct signal_key *key = item;
    uint64_t sender, receiver;
    int status = json_reader_names(reader, object, names, N_ITEMS(names));
    status = status ? status : json_reader_number(reader, object, "sender", UINT16_MAX, &sender);
    status = status ? status : json_reader_number(reader, object, "receiver", UINT16_MAX, &receiver);
    status = status ? status : read_octet(reader, object, "epoch", UINT8_MAX, &key->epoch);
    status = status ? status : read_hex(reader, object, key->key);
    status = status ? status : read_times(reader, object, &key->from_us, &key->until_us);
    if (status)
        return status;
    key->sender = (uint16_t)sender;
    key->receiver = (uint16_t)receiver;
    return sender && receiver && sender != receiver
               ? 0
               : json_reader_fail(reader, "sender", "expected two different elements from 1 to 65535");
}

static int read_hop(const struct json_reader *reader, const cJSON *object, void *item) {
    static const char *const names[] = {"prefix", "element", "shim_address"};
    struct signal_hop *hop = item;
    uint64_t element;
    int status = json_reader_names(reader, object, names, N_ITEMS(names));
    status = status ? status : read_prefix(reader, object, "prefix", true, &hop->prefix);
    status = status ? status : json_reader_number(reader, object, "element", UINT16_MAX, &element);
    status = status ? status : read_prefix(reader, object, "shim_address", false, &hop->shim);
    if (status)
        return status;
    hop->element = (uint16_t)element;
    return element ? 0 : json_reader_fail(reader, "element", "expected an element from 1 to 65535");
}

static int read_authorisation(const struct json_reader *reader, const cJSON *object, void *item) {
    static const char *const names[] = {"prefix",         "guaranteed_bps", "available_bps", "preemption_priority",
                                        "delay_priority", "services",       "from",          "until"};
    struct signal_authorisation *authorisation = item;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(object, "services"), *service;
    int status = json_reader_names(reader, object, names, N_ITEMS(names));
    status = status ? status : read_prefix(reader, object, "prefix", true, &authorisation->prefix);
    status = status ? status
                    : json_reader_number(reader, object, "guaranteed_bps", JSON_READER_MAX_RATE_BPS,
                                         &authorisation->guaranteed_bps);
    status = status ? status
                    : json_reader_number(reader, object, "available_bps", JSON_READER_MAX_RATE_BPS,
                                         &authorisation->available_bps);
    status = status ? status
                    : read_octet(reader, object, "preemption_priority", UINT8_MAX, &authorisation->preemption_priority);
    status = status ? status : read_octet(reader, object, "delay_priority", UINT8_MAX, &authorisation->delay_priority);
    status = status ? status : read_times(reader, object, &authorisation->from_us, &authorisation->until_us);
    if (status)
        return status;
    if (!list)
        authorisation->services = 0xf;
    else if (!cJSON_IsArray(list))
        return json_reader_fail(reader, "services", "expected an array");
    cJSON_ArrayForEach(service, list) {
        uint8_t number = 0;
        status = read_service(reader, service, "services", &number);
        if (status)
            return status;
        authorisation->services |= (uint8_t)(1 << number);
    }
    return 0;
}

static int read_selector(const struct json_reader *reader, const cJSON *object, struct decide_selector *ret) {
    static const char *const names[] = {"source_prefix", "destination_prefix", "protocol",
                                        "source_port",   "destination_port",   "dscp"};
    const cJSON *protocol = cJSON_GetObjectItemCaseSensitive(object, "protocol");
    uint64_t source_port, destination_port, dscp;
    int status = json_reader_names(reader, object, names, N_ITEMS(names));
    status = status ? status : read_prefix(reader, object, "source_prefix", false, &ret->source);
    status = status ? status : read_prefix(reader, object, "destination_prefix", false, &ret->destination);
    status = status ? status : json_reader_number(reader, object, "source_port", UINT16_MAX, &source_port);
    status = status ? status : json_reader_number(reader, object, "destination_port", UINT16_MAX, &destination_port);
    status = status ? status : json_reader_number(reader, object, "dscp", 63, &dscp);
    if (status)
        return status;
    ret->dscp_plus_one = cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(object, "dscp")) ? (uint8_t)(dscp + 1) : 0;
    ret->source_port = (uint16_t)source_port;
    ret->destination_port = (uint16_t)destination_port;
    if (!protocol)
        return 0;
    if (cJSON_IsString(protocol) && strcmp(protocol->valuestring, "tcp") == 0)
        ret->protocol = IPPROTO_TCP;
    else if (cJSON_IsString(protocol) && strcmp(protocol->valuestring, "udp") == 0)
        ret->protocol = IPPROTO_UDP;
    else
        return json_reader_fail(reader, "selector.protocol", "expected \"tcp\" or \"udp\"");
    return 0;
}

static int read_ask(const struct json_reader *reader, const cJSON *object, void *item) {
    static const char *const names[] = {"selector",       "guaranteed_bps",  "available_bps", "preemption_priority",
                                        "delay_priority", "burst_tolerance", "service"};
    const cJSON *selector = cJSON_GetObjectItemCaseSensitive(object, "selector");
    const cJSON *service = cJSON_GetObjectItemCaseSensitive(object, "service");
    struct signal_ask *ask = item;
    int status = json_reader_names(reader, object, names, N_ITEMS(names));
    if (!status && selector)
        status = read_selector(reader, selector, &ask->selector);
    status = status
                 ? status
                 : json_reader_number(reader, object, "guaranteed_bps", JSON_READER_MAX_RATE_BPS, &ask->guaranteed_bps);
    status = status
                 ? status
                 : json_reader_number(reader, object, "available_bps", JSON_READER_MAX_RATE_BPS, &ask->available_bps);
    status = status ? status : read_octet(reader, object, "preemption_priority", UINT8_MAX, &ask->preemption_priority);
    status = status ? status : read_octet(reader, object, "delay_priority", UINT8_MAX, &ask->delay_priority);
    status = status ? status : read_octet(reader, object, "burst_tolerance", 15, &ask->burst_tolerance);
    if (!status && service)
        status = read_service(reader, service, "service", &ask->service);
    if (!status && !ask->guaranteed_bps && !ask->available_bps)
        status = json_reader_fail(reader, "available_bps", "an ask without any rate");
    return status;
}

static int read_link(const struct json_reader *reader, const cJSON *object, void *item) {
    static const char *const names[] = {"interface", "explicit_bps", "guaranteed_bps", "rate_bps"};
    struct signal_file_link *link = item;
    const char *interface = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "interface"));
    int status = json_reader_names(reader, object, names, N_ITEMS(names));
    status = status ? status
                    : json_reader_number(reader, object, "explicit_bps", JSON_READER_MAX_RATE_BPS, &link->explicit_bps);
    status =
        status ? status
               : json_reader_number(reader, object, "guaranteed_bps", JSON_READER_MAX_RATE_BPS, &link->guaranteed_bps);
    status =
        status ? status : json_reader_number(reader, object, "rate_bps", JSON_READER_MAX_RATE_BPS, &link->rate_bps);
    if (status)
        return status;
    if (!interface || !interface[0] || strlen(interface) >= sizeof(link->interface))
        return json_reader_fail(reader, "interface", "expected the name of an interface");
    strcpy(link->interface, interface);
    link->has_explicit = cJSON_HasObjectItem(object, "explicit_bps");
    link->has_guaranteed = cJSON_HasObjectItem(object, "guaranteed_bps");
    return 0;
}

static int read_policy(char *error, const cJSON *object, struct signal_policy *ret) {
    static const char *const names[] = {"unauthorised", "free_bps",      "hold_ms",  "commitment_ms", "idle_ms",
                                        "renew_ms",     "renew_packets", "retry_ms", "tries",         "legacy_ms"};
    const struct json_reader reader = {.error = error, .error_size = SIGNAL_FILE_ERROR_LEN, .place = "policy"};
    const struct {
        const char *name;
        uint64_t *value;
    } durations[] = {{"hold_ms", &ret->hold_us},   {"commitment_ms", &ret->commitment_us},
                     {"idle_ms", &ret->idle_us},   {"renew_ms", &ret->renew_us},
                     {"retry_ms", &ret->retry_us}, {"legacy_ms", &ret->legacy_us}};
    const cJSON *unauthorised;
    uint64_t packets, tries;
    int status = object ? json_reader_names(&reader, object, names, N_ITEMS(names)) : 0;
    if (!object || status)
        return status;
    for (size_t i = 0; !status && i < N_ITEMS(durations); i++) {
        status = json_reader_number(&reader, object, durations[i].name, MAX_DURATION_MS, durations[i].value);
        *durations[i].value *= 1000;
    }
    status =
        status ? status : json_reader_number(&reader, object, "free_bps", JSON_READER_MAX_RATE_BPS, &ret->free_bps);
    status = status ? status : json_reader_number(&reader, object, "renew_packets", 1e6, &packets);
    status = status ? status : json_reader_number(&reader, object, "tries", 100, &tries);
    if (status)
        return status;
    ret->renew_packets = (uint32_t)packets;
    ret->tries = (uint32_t)tries;
    unauthorised = cJSON_GetObjectItemCaseSensitive(object, "unauthorised");
    ret->drop_unauthorised = cJSON_IsString(unauthorised) && strcmp(unauthorised->valuestring, "drop") == 0;
    if (unauthorised && !ret->drop_unauthorised &&
        !(cJSON_IsString(unauthorised) && strcmp(unauthorised->valuestring, "free") == 0))
        return json_reader_fail(&reader, "unauthorised", "expected \"free\" or \"drop\"");
    return 0;
}

static int read_shim(char *error, const cJSON *object, struct signal_policy *ret) {
    static const char *const names[] = {"ipv4", "ipv6"};
    const struct json_reader reader = {.error = error, .error_size = SIGNAL_FILE_ERROR_LEN, .place = "shim"};
    int status = object ? json_reader_names(&reader, object, names, N_ITEMS(names)) : 0;
    if (!object || status)
        return status;
    status = read_prefix(&reader, object, "ipv4", false, &ret->shim4);
    status = status ? status : read_prefix(&reader, object, "ipv6", false, &ret->shim6);
    if (!status && ret->shim4.family && (ret->shim4.family != AF_INET || ret->shim4.bits != 32))
        status = json_reader_fail(&reader, "ipv4", "expected an IPv4 address");
    if (!status && ret->shim6.family && (ret->shim6.family != AF_INET6 || ret->shim6.bits != 128))
        status = json_reader_fail(&reader, "ipv6", "expected an IPv6 address");
    return status;
}

/* The built-in asks of these names, behind those that the file states itself: the first that fits counts. */
static int add_default_asks(char *error, const cJSON *names, struct signal_file *file) {
    const cJSON *name;
    if (names && !cJSON_IsArray(names)) {
        snprintf(error, SIGNAL_FILE_ERROR_LEN, "default_asks: expected an array of names");
        return -EINVAL;
    }
    cJSON_ArrayForEach(name, names) {
        int status = default_asks_add(cJSON_IsString(name) ? name->valuestring : "", &file->asks, &file->n_asks);
        if (status == -ENOENT)
            snprintf(error, SIGNAL_FILE_ERROR_LEN, "default_asks: expected \"telephony\"");
        if (status)
            return status == -ENOMEM ? status : -EINVAL;
        if (file->n_asks > CHART_SIGNAL_ASKS_MAX) {
            snprintf(error, SIGNAL_FILE_ERROR_LEN, "asks: more than %d with default_asks", CHART_SIGNAL_ASKS_MAX);
            return -EINVAL;
        }
    }
    return 0;
}

int signal_file_parse(const char *text, size_t length, struct signal_file *ret, char error[SIGNAL_FILE_ERROR_LEN]) {
    static const char *const names[] = {"element",        "policy", "shim",         "keys", "next_hops",
                                        "authorisations", "asks",   "default_asks", "links"};
    struct signal_file file = {0};
    const struct json_reader reader = {.error = error, .error_size = SIGNAL_FILE_ERROR_LEN, .place = "file"};
    const char *end = NULL;
    cJSON *root = cJSON_ParseWithLengthOpts(text, length, &end, 0);
    uint64_t element = 0;
    int status;
    error[0] = '\0';
    if (!root) {
        snprintf(error, SIGNAL_FILE_ERROR_LEN, "not JSON near octet %zu", end ? (size_t)(end - text) : (size_t)0);
        return -EINVAL;
    }
    status = json_reader_names(&reader, root, names, N_ITEMS(names));
    status = status ? status : json_reader_number(&reader, root, "element", UINT16_MAX, &element);
    file.policy.element = (uint16_t)element;
#define OBJECT(name) cJSON_GetObjectItemCaseSensitive(root, name)
#define LIST(name, field, most, read)                                                                                  \
    json_reader_list(&reader, root, name, sizeof(*file.field), most, read, (void **)&file.field, &file.n_##field)
    status = status ? status : read_policy(error, OBJECT("policy"), &file.policy);
    status = status ? status : read_shim(error, OBJECT("shim"), &file.policy);
    status = status ? status : LIST("keys", keys, 4096, read_key);
    status = status ? status : LIST("next_hops", hops, 16384, read_hop);
    status = status ? status : LIST("authorisations", authorisations, 16384, read_authorisation);
    status = status ? status : LIST("asks", asks, CHART_SIGNAL_ASKS_MAX, read_ask);
    status = status ? status : add_default_asks(error, OBJECT("default_asks"), &file);
    status = status ? status : LIST("links", links, 64, read_link);
    cJSON_Delete(root);
    if (status)
        signal_file_free(&file);
    else
        *ret = file;
    return status;
}

void signal_file_free(struct signal_file *file) {
    if (file->keys)
        explicit_bzero(file->keys, file->n_keys * sizeof(*file->keys));
    free(file->keys);
    free(file->hops);
    free(file->authorisations);
    free(file->asks);
    free(file->links);
    *file = (struct signal_file){0};
}
