/* In-band signalling as a module of the agent: loads the program `signal`, attaches it to every link, feeds its maps
 * with what the authority says and what stands in the file of --signal-file, and shows what it does. Whether the
 * program does anything is the mode's matter; without an authority and a file, or when the kernel refuses the program,
 * traffic and grants go on as they are. */
#include "signal/signal.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/agent.h"
#include "core/kernel_tc.h"
#include "core/log.h"
#include "core/loop.h"
#include "core/watched_file.h"
#include "grants/datapath.h"
#include "signal.skel.h"
#include "signal/shim_address.h"
#include "signal/signal_file.h"
#include "signal/signal_flows.h"
#include "signal/signal_keys.h"
#include "signal/signal_rules.h"
#include "signal/signal_source.h"

#define LOOK_US 50000u
#define TICK_US 100000u
#define SECOND_US 1000000u
/* Of a link's capacity: what explicit rates may fill, and what of it may be guaranteed by an agent without streams
 * (allocation leaves the rest to queues that drain and to traffic without a rate). With streams the link's lease
 * counts.
 */
#define EXPLICIT_PER_MILLE 970u
#define GUARANTEED_PER_MILLE 500u
/* A rate of the file holds until it is read again, renewed every second. */
#define RATE_LEASE_US 3000000u
/* How long a node says that its table was full after it was. */
#define ROOM_FAULT_US 180000000ll

struct attached {
    uint32_t ifindex;
    uint64_t capacity_bps;
    /* What may be guaranteed here, as the streams say it, and until when; microseconds since the epoch. */
    uint64_t lease_bps;
    int64_t lease_until_us;
    /* The rate of the link's controller, likewise. */
    uint64_t rate_bps;
    int64_t rate_until_us;
    char interface[IF_NAMESIZE];
    struct kernel_tc out, in;
};

struct wanted_link {
    char interface[IF_NAMESIZE];
    uint64_t capacity_bps;
};

struct state {
    struct agent *agent;
    struct chart_signal_program *program;
    struct signal_tables *tables;
    struct signal_file file;
    /* What the authority said: in place of the file's keys, next hops and authorisations. */
    struct signal_file told;
    bool is_told;
    struct signal_rules *rules;
    /* The node's links by command line and topology; those that are there. */
    struct wanted_link wanted[AGENT_LINKS_MAX];
    size_t n_wanted;
    struct attached links[AGENT_LINKS_MAX];
    size_t n_links;
    int cgroup_fds[2];
    struct watched_file watched;
    enum decide_mode mode; /* as the kernel has it */
    char error[SIGNAL_FILE_ERROR_LEN];
    bool complained;
    bool running;
    /* Requests and flows for which the table of flows had no room: how many, and when there were more of them. */
    uint64_t without_room;
    int64_t without_room_us;
    char room_fault[160];
};

static const char *const counter_names[CHART_COUNTERS] = {
    [CHART_QOS_TRUNCATED] = "truncated",
    [CHART_QOS_NOT_IP] = "not_ip",
    [CHART_QOS_BAD_HEADER] = "bad_header",
    [CHART_QOS_BAD_OPTION] = "bad_option",
    [CHART_QOS_BAD_SIGNAL_LENGTH] = "bad_signal_length",
    [CHART_QOS_DUPLICATE] = "duplicate",
    [CHART_QOS_FRAGMENT] = "fragment",
    [CHART_QOS_BAD_VERSION] = "bad_version",
    [CHART_QOS_BAD_RESERVED] = "bad_reserved",
    [CHART_QOS_BAD_STATUS] = "bad_status",
    [CHART_QOS_NOT_SHIM] = "not_shim",
    [CHART_QOS_BAD_SHIM] = "bad_shim",
    [CHART_QOS_UNKNOWN_EPOCH] = "unknown_epoch",
    [CHART_QOS_TOO_OLD] = "too_old",
    [CHART_QOS_REPLAYED] = "replayed",
    [CHART_QOS_BAD_TAG] = "bad_tag",
    [CHART_COUNT_ACCEPTED] = "accepted",
    [CHART_COUNT_SENT] = "sent",
    [CHART_COUNT_CONSUMED] = "consumed",
    [CHART_COUNT_LOWERED] = "lowered",
    [CHART_COUNT_UNAUTHORISED] = "unauthorised",
    [CHART_COUNT_UNSENT] = "unsent",
    [CHART_COUNT_REJECTED] = "rejected",
    [CHART_COUNT_SHIM_SENT] = "shim_sent",
    [CHART_COUNT_PREEMPTED] = "preempted",
    [CHART_COUNT_UNEXPECTED] = "unexpected",
    [CHART_COUNT_WOULD_ASK] = "would_ask",
    [CHART_COUNT_WOULD_TAKE] = "would_take",
    [CHART_COUNT_NO_ROOM] = "no_room",
    [CHART_COUNT_OVER_BUDGET] = "over_budget",
    [CHART_COUNT_UNKEPT] = "unkept",
    [CHART_COUNT_UNKNOWN_USER] = "unknown_user",
};

