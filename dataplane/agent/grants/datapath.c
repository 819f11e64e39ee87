/* See datapath.h. This file: start and end. */
#include "grants/datapath.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/cgroup.h"
#include "core/log.h"
#include "grants/datapath_state.h"
#include "grants/kept_mode.h"
#include "signal_maps.h"

/* A quarter of RFC 6298's second: beyond the RTT of all but paths over satellites, where a SYN too many does no harm.
 */
#define SYN_TIMEOUT_NS (250l * 1000 * 1000)

/* The node in the keys of shared maps: the cookie of the network namespace. */
static int read_node(uint64_t *ret) {
    socklen_t length = sizeof(*ret);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int error = 0;
    if (fd < 0)
        return -errno;
    if (getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, ret, &length))
        error = -errno;
    close(fd);
    return error;
}

/* Entries that an earlier agent of this node left in the shared maps. */
static void forget_earlier(struct datapath *datapath) {
    int maps[] = {datapath->trinity.rates_fd, datapath->trinity.usage_fd};
    for (size_t i = 0; i < 2; i++) {
        struct chart_grant_key key, next;
        int more = bpf_map_get_next_key(maps[i], NULL, &next);
        while (more == 0) {
            key = next;
            more = bpf_map_get_next_key(maps[i], &key, &next);
            if (key.node == datapath->config.node)
                bpf_map_delete_elem(maps[i], &key);
        }
    }
}

static int load_programs(struct datapath *datapath) {
    struct chart_attach *attach = chart_attach__open();
    struct chart_classify *classify = chart_classify__open();
    const struct trinity *shared = &datapath->trinity;
    int error = 0;
    datapath->attach = attach;
    datapath->classify = classify;
    if (!attach || !classify)
        return -ENOMEM;
    bpf_program__set_expected_attach_type(classify->progs.classify, 0);
    bpf_program__set_expected_attach_type(classify->progs.quick_start_arrive, 0);
    error = bpf_map__reuse_fd(attach->maps.rates, shared->rates_fd);
    error = error ? error : bpf_map__reuse_fd(attach->maps.usage, shared->usage_fd);
    if (!error && datapath->config.signalling)
        error = bpf_map__set_max_entries(attach->maps.signal_flows, CHART_SIGNAL_FLOWS_MAX);
    error = error ? error : bpf_map__reuse_fd(attach->maps.flows, shared->flows_fd);
    error = error ? error : chart_attach__load(attach);
    error = error ? error : bpf_map__reuse_fd(classify->maps.rates, shared->rates_fd);
    error = error ? error : bpf_map__reuse_fd(classify->maps.usage, shared->usage_fd);
    error = error ? error : bpf_map__reuse_fd(classify->maps.flows, shared->flows_fd);
    error = error ? error : bpf_map__reuse_fd(classify->maps.node_config, bpf_map__fd(attach->maps.node_config));
    error = error ? error : bpf_map__reuse_fd(classify->maps.selectors, bpf_map__fd(attach->maps.selectors));
    error = error ? error : bpf_map__reuse_fd(classify->maps.qs_flows, bpf_map__fd(attach->maps.qs_flows));
    error = error ? error : bpf_map__reuse_fd(classify->maps.qs_counts, bpf_map__fd(attach->maps.qs_counts));
    error = error ? error : chart_classify__load(classify);
    if (error)
        log_error("the kernel refused the programs attach or classify: %s", strerror(-error));
    return error;
}

int datapath_share_maps(const struct datapath *datapath, struct bpf_map *rates, struct bpf_map *usage,
                        struct bpf_map *flows, struct bpf_map *signal_flows) {
    int error = bpf_map__reuse_fd(rates, datapath->trinity.rates_fd);
    error = error ? error : bpf_map__reuse_fd(usage, datapath->trinity.usage_fd);
    error = error ? error : bpf_map__reuse_fd(flows, datapath->trinity.flows_fd);
    return error ? error : bpf_map__reuse_fd(signal_flows, bpf_map__fd(datapath->attach->maps.signal_flows));
}

const struct trinity *datapath_trinity(const struct datapath *datapath) {
    return &datapath->trinity;
}

int datapath_share_grants(const struct datapath *datapath, struct bpf_map *rates, struct bpf_map *node_config,
                          struct bpf_map *selectors) {
    int error = bpf_map__reuse_fd(rates, datapath->trinity.rates_fd);
    error = error ? error : bpf_map__reuse_fd(node_config, bpf_map__fd(datapath->attach->maps.node_config));
    return error ? error : bpf_map__reuse_fd(selectors, bpf_map__fd(datapath->attach->maps.selectors));
}

static int attach_cgroup(struct datapath *datapath, const char *path) {
    int cgroup_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (cgroup_fd < 0) {
        log_error("cannot open the cgroup %s: %s", path, strerror(errno));
        return -errno;
    }
    int fd =
        bpf_link_create(bpf_program__fd(datapath->attach->progs.attach_sockops), cgroup_fd, BPF_CGROUP_SOCK_OPS, NULL);
    int error = fd < 0 ? -errno : 0;
    close(cgroup_fd);
    if (error) {
        log_error("cannot attach to the cgroup %s: %s", path, strerror(-error));
        return error;
    }
    datapath->cgroup_link_fd = fd;
    fd = bpf_link_create(bpf_program__fd(datapath->attach->progs.walk_flows), 0, BPF_TRACE_ITER, NULL);
    if (fd < 0) {
        log_error("cannot make the walk over TCP flows: %s", strerror(errno));
        return -errno;
    }
    datapath->walk_link_fd = fd;
    return 0;
}

