/* --edge: the policer on the ingress of a domain's edge (dataplane/bpf/police.bpf.c). The interfaces are there when the
 * agent starts; the program goes with the agent, and then traffic goes on as it comes. */
#include "links/edges.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <cjson/cJSON.h>
#include <errno.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

#include "core/agent.h"
#include "core/kernel_tc.h"
#include "core/log.h"
#include "grants/datapath.h"
#include "police.h"
#include "police.skel.h"

#define NS_PER_MS 1000000ull

struct edge {
    const char *interface;
    uint32_t ifindex;
    struct kernel_tc policer;
};

struct state {
    struct chart_police *program;
    struct edge edges[AGENT_LINKS_MAX];
    size_t n_edges;
};

static int load(struct state *state, const struct datapath *datapath) {
    struct chart_police *program = chart_police__open();
    int error;

    if (!program)
        return -ENOMEM;
    state->program = program;
    bpf_program__set_expected_attach_type(program->progs.police, 0);
    error = datapath_share_grants(datapath, program->maps.rates, program->maps.node_config, program->maps.selectors);
    error = error ? error : chart_police__load(program);
    if (error)
        log_error("the kernel refused the program police: %s", strerror(-error));
    return error;
}

static int attach(struct state *state, const struct agent_options *options, const struct agent_edge_option *option) {
    struct edge *edge = &state->edges[state->n_edges];
    struct chart_police_edge kept = {.aggregate_bps = option->aggregate_bps,
                                     .depth_ns = options->edge_depth_ms * NS_PER_MS,
                                     .exceed = options->edge_drop ? CHART_POLICE_DROP : CHART_POLICE_REMARK};

    *edge = (struct edge){.interface = option->interface, .ifindex = if_nametoindex(option->interface)};
    if (!edge->ifindex) {
        log_error("--edge %s: this node has no such interface", option->interface);
        return -ENODEV;
    }
    kept.link_header_bytes = datapath_link_header_bytes(edge->ifindex);
    if (bpf_map_update_elem(bpf_map__fd(state->program->maps.police_edges), &edge->ifindex, &kept, BPF_ANY))
        return -errno;
    int error = kernel_attach_tc(bpf_program__fd(state->program->progs.police), edge->ifindex, KERNEL_TC_POLICE,
                                 &edge->policer);
    if (error) {
        log_error("cannot attach the policer to %s: %s", option->interface, strerror(-error));
        return error;
    }
    state->n_edges++;
    return 0;
}

static void police_close(void *context) {
    struct state *state = context;

    for (size_t i = 0; i < state->n_edges; i++)
        kernel_detach_tc(&state->edges[i].policer);
    chart_police__destroy(state->program);
    free(state);
}

static int police_open(struct agent *agent, void **ret_state) {
    const struct agent_options *options = agent_options(agent);
    struct state *state = calloc(1, sizeof(*state));
    int error = 0;

    if (!state)
        return -ENOMEM;
    if (options->n_edges)
        error = load(state, datapath_of(agent));
    for (size_t i = 0; i < options->n_edges && !error; i++)
        error = attach(state, options, &options->edges[i]);
    if (error) {
        police_close(state);
        return error;
    }
    *ret_state = state;
    return 0;
}

static void police_status(void *context, struct cJSON *object) {
    const struct state *state = context;
    struct cJSON *edges;

    if (!state->n_edges)
        return;
    edges = cJSON_AddArrayToObject(object, "edges");
    for (size_t i = 0; i < state->n_edges; i++) {
        struct chart_police_edge edge;
        struct cJSON *told;

        if (bpf_map_lookup_elem(bpf_map__fd(state->program->maps.police_edges), &state->edges[i].ifindex, &edge))
            continue;
        told = cJSON_CreateObject();
        cJSON_AddStringToObject(told, "interface", state->edges[i].interface);
        cJSON_AddStringToObject(told, "exceed", edge.exceed == CHART_POLICE_DROP ? "drop" : "remark");
        cJSON_AddNumberToObject(told, "aggregate_bps", (double)edge.aggregate_bps);
        cJSON_AddNumberToObject(told, "conforming_packets", (double)edge.conforming_packets);
        cJSON_AddNumberToObject(told, "conforming_bytes", (double)edge.conforming_bytes);
        cJSON_AddNumberToObject(told, "exceeding_packets", (double)edge.exceeding_packets);
        cJSON_AddNumberToObject(told, "exceeding_bytes", (double)edge.exceeding_bytes);
        cJSON_AddNumberToObject(told, "unmarked_packets", (double)edge.unmarked_packets);
        cJSON_AddItemToArray(edges, told);
    }
}

const struct agent_module edges_module = {
    .name = "police", .open = police_open, .close = police_close, .status = police_status};
