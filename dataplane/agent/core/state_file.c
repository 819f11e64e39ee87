/* See state_file.h. */
#include "core/state_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

/* A file that was renamed is there after a loss of power once its folder is written too. */
static int write_folder(const char *directory) {
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int status = fd < 0 || fsync(fd) ? -errno : 0;
    if (fd >= 0)
        close(fd);
    return status;
}

int state_file_write(const char *directory, const char *name, const char *text) {
    char path[PATH_MAX], fresh[PATH_MAX];
    FILE *file;
    int status = 0;
    if (snprintf(path, sizeof(path), "%s/%s", directory, name) >= (int)sizeof(path) ||
        snprintf(fresh, sizeof(fresh), "%s/%s.new", directory, name) >= (int)sizeof(fresh))
        return -ENAMETOOLONG;
    file = fopen(fresh, "we");
    if (!file)
        return -errno;
    if (fputs(text, file) < 0 || fflush(file) || fsync(fileno(file)))
        status = errno ? -errno : -EIO;
    if (fclose(file) && !status)
        status = -errno;
    if (!status && rename(fresh, path))
        status = -errno;
    return status ? status : write_folder(directory);
}
