/* See tcp_limits.h. */
#include "core/tcp_limits.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"

#define WANTED_BYTES (64ul << 20)

struct limit {
    const char *path;
    unsigned long least, first, most;
    bool changed;
};

static struct limit receive = {.path = "/proc/sys/net/ipv4/tcp_rmem"};
static struct limit send_ = {.path = "/proc/sys/net/ipv4/tcp_wmem"};

static int write_limit(const struct limit *limit, unsigned long most) {
    FILE *file = fopen(limit->path, "w");
    if (!file)
        return -errno;
    fprintf(file, "%lu %lu %lu\n", limit->least, limit->first, most);
    return fclose(file) ? -errno : 0;
}

/* Returns the limit in force afterwards. */
static unsigned long raise_limit(struct limit *limit) {
    FILE *file = fopen(limit->path, "r");
    int fields = file ? fscanf(file, "%lu %lu %lu", &limit->least, &limit->first, &limit->most) : 0;
    if (file)
        fclose(file);
    if (fields != 3) {
        log_warning("cannot read %s: receive windows are left to the kernel", limit->path);
        return 0;
    }
    if (limit->most >= WANTED_BYTES)
        return limit->most;
    int error = write_limit(limit, WANTED_BYTES);
    if (error) {
        log_warning("cannot raise %s to %lu octets (%s): long lossy paths will stay below their rate", limit->path,
                    WANTED_BYTES, strerror(-error));
        return limit->most;
    }
    limit->changed = true;
    return WANTED_BYTES;
}

uint32_t limits_raise(void) {
    raise_limit(&send_);
    return (uint32_t)(raise_limit(&receive) / 2);
}

void limits_restore(void) {
    struct limit *limits[] = {&receive, &send_};
    for (int i = 0; i < 2; i++) {
        int error = limits[i]->changed ? write_limit(limits[i], limits[i]->most) : 0;
        if (error)
            log_warning("cannot put %s back: %s", limits[i]->path, strerror(-error));
        limits[i]->changed = false;
    }
}
