/* See authority_state.h. */
#include "authority/authority_state.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define RATE_MAX_BPS 10000000000000ull

void authority_state_init(struct authority_state *state, const char *node) {
    memset(state, 0, sizeof(*state));
    snprintf(state->node, sizeof(state->node), "%s", node);
}

void authority_state_wipe_keys(struct authority_state *state) {
    for (size_t i = 0; i < state->n_pairs; i++)
        authority_pair_wipe(&state->pairs[i]);
}

void authority_state_free(struct authority_state *state) {
    authority_state_wipe_keys(state);
    free(state->hops);
    free(state->elements);
    free(state->senders);
    free(state->authorisations);
    memset(state, 0, sizeof(*state));
}

static int fail(char error[AUTHORITY_ERROR_LEN], const char *what) {
    snprintf(error, AUTHORITY_ERROR_LEN, "%s", what);
    return -EINVAL;
}

static bool get_text(const cJSON *object, const char *name, char *ret, size_t size) {
    const cJSON *field = cJSON_GetObjectItemCaseSensitive(object, name);
    if (!cJSON_IsString(field) || strlen(field->valuestring) >= size)
        return false;
    snprintf(ret, size, "%s", field->valuestring);
    return true;
}

/* Grow an array of items by one and return the new last place. */
static void *more(void **array, size_t *n, size_t size) {
    void *grown = realloc(*array, (*n + 1) * size);
    if (!grown)
        return NULL;
    *array = grown;
    memset((char *)grown + *n * size, 0, size);
    return (char *)grown + (*n)++ * size;
}

/* Where an entry says that the shim reaches its element; it may say nothing. */
static int take_shim_address(const cJSON *item, struct decide_prefix *ret) {
    const cJSON *field = cJSON_GetObjectItemCaseSensitive(item, "shim_address");
    *ret = (struct decide_prefix){0};
    if (!field || cJSON_IsNull(field))
        return 0;
    return cJSON_IsString(field) ? decide_parse_prefix(field->valuestring, ret) : -EINVAL;
}

static int take_hop(struct authority_state *state, const cJSON *item) {
    struct authority_hop hop = {0};
    struct decide_prefix prefix;
    size_t i = 0;
    const cJSON *next = cJSON_GetObjectItemCaseSensitive(item, "next_element");
    if (!get_text(item, "prefix", hop.prefix, sizeof(hop.prefix)) || decide_parse_prefix(hop.prefix, &prefix))
        return -EINVAL;
    if (!cJSON_IsNull(next) && !get_text(item, "next_element", hop.next_element, sizeof(hop.next_element)))
        return -EINVAL;
    if (take_shim_address(item, &hop.shim))
        return -EINVAL;
    while (i < state->n_hops && strcmp(state->hops[i].prefix, hop.prefix) != 0)
        i++;
    if (!*hop.next_element) {
        if (i < state->n_hops)
            state->hops[i] = state->hops[--state->n_hops];
        return 0;
    }
    if (i == state->n_hops && !more((void **)&state->hops, &state->n_hops, sizeof(hop)))
        return -ENOMEM;
    state->hops[i] = hop;
    return 0;
}

static int take_element(struct authority_state *state, const cJSON *item) {
    struct authority_element element = {0};
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(item, "id");
    int64_t number = 0;
    size_t i = 0;
    if (!get_text(item, "element", element.name, sizeof(element.name)) ||
        (!cJSON_IsNull(id) && !authority_number(item, "id", UINT16_MAX, &number)))
        return -EINVAL;
    element.id = (uint16_t)number;
    while (i < state->n_elements && strcmp(state->elements[i].name, element.name) != 0)
        i++;
    if (!element.id) {
        /* Enrolled no more: nothing of it is believed from now on. */
        if (i < state->n_elements)
            state->elements[i] = state->elements[--state->n_elements];
        return 0;
    }
    if (i == state->n_elements && !more((void **)&state->elements, &state->n_elements, sizeof(element)))
        return -ENOMEM;
    state->elements[i] = element;
    return 0;
}

static int take_sender(struct authority_state *state, const cJSON *item) {
    char(*name)[AUTHORITY_NAME_LEN];
    if (!cJSON_IsString(item) || strlen(item->valuestring) >= AUTHORITY_NAME_LEN)
        return -EINVAL;
    name = more((void **)&state->senders, &state->n_senders, sizeof(*state->senders));
    if (!name)
        return -ENOMEM;
    snprintf(*name, sizeof(*name), "%s", item->valuestring);
    return 0;
}