static int load_program(struct state *state) {
    struct datapath *datapath = datapath_of(state->agent);
    struct chart_signal_program *program = chart_signal_program__open();
    int error = program ? 0 : -ENOMEM;
    if (error)
        return error;
    state->program = program;
    bpf_program__set_expected_attach_type(program->progs.signal_egress, 0);
    bpf_program__set_expected_attach_type(program->progs.signal_ingress, 0);
    error = datapath_share_maps(datapath, program->maps.rates, program->maps.usage, program->maps.flows,
                                program->maps.signal_flows);
    return error ? error : chart_signal_program__load(program);
}

static int make_tables(struct state *state) {
    const struct chart_signal_program *program = state->program;
    const struct signal_map_fds fds = {
        .config = bpf_map__fd(program->maps.signal_config),
        .in = bpf_map__fd(program->maps.signal_in),
        .out = bpf_map__fd(program->maps.signal_out),
        .next_hops = bpf_map__fd(program->maps.signal_next_hops),
        .authorisations = bpf_map__fd(program->maps.signal_auths),
        .asks = bpf_map__fd(program->maps.signal_asks),
        .links = bpf_map__fd(program->maps.signal_links),
        .loads = bpf_map__fd(program->maps.signal_loads),
        .counters = bpf_map__fd(program->maps.signal_counters),
        .flows = bpf_map__fd(program->maps.signal_flows),
        .users = bpf_map__fd(program->maps.signal_users),
    };
    state->tables = signal_tables_new(&fds, agent_options(state->agent)->state_dir);
    return state->tables ? 0 : -ENOMEM;
}

static int attach_sockets(struct state *state) {
    const char *path = agent_options(state->agent)->cgroup_path;
    const struct chart_signal_program *program = state->program;
    int cgroup = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (cgroup < 0)
        return -errno;
    state->cgroup_fds[0] =
        bpf_link_create(bpf_program__fd(program->progs.signal_setsockopt), cgroup, BPF_CGROUP_SETSOCKOPT, NULL);
    state->cgroup_fds[1] =
        bpf_link_create(bpf_program__fd(program->progs.signal_getsockopt), cgroup, BPF_CGROUP_GETSOCKOPT, NULL);
    int error = state->cgroup_fds[0] < 0 || state->cgroup_fds[1] < 0 ? -errno : 0;
    close(cgroup);
    return error;
}

static const struct signal_file_link *stated(const struct state *state, const char *interface) {
    for (size_t i = 0; i < state->file.n_links; i++)
        if (strcmp(state->file.links[i].interface, interface) == 0)
            return &state->file.links[i];
    return NULL;
}

static int write_link(const struct state *state, const struct attached *link) {
    const struct signal_file_link *file = stated(state, link->interface);
    struct signal_link value = {
        .ifindex = link->ifindex,
        .header_bytes = datapath_link_header_bytes(link->ifindex),
        .explicit_bps = link->capacity_bps / 1000 * EXPLICIT_PER_MILLE,
        .guaranteed_bps = link->capacity_bps / 1000 * GUARANTEED_PER_MILLE,
    };
    if (file && file->has_explicit)
        value.explicit_bps = file->explicit_bps;
    if (file && file->has_guaranteed)
        value.guaranteed_bps = file->guaranteed_bps;
    if (agent_options(state->agent)->bootstrap) {
        int64_t left_us = link->lease_until_us - agent_now_us();

        value.leased = true;
        value.lease_us = left_us > 0 ? (uint64_t)left_us : 0;
        if (!file || !file->has_guaranteed || link->lease_bps < value.guaranteed_bps)
            value.guaranteed_bps = link->lease_bps;
    }
    if (file && file->rate_bps) {
        value.rate_bps = file->rate_bps;
        value.rate_lease_us = RATE_LEASE_US;
    } else if (link->rate_until_us > agent_now_us()) {
        value.rate_bps = link->rate_bps;
        value.rate_lease_us = (uint64_t)(link->rate_until_us - agent_now_us());
    }
    return signal_tables_link(state->tables, &value);
}

