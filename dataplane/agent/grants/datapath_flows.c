/* See datapath.h. This file: the walk over the node's TCP flows. */
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "grants/datapath_state.h"

#define READ_RECORDS 64
#define FLOWS_FIRST_SIZE 64

void datapath_write_address(const uint32_t *address, uint16_t port, char *ret, size_t size) {
    char text[INET6_ADDRSTRLEN] = "";
    bool ipv4 = address[0] == 0 && address[1] == 0 && address[2] == htonl(0xffff);
    if (ipv4)
        inet_ntop(AF_INET, &address[3], text, sizeof(text));
    else
        inet_ntop(AF_INET6, address, text, sizeof(text));
    snprintf(ret, size, ipv4 ? "%s:%u" : "[%s]:%u", text, port);
}

static int take_record(struct datapath *datapath, const struct chart_flow_record *record) {
    struct datapath_entry *entry = datapath_find_number(datapath, record->grant);
    bool given_back = record->grant == 0 && !record->in_band && strcmp(record->control, CHART_TRINITY) == 0;
    datapath->walk_given_back += given_back;
    if (given_back)
        return 0;
    if (datapath->n_flows == datapath->flows_size) {
        size_t size = datapath->flows_size ? 2 * datapath->flows_size : FLOWS_FIRST_SIZE;
        struct datapath_flow *flows = realloc(datapath->flows, size * sizeof(*flows));
        if (!flows)
            return -ENOMEM;
        datapath->flows = flows;
        datapath->flows_size = size;
    }
    struct datapath_flow *flow = &datapath->flows[datapath->n_flows++];
    *flow = (struct datapath_flow){
        .sending = true,
        .in_band = record->in_band,
        .cookie = record->cookie,
        .rate_bps = record->rate_bps,
        .pacing_bytes_per_s = record->pacing_bytes_per_s,
        .cwnd_packets = record->cwnd_packets,
        .rtt_us = record->rtt_us,
        .min_rtt_us = record->min_rtt_us,
        .sent_bytes = record->sent_bytes,
        .delivered_bytes = record->delivered_bytes,
        .retransmitted_packets = record->retransmitted_packets,
        .sent_packets = record->sent_packets,
        .header_bytes = record->header_bytes,
        .dscp = (uint8_t)record->dscp,
        .quick_start_bps = datapath_begun_bps(datapath, record),
    };
    if (entry)
        memcpy(flow->request_id, entry->grant.request_id, sizeof(flow->request_id));
    memcpy(flow->control, record->control, sizeof(flow->control));
    flow->control[sizeof(flow->control) - 1] = '\0';
    datapath_write_address(record->local, record->local_port, flow->local, sizeof(flow->local));
    datapath_write_address(record->remote, record->remote_port, flow->remote, sizeof(flow->remote));
    if (!entry)
        return 0;
    entry->flows++;
    if (record->rtt_us) {
        entry->rtt_sum_us += record->rtt_us;
        entry->rtt_flows++;
    }
    return 0;
}

static int read_walk(struct datapath *datapath, int fd) {
    struct chart_flow_record records[READ_RECORDS];
    size_t used = 0;
    for (;;) {
        ssize_t length = read(fd, (char *)records + used, sizeof(records) - used);
        if (length < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (length < 0)
            return -errno;
        if (length == 0)
            return 0;
        used += (size_t)length;
        size_t whole = used / sizeof(records[0]);
        for (size_t i = 0; i < whole; i++) {
            int error = take_record(datapath, &records[i]);
            if (error)
                return error;
        }
        used -= whole * sizeof(records[0]);
        memmove(records, (char *)records + whole * sizeof(records[0]), used);
    }
}

int datapath_reconcile(struct datapath *datapath) {
    int fd = bpf_iter_create(datapath->walk_link_fd);
    if (fd < 0) {
        log_error("cannot walk over the TCP flows: %s", strerror(errno));
        return -errno;
    }
    datapath->n_flows = 0;
    datapath->walk_given_back = 0;
    for (size_t i = 0; i < DATAPATH_GRANTS_MAX; i++) {
        datapath->entries[i].flows = 0;
        datapath->entries[i].rtt_sum_us = 0;
        datapath->entries[i].rtt_flows = 0;
    }
    int error = read_walk(datapath, fd);
    close(fd);
    if (error)
        log_error("the walk over the TCP flows broke off: %s", strerror(-error));
    return error;
}

size_t datapath_flows(struct datapath *datapath, const struct datapath_flow **ret) {
    *ret = datapath->flows;
    return datapath->n_flows;
}

uint32_t datapath_grant_rtt_us(const struct datapath *datapath, const char *request_id) {
    const struct datapath_entry *entry = datapath_find(datapath, request_id);
    return entry && entry->rtt_flows ? (uint32_t)(entry->rtt_sum_us / entry->rtt_flows) : 0;
}
