/* The policers at the edges of a domain (dataplane/bpf/police.bpf.c): which there shall be comes from --edge and from
 * the registry, and once a second each interface is brought to that. The programs go with the agent, and then traffic
 * goes on as it comes. */
#include "links/edges.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <cjson/cJSON.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/agent.h"
#include "core/kernel_tc.h"
#include "core/log.h"
#include "grants/datapath.h"
#include "police.h"
#include "police.skel.h"

#define NS_PER_MS 1000000ull
#define SECOND_US 1000000ull
#define FAULT_LEN 120

struct edge {
    struct edge_wanted wanted;
    uint32_t ifindex; /* 0: not attached */
    struct kernel_tc policer;
    char fault[FAULT_LEN];
};

struct state {
    struct agent *agent;
    /* Loaded with the first edge. */
    struct chart_police *program;
    struct edges_wanted stated;
    struct edge edges[EDGES_MAX];
    size_t n_edges;
    char left_out[FAULT_LEN];
};

static int load(struct state *state) {
    const struct datapath *datapath = datapath_of(state->agent);
    struct chart_police *program;
    int error;

    if (state->program)
        return 0;
    program = chart_police__open();
    if (!program)
        return -ENOMEM;
    bpf_program__set_expected_attach_type(program->progs.police, 0);
    error = datapath_share_grants(datapath, program->maps.rates, program->maps.node_config, program->maps.selectors);
    error = error ? error : chart_police__load(program);
    if (error) {
        log_error("the kernel refused the program police: %s", strerror(-error));
        chart_police__destroy(program);
        return error;
    }
    state->program = program;
    return 0;
}

/* What the program reads of an edge; what it counts stays, but for packets of this moment. */
static int tell_program(const struct state *state, const struct edge *edge, uint32_t ifindex) {
    struct chart_police_edge kept = {0};
    int map = bpf_map__fd(state->program->maps.police_edges);

    (void)bpf_map_lookup_elem(map, &ifindex, &kept);
    kept.link_header_bytes = datapath_link_header_bytes(ifindex);
    kept.aggregate_bps = edge->wanted.aggregate_bps;
    kept.depth_ns = edge->wanted.depth_ms * NS_PER_MS;
    kept.exceed = edge->wanted.drop ? CHART_POLICE_DROP : CHART_POLICE_REMARK;
    return bpf_map_update_elem(map, &ifindex, &kept, BPF_ANY) ? -errno : 0;
}

static void detach(const struct state *state, struct edge *edge) {
    if (!edge->ifindex)
        return;
    kernel_detach_tc(&edge->policer);
    bpf_map_delete_elem(bpf_map__fd(state->program->maps.police_edges), &edge->ifindex);
    edge->ifindex = 0;
}

static void set_fault(struct edge *edge, const char *why) {
    char text[FAULT_LEN];

    snprintf(text, sizeof(text), "edge %s is not policed: %s", edge->wanted.interface, why);
    if (strcmp(text, edge->fault) != 0)
        log_error("%s", text);
    memcpy(edge->fault, text, sizeof(text));
}

/* Bring one interface to what is wanted. 0 or a negative errno. */
static int attach(struct state *state, struct edge *edge) {
    uint32_t ifindex = if_nametoindex(edge->wanted.interface);
    int error;

    if (ifindex != edge->ifindex)
        detach(state, edge);
    if (!ifindex) {
        set_fault(edge, "this node has no such interface");
        return -ENODEV;
    }
    if (edge->ifindex)
        return 0;
    error = load(state);
    error = error ? error : tell_program(state, edge, ifindex);
    error = error ? error
                  : kernel_attach_tc(bpf_program__fd(state->program->progs.police), ifindex, KERNEL_TC_POLICE,
                                     &edge->policer);
    if (error) {
        set_fault(edge, strerror(-error));
        return error;
    }
    edge->ifindex = ifindex;
    edge->fault[0] = '\0';
    log_info("edge %s is policed", edge->wanted.interface);
    return 0;
}

static void on_second(void *context) {
    struct state *state = context;

    for (size_t i = 0; i < state->n_edges; i++)
        (void)attach(state, &state->edges[i]);
}

static const struct edge_wanted *find_wanted(const struct edges_wanted *wanted, const char *interface) {
    for (size_t i = 0; i < wanted->n; i++)
        if (strcmp(wanted->edges[i].interface, interface) == 0)
            return &wanted->edges[i];
    return NULL;
}

static struct edge *find_edge(struct state *state, const char *interface) {
    for (size_t i = 0; i < state->n_edges; i++)
        if (strcmp(state->edges[i].wanted.interface, interface) == 0)
            return &state->edges[i];
    return NULL;
}

