/* Link loads every 100 ms, node state on change and every 30 s, flow records; see node.h. */
#include "node/node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "authority/authority.h"
#include "core/loop.h"
#include "core/options.h"
#include "links/edges.h"

#define STATE_REFRESH_US 30000000ll
/* More refused signals, sessions that came or went, and flows that are signalled in band are told of this often at
 * most. */
#define COUNTS_REFRESH_US 2000000ll
/* Reading the counts of this many grants ten times a second costs more than it tells. */
#define MANY_GRANTS 500
#define MANY_GRANTS_INTERVAL_US 1000000ll
#define LEAST_INTERVAL_US 50000ll

static struct node_link *link_of(struct node *node, const char *id) {
    for (int i = 0; i < AGENT_LINKS_MAX; i++)
        if (node->links[i].used && strcmp(node->links[i].id, id) == 0)
            return &node->links[i];
    return NULL;
}

/* Whose packets left through the link lately, as the classifier saw it: on every node of a path, not only the first. */
static void note_sender(struct node *node, const struct decide_applied *grant, const struct node_link *link) {
    int age = datapath_grant_age(node->datapath, grant->request_id, link->interface.ifindex);

    if (age < 0 || age > LOAD_RECENT_EPOCHS)
        return;
    node->senders[node->n_senders++] = (struct load_sender){.user = decide_user(node->decide, grant->request_id),
                                                            .link = (uint32_t)(link - node->links),
                                                            .active = age <= 1};
}

static void note_grant(struct node *node, const struct decide_applied *grant, int64_t now_us) {
    struct node_link *link = link_of(node, grant->link_id);
    struct decide_observed observed;
    uint32_t rtt_us;
    int use;

    if (!link || node_observe(node, grant, &observed) < 0)
        return;
    note_sender(node, grant, link);
    if (decide_set_observed(node->decide, grant->request_id, &observed, now_us))
        node->dirty = true;
    use = load_note(&node->activity, grant->request_id, observed.sent_bytes, now_us);
    if (use < LOAD_IN_USE)
        return;
    link->in_use_bps += grant->gr_bps;
    link->active_grants += use == LOAD_ACTIVE;
    rtt_us = grant->sending ? datapath_grant_rtt_us(node->datapath, grant->request_id) : 0;
    link->rtt_sum_us += rtt_us;
    link->rtt_count += rtt_us != 0;
}

static bool has_room(struct node *node) {
    struct load_sender *more;

    if (node->n_applied <= node->senders_size)
        return true;
    more = realloc(node->senders, node->n_applied * 2 * sizeof(*more));
    if (!more)
        return false;
    node->senders = more;
    node->senders_size = node->n_applied * 2;
    return true;
}

/* Users on every link, and the flows of those who have several. The names are copied: grants come and go before the
 * next round. */
static void count_users(struct node *node) {
    uint32_t counts[AGENT_LINKS_MAX] = {0};
    size_t octets = 0;
    char *name;

    node->n_users = load_count_users(node->senders, node->n_senders, counts, node->users, DECIDE_USERS_MAX);
    for (int i = 0; i < AGENT_LINKS_MAX; i++) {
        node->links[i].active_users = counts[i];
        node->links[i].active_senders = 0;
    }
    for (size_t i = 0; i < node->n_senders; i++)
        node->links[node->senders[i].link].active_senders += node->senders[i].active;
    free(node->user_names);
    for (size_t i = 0; i < node->n_users; i++)
        octets += strlen(node->users[i].user) + 1;
    node->user_names = name = octets ? malloc(octets) : NULL;
    if (!name)
        node->n_users = 0;
    for (size_t i = 0; i < node->n_users; i++) {
        const char *from = node->users[i].user;

        node->users[i].user = name;
        name = stpcpy(name, from) + 1;
    }
}

/* The grants' part of the loads: who moves data, which guaranteed rate is in use, the mean RTT. A grant that is idle
 * lends its rate to the others until it moves again. */
static void note_grants(struct node *node, int64_t now_us) {
    if (node->n_applied > MANY_GRANTS && now_us < node->noted_at_us + MANY_GRANTS_INTERVAL_US)
        return;
    if (!has_room(node))
        return;
    node->n_senders = 0;
    node->noted_at_us = now_us;
    for (int i = 0; i < AGENT_LINKS_MAX; i++) {
        struct node_link *link = &node->links[i];

        link->in_use_bps = link->rtt_sum_us = 0;
        link->active_grants = link->rtt_count = 0;
    }
    load_begin(&node->activity);
    for (size_t i = 0; i < node->n_applied; i++)
        note_grant(node, &node->applied[i], now_us);
    load_end(&node->activity);
    count_users(node);
}

