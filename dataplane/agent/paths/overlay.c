/* See overlay.h. */
#include "paths/overlay.h"

#include <arpa/inet.h>
#include <cjson/cJSON.h>
#include <errno.h>
#include <limits.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/log.h"
#include "core/loop.h"
#include "core/state_file.h"
#include "core/watched_file.h"
#include "grants/datapath.h"
#include "paths/fallback_routes.h"
#include "paths/flow_paths.h"
#include "paths/grant_paths.h"
#include "paths/overlay_device.h"
#include "paths/overlay_program.h"
#include "paths/prober.h"

#define LOOK_US 50000u
#define TICK_US LIVENESS_PERIOD_US
#define SECOND_US 1000000u
#define FILE_BYTES_MAX (8u << 20)
#define NOTICE_BYTES 8192
#define NOTICES_MAX 1000
#define LOOPBACK "lo"
/* In the state folder. */
#define KEPT "overlay-table"

struct state {
    struct agent *agent;
    struct watched_file watched;
    /* The table of the streams, as it was when the agent ran last. */
    char kept[PATH_MAX];
    char error[OVERLAY_ERROR_LEN];
    bool complained;
    struct overlay_table table;
    struct overlay_program *program;
    struct prober prober;
    struct flow_paths flow_paths;
    /* Of this run, by which answers to its probes are known. */
    uint64_t session;
    struct netlink netlink;
    /* Told by the kernel of interfaces that change. */
    struct mnl_socket *monitor;
    /* The VXLAN device; 0: there is none. */
    uint32_t device;
    uint16_t device_port;
    uint32_t mtu;
    struct fallback_routes fallback;
    struct grant_colour grants[DATAPATH_GRANTS_MAX];
    size_t n_grants;
    uint32_t grants_generation;
    bool off;
    uint64_t generation;
    struct overlay_events events;
};

/* Whose number this is; a table without it has let it go. */
static const struct overlay_link *find_link(const struct state *state, uint32_t neighbour) {
    for (size_t i = 0; i < state->table.n_links; i++)
        if (overlay_program_neighbour(state->program, i) == neighbour)
            return &state->table.links[i];
    return NULL;
}

static void note(struct state *state, struct overlay_event event, const char *subject) {
    event.at_us = agent_now_us();
    snprintf(event.subject, sizeof(event.subject), "%s", subject);
    overlay_events_add(&state->events, &event);
}

/* What a neighbour or path is like when something happens to it. */
static struct overlay_event measured(const struct state *state, uint32_t number, enum overlay_event_kind kind) {
    return (struct overlay_event){.kind = kind,
                                  .rtt_us = (uint32_t)(overlay_program_liveness(state->program, number)->rtt_ns / 1000),
                                  .exchange_loss = state->prober.peers[number].liveness.loss};
}

static void tell_of_path(struct state *state, uint32_t number, bool up) {
    unsigned colour;
    const char *node = flow_paths_name(&state->flow_paths, number, &colour);
    struct overlay_event event = measured(state, number, up ? OVERLAY_EVENT_PATH_RETURNED : OVERLAY_EVENT_PATH_FAILED);

    event.colour = (uint8_t)colour;
    note(state, event, node);
    if (up)
        log_info("path %u to %s answers probes: flows may take it", colour, node);
    else
        log_warning("path %u to %s does not answer probes: its flows take another", colour, node);
}

static void on_change(void *context, uint32_t neighbour, bool up) {
    struct state *state = context;
    const struct overlay_link *link = find_link(state, neighbour);

    if (neighbour >= CHART_OVERLAY_NEIGHBOURS_MAX) {
        tell_of_path(state, neighbour, up);
        return;
    }
    note(state, measured(state, neighbour, up ? OVERLAY_EVENT_LINK_RETURNED : OVERLAY_EVENT_LINK_FAILED),
         link ? link->name : "?");
    if (up)
        log_info("overlay link to %s answers probes: it is used", link ? link->name : "?");
    else
        log_warning("overlay link to %s does not answer probes: other next hops are used", link ? link->name : "?");
}

static void on_tick(void *context) {
    struct state *state = context;

    if (state->device)
        prober_tick(&state->prober, state->program, agent_now_us(), on_change, state);
}

/* What the program is to do now. */
static int configure(struct state *state) {
    const struct chart_overlay_config config = {.ifindex = state->device,
                                                .mtu = state->mtu,
                                                .port = state->device_port,
                                                .sensor_port = agent_options(state->agent)->sensor_port,
                                                .grants_generation = state->grants_generation,
                                                .session = state->session};
    int error = datapath_set_overlay_port(datapath_of(state->agent), state->device ? state->device_port : 0);

    if (error)
        log_warning("Quick-Start requests in the overlay stay without an answer: %s", strerror(-error));
    return overlay_program_configure(state->program, &config);
}

