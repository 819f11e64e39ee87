/* The last path to each destination; see paths.h. */
#include "paths.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "options.h"

struct path {
    char destination[OPTION_TEXT_BYTES];
    uint64_t used_at; /* order of use; 0: free */
    unsigned count;
    struct in_addr addresses[HOP_TTL_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct path paths[PATHS_MAX];
static uint64_t uses;

/* The path to a destination; when there is none, the one that was not used for longest gives way. */
static struct path *find_or_take(const char *destination) {
    struct path *oldest = &paths[0];

    for (size_t i = 0; i < PATHS_MAX; i++) {
        if (paths[i].used_at && strcmp(paths[i].destination, destination) == 0)
            return &paths[i];
        if (paths[i].used_at < oldest->used_at)
            oldest = &paths[i];
    }
    memset(oldest, 0, sizeof(*oldest));
    strncpy(oldest->destination, destination, sizeof(oldest->destination) - 1);
    return oldest;
}

static bool differs(const struct path *path, const struct hop_trace *trace) {
    /* A path whose end did not answer says nothing about its length. */
    if (trace->reached && path->count != trace->count)
        return true;
    for (unsigned i = 0; i < path->count && i < trace->count; i++)
        if (path->addresses[i].s_addr && trace->hops[i].address.s_addr &&
            path->addresses[i].s_addr != trace->hops[i].address.s_addr)
            return true;
    return false;
}

enum path_change paths_note(const char *destination, const struct hop_trace *trace) {
    enum path_change change = PATH_UNKNOWN;
    struct path *path;

    pthread_mutex_lock(&lock);
    path = find_or_take(destination);
    if (path->used_at)
        change = differs(path, trace) ? PATH_CHANGED : PATH_SAME;
    if (change == PATH_CHANGED)
        memset(path->addresses, 0, sizeof(path->addresses));
    if (change != PATH_SAME || trace->reached)
        path->count = trace->count;
    for (unsigned i = 0; i < trace->count; i++)
        if (trace->hops[i].address.s_addr)
            path->addresses[i] = trace->hops[i].address;
    path->used_at = ++uses;
    pthread_mutex_unlock(&lock);
    return change;
}