static void add_grants(struct node_link *link) {
    link->load.guaranteed_in_use_bps = link->in_use_bps;
    if (link->rtt_count)
        link->load.rtt_us = (uint32_t)(link->rtt_sum_us / link->rtt_count);
    if (link->load.active_flows < link->active_grants)
        link->load.active_flows = link->active_grants;
    link->load.users = link->active_users;
    if (link->load.active_flows > link->active_senders)
        link->load.users += load_unnamed_users(link->load.active_flows - link->active_senders, link->in_band_flows,
                                               link->in_band_users);
}

/* The users with several flows, by the places that links have in the report. */
static void add_users(const struct node *node, const size_t *places, struct load_user_flows *users,
                      struct messages_load_report *report) {
    for (size_t i = 0; i < node->n_users; i++) {
        if (!node->links[node->users[i].link].used)
            continue;
        users[report->n_users] = node->users[i];
        users[report->n_users++].link = (uint32_t)places[node->users[i].link];
    }
    report->users = users;
}

void node_report_loads(struct node *node, int64_t now_us) {
    struct link_load loads[AGENT_LINKS_MAX];
    struct messages_load_report report = {.node = node->options->node, .loads = loads};
    struct load_user_flows users[DECIDE_USERS_MAX];
    size_t places[AGENT_LINKS_MAX];

    /* A late tick is followed by an early one: leave it out, a short interval says little. */
    if (node->load_at_us && now_us < node->load_at_us + LEAST_INTERVAL_US)
        return;
    node_links_sample(node, now_us);
    /* The interval ends when the counters are read: this process may have waited for a core since the tick. */
    now_us = agent_now_us();
    note_grants(node, now_us);
    report.interval_end_us = now_us;
    report.interval_us = node->load_at_us ? (uint32_t)(now_us - node->load_at_us) : 0;
    node->load_at_us = now_us;
    for (int i = 0; i < AGENT_LINKS_MAX; i++)
        if (node->links[i].used) {
            add_grants(&node->links[i]);
            places[i] = report.n_loads;
            loads[report.n_loads++] = node->links[i].load;
        }
    if (!node->streams || !report.n_loads || !report.interval_us)
        return;
    report.sequence = ++node->load_sequence;
    add_users(node, places, users, &report);
    messages_send_loads(node->streams, &report);
}

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t length) {
    for (const unsigned char *p = data; length; p++, length--)
        hash = (hash ^ *p) * 0x100000001b3ull;
    return hash;
}

static uint64_t hash_text(uint64_t hash, const char *text) {
    return hash_bytes(hash, text, strlen(text) + 1);
}

/* Everything but the time: equal hashes mean that there is nothing new to say. */
static uint64_t hash_state(const struct messages_node_state *state) {
    uint64_t hash = 0xcbf29ce484222325ull;
    /* What was said before this node had a stream key is said again with one: consumers may have dropped it. */
    bool authentic = authority_signs_records();

    hash = hash_bytes(hash, &authentic, sizeof(authentic));
    hash = hash_bytes(hash, &state->enforcement, sizeof(state->enforcement));
    hash = hash_bytes(hash, &state->identity.element, sizeof(state->identity.element));
    hash = hash_bytes(hash, &state->identity.key_epoch, sizeof(state->identity.key_epoch));
    for (size_t i = 0; i < state->n_interfaces; i++) {
        const struct messages_interface *interface = &state->interfaces[i];
        const uint64_t numbers[] = {interface->ifindex, interface->mtu, interface->up, interface->capacity_bps,
                                    interface->own_capacity_bps};

        hash = hash_text(hash_text(hash, interface->link_id), interface->interface);
        hash = hash_bytes(hash, numbers, sizeof(numbers));
        for (size_t k = 0; interface->addresses && k < interface->addresses->n; k++)
            hash = hash_text(hash, interface->addresses->texts[k]);
    }
    hash = hash_bytes(hash, &state->overlay->running, sizeof(state->overlay->running));
    if (state->overlay->running)
        hash = hash_bytes(hash, &state->overlay->all_events, sizeof(state->overlay->all_events));
    for (size_t i = 0; i < state->overlay->n_links; i++)
        hash =
            hash_bytes(hash_text(hash, state->overlay->links[i].name), &state->overlay->links[i].alive, sizeof(bool));
    for (size_t i = 0; i < state->n_routes; i++) {
        const struct messages_route *route = &state->routes[i];

        hash = hash_text(hash, route->prefix);
        for (size_t k = 0; k < route->n_hops; k++)
            hash = hash_text(hash_text(hash, route->hops[k].interface), route->hops[k].link_id);
    }
    for (size_t i = 0; i < state->n_capabilities; i++)
        hash = hash_text(hash, state->capabilities[i]);
    for (size_t i = 0; i < state->n_faults; i++)
        hash = hash_text(hash, state->faults[i]);
    for (size_t i = 0; i < state->n_rules; i++) {
        const struct signal_rule_report *rule = &state->rules[i];

        hash = hash_text(hash_text(hash, rule->id), rule->fault);
        hash = hash_bytes(hash, &rule->revision, sizeof(rule->revision));
        hash = hash_bytes(hash, &rule->asks, sizeof(rule->asks));
    }
    return hash;
}

