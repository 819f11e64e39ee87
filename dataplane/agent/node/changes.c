/* See changes.h. The file has one line per setting: kind, name, value before and value after, with tabs between. */
#include "node/changes.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "core/state_file.h"

#define NAME "changed-settings"
#define LINE_LEN (CHANGES_NAME_LEN + 2 * CHANGES_VALUE_LEN + 16)

static const char *const kind_names[] = {[CHANGE_SYSCTL] = "sysctl", [CHANGE_OFFLOAD] = "offload"};

static int read_sysctl(const char *name, char ret[CHANGES_VALUE_LEN]) {
    char path[PATH_MAX], word[CHANGES_VALUE_LEN];
    size_t used = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/sys/%s", name);
    file = fopen(path, "re");
    if (!file)
        return -errno;
    ret[0] = '\0';
    while (fscanf(file, "%79s", word) == 1 && used < CHANGES_VALUE_LEN)
        used += (size_t)snprintf(ret + used, CHANGES_VALUE_LEN - used, used ? " %s" : "%s", word);
    fclose(file);
    return used == 0 || used >= CHANGES_VALUE_LEN ? -EINVAL : 0;
}

static int write_sysctl(const char *name, const char *value) {
    char path[PATH_MAX];
    FILE *file;

    snprintf(path, sizeof(path), "/proc/sys/%s", name);
    file = fopen(path, "we");
    if (!file)
        return -errno;
    fprintf(file, "%s\n", value);
    return fclose(file) ? -errno : 0;
}

static int write_offload(struct netlink *netlink, const char *name, const char *value) {
    struct netlink_interface interface;
    struct netlink_offload sizes;
    int error = netlink_interface(netlink, 0, name, &interface);

    if (error)
        return error;
    if (sscanf(value, "%" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32, &sizes.gso_max_bytes, &sizes.gro_max_bytes,
               &sizes.gso_ipv4_max_bytes, &sizes.gro_ipv4_max_bytes) != 4)
        return -EINVAL;
    return netlink_set_offload(netlink, interface.ifindex, &sizes);
}

int changes_read(const struct changes *changes, enum change_kind kind, const char *name, char ret[CHANGES_VALUE_LEN]) {
    struct netlink_interface interface;
    int error;

    if (kind == CHANGE_SYSCTL)
        return read_sysctl(name, ret);
    error = netlink_interface(changes->netlink, 0, name, &interface);
    if (!error)
        netlink_offload_text(&interface.offload, ret, CHANGES_VALUE_LEN);
    return error;
}

static int write_value(const struct changes *changes, enum change_kind kind, const char *name, const char *value) {
    return kind == CHANGE_SYSCTL ? write_sysctl(name, value) : write_offload(changes->netlink, name, value);
}

static struct change *find(struct changes *changes, enum change_kind kind, const char *name) {
    for (size_t i = 0; i < changes->n; i++)
        if (changes->list[i].kind == kind && strcmp(changes->list[i].name, name) == 0)
            return &changes->list[i];
    return NULL;
}

static int keep(const struct changes *changes) {
    char text[CHANGES_MAX * LINE_LEN] = "", path[PATH_MAX];
    size_t used = 0;

    if (!changes->n) {
        snprintf(path, sizeof(path), "%s/" NAME, changes->state_dir);
        return unlink(path) && errno != ENOENT ? -errno : 0;
    }
    for (size_t i = 0; i < changes->n; i++) {
        const struct change *change = &changes->list[i];

        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s\t%s\t%s\t%s\n", kind_names[change->kind],
                                 change->name, change->before, change->after);
    }
    return state_file_write(changes->state_dir, NAME, text);
}

/* The setting as it was, unless it is not as this program left it. */
static int put_back(const struct changes *changes, const struct change *change) {
    char present[CHANGES_VALUE_LEN];
    int error = changes_read(changes, change->kind, change->name, present);

    /* An interface that went took its sizes with it. */
    if (error == -ENODEV || (!error && strcmp(present, change->after) != 0))
        return 0;
    return error ? error : write_value(changes, change->kind, change->name, change->before);
}

static void forget(struct changes *changes, struct change *change) {
    *change = changes->list[--changes->n];
}

int changes_set(struct changes *changes, enum change_kind kind, const char *name, const char *value) {
    struct change *change = find(changes, kind, name), earlier = {0};
    char present[CHANGES_VALUE_LEN];
    int error = changes_read(changes, kind, name, present);

    if (error || strcmp(present, value) == 0)
        return error;
    if (!change && (changes->n == CHANGES_MAX || strlen(name) >= sizeof(change->name)))
        return -ENOSPC;
    if (change) {
        earlier = *change;
    } else {
        change = &changes->list[changes->n++];
        *change = (struct change){.kind = kind};
        strcpy(change->name, name);
    }
    if (strcmp(present, change->after) != 0)
        memcpy(change->before, present, sizeof(change->before));
    snprintf(change->after, sizeof(change->after), "%s", value);
    error = keep(changes);
    error = error ? error : write_value(changes, kind, name, value);
    if (!error)
        return 0;
    if (earlier.name[0])
        *change = earlier;
    else
        forget(changes, change);
    (void)keep(changes);
    return error;
}

void changes_undo(struct changes *changes, enum change_kind kind, const char *name) {
    struct change *change = find(changes, kind, name);
    int error;

    if (!change)
        return;
    error = put_back(changes, change);
    if (error) {
        log_warning("%s %s cannot be put back to %s: %s", kind_names[kind], name, change->before, strerror(-error));
        return;
    }
    forget(changes, change);
    error = keep(changes);
    if (error)
        log_warning("what was put back cannot be noted in %s: %s", changes->state_dir, strerror(-error));
}

void changes_undo_all(struct changes *changes) {
    for (size_t i = changes->n; i-- > 0;)
        changes_undo(changes, changes->list[i].kind, changes->list[i].name);
}

static bool parse(const char *line, struct change *ret) {
    char kind[8];

    if (sscanf(line, "%7[^\t]\t%39[^\t]\t%79[^\t]\t%79[^\n]", kind, ret->name, ret->before, ret->after) != 4)
        return false;
    for (size_t i = 0; i < sizeof(kind_names) / sizeof(kind_names[0]); i++)
        if (strcmp(kind, kind_names[i]) == 0) {
            ret->kind = (enum change_kind)i;
            return true;
        }
    return false;
}

size_t changes_open(const char *state_dir, struct netlink *netlink, struct changes *ret) {
    char path[PATH_MAX], line[LINE_LEN];
    size_t left;
    FILE *file;

    *ret = (struct changes){.state_dir = state_dir, .netlink = netlink};
    snprintf(path, sizeof(path), "%s/" NAME, state_dir);
    file = fopen(path, "re");
    if (!file)
        return 0;
    while (ret->n < CHANGES_MAX && fgets(line, sizeof(line), file))
        if (parse(line, &ret->list[ret->n]))
            ret->n++;
    fclose(file);
    left = ret->n;
    changes_undo_all(ret);
    return left - ret->n;
}
