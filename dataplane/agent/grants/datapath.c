/* See datapath.h. This file: start and end, grants, modes. */
#include "grants/datapath.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/agent.h"
#include "core/cgroup.h"
#include "core/tcp_limits.h"
#include "grants/datapath_state.h"
#include "grants/selectors.h"
#include "signal_maps.h"

#define NS_PER_US 1000ull
/* A quarter of RFC 6298's second: beyond the RTT of all but paths over satellites, where a SYN too many does no harm.
 */
#define SYN_TIMEOUT_NS (250l * 1000 * 1000)
/* A lease no longer than this is taken; more would outlive what anybody means. */
#define LEASE_MAX_US (3600ull * 1000 * 1000)
#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

static uint64_t monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

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
    config->receive_window_bytes = limits_raise();
    config->syn_timeout_ticks = ticks(SYN_TIMEOUT_NS);
    config->sensor_port = options->sensor_port;
    config->signalling = options->signalling;
    config->enforce = 1;
    if (options->default_control)
        strncpy(config->default_control, options->default_control, sizeof(config->default_control) - 1);
    error = trinity_open(&datapath->trinity);
    if (error)
        return error;
    forget_earlier(datapath);
    error = load_programs(datapath);
    error = error ? error : datapath_write_config(datapath);
    return error ? error : attach_cgroup(datapath, options->cgroup_path);
}

int datapath_open(const struct datapath_options *options, struct datapath **ret) {
    struct datapath *datapath = calloc(1, sizeof(*datapath));
    if (!datapath)
        return -ENOMEM;
    datapath->trinity = (struct trinity){.link_fd = -1, .rates_fd = -1, .usage_fd = -1, .flows_fd = -1};
    datapath->cgroup_link_fd = -1;
    datapath->walk_link_fd = -1;
    datapath->mode = DECIDE_MODE_ENFORCE;
    datapath->next_number = 1;
    datapath->entries = calloc(CHART_SELECTORS_MAX, sizeof(*datapath->entries));
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
        datapath_set_mode(datapath, DECIDE_MODE_OFF);
        forget_earlier(datapath);
        close(datapath->walk_link_fd);
    }
    if (datapath->cgroup_link_fd >= 0)
        close(datapath->cgroup_link_fd);
    datapath_detach_links(datapath);
    chart_classify__destroy(datapath->classify);
    chart_attach__destroy(datapath->attach);
    trinity_close(&datapath->trinity);
    limits_restore();
    free(datapath->entries);
    free(datapath->flows);
    free(datapath);
}

struct datapath_entry *datapath_find(const struct datapath *datapath, const char *request_id) {
    for (size_t i = 0; i < CHART_SELECTORS_MAX; i++)
        if (datapath->entries[i].used && strcmp(datapath->entries[i].grant.request_id, request_id) == 0)
            return &datapath->entries[i];
    return NULL;
}

struct datapath_entry *datapath_find_number(const struct datapath *datapath, uint64_t number) {
    for (size_t i = 0; i < CHART_SELECTORS_MAX; i++)
        if (datapath->entries[i].used && datapath->entries[i].number == number)
            return &datapath->entries[i];
    return NULL;
}

static struct datapath_entry *add_entry(struct datapath *datapath, const char *request_id) {
    struct chart_usage usage = {0};
    for (size_t i = 0; i < CHART_SELECTORS_MAX; i++) {
        struct datapath_entry *entry = &datapath->entries[i];
        if (entry->used)
            continue;
        struct chart_grant_key key = {.node = datapath->config.node, .grant = datapath->next_number};
        if (bpf_map_update_elem(datapath->trinity.usage_fd, &key, &usage, BPF_ANY))
            return NULL;
        *entry = (struct datapath_entry){.used = true, .number = datapath->next_number++};
        strncpy(entry->grant.request_id, request_id, sizeof(entry->grant.request_id) - 1);
        return entry;
    }
    errno = ENOSPC;
    return NULL;
}

static void remove_entry(struct datapath *datapath, struct datapath_entry *entry) {
    struct chart_grant_key key = {.node = datapath->config.node, .grant = entry->number};
    bpf_map_delete_elem(datapath->trinity.rates_fd, &key);
    bpf_map_delete_elem(datapath->trinity.usage_fd, &key);
    entry->used = false;
}

static int write_rate(struct datapath *datapath, const struct datapath_entry *entry, uint64_t now_ns) {
    const struct datapath_grant *grant = &entry->grant;
    struct chart_grant_key key = {.node = datapath->config.node, .grant = entry->number};
    uint64_t gr_lease_us = grant->gr_lease_us < LEASE_MAX_US ? grant->gr_lease_us : LEASE_MAX_US;
    uint64_t ar_lease_us = grant->ar_lease_us < LEASE_MAX_US ? grant->ar_lease_us : LEASE_MAX_US;
    struct chart_rate rate = {
        .gr_bps = grant->gr_bps,
        .ar_bps = grant->ar_bps,
        .gr_expires_ns = now_ns + gr_lease_us * NS_PER_US,
        .ar_expires_ns = now_ns + ar_lease_us * NS_PER_US,
        .enforce = datapath->mode == DECIDE_MODE_ENFORCE,
    };
    return bpf_map_update_elem(datapath->trinity.rates_fd, &key, &rate, BPF_ANY) ? -errno : 0;
}

