/* See datapath.h. This file: what a killed agent may have left. Programs, links and maps went with it, and flows hand
 * themselves over when their lease ends; what can remain are idle flows still on trinity, which nothing wakes up, and
 * the control socket. On kernels without links (core/kernel_features.h) trinity too, which opening the datapath takes
 * back, and filters on interfaces. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/cgroup.h"
#include "grants/datapath_state.h"

#define DEFAULT_CONTROL_PATH "/proc/sys/net/ipv4/tcp_congestion_control"

/* The namespace's own default, for sockets whose earlier control is forgotten. */
static void read_default_control(char *ret, size_t size) {
    FILE *file = fopen(DEFAULT_CONTROL_PATH, "r");
    snprintf(ret, size, "cubic");
    if (!file)
        return;
    if (fgets(ret, (int)size, file))
        ret[strcspn(ret, "\n")] = '\0';
    fclose(file);
}

int datapath_cleanup(const struct datapath_options *options) {
    char mount[256], control[CHART_CONTROL_NAME_LEN], path[256];
    struct datapath_options whole_node = *options;
    struct datapath *datapath = NULL;
    int removed = 0;
    int error = options->cgroup_path ? 0 : cgroup_mount_point(mount, sizeof(mount));
    if (error)
        return error;
    if (!options->cgroup_path)
        whole_node.cgroup_path = mount;
    removed = kernel_clean_tc();
    if (removed < 0)
        return removed;
    read_default_control(control, sizeof(control));
    if (!options->default_control)
        whole_node.default_control = control;
    error = datapath_open(&whole_node, &datapath);
    error = error ? error : datapath_reconcile(datapath);
    if (!error)
        removed += (int)datapath->walk_given_back + datapath->trinity.replaced;
    datapath_close(datapath);
    if (error)
        return error;
    snprintf(path, sizeof(path), "%s/agent.sock", options->state_dir);
    if (unlink(path) == 0)
        removed++;
    return removed;
}
