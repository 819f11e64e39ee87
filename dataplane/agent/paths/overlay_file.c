/* The overlay's table from a JSON file; see overlay_table.h. */
#include <arpa/inet.h>
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json_reader.h"
#include "paths/overlay_table.h"

#define N_ITEMS(array) (sizeof(array) / sizeof((array)[0]))

/* A path as it stands in the file: its hops are names until all links are known. */
struct named_path {
    struct overlay_route route;
    const cJSON *hops;
    const cJSON *links;
};

struct named_owner {
    struct overlay_owner owner;
    struct named_path *paths;
    size_t n_paths;
};

static int read_address(const struct json_reader *reader, const cJSON *object, const char *name,
                        struct decide_prefix *ret) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));

    if (text && !strchr(text, '/') && decide_parse_prefix(text, ret) == 0 && ret->family)
        return 0;
    return json_reader_fail(reader, name, "expected an address");
}

static int read_link(const struct json_reader *reader, const cJSON *object, void *item) {
    static const char *const names[] = {"name", "local", "remote", "interface", "mtu", "capacity_bps"};
    struct overlay_link *link = item;
    uint64_t mtu;
    int status = json_reader_names(reader, object, names, N_ITEMS(names));

    status = status ? status : json_reader_text(reader, object, "name", link->name, sizeof(link->name));
    status = status ? status : read_address(reader, object, "local", &link->local);
    status = status ? status : read_address(reader, object, "remote", &link->remote);
    if (!status && cJSON_HasObjectItem(object, "interface"))
        status = json_reader_text(reader, object, "interface", link->interface, sizeof(link->interface));
    status = status ? status : json_reader_number(reader, object, "mtu", OVERLAY_MTU_MAX, &mtu);
    status = status ? status
                    : json_reader_number(reader, object, "capacity_bps", JSON_READER_MAX_RATE_BPS, &link->capacity_bps);
    if (status)
        return status;
    link->mtu = mtu ? (uint32_t)mtu : OVERLAY_MTU_USUAL;
    return link->mtu >= OVERLAY_MTU_MIN ? 0 : json_reader_fail(reader, "mtu", "expected at least 1350 octets");
}

static int read_path(const struct json_reader *reader, const cJSON *object, void *item) {
    static const char *const names[] = {"colour", "next_hops", "choice", "capacity_bps", "link_ids"};
    const cJSON *choice = cJSON_GetObjectItemCaseSensitive(object, "choice");
    struct named_path *path = item;
    uint64_t colour;
    int status = json_reader_names(reader, object, names, N_ITEMS(names));

    status = status ? status : json_reader_number(reader, object, "colour", CHART_OVERLAY_COLOURS - 1, &colour);
    status = status ? status
                    : json_reader_number(reader, object, "capacity_bps", JSON_READER_MAX_RATE_BPS,
                                         &path->route.capacity_bps);
    if (status)
        return status;
    if (choice && !cJSON_IsBool(choice))
        return json_reader_fail(reader, "choice", "expected true or false");
    path->route.colour = (uint8_t)colour;
    path->route.choice = cJSON_IsTrue(choice);
    path->links = cJSON_GetObjectItemCaseSensitive(object, "link_ids");
    if (path->links && !cJSON_IsArray(path->links))
        return json_reader_fail(reader, "link_ids", "expected an array of the ids of links");
    path->hops = cJSON_GetObjectItemCaseSensitive(object, "next_hops");
    if (!cJSON_IsArray(path->hops) || cJSON_GetArraySize(path->hops) < 1 ||
        cJSON_GetArraySize(path->hops) > CHART_OVERLAY_HOPS_MAX)
        return json_reader_fail(reader, "next_hops", "expected the names of 1 to 4 links");
    return 0;
}

static int read_prefixes(const struct json_reader *reader, const cJSON *object, struct overlay_owner *owner) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(object, "prefixes"), *one;
    int n = cJSON_GetArraySize(list);

    if (!cJSON_IsArray(list) || n > CHART_OVERLAY_PREFIXES_MAX)
        return json_reader_fail(reader, "prefixes", "expected an array of prefixes");
    owner->prefixes = calloc((size_t)n + 1, sizeof(*owner->prefixes));
    if (!owner->prefixes)
        return -ENOMEM;
    cJSON_ArrayForEach(one, list) {
        struct decide_prefix *prefix = &owner->prefixes[owner->n_prefixes];

        if (!cJSON_IsString(one) || decide_parse_prefix(one->valuestring, prefix) || !prefix->family)
            return json_reader_fail(reader, "prefixes", "expected prefixes such as \"10.0.0.0/8\"");
        owner->n_prefixes++;
    }
    return 0;
}

