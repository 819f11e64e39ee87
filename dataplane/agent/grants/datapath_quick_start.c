/* See datapath.h. This file: connections of the node that ask by Quick-Start. */
#include <bpf/bpf.h>
#include <errno.h>
#include <string.h>

#include "core/log.h"
#include "grants/datapath_state.h"
#include "lib/advice/quick_start.h"
#include "quick_start_maps.h"

_Static_assert((int)DATAPATH_QUICK_START_COUNTS == (int)CHART_QS_COUNTS, "every count has a name");

void datapath_watch_arrivals(struct datapath *datapath, struct datapath_link *link) {
    bool wanted = datapath->config.quick_start_rate, watched = link->arrivals.ifindex;
    int error;

    if (wanted == watched)
        return;
    if (!wanted) {
        kernel_detach_tc(&link->arrivals);
        return;
    }
    error = kernel_attach_tc(bpf_program__fd(datapath->classify->progs.quick_start_arrive), link->ifindex,
                             KERNEL_TC_QUICK_START_IN, &link->arrivals);
    /* Connections then begin with the window they have. */
    if (error)
        log_warning("Quick-Start requests that arrive on interface %u stay without a response: %s", link->ifindex,
                    strerror(-error));
}

int datapath_set_quick_start(struct datapath *datapath, uint64_t bps) {
    uint32_t rate = chart_qs_encode(bps);

    if (datapath->config.quick_start_rate == rate)
        return 0;
    datapath->config.quick_start_rate = rate;
    for (size_t i = 0; i < datapath->n_links; i++)
        datapath_watch_arrivals(datapath, &datapath->links[i]);
    return datapath_write_config(datapath);
}

int datapath_set_overlay_port(struct datapath *datapath, uint16_t port) {
    if (datapath->config.overlay_port == port)
        return 0;
    datapath->config.overlay_port = port;
    return datapath_write_config(datapath);
}

void datapath_quick_start(const struct datapath *datapath, struct datapath_count ret[DATAPATH_QUICK_START_COUNTS]) {
    static const char *const names[DATAPATH_QUICK_START_COUNTS] = {
        [CHART_QS_COUNT_ASKED] = "asked",           [CHART_QS_COUNT_APPROVED] = "approved",
        [CHART_QS_COUNT_UNANSWERED] = "unanswered", [CHART_QS_COUNT_LIES] = "overstated",
        [CHART_QS_COUNT_RESPONDED] = "responded",
    };

    for (uint32_t i = 0; i < DATAPATH_QUICK_START_COUNTS; i++) {
        ret[i] = (struct datapath_count){.name = names[i]};
        bpf_map_lookup_elem(bpf_map__fd(datapath->attach->maps.qs_counts), &i, &ret[i].count);
    }
}

uint64_t datapath_begun_bps(const struct datapath *datapath, const struct chart_flow_record *record) {
    struct qs_flow_key key = {.source_port = record->local_port, .destination_port = record->remote_port};
    struct qs_flow flow;

    if (!datapath->config.quick_start_rate)
        return 0;
    memcpy(key.source, record->local, sizeof(key.source));
    memcpy(key.destination, record->remote, sizeof(key.destination));
    return bpf_map_lookup_elem(bpf_map__fd(datapath->attach->maps.qs_flows), &key, &flow) ? 0
                                                                                          : chart_qs_bps(flow.approved);
}
