/* Traffic controllers from files, see loader.h. */
#include "loader.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static void *loaded[OPTION_LIST];
static size_t loaded_count;

static int load(const char *text, struct itm_dispatcher *dispatcher, uint64_t now_us) {
    char path[PATH_MAX];
    const char *equals = strchr(text, '=');
    struct itm_application application = {.name = NULL};
    loader_open *open_application;
    snprintf(path, sizeof(path), "%.*s", equals ? (int)(equals - text) : (int)strlen(text), text);
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object) {
        fprintf(stderr, "chart-tunnel: application %s: %s\n", path, dlerror());
        return -ENOENT;
    }
    loaded[loaded_count++] = object;
    *(void **)&open_application = dlsym(object, LOADER_FUNCTION);
    if (!open_application) {
        fprintf(stderr, "chart-tunnel: application %s has no function %s\n", path, LOADER_FUNCTION);
        return -ENOEXEC;
    }
    int error = open_application(equals ? equals + 1 : "", &application);
    if (!error)
        error = itm_register(dispatcher, &application, now_us);
    if (error)
        fprintf(stderr, "chart-tunnel: application %s: %s\n", text, strerror(-error));
    return error;
}

int loader_register(const struct options *options, struct itm_dispatcher *dispatcher, uint64_t now_us) {
    int error = 0;
    for (size_t i = 0; !error && i < options->application_count; i++)
        error = load(options->applications[i], dispatcher, now_us);
    return error;
}

void loader_close(void) {
    while (loaded_count)
        dlclose(loaded[--loaded_count]);
}