static void detach(struct state *state, struct attached *link) {
    kernel_detach_tc(&link->out);
    kernel_detach_tc(&link->in);
    signal_tables_remove_link(state->tables, link->ifindex);
    *link = state->links[--state->n_links];
}

static int attach(struct state *state, struct attached *link) {
    int error = write_link(state, link);
    if (error)
        return error;
    error = kernel_attach_tc(bpf_program__fd(state->program->progs.signal_egress), link->ifindex, KERNEL_TC_SIGNAL_OUT,
                             &link->out);
    return error ? error
                 : kernel_attach_tc(bpf_program__fd(state->program->progs.signal_ingress), link->ifindex,
                                    KERNEL_TC_SIGNAL_IN, &link->in);
}

static struct wanted_link *find_wanted(struct state *state, const char *interface) {
    for (size_t i = 0; i < state->n_wanted; i++)
        if (strcmp(state->wanted[i].interface, interface) == 0)
            return &state->wanted[i];
    return NULL;
}

static void want_link(struct state *state, const char *interface, uint64_t capacity_bps) {
    struct wanted_link *link = find_wanted(state, interface);
    if (!link && (state->n_wanted == AGENT_LINKS_MAX || strlen(interface) >= sizeof(link->interface)))
        return;
    if (!link) {
        link = &state->wanted[state->n_wanted++];
        strcpy(link->interface, interface);
    }
    link->capacity_bps = capacity_bps;
}

static void follow_capacity(struct state *state, struct attached *link) {
    const struct wanted_link *wanted = find_wanted(state, link->interface);
    if (wanted->capacity_bps == link->capacity_bps)
        return;
    link->capacity_bps = wanted->capacity_bps;
    write_link(state, link);
}

/* Interfaces come and go, and so do links of the topology. */
static void follow_links(struct state *state) {
    for (size_t i = state->n_links; i-- > 0;)
        if (!find_wanted(state, state->links[i].interface) ||
            if_nametoindex(state->links[i].interface) != state->links[i].ifindex)
            detach(state, &state->links[i]);
        else
            follow_capacity(state, &state->links[i]);
    for (size_t i = 0; i < state->n_wanted; i++) {
        struct attached link = {.capacity_bps = state->wanted[i].capacity_bps};
        bool known = false;
        memcpy(link.interface, state->wanted[i].interface, sizeof(link.interface));
        link.ifindex = if_nametoindex(link.interface);
        for (size_t k = 0; k < state->n_links; k++)
            known |= state->links[k].ifindex == link.ifindex;
        if (!link.ifindex || known || state->n_links == AGENT_LINKS_MAX)
            continue;
        int error = attach(state, &link);
        state->links[state->n_links++] = link;
        if (error) {
            if (!state->complained)
                log_error("cannot signal on interface %s: %s", link.interface, strerror(-error));
            state->complained = true;
            detach(state, &state->links[state->n_links - 1]);
        }
    }
}

static struct signal_policy policy_now(const struct state *state) {
    struct signal_policy policy = state->file.policy;
    if (state->is_told) {
        policy.element = state->told.policy.element;
        policy.drop_unauthorised = state->told.policy.drop_unauthorised;
        policy.free_bps = state->told.policy.free_bps;
        shim_address_fill(state->told.hops, state->told.n_hops, &policy);
    }
    policy.mode = datapath_mode(datapath_of(state->agent));
    return policy;
}

/* Bring the kernel to what the file or the authority says; also because times have passed. */
static void apply(struct state *state) {
    const struct signal_file *file = state->is_told ? &state->told : &state->file;
    struct signal_policy policy = policy_now(state);
    int64_t now_us = agent_now_us();
    int error = signal_tables_policy(state->tables, &policy);
    state->mode = policy.mode;
    error = error ? error : signal_tables_keys(state->tables, file->keys, file->n_keys, now_us);
    error = error ? error
                  : signal_tables_authorisations(state->tables, file->authorisations, file->n_authorisations, now_us);
    if (error)
        log_error("signalling: keys or authorisations could not be applied: %s", strerror(-error));
}