static int read_owner(const struct json_reader *reader, const cJSON *object, void *item) {
    static const char *const names[] = {"node", "prefixes", "paths"};
    struct named_owner *named = item;
    int status = json_reader_names(reader, object, names, N_ITEMS(names));

    status = status ? status : json_reader_text(reader, object, "node", named->owner.node, sizeof(named->owner.node));
    status = status ? status : read_prefixes(reader, object, &named->owner);
    return status ? status
                  : json_reader_list(reader, object, "paths", sizeof(*named->paths), CHART_OVERLAY_COLOURS, read_path,
                                     (void **)&named->paths, &named->n_paths);
}

/* The place of a link by name; n_links: there is none. */
static size_t find_link(const struct overlay_table *table, const char *name) {
    size_t i = 0;

    while (i < table->n_links && strcmp(table->links[i].name, name) != 0)
        i++;
    return i;
}

static int resolve_path(const struct overlay_table *table, const char *node, struct named_path *path, char *error) {
    const cJSON *hop;

    cJSON_ArrayForEach(hop, path->hops) {
        size_t link = cJSON_IsString(hop) ? find_link(table, hop->valuestring) : table->n_links;

        if (link == table->n_links) {
            snprintf(error, OVERLAY_ERROR_LEN, "owner %.80s: next hop %.60s is the name of no link", node,
                     cJSON_IsString(hop) ? hop->valuestring : "(not a text)");
            return -EINVAL;
        }
        path->route.hops[path->route.n_hops++] = (uint8_t)link;
    }
    return 0;
}

/* The ids of the links of a whole path. */
static int take_links(const char *node, struct named_path *path, char *error) {
    int n = cJSON_GetArraySize(path->links);
    const cJSON *link;

    path->route.link_ids = calloc((size_t)n + 1, sizeof(*path->route.link_ids));
    if (!path->route.link_ids)
        return -ENOMEM;
    cJSON_ArrayForEach(link, path->links) {
        const char *text = cJSON_GetStringValue(link);

        if (!text || strlen(text) >= OVERLAY_NAME_LEN) {
            snprintf(error, OVERLAY_ERROR_LEN, "owner %.80s: link_ids are texts of at most %d octets", node,
                     OVERLAY_NAME_LEN - 1);
            return -EINVAL;
        }
        strcpy(path->route.link_ids[path->route.n_link_ids++], text);
    }
    return 0;
}

static int resolve_owner(const struct overlay_table *table, struct named_owner *named, char *error) {
    named->owner.routes = calloc(named->n_paths + 1, sizeof(*named->owner.routes));
    if (!named->owner.routes)
        return -ENOMEM;
    for (size_t i = 0; i < named->n_paths; i++) {
        int status = resolve_path(table, named->owner.node, &named->paths[i], error);

        if (!status && named->paths[i].links)
            status = take_links(named->owner.node, &named->paths[i], error);
        named->owner.routes[named->owner.n_routes++] = named->paths[i].route;
        if (status)
            return status;
    }
    return 0;
}

/* The owners go over to the table, also after an error. */
static int resolve_owners(struct overlay_table *table, struct named_owner *named, size_t n, int status, char *error) {
    if (!status) {
        table->owners = calloc(n + 1, sizeof(*table->owners));
        status = table->owners ? 0 : -ENOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        if (!status)
            status = resolve_owner(table, &named[i], error);
        if (table->owners) {
            table->owners[table->n_owners++] = named[i].owner;
        } else {
            free(named[i].owner.prefixes);
            free(named[i].owner.routes);
        }
        free(named[i].paths);
    }
    free(named);
    return status;
}

