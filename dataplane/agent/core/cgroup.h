/* The cgroup v2 directory that holds a node's processes. */
#pragma once

#include <stdint.h>

/* Where cgroup v2 is mounted, from /proc/mounts; mounted at /sys/fs/cgroup/unified when it is nowhere. 0 or a negative
 * errno. */
int cgroup_mount_point(char *ret, unsigned size);

/* Make the directory if it is not there; its id and its depth below the root. 0 or a negative errno. */
int cgroup_open(const char *path, uint64_t *ret_id, uint32_t *ret_level);