/* All interfaces but loopback and the overlay's own. */
static void attach(struct state *state) {
    uint32_t found[CHART_OVERLAY_INTERFACES_MAX];
    struct if_nameindex *interfaces;
    size_t n = 0;

    if (!state->device)
        return;
    interfaces = if_nameindex();
    for (const struct if_nameindex *one = interfaces; one && one->if_index && n < CHART_OVERLAY_INTERFACES_MAX; one++)
        if (one->if_index != state->device && strcmp(one->if_name, LOOPBACK) != 0)
            found[n++] = one->if_index;
    if_freenameindex(interfaces);
    overlay_program_renew(state->program, &state->table);
    (void)overlay_program_attach(state->program, found, n);
}

static void on_path_look(void *context) {
    struct state *state = context;

    if (state->device)
        flow_paths_look(&state->flow_paths, state->program, &state->prober);
}

static void on_second(void *context) {
    attach(context);
}

static void remove_device(struct state *state) {
    if (!state->device)
        return;
    state->device = 0;
    (void)configure(state);
    overlay_program_detach(state->program);
    (void)overlay_device_remove(&state->netlink);
    fallback_routes_forget(&state->fallback);
}

static int make_device(struct state *state) {
    int error = overlay_device_make(&state->netlink, state->table.port, state->mtu, &state->device);

    if (error) {
        state->device = 0;
        return error;
    }
    state->device_port = state->table.port;
    error = overlay_program_attach_device(state->program, state->device);
    if (error)
        remove_device(state);
    else
        note(state, (struct overlay_event){.kind = OVERLAY_EVENT_STARTED}, "");
    return error;
}

static void follow_peers(struct state *state) {
    bool wanted[CHART_OVERLAY_NEIGHBOURS_MAX] = {false};

    for (size_t i = 0; i < state->table.n_links; i++) {
        uint32_t neighbour = overlay_program_neighbour(state->program, i);

        wanted[neighbour] = true;
        prober_add(&state->prober, neighbour, state->table.links[i].capacity_bps);
    }
    for (uint32_t i = 1; i < CHART_OVERLAY_NEIGHBOURS_MAX; i++)
        if (!wanted[i])
            prober_remove(&state->prober, i);
}

/* Bring the kernel to `state->table`. 0 or a negative errno. */
static int follow(struct state *state) {
    const struct overlay_table *table = &state->table;
    const char *node = agent_options(state->agent)->node;
    size_t refused;
    int error;

    if (!table->n_links || state->off) {
        if (state->program)
            remove_device(state);
        return 0;
    }
    if (!state->program && (error = overlay_program_open(datapath_of(state->agent), &state->program)))
        return error;
    state->mtu = overlay_table_mtu(table);
    if (state->device && state->device_port != table->port)
        remove_device(state);
    error = state->device ? overlay_device_set_mtu(&state->netlink, state->device, state->mtu) : make_device(state);
    error = error ? error : overlay_program_apply(state->program, table, node);
    error =
        error ? error : fallback_routes_follow(&state->fallback, &state->netlink, state->device, table, node, &refused);
    if (error)
        return error;
    if (refused)
        log_warning("%zu routes into the overlay were refused: packets for these prefixes need another route", refused);
    follow_peers(state);
    error = flow_paths_follow(&state->flow_paths, state->program, &state->prober, table, node);
    if (state->flow_paths.left_out)
        log_warning("flows to %zu owners do not choose their path: there is room for %d paths, and both ends need an "
                    "address of one family",
                    state->flow_paths.left_out, FLOW_PATHS_MAX);
    error = error ? error : configure(state);
    attach(state);
    return error;
}

static const char *explain(int error) {
    if (error == -EADDRINUSE)
        return "another VXLAN device takes what comes to this port: give the overlay one of its own";
    if (error == -EEXIST)
        return "the interface " CHART_OVERLAY_DEVICE " is there and is no VXLAN device";
    if (error == -EOPNOTSUPP)
        return "this kernel has no VXLAN";
    return strerror(-error);
}

static const char *source(const struct state *state) {
    const char *file = agent_options(state->agent)->overlay_file;

    return file ? file : "the streams";
}

static void complain(struct state *state, const char *what, const char *consequence) {
    snprintf(state->error, sizeof(state->error), "%s", what);
    if (!state->complained)
        log_error("overlay table of %s: %s; %s", source(state), what, consequence);
    state->complained = true;
}