int datapath_write_config(struct datapath *datapath) {
    uint32_t zero = 0;
    int fd = bpf_map__fd(datapath->attach->maps.node_config);
    return bpf_map_update_elem(fd, &zero, &datapath->config, BPF_ANY) ? -errno : 0;
}

int datapath_set_receive_window(struct datapath *datapath, uint32_t bytes) {
    datapath->config.receive_window_bytes = bytes;
    return datapath_write_config(datapath);
}

int datapath_set_default_control(struct datapath *datapath, const char *name) {
    char *kept = datapath->config.default_control;
    if (strncmp(kept, name, sizeof(datapath->config.default_control)) == 0)
        return 0;
    /* The kernel compares it as words: what is behind the name is zero. */
    memset(kept, 0, sizeof(datapath->config.default_control));
    snprintf(kept, sizeof(datapath->config.default_control), "%s", name);
    return datapath_write_config(datapath);
}

/* A time in ticks of the kernel's timer (CONFIG_HZ), which is the resolution of its coarse clock; 0: not known. */
static uint32_t ticks(long ns) {
    struct timespec tick;
    return clock_getres(CLOCK_MONOTONIC_COARSE, &tick) || tick.tv_sec || !tick.tv_nsec ? 0
                                                                                       : (uint32_t)(ns / tick.tv_nsec);
}

static int set_up(struct datapath *datapath, const struct datapath_options *options) {
    struct chart_node_config *config = &datapath->config;
    uint64_t node = 0, cgroup_id = 0;
    uint32_t cgroup_level = 0;
    int error = read_node(&node);
    if (error) {
        log_error("cannot read the cookie of the network namespace: %s", strerror(-error));
        return error;
    }
    error = cgroup_open(options->cgroup_path, &cgroup_id, &cgroup_level);
    if (error)
        return error;
    config->node = node;
    config->cgroup_id = cgroup_id;
    config->cgroup_level = cgroup_level;
    config->syn_timeout_ticks = ticks(SYN_TIMEOUT_NS);
    config->sensor_port = options->sensor_port;
    config->signalling = options->signalling;
    config->enforce = datapath->mode == DECIDE_MODE_ENFORCE;
    if (options->default_control)
        snprintf(config->default_control, sizeof(config->default_control), "%s", options->default_control);
    error = trinity_open(&datapath->trinity);
    if (error)
        return error;
    forget_earlier(datapath);
    error = kernel_clean_tc();
    if (error > 0)
        log_info("%d classifiers of a killed agent were still attached and are removed", error);
    else if (error < 0)
        log_warning("what a killed agent may have left on interfaces stays: %s", strerror(-error));
    error = load_programs(datapath);
    error = error ? error : datapath_write_config(datapath);
    return error ? error : attach_cgroup(datapath, options->cgroup_path);
}

/* Go on in the mode of before. */
static void recall_mode(struct datapath *datapath, const char *state_dir) {
    struct kept_mode kept;
    int error = kept_mode_read(state_dir, &kept);
    if (error)
        log_error("what mode this node was in cannot be read, so it is off until chart-agent --on: %s",
                  strerror(-error));
    datapath->state_dir = state_dir;
    datapath->wanted_mode = kept.told;
    datapath->off = kept.off;
    datapath->mode = kept.off ? DECIDE_MODE_OFF : kept.told;
}

int datapath_open(const struct datapath_options *options, struct datapath **ret) {
    struct datapath *datapath = calloc(1, sizeof(*datapath));
    if (!datapath)
        return -ENOMEM;
    datapath->trinity = TRINITY_NONE;
    datapath->cgroup_link_fd = -1;
    datapath->walk_link_fd = -1;
    recall_mode(datapath, options->state_dir);
    datapath->next_number = 1;
    datapath->entries = calloc(DATAPATH_GRANTS_MAX, sizeof(*datapath->entries));
    int error = datapath->entries ? set_up(datapath, options) : -ENOMEM;
    if (error) {
        datapath_close(datapath);
        return error;
    }
    *ret = datapath;
    return 0;
}

void datapath_close(struct datapath *datapath) {
    if (!datapath)
        return;
    if (datapath->walk_link_fd >= 0) {
        datapath_enter_mode(datapath, DECIDE_MODE_OFF);
        forget_earlier(datapath);
        close(datapath->walk_link_fd);
    }
    if (datapath->cgroup_link_fd >= 0)
        close(datapath->cgroup_link_fd);
    datapath_detach_links(datapath);
    chart_classify__destroy(datapath->classify);
    chart_attach__destroy(datapath->attach);
    trinity_close(&datapath->trinity);
    for (size_t i = 0; datapath->entries && i < DATAPATH_GRANTS_MAX; i++)
        free(datapath->entries[i].selectors);
    free(datapath->entries);
    free(datapath->flows);
    free(datapath);
}
