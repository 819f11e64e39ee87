/* See kept_mode.h. */
#include "grants/kept_mode.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/state_file.h"

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
    struct kept_mode kept = {.told = DECIDE_MODE_OBSERVE};
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

int kept_mode_write(const char *directory, const struct kept_mode *mode) {
    char text[64];
    snprintf(text, sizeof(text), "mode %s\nlocal %s\n", decide_mode_name(mode->told), mode->off ? "off" : "on");
    return state_file_write(directory, NAME, text);
}