/* Of the room only how much there is: what is held changes often and is renewed with the counts. */
static uint64_t hash_totals(uint64_t hash, const struct messages_node_state *state) {
    for (size_t i = 0; i < state->n_room; i++)
        hash = hash_bytes(hash_text(hash, state->room[i].kind), &state->room[i].total, sizeof(state->room[i].total));
    return hash;
}

/* Sessions of rules, and how many grants there are. */
static uint64_t hash_counts(const struct messages_node_state *state) {
    uint64_t hash = 0;

    for (size_t i = 0; i < state->n_rules; i++) {
        const uint64_t numbers[] = {state->rules[i].sessions, state->rules[i].expedited_sessions,
                                    state->rules[i].guaranteed_bps};

        hash = hash_bytes(hash, numbers, sizeof(numbers));
    }
    if (state->overlay->running)
        hash = hash_bytes(hash, &state->overlay->counted, sizeof(state->overlay->counted));
    for (size_t i = 0; i < state->n_room; i++)
        hash = hash_bytes(hash, &state->room[i].held, sizeof(state->room[i].held));
    return hash;
}

/* Session rules that this node has no room for. */
static void add_left_out(struct messages_node_state *state, const char **faults, char *text, size_t size) {
    size_t left_out = signal_source_rules_left_out();

    if (!left_out || state->n_faults == NODE_MAX_FAULTS)
        return;
    snprintf(text, size, "%zu session rules are left out: there is room for %d", left_out, SESSION_RULES_MAX);
    faults[state->n_faults++] = text;
}

static void add_links(struct node *node, struct messages_node_state *state, struct messages_interface *interfaces,
                      struct addresses *addresses, const char **faults, bool *ret_classified, bool *ret_shaped) {
    const char *names[AGENT_LINKS_MAX];

    for (int i = 0; i < AGENT_LINKS_MAX; i++) {
        const struct node_link *link = &node->links[i];

        if (!link->used)
            continue;
        interfaces[state->n_interfaces++] =
            (struct messages_interface){.link_id = link->id,
                                        .interface = link->interface_name,
                                        .ifindex = link->interface.ifindex,
                                        .mtu = link->interface.mtu,
                                        .up = link->interface.up,
                                        .capacity_bps = node_link_capacity_bps(link),
                                        .own_capacity_bps = node_link_own_capacity_bps(link)};
        names[state->n_interfaces - 1] = link->interface_name;
        if (link->fault[0] && state->n_faults < NODE_MAX_FAULTS)
            faults[state->n_faults++] = link->fault;
        *ret_classified |= link->classified;
        *ret_shaped |= link->htb.installed;
    }
    if (addresses_read(names, state->n_interfaces, addresses))
        return;
    for (size_t i = 0; i < state->n_interfaces; i++)
        interfaces[i].addresses = &addresses[i];
}

static void look_advised(struct node *node) {
    struct datapath_advised flows[MESSAGES_ADVISED_MAX];

    node->n_advised = datapath_advised_flows(node->datapath, flows, MESSAGES_ADVISED_MAX);
    for (size_t i = 0; i < node->n_advised; i++) {
        node->advised[i] = (struct messages_advised){.flow = flows[i]};
        for (int k = 0; k < AGENT_LINKS_MAX; k++)
            if (node->links[k].used && flows[i].ifindex && node->links[k].interface.ifindex == flows[i].ifindex)
                snprintf(node->advised[i].link_id, sizeof(node->advised[i].link_id), "%s", node->links[k].id);
    }
}

/* A walk over the kernel's table, so not with every report. */
static void look_in_band(struct node *node, int64_t now_us) {
    if (now_us < node->in_band_at_us + COUNTS_REFRESH_US)
        return;
    node->in_band_at_us = now_us;
    node->n_in_band = signal_source_flows(node->in_band, MESSAGES_IN_BAND_MAX);
    look_advised(node);
}

