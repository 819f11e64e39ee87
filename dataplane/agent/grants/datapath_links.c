/* See datapath.h. This file: the classifier on the node's links and its counters. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <limits.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/log.h"
#include "grants/datapath_state.h"

#define ETHERNET_HEADER_BYTES 14

struct datapath_link *datapath_find_link(struct datapath *datapath, uint32_t ifindex) {
    for (size_t i = 0; i < datapath->n_links; i++)
        if (datapath->links[i].ifindex == ifindex)
            return &datapath->links[i];
    return NULL;
}

uint32_t datapath_link_header_bytes(uint32_t ifindex) {
    struct ifreq request = {0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    uint32_t bytes = 0;
    if (fd < 0)
        return 0;
    if (if_indextoname(ifindex, request.ifr_name) && ioctl(fd, SIOCGIFHWADDR, &request) == 0 &&
        (request.ifr_hwaddr.sa_family == ARPHRD_ETHER || request.ifr_hwaddr.sa_family == ARPHRD_LOOPBACK))
        bytes = ETHERNET_HEADER_BYTES;
    close(fd);
    return bytes;
}

int datapath_attach_link(struct datapath *datapath, uint32_t ifindex) {
    struct chart_link counters = {.link_header_bytes = datapath_link_header_bytes(ifindex)};
    if (datapath_find_link(datapath, ifindex))
        return 0;
    if (datapath->n_links == CHART_LINKS_MAX)
        return -ENOSPC;
    if (bpf_map_update_elem(bpf_map__fd(datapath->classify->maps.links), &ifindex, &counters, BPF_ANY))
        return -errno;
    struct datapath_link *link = &datapath->links[datapath->n_links];
    int error = kernel_attach_tc(bpf_program__fd(datapath->classify->progs.classify), ifindex, KERNEL_TC_CLASSIFY,
                                 &link->classifier);
    if (error) {
        log_error("cannot attach the classifier to interface %u: %s", ifindex, strerror(-error));
        bpf_map_delete_elem(bpf_map__fd(datapath->classify->maps.links), &ifindex);
        return error;
    }
    link->ifindex = ifindex;
    link->advises = false;
    link->arrivals = (struct kernel_tc){.fd = -1};
    datapath_watch_arrivals(datapath, link);
    datapath->n_links++;
    return 0;
}

int datapath_detach_link(struct datapath *datapath, uint32_t ifindex) {
    struct datapath_link *link = datapath_find_link(datapath, ifindex);
    if (!link)
        return -ENOENT;
    datapath_no_advice(datapath, ifindex);
    kernel_detach_tc(&link->arrivals);
    kernel_detach_tc(&link->classifier);
    bpf_map_delete_elem(bpf_map__fd(datapath->classify->maps.links), &ifindex);
    *link = datapath->links[--datapath->n_links];
    return 0;
}

void datapath_detach_links(struct datapath *datapath) {
    while (datapath->n_links)
        datapath_detach_link(datapath, datapath->links[0].ifindex);
}

uint64_t datapath_monotonic_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static uint64_t epoch_now(void) {
    return datapath_monotonic_ns() / CHART_EPOCH_NS;
}

static uint32_t active_before(const uint64_t *slots, uint64_t epoch) {
    uint64_t slot = slots[(epoch - 1) & 3];
    return slot >> 16 == epoch - 1 ? (uint32_t)(slot & 0xffff) : 0;
}

/* 0 or -ENOENT: the grant is not here, or none of its packets left there. */
static int read_use(const struct datapath *datapath, const char *request_id, uint32_t ifindex,
                    struct chart_grant_use *ret) {
    const struct datapath_entry *entry = datapath_find(datapath, request_id);

    if (!entry)
        return -ENOENT;
    struct chart_grant_link key = {.grant = entry->number, .ifindex = ifindex};
    return bpf_map_lookup_elem(bpf_map__fd(datapath->classify->maps.grant_uses), &key, ret) ? -ENOENT : 0;
}

int datapath_grant_age(const struct datapath *datapath, const char *request_id, uint32_t ifindex) {
    struct chart_grant_use use;
    uint64_t epoch = epoch_now();

    if (read_use(datapath, request_id, ifindex, &use) < 0)
        return -ENOENT;
    if (use.epoch >= epoch)
        return 0;
    return epoch - use.epoch < INT_MAX ? (int)(epoch - use.epoch) : INT_MAX;
}

uint64_t datapath_grant_bytes(const struct datapath *datapath, const char *request_id, uint32_t ifindex) {
    struct chart_grant_use use;

    return read_use(datapath, request_id, ifindex, &use) < 0 ? 0 : use.bytes;
}

int datapath_link_counters(struct datapath *datapath, uint32_t ifindex, struct datapath_link_counters *ret) {
    struct chart_link link;
    if (!datapath_find_link(datapath, ifindex))
        return -ENOENT;
    if (bpf_map_lookup_elem(bpf_map__fd(datapath->classify->maps.links), &ifindex, &link))
        return -errno;
    uint64_t epoch = epoch_now();
    *ret = (struct datapath_link_counters){
        .expedited_bytes = link.expedited_bytes,
        .explicit_rate_bytes = link.explicit_rate_bytes,
        .legacy_bytes = link.legacy_bytes,
        .background_bytes = link.background_bytes,
        .active_grants = active_before((const uint64_t *)link.active_grants, epoch),
        .legacy_flows = active_before((const uint64_t *)link.legacy_flows, epoch),
        .scone_packets = link.scone_packets,
        .scone_lowered = link.scone_lowered,
        .scone_policed = link.scone_policed,
        .quick_start_requests = link.quick_start_requests,
        .quick_start_lowered = link.quick_start_lowered,
        .quick_start_refused = link.quick_start_refused,
    };
    return 0;
}
