/* See agent.h. */
#include "core/agent.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "core/loop.h"
#include "lib/caps/caps.h"
#include "lib/notify/notify.h"

struct agent {
    const struct agent_options *options;
    struct loop loop;
    const struct agent_module *const *modules;
    void **states;
    size_t n_open;
    int signal_fd;
    int exit_status;
};

const struct agent_options *agent_options(const struct agent *agent) {
    return agent->options;
}

void *agent_state(const struct agent *agent, const struct agent_module *module) {
    for (size_t i = 0; i < agent->n_open; i++)
        if (agent->modules[i] == module)
            return agent->states[i];
    return NULL;
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

void agent_add_status(const struct agent *agent, struct cJSON *object) {
    for (size_t i = 0; i < agent->n_open; i++)
        if (agent->modules[i]->status)
            agent->modules[i]->status(agent->states[i], object);
}

void agent_tell_switched_off(struct agent *agent, bool off) {
    for (size_t i = 0; i < agent->n_open; i++)
        if (agent->modules[i]->switched_off)
            agent->modules[i]->switched_off(agent->states[i], off);
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

static int drop_privileges(void) {
    /* What changing maps, walking flows and configuring interfaces needs. */
    static const cap_value_t kept[] = {CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN};
    int error = caps_drop(kept, sizeof(kept) / sizeof(kept[0]));
    if (error)
        log_error("cannot drop privileges: %s", strerror(-error));
    return error;
}

static int open_parts(struct agent *agent, size_t n_modules) {
    int error = open_signals(agent);
    if (error)
        return error;
    for (; agent->n_open < n_modules; agent->n_open++) {
        const struct agent_module *module = agent->modules[agent->n_open];
        error = module->open(agent, &agent->states[agent->n_open]);
        if (error) {
            log_error("%s cannot start: %s", module->name, strerror(-error));
            return error;
        }
    }
    return drop_privileges();
}

static void close_parts(struct agent *agent) {
    while (agent->n_open) {
        agent->n_open--;
        agent->modules[agent->n_open]->close(agent->states[agent->n_open]);
    }
    loop_close(&agent->loop);
    if (agent->signal_fd >= 0)
        close(agent->signal_fd);
    free(agent->states);
}

static void tell_alive(void *context) {
    (void)context;
    notify_alive();
}

/* The service manager's watchdog is fed by the loop that does everything else. */
static int start_watchdog(struct agent *agent) {
    uint64_t period_us = notify_period_us();
    return period_us ? loop_add_timer(&agent->loop, period_us, tell_alive, NULL) : 0;
}

int agent_run(const struct agent_options *options, const struct agent_module *const *modules, size_t n_modules) {
    struct agent agent = {
        .options = options, .modules = modules, .states = calloc(n_modules, sizeof(*agent.states)), .signal_fd = -1};
    if (!agent.states)
        return 1;
    if (mkdir(options->state_dir, 0755) && errno != EEXIST) {
        log_error("cannot make %s: %s", options->state_dir, strerror(errno));
        free(agent.states);
        return 1;
    }
    if (loop_open(&agent.loop)) {
        free(agent.states);
        return 1;
    }
    int error = open_parts(&agent, n_modules);
    if (!error)
        error = start_watchdog(&agent);
    if (!error) {
        log_info("node %s: ready", options->node);
        notify_ready();
        error = loop_run(&agent.loop);
        notify_stopping();
    }
    close_parts(&agent);
    return error ? 1 : agent.exit_status;
}