static void refuse(struct state *state, const char *what) {
    complain(state, what, "what was known before stays");
}

/* Follow a table from now on; it is taken over. */
static void adopt(struct state *state, struct overlay_table *fresh) {
    int status;

    overlay_table_free(&state->table);
    state->table = *fresh;
    state->error[0] = '\0';
    status = follow(state);
    if (status)
        complain(state, explain(status), "packets may take the kernel's routes");
    else
        log_info("overlay table of %s: %zu links, %zu owners", source(state), fresh->n_links, fresh->n_owners);
}

static void take(struct state *state, const char *text, size_t length) {
    struct overlay_table fresh;
    char error[OVERLAY_ERROR_LEN];
    int status = overlay_file_parse(text, length, &fresh, error);

    state->complained = false;
    if (status)
        refuse(state, status == -ENOMEM ? "no memory" : error);
    else
        adopt(state, &fresh);
}

static void look(void *context) {
    struct state *state = context;
    char *text = NULL;
    size_t length = 0;
    int status = state->watched.path ? watched_file_look(&state->watched, &text, &length) : 0;

    if (status < 0)
        refuse(state, watched_file_error(status));
    else if (status > 0)
        take(state, text, length);
    free(text);
}

/* An interface without carrier, or gone: what it led to is down at once. */
static void on_link_down(struct state *state, uint32_t ifindex, const char *name) {
    for (size_t i = 0; i < state->table.n_links; i++) {
        const struct overlay_link *link = &state->table.links[i];
        uint32_t neighbour = overlay_program_neighbour(state->program, i);
        struct overlay_event event;

        if (!*link->interface || (if_nametoindex(link->interface) != ifindex && strcmp(link->interface, name) != 0))
            continue;
        if (!prober_cut(&state->prober, state->program, neighbour, agent_now_us()))
            continue;
        event = measured(state, neighbour, OVERLAY_EVENT_LINK_FAILED);
        event.interface_down = true;
        note(state, event, link->name);
        log_warning("overlay link to %s: %s is down, other next hops are used", link->name, link->interface);
    }
}

static int read_name(const struct nlattr *attribute, void *context) {
    const char **name = context;

    if (mnl_attr_get_type(attribute) == IFLA_IFNAME)
        *name = mnl_attr_get_str(attribute);
    return MNL_CB_OK;
}

static int read_notice(const struct nlmsghdr *header, void *context) {
    const struct ifinfomsg *message = mnl_nlmsg_get_payload(header);
    struct state *state = context;
    const char *name = "";
    bool up = header->nlmsg_type == RTM_NEWLINK && (message->ifi_flags & IFF_UP) && (message->ifi_flags & IFF_RUNNING);

    if (header->nlmsg_type != RTM_NEWLINK && header->nlmsg_type != RTM_DELLINK)
        return MNL_CB_OK;
    mnl_attr_parse(header, sizeof(*message), read_name, &name);
    if (!up)
        on_link_down(state, (uint32_t)message->ifi_index, name);
    return MNL_CB_OK;
}

static void on_notice(void *context, uint32_t events) {
    struct state *state = context;
    char notice[NOTICE_BYTES];

    (void)events;
    for (int i = 0; i < NOTICES_MAX; i++) {
        ssize_t length = mnl_socket_recvfrom(state->monitor, notice, sizeof(notice));

        if (length < 0 && errno != ENOBUFS && errno != EINTR)
            break;
        if (length > 0)
            (void)mnl_cb_run(notice, (size_t)length, 0, 0, read_notice, state);
    }
    attach(state);
}

static int open_monitor(struct state *state) {
    int group = RTNLGRP_LINK;

    state->monitor = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (!state->monitor || mnl_socket_bind(state->monitor, 0, MNL_SOCKET_AUTOPID) < 0 ||
        mnl_socket_setsockopt(state->monitor, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)) < 0)
        return -errno;
    return agent_add_fd(state->agent, mnl_socket_get_fd(state->monitor), EPOLLIN, on_notice, state);
}

static void close_module(void *context) {
    struct state *state = context;

    if (state->program) {
        remove_device(state);
        flow_paths_forget(&state->flow_paths, state->program, &state->prober);
    }
    overlay_program_close(state->program);
    netlink_close(&state->netlink);
    if (state->monitor) {
        agent_remove_fd(state->agent, mnl_socket_get_fd(state->monitor));
        mnl_socket_close(state->monitor);
    }
    overlay_table_free(&state->table);
    free(state);
}

