/* A traffic controller from a file, see loader.h. */
#include "loader.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

int loader_load(const char *file, const char *argument, struct itm_application *ret, char fault[LOADER_FAULT_BYTES]) {
    loader_open *open_application;
    struct itm_application application = {.name = NULL};
    struct itm_dispatcher checked;
    void *object = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!object) {
        snprintf(fault, LOADER_FAULT_BYTES, "%s", dlerror());
        return -ENOENT;
    }
    *(void **)&open_application = dlsym(object, LOADER_FUNCTION);
    if (!open_application) {
        snprintf(fault, LOADER_FAULT_BYTES, "%s has no function %s", file, LOADER_FUNCTION);
        return -ENOEXEC;
    }
    int error = open_application(argument, &application);
    if (error) {
        snprintf(fault, LOADER_FAULT_BYTES, "%s refuses the argument \"%.200s\": %s", file, argument, strerror(-error));
        return error;
    }
    itm_dispatcher_init(&checked);
    error = itm_register(&checked, &application, 0);
    if (error)
        snprintf(fault, LOADER_FAULT_BYTES, "%s registers no name, no event, or an event that there is not", file);
    else
        *ret = application;
    return error;
}
