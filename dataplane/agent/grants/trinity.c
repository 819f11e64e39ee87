/* See trinity.h. A lock file keeps two agents that start together from registering twice: struct_ops names are global
 * to a kernel and a second registration of a name fails. Who may look objects up by their ids finds an earlier agent's
 * trinity so; others are handed it (trinity_share.h). */
#include "grants/trinity.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/kernel.h"
#include "core/kernel_features.h"
#include "core/log.h"
#include "grants/trinity_share.h"
#include "maps.h"
#include "trinity.skel.h"

#define LOCK_PATH TRINITY_DIRECTORY "/lock"
#define USERS_PATH TRINITY_DIRECTORY "/users"
#define BPF_F_LINK (1u << 13)
/* An agent that has registered trinity hands it over as soon as its loop runs. */
#define TAKE_TRIES 100
#define TAKE_PERIOD_NS 100000000

static int take_lock(void) {
    if (mkdir(TRINITY_DIRECTORY, 0700) && errno != EEXIST)
        return -errno;
    int fd = open(LOCK_PATH, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    if (flock(fd, LOCK_EX)) {
        int error = -errno;
        close(fd);
        return error;
    }
    return fd;
}

static void close_all(struct trinity *trinity) {
    int *fds[] = {&trinity->link_fd, &trinity->rates_fd, &trinity->usage_fd, &trinity->flows_fd, &trinity->users_fd};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}

static int copy_of(int fd) {
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    return copy < 0 ? -errno : copy;
}

/* What an agent left that nobody uses any more: a kernel without links for operations keeps them registered. */
static void take_back(struct trinity *trinity) {
    int map_fd = -1;
    int holder = kernel_find_struct_ops(CHART_TRINITY, &map_fd);
    if (holder < 0)
        return;
    int error = kernel_unregister_struct_ops(map_fd);
    trinity->replaced = !error;
    if (error)
        log_error("trinity of a killed agent cannot be taken back: %s", strerror(-error));
    else
        log_info("trinity of a killed agent was still registered and is taken back");
    close(map_fd);
    close(holder);
}

/* The kernel drops an agent's lock with the agent, so who gets it alone knows that there is no other. */
static int become_user(struct trinity *trinity) {
    if (kernel_features()->struct_ops_link)
        return 0;
    trinity->users_fd = open(USERS_PATH, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (trinity->users_fd < 0)
        return -errno;
    if (flock(trinity->users_fd, LOCK_EX | LOCK_NB) == 0)
        take_back(trinity);
    return flock(trinity->users_fd, LOCK_SH) ? -errno : 0;
}

static int join(struct trinity *trinity) {
    int map_fd = -1;
    int link_fd = kernel_find_struct_ops(CHART_TRINITY, &map_fd);
    if (link_fd < 0)
        return link_fd;
    trinity->link_fd = link_fd;
    trinity->rates_fd = kernel_find_map(map_fd, "trinity_control", "rates");
    trinity->usage_fd = kernel_find_map(map_fd, "trinity_control", "usage");
    trinity->flows_fd = kernel_find_map(map_fd, "trinity_control", "flows");
    close(map_fd);
    if (trinity->rates_fd >= 0 && trinity->usage_fd >= 0 && trinity->flows_fd >= 0)
        return 0;
    log_error("trinity is registered in this kernel, but its maps cannot be found: another version?");
    return -EPROTO;
}

/* A descriptor that keeps the registration, or a negative errno. */
static int register_operations(struct bpf_map *map) {
    /* libbpf fills the value of a struct_ops map only when it attaches it itself; without links that registers it. */
    struct bpf_link *filled = bpf_map__attach_struct_ops(map);
    if (!filled)
        return -errno;
    bpf_link__disconnect(filled);
    bpf_link__destroy(filled);
    return kernel_features()->struct_ops_link ? kernel_link_struct_ops(bpf_map__fd(map)) : copy_of(bpf_map__fd(map));
}

static int load(struct trinity *trinity) {
    const struct kernel_features *features = kernel_features();
    struct chart_trinity *skeleton = chart_trinity__open();
    int error = 0;
    if (!skeleton)
        return -errno;
    if (features->cong_control_arguments)
        skeleton->rodata->cong_control_arguments = features->cong_control_arguments;
    if (features->struct_ops_link)
        bpf_map__set_map_flags(skeleton->maps.trinity, BPF_F_LINK);
    error = chart_trinity__load(skeleton);
    if (error) {
        log_error("the kernel refused trinity: %s", strerror(-error));
        goto out;
    }
    trinity->link_fd = register_operations(skeleton->maps.trinity);
    if (trinity->link_fd < 0) {
        error = trinity->link_fd;
        if (error != -EEXIST)
            log_error("registering trinity failed: %s", strerror(-error));
        goto out;
    }
    trinity->rates_fd = copy_of(bpf_map__fd(skeleton->maps.rates));
    trinity->usage_fd = copy_of(bpf_map__fd(skeleton->maps.usage));
    trinity->flows_fd = copy_of(bpf_map__fd(skeleton->maps.flows));
    if (trinity->rates_fd < 0 || trinity->usage_fd < 0 || trinity->flows_fd < 0)
        error = -EMFILE;
out:
    chart_trinity__destroy(skeleton);
    return error;
}

/* The last user takes the registration back where the kernel does not. */
static void leave(struct trinity *trinity) {
    if (trinity->users_fd >= 0 && trinity->link_fd >= 0 && flock(trinity->users_fd, LOCK_EX | LOCK_NB) == 0) {
        int error = kernel_unregister_struct_ops(trinity->link_fd);
        if (error)
            log_warning("trinity stays registered: %s", strerror(-error));
    }
    close_all(trinity);
}

/* Somebody has registered trinity and does not listen yet. */
static int wait_for_other(struct trinity *trinity) {
    const struct timespec period = {.tv_nsec = TAKE_PERIOD_NS};
    int error = -ENOENT;
    for (int i = 0; i < TAKE_TRIES && error == -ENOENT; i++) {
        if (i)
            nanosleep(&period, NULL);
        error = trinity_share_take(trinity);
    }
    if (error == -ENOENT) {
        log_error("trinity is registered in this kernel and no agent hands it over: agents have to share " //
                  TRINITY_DIRECTORY ", or start with CAP_SYS_ADMIN");
        return -EEXIST;
    }
    return error;
}

static int load_or_take(struct trinity *trinity) {
    int error = load(trinity);
    if (error == -EEXIST)
        return wait_for_other(trinity);
    if (!error)
        trinity_share_clear();
    return error;
}

int trinity_open(struct trinity *ret) {
    struct trinity trinity = TRINITY_NONE;
    int lock = take_lock();
    if (lock < 0) {
        log_error("cannot lock " LOCK_PATH ": %s", strerror(-lock));
        return lock;
    }
    int error = become_user(&trinity);
    error = error ? error : join(&trinity);
    if (error == -EPERM)
        error = trinity_share_take(&trinity);
    if (error == -ENOENT)
        error = load_or_take(&trinity);
    if (error)
        leave(&trinity);
    close(lock);
    if (!error)
        *ret = trinity;
    return error;
}

void trinity_close(struct trinity *trinity) {
    int lock = trinity->users_fd >= 0 ? take_lock() : -1;
    leave(trinity);
    if (lock >= 0)
        close(lock);
}