static int start(struct state *state) {
    int error = netlink_open(&state->netlink);

    error = error ? error : open_monitor(state);
    if (!error && getrandom(&state->session, sizeof(state->session), 0) != sizeof(state->session))
        error = -EIO;
    if (error)
        return error;
    look(state);
    if (agent_options(state->agent)->overlay_file)
        error = agent_add_timer(state->agent, LOOK_US, look, state);
    else
        state->watched.path = NULL;
    error = error ? error : agent_add_timer(state->agent, TICK_US, on_tick, state);
    error = error ? error : agent_add_timer(state->agent, PATH_LOOK_US, on_path_look, state);
    return error ? error : agent_add_timer(state->agent, SECOND_US, on_second, state);
}

static int open_module(struct agent *agent, void **ret_state) {
    const struct agent_options *options = agent_options(agent);
    struct state *state = calloc(1, sizeof(*state));
    int error;

    if (!state)
        return -ENOMEM;
    state->agent = agent;
    state->flow_paths.events = &state->events;
    state->off = datapath_is_off(datapath_of(agent));
    snprintf(state->kept, sizeof(state->kept), "%s/" KEPT, options->state_dir);
    state->watched = (struct watched_file){.path = options->overlay_file, .bytes_max = FILE_BYTES_MAX};
    if (!state->watched.path && access(state->kept, R_OK) == 0)
        state->watched.path = state->kept;
    error = options->overlay_file || options->bootstrap ? start(state) : 0;
    if (error) {
        close_module(state);
        return error;
    }
    *ret_state = state;
    return 0;
}

void overlay_follow(const struct agent *agent, struct overlay_table *table, uint64_t generation) {
    struct state *state = agent_state(agent, &overlay_module);
    char *text;
    int error;

    if (!state || agent_options(agent)->overlay_file || (!table->n_links && !state->table.n_links)) {
        overlay_table_free(table);
        return;
    }
    text = overlay_file_print(table);
    error = text ? state_file_write(agent_options(agent)->state_dir, KEPT, text) : -ENOMEM;
    free(text);
    if (error)
        log_error("the table of the overlay cannot be kept for the next start: %s", strerror(-error));
    state->generation = generation;
    state->complained = false;
    adopt(state, table);
}

void overlay_follow_grants(const struct agent *agent, const struct overlay_grant *grants, size_t n) {
    struct state *state = agent_state(agent, &overlay_module);
    struct grant_colour fresh[DATAPATH_GRANTS_MAX];
    size_t n_fresh = 0;

    if (!state || !state->device)
        return;
    for (size_t i = 0; i < n && n_fresh < DATAPATH_GRANTS_MAX; i++) {
        uint8_t colour = grants[i].number ? overlay_grant_colour(&state->table, &grants[i]) : 0;

        if (colour)
            fresh[n_fresh++] = (struct grant_colour){.number = grants[i].number, .colour = colour};
    }
    if (n_fresh == state->n_grants && memcmp(fresh, state->grants, n_fresh * sizeof(*fresh)) == 0)
        return;
    for (size_t i = 0; i < state->n_grants; i++)
        (void)overlay_program_set_grant(state->program, state->grants[i].number, 0);
    for (size_t i = 0; i < n_fresh; i++)
        if (overlay_program_set_grant(state->program, fresh[i].number, fresh[i].colour))
            log_error("the path of a grant cannot be written: its flows take the first one");
    memcpy(state->grants, fresh, n_fresh * sizeof(*fresh));
    state->n_grants = n_fresh;
    state->grants_generation++;
    (void)configure(state);
}

uint64_t overlay_changes(const struct agent *agent) {
    const struct state *state = agent_state(agent, &overlay_module);

    return state ? state->events.n : 0;
}

const char *overlay_fault(const struct agent *agent) {
    const struct state *state = agent_state(agent, &overlay_module);

    return state && state->table.n_links ? state->error : "";
}

static void switched_off(void *context, bool off) {
    struct state *state = context;
    int error;

    state->off = off;
    error = follow(state);
    if (error)
        complain(state, explain(error), "packets may take the kernel's routes");
}

static struct overlay_link_report link_report(const struct state *state, size_t place) {
    uint32_t number = overlay_program_neighbour(state->program, place);
    const struct prober_peer *peer = &state->prober.peers[number];
    const struct chart_overlay_liveness *shared = overlay_program_liveness(state->program, number);