/* When the newest advice was given; 0: none was. */
static int64_t newest_advice_us(const struct node *node) {
    return node->n_advised ? node->in_band_at_us - (int64_t)node->advised[0].flow.age_ms * 1000 : 0;
}

void node_report_state(struct node *node, int64_t now_us) {
    struct messages_interface interfaces[AGENT_LINKS_MAX];
    struct addresses addresses[AGENT_LINKS_MAX];
    struct overlay_report overlay;
    const char *capabilities[6], *faults[NODE_MAX_FAULTS];
    struct signal_refused refused[SIGNAL_REFUSED_MAX];
    struct signal_rule_report rules[SESSION_RULES_MAX];
    struct datapath_room room[DATAPATH_ROOM_KINDS];
    char left_out[NODE_REASON_LEN];
    uint64_t refused_signals = 0, counts;
    struct messages_node_state state = {.node = node->options->node,
                                        .agent_version = NODE_VERSION,
                                        .kernel_release = node->kernel_release,
                                        .agent_instance = node->instance,
                                        .interfaces = interfaces,
                                        .capabilities = capabilities,
                                        .faults = faults,
                                        .refused = refused,
                                        .n_refused = signal_source_refused(refused),
                                        .rules = rules,
                                        .n_rules = signal_source_rules(rules, SESSION_RULES_MAX),
                                        .room = room,
                                        .n_room = DATAPATH_ROOM_KINDS,
                                        .overlay = &overlay,
                                        .reported_at_us = now_us};
    bool classified = false, shaped = false, fresh;
    uint64_t hash;

    if (!node->streams || !node->looked)
        return;
    look_in_band(node, now_us);
    datapath_room(node->datapath, room);
    overlay_report(node->agent, &overlay);
    state.in_band = node->in_band;
    state.n_in_band = node->n_in_band;
    state.advised = node->advised;
    state.n_advised = node->n_advised;
    state.identity = signal_source_identity();
    state.enforcement = datapath_mode(node->datapath);
    if (*authority_fault())
        faults[state.n_faults++] = authority_fault();
    if (*authority_silence())
        faults[state.n_faults++] = authority_silence();
    if (*signal_source_room_fault())
        faults[state.n_faults++] = signal_source_room_fault();
    add_links(node, &state, interfaces, addresses, faults, &classified, &shaped);
    if (*overlay_fault(node->agent) && state.n_faults < NODE_MAX_FAULTS)
        faults[state.n_faults++] = overlay_fault(node->agent);
    add_left_out(&state, faults, left_out, sizeof(left_out));
    state.n_faults += edges_faults(node->agent, faults + state.n_faults, NODE_MAX_FAULTS - state.n_faults);
    capabilities[state.n_capabilities++] = "trinity";
    capabilities[state.n_capabilities++] = "attach";
    if (classified)
        capabilities[state.n_capabilities++] = "classify";
    if (shaped)
        capabilities[state.n_capabilities++] = "htb";
    if (signal_source_runs())
        capabilities[state.n_capabilities++] = "in-band";
    if (node_routes_tell(node, &state))
        capabilities[state.n_capabilities++] = "routes";
    hash = hash_totals(hash_state(&state), &state);
    for (size_t i = 0; i < state.n_refused; i++)
        refused_signals += refused[i].count;
    counts = hash_counts(&state);
    /* Ages are rounded: by less than a look is another one apart. */
    fresh = refused_signals != node->refused_signals || counts != node->counts_hash || state.n_in_band ||
            node->in_band_told || newest_advice_us(node) > node->advised_told_us + COUNTS_REFRESH_US / 2;
    if (hash == node->state_hash && !node->state_resend &&
        now_us < node->state_at_us + (fresh ? COUNTS_REFRESH_US : STATE_REFRESH_US))
        return;
    /* While the broker is away one state waits in the queue; the present one is sent when it is back. */
    if (!streams_connected(node->streams) && node->state_at_us) {
        node->state_resend = true;
        return;
    }
    if (messages_send_node_state(node->streams, &state) < 0)
        return;
    node->state_hash = hash;
    node->refused_signals = refused_signals;
    node->counts_hash = counts;
    node->in_band_told = state.n_in_band;
    node->advised_told_us = newest_advice_us(node);
    node->state_at_us = now_us;
    node->state_resend = false;
}

int node_report_record(const struct flow_record *record, void *context) {
    struct node *node = context;

    return node->streams ? messages_send_flow_record(node->streams, record) : 0;
}

void node_report_flows(struct node *node, int64_t now_us) {
    const struct datapath_flow *flows;
    size_t n;

    n = datapath_flows(node->datapath, &flows);
    records_walk(&node->records, flows, n, now_us);
}
