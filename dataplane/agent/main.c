/* chart-agent: takes grants from the streams or a file and makes the kernel keep them (Brassil et al., The CHART
 * System, section 5; architecture.md, "chart-agent").
 *
 * This file: start, the order of the parts, the off switch, the end. */
#include <bpf/libbpf.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/control.h"
#include "core/loop.h"
#include "core/options.h"
#include "grants/datapath.h"
#include "lib/caps/caps.h"

#define WALK_PERIOD_US 1000000u

static const struct agent_module *const modules[] = {
    &trinity_share_module, &ratefile_module, &signal_module, &authority_module, &ipfix_module, &police_module,
    &streams_module,
    &control_module,
};
#define N_MODULES (sizeof(modules) / sizeof(modules[0]))

struct agent {
    struct options options;
    struct loop loop;
    struct datapath *datapath;
    void *states[N_MODULES];
    size_t n_open;
    int signal_fd;
    int exit_status;
    bool off;
    enum decide_mode wanted_mode;
};

const struct agent_options *agent_options(const struct agent *agent) {
    return &agent->options.agent;
}

struct datapath *agent_datapath(struct agent *agent) {
    return agent->datapath;
}

bool agent_is_off(const struct agent *agent) {
    return agent->off;
}

int agent_set_mode(struct agent *agent, int mode) {
    if (agent->wanted_mode != (enum decide_mode)mode)
        log_info("enforcement: %s", control_mode_name((enum decide_mode)mode));
    agent->wanted_mode = (enum decide_mode)mode;
    return datapath_set_mode(agent->datapath, agent->off ? DECIDE_MODE_OFF : agent->wanted_mode);
}

int agent_add_fd(struct agent *agent, int fd, uint32_t events, void (*ready)(void *, uint32_t), void *context) {
    return loop_add_fd(&agent->loop, fd, events, ready, context);
}

void agent_remove_fd(struct agent *agent, int fd) {
    loop_remove_fd(&agent->loop, fd);
}

int agent_add_timer(struct agent *agent, uint64_t period_us, void (*tick)(void *), void *context) {
    return loop_add_timer(&agent->loop, period_us, tick, context);
}

void agent_stop(struct agent *agent, int exit_status) {
    agent->exit_status = exit_status;
    agent->loop.stop = true;
}

int control_switch(struct agent *agent, bool off) {
    agent->off = off;
    log_info("switched %s by the local command", off ? "off" : "on");
    int error = datapath_set_mode(agent->datapath, off ? DECIDE_MODE_OFF : agent->wanted_mode);
    for (size_t i = 0; i < agent->n_open; i++)
        if (modules[i]->switched_off)
            modules[i]->switched_off(agent->states[i], off);
    return error;
}

void control_statuses(struct agent *agent, struct cJSON *object) {
    for (size_t i = 0; i < agent->n_open; i++)
        if (modules[i]->status)
            modules[i]->status(agent->states[i], object);
}

static void on_signal(void *context, uint32_t events) {
    struct agent *agent = context;
    struct signalfd_siginfo info;
    (void)events;
    if (read(agent->signal_fd, &info, sizeof(info)) != sizeof(info))
        return;
    log_info("stopping on signal %u: flows go back to their own control", info.ssi_signo);
    agent_stop(agent, 0);
}

static int open_signals(struct agent *agent) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    agent->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (agent->signal_fd < 0)
        return -errno;
    return loop_add_fd(&agent->loop, agent->signal_fd, EPOLLIN, on_signal, agent);
}

static void walk(void *context) {
    struct agent *agent = context;
    datapath_reconcile(agent->datapath);
}

static int open_parts(struct agent *agent) {
    /* What changing maps, walking flows and configuring interfaces needs. */
    static const cap_value_t kept[] = {CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN};
    const struct agent_options *options = &agent->options.agent;
    const struct datapath_options datapath_options = {
        .cgroup_path = options->cgroup_path,
        .default_control = options->default_control,
        .sensor_port = options->sensor_port,
        .signalling = options->signal_file != NULL || options->authority_url != NULL,
        .state_dir = options->state_dir,
    };
    int error = open_signals(agent);
    error = error ? error : datapath_open(&datapath_options, &agent->datapath);
    if (error)
        return error;
    for (; agent->n_open < N_MODULES; agent->n_open++) {
        const struct agent_module *module = modules[agent->n_open];
        error = module->open(agent, &agent->states[agent->n_open]);
        if (error) {
            log_error("%s cannot start: %s", module->name, strerror(-error));
            return error;
        }
    }
    error = loop_add_timer(&agent->loop, WALK_PERIOD_US, walk, agent);
    if (error)
        return error;
    error = caps_drop(kept, sizeof(kept) / sizeof(kept[0]));
    if (error)
        log_error("cannot drop privileges: %s", strerror(-error));
    return error;
}

static int run(const struct options *options) {
    struct agent agent = {.options = *options, .signal_fd = -1, .wanted_mode = DECIDE_MODE_ENFORCE};
    if (mkdir(options->agent.state_dir, 0755) && errno != EEXIST) {
        log_error("cannot make %s: %s", options->agent.state_dir, strerror(errno));
        return 1;
    }
    int error = loop_open(&agent.loop);
    if (error)
        return 1;
    error = open_parts(&agent);
    if (!error) {
        log_info("node %s: ready", options->agent.node);
        error = loop_run(&agent.loop);
    }
    while (agent.n_open) {
        agent.n_open--;
        modules[agent.n_open]->close(agent.states[agent.n_open]);
    }
    datapath_close(agent.datapath);
    loop_close(&agent.loop);
    if (agent.signal_fd >= 0)
        close(agent.signal_fd);
    return error ? 1 : agent.exit_status;
}

static int print_libbpf(enum libbpf_print_level level, const char *format, va_list arguments) {
    if (level != LIBBPF_WARN)
        return 0;
    return vfprintf(stderr, format, arguments);
}

int main(int argc, char **argv) {
    struct options options;
    if (options_parse(argc, argv, stderr, &options))
        return 2;
    libbpf_set_print(print_libbpf);
    libbpf_set_strict_mode(LIBBPF_STRICT_ALL);
    switch (options.action) {
    case OPTIONS_HELP:
        options_help(stdout);
        return 0;
    case OPTIONS_RUN:
        return run(&options);
    case OPTIONS_OFF:
        return control_client(&options, "off");
    case OPTIONS_ON:
        return control_client(&options, "on");
    case OPTIONS_STATUS:
        return control_client(&options, "status");
    case OPTIONS_EXPLAIN:
        return control_client(&options, "explain");
    case OPTIONS_CLEANUP:
        return control_cleanup(&options);
    }
    return 2;
}