static size_t add_asks(struct signal_ask *asks, size_t n, const struct signal_ask *more, size_t n_more) {
    size_t room = CHART_SIGNAL_ASKS_MAX - n;
    n_more = n_more < room ? n_more : room;
    if (n_more)
        memcpy(asks + n, more, n_more * sizeof(*asks));
    return n + n_more;
}

/* The asks of the file, those of session rules, and without streams the built-in ones that come with the authority
 * (with streams operators decide): the first that fits counts. */
static int apply_asks(struct state *state) {
    struct signal_ask *asks = calloc(CHART_SIGNAL_ASKS_MAX, sizeof(*asks));
    size_t n;
    int error;
    if (!asks)
        return -ENOMEM;
    n = add_asks(asks, 0, state->file.asks, state->file.n_asks);
    n += signal_rules_asks(state->rules, agent_now_us(), asks + n, CHART_SIGNAL_ASKS_MAX - n);
    if (!agent_options(state->agent)->bootstrap)
        n = add_asks(asks, n, state->told.asks, state->told.n_asks);
    error = signal_tables_asks(state->tables, asks, n);
    free(asks);
    return error;
}

static void apply_fresh(struct state *state) {
    const struct signal_file *source = state->is_told ? &state->told : &state->file;
    apply(state);
    int error = signal_tables_next_hops(state->tables, source->hops, source->n_hops);
    error = error ? error : apply_asks(state);
    for (size_t i = 0; i < state->n_links && !error; i++)
        error = write_link(state, &state->links[i]);
    if (error)
        log_error("signalling: a table could not be applied: %s", strerror(-error));
    /* Before the first second is over too: a crash until then must not use a sequence twice. */
    signal_tables_keep(state->tables);
}

static void complain(struct state *state, const char *what) {
    if (strcmp(state->error, what) != 0)
        log_error("signal file %s: %s; what was known before stays", agent_options(state->agent)->signal_file, what);
    snprintf(state->error, sizeof(state->error), "%s", what);
}

static void take(struct state *state, const char *text, size_t length) {
    struct signal_file fresh;
    char error[SIGNAL_FILE_ERROR_LEN];
    if (signal_file_parse(text, length, &fresh, error)) {
        complain(state, error);
        return;
    }
    signal_file_free(&state->file);
    state->file = fresh;
    state->error[0] = '\0';
    apply_fresh(state);
    log_info("signal file read: element %u, %zu keys, %zu next hops", fresh.policy.element, fresh.n_keys, fresh.n_hops);
}

static void look(void *context) {
    struct state *state = context;
    char *text = NULL;
    size_t length = 0;
    int status = watched_file_look(&state->watched, &text, &length);
    if (status < 0)
        complain(state, watched_file_error(status));
    else if (status > 0)
        take(state, text, length);
    if (text)
        explicit_bzero(text, length);
    free(text);
}

/* Whether flows found no room in the table of flows lately. */
static void look_for_room(struct state *state, int64_t now_us) {
    uint64_t count = signal_tables_count(state->tables, CHART_COUNT_NO_ROOM) +
                     signal_tables_count(state->tables, CHART_COUNT_UNKEPT);
    bool told = state->room_fault[0];

    if (count != state->without_room) {
        state->without_room = count;
        state->without_room_us = now_us;
        snprintf(
            state->room_fault, sizeof(state->room_fault),
            "the table of in-band flows was full (%d): %llu requests were dropped or not made; rates that flows have "
            "stay",
            CHART_SIGNAL_FLOWS_MAX, (unsigned long long)count);
        if (!told)
            log_warning("%s", state->room_fault);
    } else if (told && now_us > state->without_room_us + ROOM_FAULT_US) {
        state->room_fault[0] = '\0';
        log_info("the table of in-band flows has room again");
    }
}

static void on_second(void *context) {
    struct state *state = context;
    look_for_room(state, agent_now_us());
    follow_links(state);
    apply(state);
    for (size_t i = 0; i < state->n_links; i++)
        /* Times run by the wall clock, which is set. */
        if (stated(state, state->links[i].interface) || state->links[i].lease_bps)
            write_link(state, &state->links[i]);
    signal_tables_keep(state->tables);
}

/* Whoever changes the mode (policy, rate file, local switch) says so to the datapath alone. */
static void on_tick(void *context) {
    struct state *state = context;
    int error = 0;
    if (datapath_mode(datapath_of(state->agent)) != state->mode)
        apply(state);
    if (signal_rules_due(state->rules, agent_now_us()))
        error = apply_asks(state);
    if (error)
        log_error("signalling: the asks could not be applied: %s", strerror(-error));
    signal_rules_tick(state->rules);
}

