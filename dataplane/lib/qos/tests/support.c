/* Reading vectors.json for the codec's unit tests. */
#include "support.h"

static cJSON *document;

static void forget(void) {
    cJSON_Delete(document);
}

static cJSON *load(void) {
    FILE *file = fopen(CHART_QOS_VECTORS, "r");
    static char text[1 << 18];
    size_t length;

    assert_non_null(file);
    length = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    assert_in_range(length, 1, sizeof(text) - 2);
    text[length] = 0;
    document = cJSON_Parse(text);
    assert_non_null(document);
    atexit(forget);
    return document;
}

const cJSON *vectors(const char *list) {
    const cJSON *found = cJSON_GetObjectItemCaseSensitive(document ? document : load(), list);

    assert_non_null(found);
    return found;
}

const char *text_of(const cJSON *object, const char *name) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));

    assert_non_null(text);
    return text;
}

uint64_t number_of(const cJSON *object, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

    assert_non_null(item);
    return cJSON_IsString(item) ? strtoull(item->valuestring, NULL, 10) : (uint64_t)item->valuedouble;
}

uint8_t *octets_of(const cJSON *object, const char *name, uint32_t *ret_length) {
    const char *text = text_of(object, name);
    uint32_t length = (uint32_t)strlen(text) / 2, i;
    uint8_t *octets = malloc(length ? length : 1);

    assert_non_null(octets);
    for (i = 0; i < length; i++) {
        char pair[3] = {text[2 * i], text[2 * i + 1], 0};
        octets[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    *ret_length = length;
    return octets;
}

int error_of(const char *name) {
    return (int)number_of(vectors("errors"), name);
}

int parse(const char *carrier, struct chart_parsed *ret_parsed, const uint8_t *octets, uint32_t length) {
    if (!strcmp(carrier, "ipv4"))
        return chart_ipv4_parse(ret_parsed, octets, length);
    if (!strcmp(carrier, "ipv6"))
        return chart_ipv6_parse(ret_parsed, octets, length);
    assert_string_equal(carrier, "shim");
    return chart_shim_parse(ret_parsed, octets, length);
}
