/* A file that an operator writes and the agent reads again when it changed: replaced or rewritten, a look at its times
 * tells. */
#pragma once

#include <stddef.h>
#include <sys/stat.h>

struct watched_file {
    const char *path;
    /* What is larger is refused. */
    size_t bytes_max;
    struct stat seen;
};

/* 1: it changed, *ret_text is what it says now and *ret_length how much; the caller frees it, and wipes it where it
 * holds keys. 0: as before. A negative errno: it cannot be read, -EFBIG: it is too large. */
int watched_file_look(struct watched_file *file, char **ret_text, size_t *ret_length);

/* What an error of watched_file_look says to who wrote the file. */
const char *watched_file_error(int error);
