/* See cgroup.h. The id of a cgroup is the inode number of its directory, on kernels of 64 bits. name_to_handle_at()
 * says the same, but filters of system calls in containers forbid it without CAP_SYS_ADMIN. */
#include "core/cgroup.h"

#include <errno.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "core/log.h"

#define DEFAULT_MOUNT "/sys/fs/cgroup/unified"

int cgroup_mount_point(char *ret, unsigned size) {
    struct mntent *entry;
    FILE *mounts = setmntent("/proc/self/mounts", "r");
    int found = 0;
    if (!mounts)
        return -errno;
    while (!found && (entry = getmntent(mounts)))
        if (strcmp(entry->mnt_type, "cgroup2") == 0)
            found = snprintf(ret, size, "%s", entry->mnt_dir) > 0;
    endmntent(mounts);
    if (found)
        return 0;
    if (mkdir(DEFAULT_MOUNT, 0755) && errno != EEXIST)
        return -errno;
    if (mount("none", DEFAULT_MOUNT, "cgroup2", 0, NULL))
        return -errno;
    snprintf(ret, size, "%s", DEFAULT_MOUNT);
    return 0;
}

/* mkdir -p below the mount point. */
static int make_directories(const char *path, size_t mount_length) {
    char part[4096];
    for (size_t i = mount_length + 1; i <= strlen(path); i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        snprintf(part, sizeof(part), "%.*s", (int)i, path);
        if (mkdir(part, 0755) && errno != EEXIST)
            return -errno;
    }
    return 0;
}

int cgroup_open(const char *path, uint64_t *ret_id, uint32_t *ret_level) {
    char mount[256];
    struct stat status;
    _Static_assert(sizeof(status.st_ino) == sizeof(*ret_id), "the kernel has ids of 64 bits");
    int error = cgroup_mount_point(mount, sizeof(mount));
    if (error) {
        log_error("cgroup v2 is not mounted and cannot be: %s", strerror(-error));
        return error;
    }
    size_t length = strlen(mount);
    if (strncmp(path, mount, length) != 0 || (path[length] != '/' && path[length] != '\0')) {
        log_error("--cgroup %s is not below the cgroup v2 mount %s", path, mount);
        return -EINVAL;
    }
    error = make_directories(path, length);
    if (error || stat(path, &status)) {
        error = error ? error : -errno;
        log_error("cannot make or open the cgroup %s: %s", path, strerror(-error));
        return error;
    }
    *ret_level = 0;
    for (size_t i = length; path[i]; i++)
        if (path[i] == '/' && path[i + 1] && path[i + 1] != '/')
            ++*ret_level;
    *ret_id = status.st_ino;
    return 0;
}
