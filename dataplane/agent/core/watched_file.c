/* See watched_file.h. */
#include "core/watched_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool changed(const struct stat *seen, const struct stat *now) {
    return memcmp(&now->st_mtim, &seen->st_mtim, sizeof(now->st_mtim)) != 0 || now->st_size != seen->st_size ||
           now->st_ino != seen->st_ino;
}

static int read_all(int fd, size_t size, char **ret_text, size_t *ret_length) {
    char *text = malloc(size + 1);
    ssize_t length;

    if (!text)
        return -ENOMEM;
    length = read(fd, text, size);
    if (length < 0) {
        int error = -errno;

        free(text);
        return error;
    }
    *ret_text = text;
    *ret_length = (size_t)length;
    return 1;
}

int watched_file_look(struct watched_file *file, char **ret_text, size_t *ret_length) {
    int fd = open(file->path, O_RDONLY | O_CLOEXEC), status = 0;
    struct stat now;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &now))
        status = -errno;
    else if (changed(&file->seen, &now)) {
        file->seen = now;
        status =
            (size_t)now.st_size > file->bytes_max ? -EFBIG : read_all(fd, (size_t)now.st_size, ret_text, ret_length);
    }
    close(fd);
    return status;
}

const char *watched_file_error(int error) {
    return error == -EFBIG ? "larger than this file may be" : strerror(-error);
}