/* The one that runs; the authority's client hands over to it. */
static struct state *receiving;

void signal_source_take(struct signal_file *tables) {
    struct state *state = receiving;
    if (!state || !state->running) {
        signal_file_free(tables);
        return;
    }
    signal_file_free(&state->told);
    state->told = *tables;
    state->is_told = true;
    apply_fresh(state);
}

bool signal_source_exhausted(uint16_t element) {
    uint8_t epoch;
    uint32_t sequence;
    return receiving && receiving->running &&
           signal_tables_sequence(receiving->tables, element, &epoch, &sequence) == 0 && sequence >= 1u << 23;
}

uint32_t signal_source_ignored(uint16_t element, bool *ret_answered) {
    *ret_answered = false;
    return receiving && receiving->running ? signal_tables_ignored(receiving->tables, element, ret_answered) : 0;
}

size_t signal_source_refused(struct signal_refused ret[SIGNAL_REFUSED_MAX]) {
    size_t n = 0;

    if (!receiving || !receiving->running)
        return 0;
    for (uint32_t i = 0; i < CHART_COUNTERS && n < SIGNAL_REFUSED_MAX; i++) {
        bool refused = (i < CHART_QOS_ERRORS && i != CHART_QOS_NOT_IP) || i == CHART_COUNT_UNAUTHORISED ||
                       i == CHART_COUNT_NO_ROOM || i == CHART_COUNT_OVER_BUDGET || i == CHART_COUNT_UNKEPT;
        uint64_t count = refused && counter_names[i] ? signal_tables_count(receiving->tables, i) : 0;

        if (count)
            ret[n++] = (struct signal_refused){counter_names[i], count};
    }
    return n;
}

const char *signal_source_room_fault(void) {
    return signal_source_runs() ? receiving->room_fault : "";
}

bool signal_source_runs(void) {
    return receiving && receiving->running;
}

void signal_source_link(const char *interface, uint64_t capacity_bps) {
    if (signal_source_runs())
        want_link(receiving, interface, capacity_bps);
}

void signal_source_no_link(const char *interface) {
    struct wanted_link *link = signal_source_runs() ? find_wanted(receiving, interface) : NULL;
    if (link)
        *link = receiving->wanted[--receiving->n_wanted];
}

void signal_source_lease(uint32_t ifindex, uint64_t lease_bps, int64_t until_us) {
    for (size_t i = 0; signal_source_runs() && i < receiving->n_links; i++) {
        struct attached *link = &receiving->links[i];
        int error;

        if (link->ifindex != ifindex || (link->lease_bps == lease_bps && link->lease_until_us == until_us))
            continue;
        link->lease_bps = lease_bps;
        link->lease_until_us = until_us;
        error = write_link(receiving, link);
        if (error)
            log_error("the lease of interface %s could not be applied: %s", link->interface, strerror(-error));
    }
}

void signal_source_rate(uint32_t ifindex, uint64_t rate_bps, int64_t until_us) {
    for (size_t i = 0; signal_source_runs() && i < receiving->n_links; i++) {
        struct attached *link = &receiving->links[i];
        int error;

        if (link->ifindex != ifindex || (link->rate_bps == rate_bps && link->rate_until_us == until_us))
            continue;
        link->rate_bps = rate_bps;
        link->rate_until_us = until_us;
        error = write_link(receiving, link);
        if (error)
            log_error("the rate of interface %s could not be applied: %s", link->interface, strerror(-error));
    }
}

void signal_source_load(uint32_t ifindex, struct signal_load *ret) {
    *ret = (struct signal_load){0};
    if (signal_source_runs())
        (void)signal_tables_load(receiving->tables, ifindex, ret);
}

size_t signal_source_flows(struct signal_flow *ret, size_t max) {
    return signal_source_runs() ? signal_tables_flows(receiving->tables, ret, max) : 0;
}

struct signal_identity signal_source_identity(void) {
    if (!signal_source_runs())
        return (struct signal_identity){0};
    return (struct signal_identity){.element = policy_now(receiving).element,
                                    .key_epoch = signal_tables_key_epoch(receiving->tables)};
}

int signal_source_reports(void) {
    return receiving && receiving->running ? bpf_map__fd(receiving->program->maps.signal_reports) : -1;
}

