/* The datapath as a part of the agent: opened before the parts that use it, walked once a second. */
#include <cjson/cJSON.h>
#include <sys/utsname.h>

#include "core/agent.h"
#include "core/kernel_features.h"
#include "grants/datapath.h"

#define WALK_PERIOD_US 1000000u

static void walk(void *context) {
    datapath_reconcile(context);
}

static void close_module(void *state) {
    datapath_close(state);
}

static int open_module(struct agent *agent, void **ret_state) {
    const struct agent_options *options = agent_options(agent);
    const struct datapath_options datapath_options = {
        .cgroup_path = options->cgroup_path,
        .default_control = options->default_control,
        .sensor_port = options->sensor_port,
        .signalling = options->signal_file != NULL || options->authority_url != NULL,
        .state_dir = options->state_dir,
    };
    struct datapath *datapath = NULL;
    int error = datapath_open(&datapath_options, &datapath);
    if (error)
        return error;
    error = agent_add_timer(agent, WALK_PERIOD_US, walk, datapath);
    if (error) {
        datapath_close(datapath);
        return error;
    }
    *ret_state = datapath;
    return 0;
}

struct datapath *datapath_of(const struct agent *agent) {
    return agent_state(agent, &datapath_module);
}

/* How the programs got into this kernel. */
static void status(void *state, struct cJSON *object) {
    const struct kernel_features *features = kernel_features();
    struct cJSON *kernel = cJSON_AddObjectToObject(object, "kernel");
    struct utsname name;
    (void)state;
    cJSON_AddStringToObject(kernel, "release", uname(&name) ? "" : name.release);
    cJSON_AddStringToObject(kernel, "classifiers", features->tcx ? "tcx" : "clsact");
    cJSON_AddStringToObject(kernel, "trinity", features->struct_ops_link ? "link" : "registration");
    cJSON_AddBoolToObject(kernel, "outlives_agent", kernel_keeps_programs());
}

const struct agent_module datapath_module = {
    .name = "datapath", .open = open_module, .close = close_module, .status = status};