/* Bring the policers to --edge and `stated`. */
static void follow(struct state *state) {
    struct edges_wanted wanted;

    edges_merge(agent_options(state->agent), &state->stated, &wanted);
    for (size_t i = 0; i < state->n_edges;) {
        struct edge *edge = &state->edges[i];
        if (find_wanted(&wanted, edge->wanted.interface)) {
            i++;
            continue;
        }
        log_info("edge %s is no longer policed", edge->wanted.interface);
        detach(state, edge);
        *edge = state->edges[--state->n_edges];
    }
    for (size_t i = 0; i < wanted.n; i++) {
        struct edge *edge = find_edge(state, wanted.edges[i].interface);
        if (!edge) {
            edge = &state->edges[state->n_edges++];
            *edge = (struct edge){.policer.fd = -1};
        }
        edge->wanted = wanted.edges[i];
        int error = edge->ifindex ? tell_program(state, edge, edge->ifindex) : 0;
        if (error)
            set_fault(edge, strerror(-error));
    }
    on_second(state);
}

void edges_follow(const struct agent *agent, const struct edges_wanted *stated) {
    struct state *state = agent_state(agent, &edges_module);
    int error;

    if (!state)
        return;
    state->left_out[0] = '\0';
    if (stated->left_out)
        snprintf(state->left_out, sizeof(state->left_out), "%zu edges are left out: no more than %d, each with a name",
                 stated->left_out, EDGES_MAX);
    if (memcmp(&state->stated, stated, sizeof(*stated)) == 0)
        return;
    state->stated = *stated;
    error = edges_write(agent_options(agent)->state_dir, stated);
    if (error)
        log_error("the edges of this node cannot be kept: %s", strerror(-error));
    follow(state);
}

size_t edges_faults(const struct agent *agent, const char **ret, size_t room) {
    const struct state *state = agent_state(agent, &edges_module);
    size_t n = 0;

    if (state && *state->left_out && n < room)
        ret[n++] = state->left_out;
    for (size_t i = 0; state && i < state->n_edges && n < room; i++)
        if (*state->edges[i].fault)
            ret[n++] = state->edges[i].fault;
    return n;
}

static void police_close(void *context) {
    struct state *state = context;

    for (size_t i = 0; i < state->n_edges; i++)
        detach(state, &state->edges[i]);
    chart_police__destroy(state->program);
    free(state);
}

/* An edge of the command line has to be there: who wrote it is looking. */
static int check_options(struct state *state) {
    const struct agent_options *options = agent_options(state->agent);

    for (size_t i = 0; i < options->n_edges; i++) {
        const struct edge *edge = find_edge(state, options->edges[i].interface);
        if (edge && !edge->ifindex) {
            log_error("--edge %s: %s", edge->wanted.interface,
                      if_nametoindex(edge->wanted.interface) ? "cannot be policed" : "this node has no such interface");
            return -ENODEV;
        }
    }
    return 0;
}

static int police_open(struct agent *agent, void **ret_state) {
    struct state *state = calloc(1, sizeof(*state));
    int error;

    if (!state)
        return -ENOMEM;
    state->agent = agent;
    error = edges_read(agent_options(agent)->state_dir, &state->stated);
    if (error)
        log_error("the edges that were kept cannot be read (%s): those of the registry hold once it is heard",
                  strerror(-error));
    follow(state);
    error = check_options(state);
    error = error ? error : agent_add_timer(agent, SECOND_US, on_second, state);
    if (error) {
        police_close(state);
        return error;
    }
    *ret_state = state;
    return 0;
}

static void add_counters(const struct state *state, const struct edge *edge, struct cJSON *told) {
    struct chart_police_edge counted;

    if (!edge->ifindex || bpf_map_lookup_elem(bpf_map__fd(state->program->maps.police_edges), &edge->ifindex, &counted))
        return;
    cJSON_AddNumberToObject(told, "conforming_packets", (double)counted.conforming_packets);
    cJSON_AddNumberToObject(told, "conforming_bytes", (double)counted.conforming_bytes);
    cJSON_AddNumberToObject(told, "exceeding_packets", (double)counted.exceeding_packets);
    cJSON_AddNumberToObject(told, "exceeding_bytes", (double)counted.exceeding_bytes);
    cJSON_AddNumberToObject(told, "unmarked_packets", (double)counted.unmarked_packets);
}

static void police_status(void *context, struct cJSON *object) {
    const struct state *state = context;
    struct cJSON *edges;

    if (!state->n_edges)
        return;
    edges = cJSON_AddArrayToObject(object, "edges");
    for (size_t i = 0; i < state->n_edges; i++) {
        const struct edge *edge = &state->edges[i];
        struct cJSON *told = cJSON_CreateObject();

        cJSON_AddStringToObject(told, "interface", edge->wanted.interface);
        cJSON_AddStringToObject(told, "exceed", edge->wanted.drop ? "drop" : "remark");
        cJSON_AddNumberToObject(told, "aggregate_bps", (double)edge->wanted.aggregate_bps);
        cJSON_AddNumberToObject(told, "depth_ms", edge->wanted.depth_ms);
        if (*edge->fault)
            cJSON_AddStringToObject(told, "fault", edge->fault);
        add_counters(state, edge, told);
        cJSON_AddItemToArray(edges, told);
    }
}

const struct agent_module edges_module = {
    .name = "police", .open = police_open, .close = police_close, .status = police_status};