static void close_module(void *context) {
    struct state *state = context;
    receiving = NULL;
    if (state->running)
        signal_tables_keep(state->tables);
    while (state->n_links)
        detach(state, &state->links[state->n_links - 1]);
    for (size_t i = 0; i < 2; i++)
        if (state->cgroup_fds[i] >= 0)
            close(state->cgroup_fds[i]);
    signal_tables_free(state->tables);
    chart_signal_program__destroy(state->program);
    signal_file_free(&state->file);
    signal_file_free(&state->told);
    signal_rules_free(state->rules);
    free(state);
}

static int open_module(struct agent *agent, void **ret_state) {
    struct state *state = calloc(1, sizeof(*state));
    if (!state)
        return -ENOMEM;
    state->agent = agent;
    state->cgroup_fds[0] = state->cgroup_fds[1] = -1;
    state->rules = signal_rules_new();
    if (!state->rules) {
        free(state);
        return -ENOMEM;
    }
    *ret_state = state;
    if (!agent_options(agent)->signal_file && !agent_options(agent)->authority_url)
        return 0;
    int error = load_program(state);
    error = error ? error : make_tables(state);
    error = error ? error : attach_sockets(state);
    error = error ? error : signal_rules_run(state->rules, state->tables);
    if (error) {
        log_error("in-band signalling cannot start, flows go on without it: %s", strerror(-error));
        snprintf(state->error, sizeof(state->error), "cannot start: %s", strerror(-error));
        return 0;
    }
    state->running = true;
    receiving = state;
    if (agent_options(agent)->signal_file) {
        state->watched =
            (struct watched_file){.path = agent_options(agent)->signal_file, .bytes_max = SIGNAL_FILE_BYTES_MAX};
        look(state);
    }
    for (size_t i = 0; i < agent_options(agent)->n_links; i++)
        want_link(state, agent_options(agent)->links[i].interface, agent_options(agent)->links[i].capacity_bps);
    follow_links(state);
    error = agent_options(agent)->signal_file ? agent_add_timer(agent, LOOK_US, look, state) : 0;
    error = error ? error : agent_add_timer(agent, TICK_US, on_tick, state);
    return error ? error : agent_add_timer(agent, SECOND_US, on_second, state);
}

static void add_links(const struct state *state, struct cJSON *array) {
    for (size_t i = 0; i < state->n_links; i++) {
        struct cJSON *object = cJSON_CreateObject();
        struct signal_load load = {0};
        signal_tables_load(state->tables, state->links[i].ifindex, &load);
        cJSON_AddStringToObject(object, "interface", state->links[i].interface);
        cJSON_AddNumberToObject(object, "held_bps", (double)load.held_bps);
        cJSON_AddNumberToObject(object, "flows", load.flows);
        cJSON_AddNumberToObject(object, "users", load.users);
        if (agent_options(state->agent)->bootstrap)
            cJSON_AddNumberToObject(object, "lease_bps", (double)state->links[i].lease_bps);
        cJSON_AddItemToArray(array, object);
    }
}

static void status(void *context, struct cJSON *object) {
    const struct state *state = context;
    signal_rules_status(state->rules, object);
    if (!agent_options(state->agent)->signal_file && !agent_options(state->agent)->authority_url)
        return;
    struct cJSON *signalling = cJSON_AddObjectToObject(object, "signalling");
    cJSON_AddBoolToObject(signalling, "running", state->running);
    cJSON_AddStringToObject(signalling, "error", state->error);
    if (!state->running)
        return;
    cJSON_AddNumberToObject(signalling, "element", policy_now(state).element);
    cJSON_AddNumberToObject(signalling, "flows", signal_rules_kept(state->rules));
    cJSON_AddNumberToObject(signalling, "flows_max", CHART_SIGNAL_FLOWS_MAX);
    cJSON_AddStringToObject(signalling, "room_fault", state->room_fault);
    add_links(state, cJSON_AddArrayToObject(signalling, "links"));
    struct cJSON *counters = cJSON_AddObjectToObject(signalling, "counters");
    for (uint32_t i = 0; i < CHART_COUNTERS; i++)
        if (counter_names[i])
            cJSON_AddNumberToObject(counters, counter_names[i], (double)signal_tables_count(state->tables, i));
}

static void switched_off(void *context, bool off) {
    struct state *state = context;
    (void)off;
    if (state->running)
        apply(state);
}

const struct agent_module signal_module = {
    .name = "signalling", .open = open_module, .close = close_module, .status = status, .switched_off = switched_off};
