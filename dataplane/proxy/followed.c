/* See followed.h. */
#define _GNU_SOURCE
#include "followed.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NAME "ends.json"
#define FILE_BYTES (1 << 20)

static int wrong(char *fault, const char *what, const char *value) {
    snprintf(fault, FOLLOWED_FAULT_BYTES, "%s %.60s", what, value);
    return -EINVAL;
}

static int read_interfaces(const cJSON *list, struct followed *followed, struct options *options, char *fault) {
    const cJSON *item;
    options->interface_count = 0;
    cJSON_ArrayForEach(item, list) {
        const char *name = cJSON_IsString(item) ? item->valuestring : "";
        if (!options_interface_good(name))
            return wrong(fault, "not the name of an interface:", name);
        if (options->interface_count == OPTION_INTERFACES)
            return wrong(fault, "more interfaces than fit, the first too many is", name);
        char *place = followed->names[options->interface_count];
        snprintf(place, IF_NAMESIZE, "%s", name);
        options->interfaces[options->interface_count++] = place;
    }
    return 0;
}

static int read_prefixes(const cJSON *list, struct options *options, char *fault) {
    const cJSON *item;
    options->host_count = 0;
    cJSON_ArrayForEach(item, list) {
        const char *prefix = cJSON_IsString(item) ? item->valuestring : "";
        if (options->host_count == OPTION_HOSTS)
            return wrong(fault, "more prefixes than fit, the first too many is", prefix);
        if (options_host(prefix, &options->hosts[options->host_count]))
            return wrong(fault, "not an address or a network:", prefix);
        if (options->hosts[options->host_count].ipv6 && !options->ipv6)
            return wrong(fault, "a network of IPv6 under --no-ipv6:", prefix);
        options->host_count++;
    }
    return 0;
}

int followed_take(struct followed *followed, const char *text, struct options *options, char *fault) {
    struct followed taken = *followed;
    struct options read = *options;
    cJSON *object = cJSON_Parse(text);
    const cJSON *proxied = cJSON_GetObjectItemCaseSensitive(object, "proxied_traffic");
    const cJSON *mode = cJSON_GetObjectItemCaseSensitive(proxied, "mode");
    int error = 0;
    if (!cJSON_IsObject(proxied) || !cJSON_IsString(mode))
        error = wrong(fault, "there is no proxied_traffic with a", "mode");
    else if (strcmp(mode->valuestring, "new-ports") != 0 && strcmp(mode->valuestring, "same-ports") != 0)
        error = wrong(fault, "the mode is same-ports or new-ports, not", mode->valuestring);
    if (!error)
        error = read_interfaces(cJSON_GetObjectItemCaseSensitive(proxied, "interfaces"), &taken, &read, fault);
    if (!error)
        error = read_prefixes(cJSON_GetObjectItemCaseSensitive(proxied, "prefixes"), &read, fault);
    if (!error) {
        read.new_ports = strcmp(mode->valuestring, "new-ports") == 0;
        *followed = taken;
        *options = read;
        for (size_t i = 0; i < options->interface_count; i++)
            options->interfaces[i] = followed->names[i];
    }
    cJSON_Delete(object);
    return error;
}

int followed_open(struct followed *followed, const struct options *options) {
    memset(followed, 0, sizeof(*followed));
    int bytes = snprintf(followed->path, FOLLOWED_PATH_BYTES, "%s/" NAME, options->state_dir);
    return bytes < FOLLOWED_PATH_BYTES ? 0 : -ENAMETOOLONG;
}

/* NULL with errno; the caller frees it. */
static char *read_file(const char *path) {
    FILE *file = fopen(path, "re");
    char *text = file ? calloc(1, FILE_BYTES + 1) : NULL;
    if (text && fread(text, 1, FILE_BYTES, file) == FILE_BYTES) {
        free(text);
        text = NULL;
        errno = EFBIG;
    }
    if (file)
        fclose(file);
    return text;
}

int followed_look(struct followed *followed, struct options *options) {
    char fault[FOLLOWED_FAULT_BYTES];
    struct stat found;
    /* Nobody has told this node of proxied traffic yet. */
    if (stat(followed->path, &found) < 0 || memcmp(&found.st_mtim, &followed->changed, sizeof(found.st_mtim)) == 0)
        return 0;
    followed->changed = found.st_mtim;
    char *text = read_file(followed->path);
    if (!text) {
        fprintf(stderr, "chart-proxy: %s: %s\n", followed->path, strerror(errno));
        return 0;
    }
    int error = followed_take(followed, text, options, fault);
    if (error)
        fprintf(stderr, "chart-proxy: %s: %s; what is proxied stays as it was\n", followed->path, fault);
    free(text);
    return error ? 0 : 1;
}
