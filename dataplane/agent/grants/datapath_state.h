/* What the files of the datapath share. */
#pragma once

#include "attach.skel.h"
#include "classify.skel.h"
#include "core/kernel_tc.h"
#include "grants/datapath.h"
#include "grants/trinity.h"
#include "maps.h"

struct datapath_entry {
    struct decide_applied grant;
    struct chart_selector *selectors;
    size_t n_selectors;
    uint64_t number;
    bool used;
    bool keep;
    /* Found by the last walk. */
    uint32_t flows;
    uint64_t rtt_sum_us;
    uint32_t rtt_flows;
};

struct datapath_link {
    uint32_t ifindex;
    struct kernel_tc classifier;
    /* While connections of the node ask by Quick-Start. */
    struct kernel_tc arrivals;
    /* Its packets get advice; flows that exceed it are policed. */
    bool advises;
    bool polices;
};

struct datapath {
    struct trinity trinity;
    struct chart_attach *attach;
    struct chart_classify *classify;
    int cgroup_link_fd;
    int walk_link_fd;
    struct chart_node_config config;
    /* Where the mode is kept. */
    const char *state_dir;
    /* What policy or rate file asks for, the local off switch, and what follows of both. */
    enum decide_mode wanted_mode;
    bool off;
    enum decide_mode mode;
    uint64_t next_number;
    /* Grants, most DATAPATH_GRANTS_MAX. */
    struct datapath_entry *entries;
    struct datapath_link links[CHART_LINKS_MAX];
    size_t n_links;
    struct datapath_flow *flows;
    size_t n_flows, flows_size;
    /* Flows without a grant that the last walk took off trinity. */
    size_t walk_given_back;
};

struct datapath_entry *datapath_find(const struct datapath *datapath, const char *request_id);
struct datapath_entry *datapath_find_number(const struct datapath *datapath, uint64_t number);
/* What Quick-Start approved of the connection of a record, bits per second; 0: nothing. */
uint64_t datapath_begun_bps(const struct datapath *datapath, const struct chart_flow_record *record);
/* "10.0.0.1:5001" or "[fe80::1]:5001"; the port in host byte order. */
void datapath_write_address(const uint32_t *address, uint16_t port, char *ret, size_t size);
struct datapath_link *datapath_find_link(struct datapath *datapath, uint32_t ifindex);
uint64_t datapath_monotonic_ns(void);
int datapath_write_config(struct datapath *datapath);
/* Attach to a link what looks for Quick-Start in arriving packets, or detach it, as the configuration has it. */
void datapath_watch_arrivals(struct datapath *datapath, struct datapath_link *link);
int datapath_enter_mode(struct datapath *datapath, enum decide_mode mode);
void datapath_detach_links(struct datapath *datapath);