int overlay_file_parse(const char *text, size_t length, struct overlay_table *ret, char error[OVERLAY_ERROR_LEN]) {
    static const char *const names[] = {"port", "links", "owners"};
    struct overlay_table table = {0};
    const struct json_reader reader = {.error = error, .error_size = OVERLAY_ERROR_LEN, .place = "file"};
    struct named_owner *owners = NULL;
    const char *end = NULL;
    cJSON *root = cJSON_ParseWithLengthOpts(text, length, &end, 0);
    uint64_t port = 0;
    size_t n_owners = 0;
    int status;

    error[0] = '\0';
    if (!root) {
        snprintf(error, OVERLAY_ERROR_LEN, "not JSON near octet %zu", end ? (size_t)(end - text) : (size_t)0);
        return -EINVAL;
    }
    status = json_reader_names(&reader, root, names, N_ITEMS(names));
    status = status ? status : json_reader_number(&reader, root, "port", UINT16_MAX, &port);
    status = status ? status
                    : json_reader_list(&reader, root, "links", sizeof(*table.links), OVERLAY_LINKS_MAX, read_link,
                                       (void **)&table.links, &table.n_links);
    status = status ? status
                    : json_reader_list(&reader, root, "owners", sizeof(*owners), CHART_OVERLAY_PATHS_MAX, read_owner,
                                       (void **)&owners, &n_owners);
    table.port = port ? (uint16_t)port : OVERLAY_PORT;
    status = resolve_owners(&table, owners, n_owners, status, error);
    cJSON_Delete(root);
    status = status ? status : overlay_table_check(&table, error);
    if (status)
        overlay_table_free(&table);
    else
        *ret = table;
    return status;
}

static void print_address(cJSON *object, const char *name, const struct decide_prefix *address) {
    char text[INET6_ADDRSTRLEN] = "";

    inet_ntop(address->family, address->address, text, sizeof(text));
    cJSON_AddStringToObject(object, name, text);
}

static cJSON *print_link(const struct overlay_link *link) {
    cJSON *object = cJSON_CreateObject();

    cJSON_AddStringToObject(object, "name", link->name);
    print_address(object, "local", &link->local);
    print_address(object, "remote", &link->remote);
    if (*link->interface)
        cJSON_AddStringToObject(object, "interface", link->interface);
    cJSON_AddNumberToObject(object, "mtu", link->mtu);
    cJSON_AddNumberToObject(object, "capacity_bps", (double)link->capacity_bps);
    return object;
}

static cJSON *print_owner(const struct overlay_table *table, const struct overlay_owner *owner) {
    cJSON *object = cJSON_CreateObject(), *prefixes, *paths;

    cJSON_AddStringToObject(object, "node", owner->node);
    prefixes = cJSON_AddArrayToObject(object, "prefixes");
    for (size_t i = 0; i < owner->n_prefixes; i++) {
        char address[INET6_ADDRSTRLEN] = "", text[INET6_ADDRSTRLEN + 8];

        inet_ntop(owner->prefixes[i].family, owner->prefixes[i].address, address, sizeof(address));
        snprintf(text, sizeof(text), "%s/%u", address, owner->prefixes[i].bits);
        cJSON_AddItemToArray(prefixes, cJSON_CreateString(text));
    }
    paths = cJSON_AddArrayToObject(object, "paths");
    for (size_t i = 0; i < owner->n_routes; i++) {
        cJSON *path = cJSON_CreateObject(), *hops, *links = NULL;

        cJSON_AddNumberToObject(path, "colour", owner->routes[i].colour);
        cJSON_AddBoolToObject(path, "choice", owner->routes[i].choice);
        cJSON_AddNumberToObject(path, "capacity_bps", (double)owner->routes[i].capacity_bps);
        hops = cJSON_AddArrayToObject(path, "next_hops");
        for (size_t k = 0; k < owner->routes[i].n_hops; k++)
            cJSON_AddItemToArray(hops, cJSON_CreateString(table->links[owner->routes[i].hops[k]].name));
        if (owner->routes[i].n_link_ids)
            links = cJSON_AddArrayToObject(path, "link_ids");
        for (size_t k = 0; k < owner->routes[i].n_link_ids; k++)
            cJSON_AddItemToArray(links, cJSON_CreateString(owner->routes[i].link_ids[k]));
        cJSON_AddItemToArray(paths, path);
    }
    return object;
}

char *overlay_file_print(const struct overlay_table *table) {
    cJSON *root = cJSON_CreateObject(), *links, *owners;
    char *text;

    cJSON_AddNumberToObject(root, "port", table->port);
    links = cJSON_AddArrayToObject(root, "links");
    for (size_t i = 0; i < table->n_links; i++)
        cJSON_AddItemToArray(links, print_link(&table->links[i]));
    owners = cJSON_AddArrayToObject(root, "owners");
    for (size_t i = 0; i < table->n_owners; i++)
        cJSON_AddItemToArray(owners, print_owner(table, &table->owners[i]));
    text = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    return text;
}