static int each(struct authority_state *state, const cJSON *root, const char *name,
                int (*take)(struct authority_state *, const cJSON *), char error[AUTHORITY_ERROR_LEN]) {
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(root, name);
    const cJSON *item;
    if (!cJSON_IsArray(array)) {
        snprintf(error, AUTHORITY_ERROR_LEN, "%s is missing", name);
        return -EINVAL;
    }
    cJSON_ArrayForEach(item, array) {
        int status = take(state, item);
        if (status) {
            snprintf(error, AUTHORITY_ERROR_LEN, "an entry of %s cannot be used", name);
            return status;
        }
    }
    return 0;
}

int authority_take_next_hops(struct authority_state *state, const char *text, char error[AUTHORITY_ERROR_LEN]) {
    cJSON *root = cJSON_Parse(text);
    int64_t revision;
    int status;
    if (!root || !authority_number(root, "revision", AUTHORITY_MOMENT_MAX, &revision)) {
        cJSON_Delete(root);
        return fail(error, "not an answer with a revision");
    }
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(root, "full")))
        state->n_hops = state->n_elements = 0;
    state->n_senders = 0;
    status = each(state, root, "next_hops", take_hop, error);
    status = status ? status : each(state, root, "elements", take_element, error);
    status = status ? status : each(state, root, "senders", take_sender, error);
    /* After a fault everything is asked for again. */
    state->hops_revision = status ? 0 : revision;
    cJSON_Delete(root);
    return status;
}

static int take_authorisation(struct authority_state *state, const cJSON *item) {
    static const char *const names[] = {"available", "guaranteed", "maximum", "variable"};
    struct authority_authorisation one = {.value.available_bps = RATE_MAX_BPS};
    char address[64], service[16];
    int64_t rate, priority, delay, until;
    size_t i = 0;
    if (!get_text(item, "id", one.id, sizeof(one.id)))
        return -EINVAL;
    while (i < state->n_authorisations && strcmp(state->authorisations[i].id, one.id) != 0)
        i++;
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(item, "removed"))) {
        if (i < state->n_authorisations)
            state->authorisations[i] = state->authorisations[--state->n_authorisations];
        return 0;
    }
    if (!get_text(item, "client_address", address, sizeof(address)) ||
        decide_parse_prefix(address, &one.value.prefix) || !get_text(item, "service", service, sizeof(service)) ||
        !authority_number(item, "max_guaranteed_bps", (double)RATE_MAX_BPS, &rate) ||
        !authority_number(item, "max_priority", UINT8_MAX, &priority) ||
        !authority_number(item, "delay_class", SIGNAL_DELAY_CLASS_MAX, &delay) ||
        !authority_number(item, "expires_at_us", AUTHORITY_MOMENT_MAX, &until))
        return -EINVAL;
    /* Whoever may ask for a service may ask for the available rate too. */
    one.value.services = 1;
    for (size_t s = 0; s < sizeof(names) / sizeof(names[0]); s++)
        if (strcmp(service, names[s]) == 0)
            one.value.services |= (uint8_t)(1u << s);
    one.value.guaranteed_bps = (uint64_t)rate;
    one.value.preemption_priority = (uint8_t)priority;
    one.value.delay_priority = signal_delay_priority((uint32_t)delay);
    one.value.until_us = until;
    if (i == state->n_authorisations && !more((void **)&state->authorisations, &state->n_authorisations, sizeof(one)))
        return -ENOMEM;
    state->authorisations[i] = one;
    return 0;
}

int authority_take_authorisations(struct authority_state *state, const char *text, char error[AUTHORITY_ERROR_LEN]) {
    cJSON *root = cJSON_Parse(text);
    const cJSON *unauthorised = cJSON_GetObjectItemCaseSensitive(root, "unauthorised");
    char action[8] = "";
    int64_t revision, free_bps = 0;
    int status;
    if (!root || !authority_number(root, "revision", AUTHORITY_MOMENT_MAX, &revision) ||
        !get_text(unauthorised, "action", action, sizeof(action)) ||
        !authority_number(unauthorised, "available_bps", (double)RATE_MAX_BPS, &free_bps)) {
        cJSON_Delete(root);
        return fail(error, "not an answer with a revision and what is unauthorised");
    }
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(root, "full")))
        state->n_authorisations = 0;
    status = each(state, root, "authorisations", take_authorisation, error);
    state->drop_unauthorised = strcmp(action, "drop") == 0;
    state->free_bps = (uint64_t)free_bps;
    state->authorisations_revision = status ? 0 : revision;
    cJSON_Delete(root);
    return status;
}