    return (struct overlay_link_report){.name = state->table.links[place].name,
                                        .alive = peer->liveness.up && shared->usable,
                                        .rtt_us = (uint32_t)(shared->rtt_ns / 1000),
                                        .exchange_loss = peer->liveness.loss,
                                        .failures = peer->failures,
                                        .forwarded_packets = shared->forwarded_packets,
                                        .forwarded_bytes = shared->forwarded_bytes};
}

void overlay_report(const struct agent *agent, struct overlay_report *ret) {
    const struct state *state = agent_state(agent, &overlay_module);
    bool alive[OVERLAY_LINKS_MAX];

    ret->n_links = 0;
    ret->running = state && state->device;
    if (!ret->running)
        return;
    ret->generation = state->generation;
    ret->counted = overlay_program_counters(state->program);
    for (size_t i = 0; i < state->table.n_links; i++) {
        ret->links[ret->n_links++] = link_report(state, i);
        alive[i] = ret->links[i].alive;
    }
    ret->n_paths = flow_paths_report(&state->flow_paths, state->program, ret->paths);
    ret->n_events = overlay_events_recent(&state->events, agent_now_us(), ret->events);
    ret->all_events = state->events.n;
    ret->unreachable_owners = overlay_table_unreachable(&state->table, agent_options(agent)->node, alive);
}

static void add_link(const struct state *state, size_t place, struct cJSON *links) {
    const struct prober_peer *peer = &state->prober.peers[overlay_program_neighbour(state->program, place)];
    struct overlay_link_report report = link_report(state, place);
    struct cJSON *told = cJSON_CreateObject();

    cJSON_AddStringToObject(told, "name", report.name);
    cJSON_AddBoolToObject(told, "alive", report.alive);
    cJSON_AddNumberToObject(told, "rtt_ms", report.rtt_us / 1e3);
    cJSON_AddNumberToObject(told, "exchange_loss", report.exchange_loss);
    cJSON_AddNumberToObject(told, "probe_period_ms", peer->liveness.period_us / 1e3);
    cJSON_AddNumberToObject(told, "fails_after_ms", (double)liveness_patience_ns(&peer->liveness) / 1e6);
    cJSON_AddNumberToObject(told, "failures", (double)report.failures);
    cJSON_AddNumberToObject(told, "failed_at_us", (double)peer->failed_at_us);
    cJSON_AddNumberToObject(told, "forwarded_packets", (double)report.forwarded_packets);
    cJSON_AddNumberToObject(told, "forwarded_bytes", (double)report.forwarded_bytes);
    cJSON_AddItemToArray(links, told);
}

static void add_counters(const struct state *state, struct cJSON *object) {
    struct chart_overlay_counters counted = overlay_program_counters(state->program);
    const struct {
        const char *name;
        uint64_t value;
    } counters[] = {{"entered_packets", counted.entered},
                    {"transit_packets", counted.transit},
                    {"relayed_packets", counted.relayed},
                    {"left_packets", counted.left},
                    {"stranger_packets", counted.strangers},
                    {"bad_probes", counted.bad_probes},
                    {"no_path_packets", counted.no_path},
                    {"detour_packets", counted.detours},
                    {"all_stale_packets", counted.all_stale},
                    {"too_big_packets", counted.too_big},
                    {"clamped_connections", counted.clamped},
                    {"flows", counted.flows},
                    {"flows_failed_over", counted.flows_failed_over},
                    {"flows_moved", counted.flows_moved},
                    {"faults", counted.faults}};

    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
        cJSON_AddNumberToObject(object, counters[i].name, (double)counters[i].value);
}

static void status(void *context, struct cJSON *object) {
    const struct state *state = context;
    struct cJSON *told, *links;

    if (!state->watched.path && !state->table.n_links)
        return;
    told = cJSON_AddObjectToObject(object, "overlay");
    cJSON_AddStringToObject(told, "source", source(state));
    cJSON_AddStringToObject(told, "error", state->error);
    cJSON_AddBoolToObject(told, "running", state->device != 0);
    cJSON_AddNumberToObject(told, "port", state->device ? state->device_port : 0);
    cJSON_AddNumberToObject(told, "mtu", state->device ? state->mtu : 0);
    cJSON_AddNumberToObject(told, "owners", (double)state->table.n_owners);
    links = cJSON_AddArrayToObject(told, "links");
    for (size_t i = 0; state->device && i < state->table.n_links; i++)
        add_link(state, i, links);
    if (state->device)
        flow_paths_tell(&state->flow_paths, state->program, cJSON_AddArrayToObject(told, "paths"));
    if (state->program)
        add_counters(state, told);
}

const struct agent_module overlay_module = {
    .name = "overlay", .open = open_module, .close = close_module, .status = status, .switched_off = switched_off};
