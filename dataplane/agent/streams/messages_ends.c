/* See messages_ends.h. */
#include "streams/messages_ends.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

static void add_texts(cJSON *object, const char *name, char *const *texts, size_t n) {
    cJSON *list = cJSON_AddArrayToObject(object, name);

    for (size_t i = 0; i < n; i++)
        cJSON_AddItemToArray(list, cJSON_CreateString(texts[i]));
}

static void add_classes(cJSON *object, const Chart__V1__TunnelEnd *from) {
    cJSON *list = cJSON_AddArrayToObject(object, "classes");

    for (size_t i = 0; i < from->n_classes; i++) {
        cJSON *class = cJSON_CreateObject();

        cJSON_AddStringToObject(class, "name", from->classes[i]->name);
        cJSON_AddNumberToObject(class, "weight", from->classes[i]->weight);
        cJSON_AddStringToObject(class, "selector", from->classes[i]->selector);
        cJSON_AddItemToArray(list, class);
    }
}

static void add_applications(cJSON *object, const Chart__V1__TunnelEnd *from) {
    cJSON *list = cJSON_AddArrayToObject(object, "applications");

    for (size_t i = 0; i < from->n_applications; i++) {
        const Chart__V1__TunnelEndApplication *one = from->applications[i];
        cJSON *application = cJSON_CreateObject();

        cJSON_AddStringToObject(application, "name", one->name);
        cJSON_AddStringToObject(application, "file", one->file);
        cJSON_AddStringToObject(application, "argument", one->argument);
        cJSON_AddNumberToObject(application, "limit_ms", one->limit_ms);
        cJSON_AddBoolToObject(application, "off", one->off);
        cJSON_AddItemToArray(list, application);
    }
}

static cJSON *end_of(const Chart__V1__TunnelEnd *from) {
    bool origin = from->role == CHART__V1__TUNNEL_ROLE__TUNNEL_ROLE_ORIGIN;
    cJSON *end = cJSON_CreateObject();

    cJSON_AddStringToObject(end, "tunnel", from->tunnel);
    cJSON_AddStringToObject(end, "role", origin ? "origin" : "destination");
    cJSON_AddStringToObject(end, "interface", from->interface);
    cJSON_AddStringToObject(end, "address", from->address);
    cJSON_AddNumberToObject(end, "port", from->port);
    cJSON_AddStringToObject(end, "peer_node", from->peer_node);
    add_applications(end, from);
    if (!origin)
        return end;
    cJSON_AddNumberToObject(end, "period_ms", from->period_ms);
    cJSON_AddStringToObject(end, "congestion", from->congestion);
    add_classes(end, from);
    add_texts(end, "prefixes", from->prefixes, from->n_prefixes);
    return end;
}

static void add_proxied(cJSON *object, const Chart__V1__ProxiedTraffic *from) {
    cJSON *proxied = cJSON_AddObjectToObject(object, "proxied_traffic");
    bool new_ports = from && from->mode == CHART__V1__PROXY_MODE__PROXY_MODE_NEW_PORTS;

    add_texts(proxied, "interfaces", from ? from->interfaces : NULL, from ? from->n_interfaces : 0);
    add_texts(proxied, "prefixes", from ? from->prefixes : NULL, from ? from->n_prefixes : 0);
    cJSON_AddStringToObject(proxied, "mode", new_ports ? "new-ports" : "same-ports");
}

char *messages_ends_text(const char *node, const Chart__V1__Node *from) {
    cJSON *object = cJSON_CreateObject(), *ends;
    char *text;

    cJSON_AddStringToObject(object, "node", node);
    ends = cJSON_AddArrayToObject(object, "tunnel_ends");
    for (size_t i = 0; from && i < from->n_tunnel_ends; i++)
        cJSON_AddItemToArray(ends, end_of(from->tunnel_ends[i]));
    add_proxied(object, from ? from->proxied_traffic : NULL);
    text = cJSON_Print(object);
    cJSON_Delete(object);
    return text;
}
