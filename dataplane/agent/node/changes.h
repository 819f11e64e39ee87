/* What an agent that enforces has changed in the node's own settings, with what they were before: on disk (file
 * `changed-settings` in the state folder) before anything is changed, so that what a killed agent left is put back by
 * the next one, or by --cleanup. A setting that somebody else has changed since is left as it is. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "core/netlink.h"
#include "core/options.h"

/* Two limits of TCP, and the offload sizes of every link. */
#define CHANGES_MAX (AGENT_LINKS_MAX + 2)
#define CHANGES_NAME_LEN 40
#define CHANGES_VALUE_LEN 80

enum change_kind {
    /* A file below /proc/sys by its path there; the value is its words with one space between them. */
    CHANGE_SYSCTL,
    /* An interface by its name; the value is struct netlink_offload in that order. */
    CHANGE_OFFLOAD,
};

struct change {
    enum change_kind kind;
    char name[CHANGES_NAME_LEN];
    char before[CHANGES_VALUE_LEN];
    char after[CHANGES_VALUE_LEN];
};

struct changes {
    const char *state_dir;
    struct netlink *netlink;
    struct change list[CHANGES_MAX];
    size_t n;
};

/* Read what an earlier agent left and put it back; returns how many settings that were. The folder and the socket are
 * the caller's and outlive `ret`. */
size_t changes_open(const char *state_dir, struct netlink *netlink, struct changes *ret);
/* The setting now. 0 or a negative errno. */
int changes_read(const struct changes *changes, enum change_kind kind, const char *name, char ret[CHANGES_VALUE_LEN]);
/* Change a setting to `value`. 0 also when it has that value already, or a negative errno; then nothing is changed. */
int changes_set(struct changes *changes, enum change_kind kind, const char *name, const char *value);
/* Put one setting back, or all of them. What cannot be put back is logged. */
void changes_undo(struct changes *changes, enum change_kind kind, const char *name);
void changes_undo_all(struct changes *changes);