/* Write the table that is not in use, then switch over. */
static int write_selectors(struct datapath *datapath) {
    struct chart_selector_table *table = calloc(1, sizeof(*table));
    uint32_t next = datapath->config.table ^ 1;
    int error = 0;
    if (!table)
        return -ENOMEM;
    for (size_t i = 0; i < CHART_SELECTORS_MAX; i++)
        if (datapath->entries[i].used)
            table->selectors[table->count++] = datapath->entries[i].selector;
    selector_sort(table->selectors, table->count);
    if (bpf_map_update_elem(bpf_map__fd(datapath->attach->maps.selectors), &next, table, BPF_ANY))
        error = -errno;
    free(table);
    if (error)
        return error;
    datapath->config.table = next;
    datapath->config.generation++;
    return datapath_write_config(datapath);
}

static int take_grant(struct datapath *datapath, const struct datapath_grant *grant, bool *ret_selectors_changed,
                      bool *ret_rate_came, uint64_t now_ns) {
    struct chart_selector selector = {0};
    int error = selector_to_kernel(&grant->selector, &selector);
    if (error)
        return error;
    struct datapath_entry *entry = datapath_find(datapath, grant->request_id);
    if (!entry)
        entry = add_entry(datapath, grant->request_id);
    if (!entry)
        return -errno;
    entry->keep = true;
    selector.grant = entry->number;
    selector.sending = grant->sending;
    selector.expedited = grant->class == DECIDE_CLASS_EXPEDITED;
    if (memcmp(&selector, &entry->selector, sizeof(selector)) != 0)
        *ret_selectors_changed = true;
    if (entry->grant.gr_bps + entry->grant.ar_bps == 0)
        *ret_rate_came = true;
    entry->selector = selector;
    entry->grant = *grant;
    return write_rate(datapath, entry, now_ns);
}

int datapath_apply(struct datapath *datapath, const struct datapath_grant *grants, size_t n_grants, int *ret_errors) {
    bool selectors_changed = false, rate_came = false;
    uint64_t now_ns = monotonic_ns();
    int first_error = 0;
    for (size_t i = 0; i < CHART_SELECTORS_MAX; i++)
        datapath->entries[i].keep = false;
    for (size_t i = 0; i < n_grants; i++) {
        int error = take_grant(datapath, &grants[i], &selectors_changed, &rate_came, now_ns);
        if (ret_errors)
            ret_errors[i] = error;
        if (error && !first_error)
            first_error = error;
    }
    for (size_t i = 0; i < CHART_SELECTORS_MAX; i++) {
        struct datapath_entry *entry = &datapath->entries[i];
        if (entry->used && !entry->keep) {
            remove_entry(datapath, entry);
            selectors_changed = true;
        }
    }
    int error = selectors_changed ? write_selectors(datapath) : 0;
    if (!error && (selectors_changed || rate_came))
        error = datapath_reconcile(datapath);
    return first_error ? first_error : error;
}

int datapath_set_mode(struct datapath *datapath, enum decide_mode mode) {
    int error = 0;
    if (mode == datapath->mode)
        return 0;
    datapath->mode = mode;
    datapath->config.enforce = mode == DECIDE_MODE_ENFORCE;
    error = datapath_write_config(datapath);
    for (size_t i = 0; i < CHART_SELECTORS_MAX; i++) {
        struct datapath_entry *entry = &datapath->entries[i];
        struct chart_grant_key key = {.node = datapath->config.node, .grant = entry->number};
        struct chart_rate rate;
        if (!entry->used || bpf_map_lookup_elem(datapath->trinity.rates_fd, &key, &rate))
            continue;
        rate.enforce = datapath->config.enforce;
        if (bpf_map_update_elem(datapath->trinity.rates_fd, &key, &rate, BPF_ANY) && !error)
            error = -errno;
    }
    int walked = datapath_reconcile(datapath);
    return error ? error : walked;
}

const struct datapath_grant *datapath_next_grant(const struct datapath *datapath, size_t *cursor) {
    while (*cursor < CHART_SELECTORS_MAX) {
        const struct datapath_entry *entry = &datapath->entries[(*cursor)++];
        if (entry->used)
            return &entry->grant;
    }
    return NULL;
}

enum decide_mode datapath_mode(const struct datapath *datapath) {
    return datapath->mode;
}

int datapath_observe(struct datapath *datapath, const char *request_id, struct decide_observed *ret) {
    struct datapath_entry *entry = datapath_find(datapath, request_id);
    struct chart_rate rate;
    struct chart_usage usage;
    if (!entry)
        return -ENOENT;
    struct chart_grant_key key = {.node = datapath->config.node, .grant = entry->number};
    if (bpf_map_lookup_elem(datapath->trinity.rates_fd, &key, &rate) ||
        bpf_map_lookup_elem(datapath->trinity.usage_fd, &key, &usage))
        return -errno;
    uint64_t now_ns = monotonic_ns();
    *ret = (struct decide_observed){
        .kernel_rate_bps =
            (now_ns < rate.gr_expires_ns ? rate.gr_bps : 0) + (now_ns < rate.ar_expires_ns ? rate.ar_bps : 0),
        .matching_flows = entry->flows,
        .sent_bytes = usage.sent_bytes,
        .delivered_bytes = usage.delivered_bytes,
        .counted_at_us = agent_now_us(),
    };
    return 0;
}
