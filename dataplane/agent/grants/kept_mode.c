/* See kept_mode.h. */
#include "grants/kept_mode.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAME "enforcement"

static bool parse_mode(const char *word, enum decide_mode *ret) {
    for (enum decide_mode mode = DECIDE_MODE_OFF; mode <= DECIDE_MODE_ENFORCE; mode++)
        if (strcmp(word, decide_mode_name(mode)) == 0) {
            *ret = mode;
            return true;
        }
    return false;
}

int kept_mode_read(const char *directory, struct kept_mode *ret) {
    struct kept_mode kept = {.told = DECIDE_MODE_ENFORCE};
    char path[PATH_MAX], mode[16] = "", local[8] = "";
    FILE *file;
    int fields;
    *ret = kept;
    if (snprintf(path, sizeof(path), "%s/" NAME, directory) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    file = fopen(path, "re");
    if (!file && errno == ENOENT)
        return 0;
    fields = file ? fscanf(file, "mode %15s local %7s", mode, local) : 0;
    if (file)
        fclose(file);
    kept.off = strcmp(local, "off") == 0;
    if (fields != 2 || !parse_mode(mode, &kept.told) || (!kept.off && strcmp(local, "on") != 0)) {
        ret->off = true;
        return -EBADMSG;
    }
    *ret = kept;
    return 0;
}

/* A file that was renamed is there after a loss of power once its folder is written too. */
static int write_folder(const char *directory) {
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int status = fd < 0 || fsync(fd) ? -errno : 0;
    if (fd >= 0)
        close(fd);
    return status;
}

int kept_mode_write(const char *directory, const struct kept_mode *mode) {
    char path[PATH_MAX], fresh[PATH_MAX];
    FILE *file;
    int status = 0;
    if (snprintf(path, sizeof(path), "%s/" NAME, directory) >= (int)sizeof(path) ||
        snprintf(fresh, sizeof(fresh), "%s/" NAME ".new", directory) >= (int)sizeof(fresh))
        return -ENAMETOOLONG;
    file = fopen(fresh, "we");
    if (!file)
        return -errno;
    if (fprintf(file, "mode %s\nlocal %s\n", decide_mode_name(mode->told), mode->off ? "off" : "on") < 0 ||
        fflush(file) || fsync(fileno(file)))
        status = errno ? -errno : -EIO;
    if (fclose(file) && !status)
        status = -errno;
    if (!status && rename(fresh, path))
        status = -errno;
    return status ? status : write_folder(directory);
}
