/* What the node shows of itself: Prometheus text (names chart_agent_<noun>_<unit>) and `chart-agent --status`; see
 * node.h. */
#include "node/node.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <string.h>

#include "authority/authority.h"
#include "core/loop.h"
#include "core/options.h"
#include "paths/overlay.h"
#include "signal/signal_source.h"

static void metric(FILE *out, const char *name, const char *type, const char *help) {
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void single(FILE *out, const char *name, const char *type, const char *help, uint64_t value) {
    metric(out, name, type, help);
    fprintf(out, "%s %" PRIu64 "\n", name, value);
}

struct link_metric {
    const char *name;
    const char *type;
    const char *help;
    uint64_t (*value)(const struct node_link *link);
};

static uint64_t sent(const struct node_link *link) {
    return link->total_sent_bytes;
}

static uint64_t explicit_rate(const struct node_link *link) {
    return link->total_explicit_rate_bytes;
}

static uint64_t dropped(const struct node_link *link) {
    return link->total_dropped_packets;
}

static uint64_t queue(const struct node_link *link) {
    return link->load.queue_bytes;
}

static uint64_t in_use(const struct node_link *link) {
    return link->load.guaranteed_in_use_bps;
}

static uint64_t active(const struct node_link *link) {
    return link->load.active_flows;
}

static uint64_t advised(const struct node_link *link) {
    return link->advised_bps;
}

static uint64_t scone(const struct node_link *link) {
    return link->total_scone_packets;
}

static uint64_t lowered(const struct node_link *link) {
    return link->total_scone_lowered;
}

static uint64_t spare(const struct node_link *link) {
    return link->spare_bps;
}

static uint64_t requests(const struct node_link *link) {
    return link->total_quick_start_requests;
}

static uint64_t scone_policed(const struct node_link *link) {
    return link->total_scone_policed;
}

static uint64_t requests_lowered(const struct node_link *link) {
    return link->total_quick_start_lowered;
}

static uint64_t requests_refused(const struct node_link *link) {
    return link->total_quick_start_refused;
}

static const struct link_metric link_metrics[] = {
    {"chart_agent_link_sent_bytes_total", "counter", "IP octets that left the link", sent},
    {"chart_agent_link_explicit_rate_bytes_total", "counter", "IP octets of flows under a grant", explicit_rate},
    {"chart_agent_link_dropped_packets_total", "counter", "Packets that the link's queue dropped", dropped},
    {"chart_agent_link_queue_bytes", "gauge", "Backlog of the link's queue", queue},
    {"chart_agent_link_guaranteed_in_use_bps", "gauge", "Guaranteed rate of the grants that move data", in_use},
    {"chart_agent_link_active_grants", "gauge", "Grants that moved data in the last interval", active},
    {"chart_agent_link_advised_bps", "gauge", "Rate that SCONE packets without a grant are lowered to; 0: none",
     advised},
    {"chart_agent_link_scone_packets_total", "counter", "SCONE packets on a link that gives advice", scone},
    {"chart_agent_link_scone_lowered_packets_total", "counter", "SCONE packets that were lowered", lowered},
    {"chart_agent_link_scone_policed_packets_total", "counter", "Packets above the SCONE advice of their flow, dropped",
     scone_policed},
    {"chart_agent_link_quick_start_spare_bps", "gauge",
     "Rate that new flows may begin with together by Quick-Start; 0: none", spare},
    {"chart_agent_link_quick_start_requests_total", "counter", "Quick-Start requests on a link that answers them",
     requests},
    {"chart_agent_link_quick_start_lowered_total", "counter", "Quick-Start requests that got less than they asked for",
     requests_lowered},
    {"chart_agent_link_quick_start_refused_total", "counter", "Quick-Start requests that were refused",
     requests_refused},
};

static void render_links(FILE *out, const struct node *node) {
    for (size_t m = 0; m < sizeof(link_metrics) / sizeof(link_metrics[0]); m++) {
        metric(out, link_metrics[m].name, link_metrics[m].type, link_metrics[m].help);
        for (int i = 0; i < AGENT_LINKS_MAX; i++)
            if (node->links[i].used)
                fprintf(out, "%s{link=\"%s\"} %" PRIu64 "\n", link_metrics[m].name, node->links[i].id,
                        link_metrics[m].value(&node->links[i]));
    }
}

static void render_streams(FILE *out, const struct node *node) {
    struct streams_counts counts = streams_counts(node->streams);

    single(out, "chart_agent_broker_connected_ratio", "gauge", "1 when the broker answers",
           streams_connected(node->streams));
    single(out, "chart_agent_streams_synced_ratio", "gauge", "1 when every stream was read to its end once",
           streams_synced(node->streams));
    single(out, "chart_agent_read_records_total", "counter", "Records read", counts.read_records);
    single(out, "chart_agent_unreadable_records_total", "counter", "Records that could not be used",
           counts.unreadable_records + node->bad_records);
    single(out, "chart_agent_delivered_records_total", "counter", "Records that the broker acknowledged",
           counts.delivered_records);
    single(out, "chart_agent_dropped_records_total", "counter", "Records given up", counts.dropped_records);
    single(out, "chart_agent_waiting_records", "gauge", "Records that wait for the broker", counts.waiting_records);
    single(out, "chart_agent_broker_disconnects_total", "counter", "Times the broker went away", counts.disconnects);
}

static void render_refused_signals(FILE *out) {
    struct signal_refused refused[SIGNAL_REFUSED_MAX];
    size_t n = signal_source_refused(refused);

    metric(out, "chart_agent_refused_signals_total", "counter", "Signals that this node did not take");
    for (size_t i = 0; i < n; i++)
        fprintf(out, "chart_agent_refused_signals_total{reason=\"%s\"} %" PRIu64 "\n", refused[i].reason,
                refused[i].count);
}

static void render_room(FILE *out, const struct node *node) {
    struct datapath_room room[DATAPATH_ROOM_KINDS];

    datapath_room(node->datapath, room);
    metric(out, "chart_agent_held_entries", "gauge", "Grants in the kernel's tables, and the selectors of these");
    for (int i = 0; i < DATAPATH_ROOM_KINDS; i++)
        fprintf(out, "chart_agent_held_entries{kind=\"%s\"} %" PRIu64 "\n", room[i].kind, room[i].held);
    metric(out, "chart_agent_room_entries", "gauge", "Grants and selectors that the kernel's tables can hold");
    for (int i = 0; i < DATAPATH_ROOM_KINDS; i++)
        fprintf(out, "chart_agent_room_entries{kind=\"%s\"} %" PRIu64 "\n", room[i].kind, room[i].total);
}

static void render_quick_start(FILE *out, const struct node *node) {
    struct datapath_count counts[DATAPATH_QUICK_START_COUNTS];

    datapath_quick_start(node->datapath, counts);
    metric(out, "chart_agent_quick_start_total", "counter",
           "Quick-Start requests of this node's connections by their outcome, and responses to others'");
    for (int i = 0; i < DATAPATH_QUICK_START_COUNTS; i++)
        fprintf(out, "chart_agent_quick_start_total{what=\"%s\"} %" PRIu64 "\n", counts[i].name, counts[i].count);
}

static size_t count_failed(const struct overlay_report *report) {
    size_t n = 0;

    for (size_t i = 0; i < report->n_paths; i++)
        n += !report->paths[i].alive;
    return n;
}

static void render_overlay(FILE *out, const struct node *node) {
    struct overlay_report report;

    overlay_report(node->agent, &report);
    if (!report.running)
        return;
    metric(out, "chart_agent_overlay_link_alive_ratio", "gauge",
           "1 when the other end of an overlay link answers probes");
    for (size_t i = 0; i < report.n_links; i++)
        fprintf(out, "chart_agent_overlay_link_alive_ratio{link=\"%s\"} %d\n", report.links[i].name,
                report.links[i].alive);
    metric(out, "chart_agent_overlay_link_failures_total", "counter", "Times an overlay link failed");
    for (size_t i = 0; i < report.n_links; i++)
        fprintf(out, "chart_agent_overlay_link_failures_total{link=\"%s\"} %" PRIu64 "\n", report.links[i].name,
                report.links[i].failures);
    metric(out, "chart_agent_overlay_link_round_trip_seconds", "gauge", "Smoothed round-trip time of probes");
    for (size_t i = 0; i < report.n_links; i++)
        fprintf(out, "chart_agent_overlay_link_round_trip_seconds{link=\"%s\"} %g\n", report.links[i].name,
                report.links[i].rtt_us / 1e6);
    metric(out, "chart_agent_overlay_unreachable_nodes", "gauge",
           "Other overlay nodes that no overlay link which answers probes leads to");
    fprintf(out, "chart_agent_overlay_unreachable_nodes %zu\n", report.unreachable_owners);
    metric(out, "chart_agent_overlay_paths_failed", "gauge", "Paths to choose from whose probes are not answered");
    fprintf(out, "chart_agent_overlay_paths_failed %zu\n", count_failed(&report));
    metric(out, "chart_agent_overlay_packets_total", "counter", "Packets of the overlay by what was done with them");
    fprintf(out, "chart_agent_overlay_packets_total{what=\"entered\"} %" PRIu64 "\n", (uint64_t)report.counted.entered);
    fprintf(out, "chart_agent_overlay_packets_total{what=\"transit\"} %" PRIu64 "\n", (uint64_t)report.counted.transit);
    fprintf(out, "chart_agent_overlay_packets_total{what=\"left\"} %" PRIu64 "\n", (uint64_t)report.counted.left);
    fprintf(out, "chart_agent_overlay_packets_total{what=\"detour\"} %" PRIu64 "\n", (uint64_t)report.counted.detours);
    fprintf(out, "chart_agent_overlay_packets_total{what=\"refused\"} %" PRIu64 "\n",
            (uint64_t)(report.counted.strangers + report.counted.bad_probes));
    metric(out, "chart_agent_overlay_flows_total", "counter",
           "Flows that got a path of several; another because theirs failed; another because theirs became worse");
    fprintf(out, "chart_agent_overlay_flows_total{what=\"begun\"} %" PRIu64 "\n", (uint64_t)report.counted.flows);
    fprintf(out, "chart_agent_overlay_flows_total{what=\"failed-over\"} %" PRIu64 "\n",
            (uint64_t)report.counted.flows_failed_over);
    fprintf(out, "chart_agent_overlay_flows_total{what=\"moved\"} %" PRIu64 "\n", (uint64_t)report.counted.flows_moved);
}

static void render(FILE *out, void *context) {
    const struct node *node = context;
    struct decide_counts counts = decide_counts(node->decide);

    metric(out, "chart_agent_build_info", "gauge", "Version and node");
    fprintf(out, "chart_agent_build_info{version=\"%s\",node=\"%s\"} 1\n", NODE_VERSION, node->options->node);
    single(out, "chart_agent_enforcement_mode", "gauge", "1 off, 2 observe, 3 enforce", datapath_mode(node->datapath));
    single(out, "chart_agent_known_grants", "gauge", "Grants whose path leaves from this node", counts.grants);
    single(out, "chart_agent_applied_grants", "gauge", "Grants in force in the kernel", node->n_applied);
    single(out, "chart_agent_link_rate_nodes", "gauge", "Nodes whose link rates are known", counts.link_rate_nodes);
    single(out, "chart_agent_applies_total", "counter", "Times the table of grants was applied", node->applies);
    single(out, "chart_agent_apply_errors_total", "counter", "Grants that the kernel refused", node->apply_errors);
    single(out, "chart_agent_sent_statuses_total", "counter", "Grant statuses written", node->statuses_sent);
    metric(out, "chart_agent_refused_commands_total", "counter", "Commands outside of the bounds of this node");
    for (int kind = 0; kind < BOUNDS_KINDS; kind++)
        fprintf(out, "chart_agent_refused_commands_total{bound=\"%s\"} %" PRIu64 "\n",
                bounds_name((enum bounds_kind)kind), counts.refused[kind]);
    render_room(out, node);
    render_quick_start(out, node);
    render_refused_signals(out);
    authority_render(out);
    render_links(out, node);
    render_overlay(out, node);
    if (node->streams)
        render_streams(out, node);
}

static const char *not_ready(void *context) {
    const struct node *node = context;

    if (node->streams && !streams_synced(node->streams))
        return "the streams were not read yet";
    return NULL;
}

int node_metrics_open(struct node *node) {
    const struct metrics_source source = {.render = render, .not_ready = not_ready, .context = node};

    return metrics_open(node->options->metrics_listen, &source, &node->metrics);
}

static cJSON *link_status(const struct node *node, const struct node_link *link) {
    const struct decide_link_rate *rate = decide_link_rate(node->decide, link->id, agent_now_us());
    cJSON *object = cJSON_CreateObject();

    cJSON_AddStringToObject(object, "id", link->id);
    cJSON_AddStringToObject(object, "interface", link->interface_name);
    cJSON_AddBoolToObject(object, "up", link->interface.up);
    cJSON_AddNumberToObject(object, "capacity_bps", (double)node_link_capacity_bps(link));
    cJSON_AddBoolToObject(object, "htb", link->htb.installed);
    cJSON_AddBoolToObject(object, "classifier", link->classified);
    cJSON_AddNumberToObject(object, "queue_bytes", (double)link->load.queue_bytes);
    if (rate) {
        cJSON_AddNumberToObject(object, "available_bps", (double)rate->available_bps);
        cJSON_AddNumberToObject(object, "legacy_share_bps", (double)rate->legacy_share_bps);
    }
    cJSON_AddBoolToObject(object, "scone", link->scone);
    if (link->scone) {
        cJSON_AddNumberToObject(object, "advised_bps", (double)link->advised_bps);
        cJSON_AddNumberToObject(object, "scone_packets", (double)link->total_scone_packets);
        cJSON_AddNumberToObject(object, "scone_lowered_packets", (double)link->total_scone_lowered);
        cJSON_AddBoolToObject(object, "scone_police", link->scone_police);
        cJSON_AddNumberToObject(object, "scone_policed_packets", (double)link->total_scone_policed);
    }
    cJSON_AddBoolToObject(object, "quick_start", link->quick_start);
    if (link->quick_start) {
        cJSON_AddNumberToObject(object, "quick_start_spare_bps", (double)link->spare_bps);
        cJSON_AddNumberToObject(object, "quick_start_requests", (double)link->total_quick_start_requests);
        cJSON_AddNumberToObject(object, "quick_start_lowered", (double)link->total_quick_start_lowered);
        cJSON_AddNumberToObject(object, "quick_start_refused", (double)link->total_quick_start_refused);
    }
    if (link->fault[0])
        cJSON_AddStringToObject(object, "fault", link->fault);
    return object;
}

void node_status(void *state, struct cJSON *object) {
    const struct node *node = state;
    cJSON *links = cJSON_AddArrayToObject(object, "links");
    cJSON *refused = cJSON_AddObjectToObject(object, "refused_commands");
    cJSON *room = cJSON_AddArrayToObject(object, "room");
    cJSON *quick_start = cJSON_AddObjectToObject(object, "quick_start");
    struct datapath_room kinds[DATAPATH_ROOM_KINDS];
    struct datapath_count asked[DATAPATH_QUICK_START_COUNTS];
    struct decide_counts counts = decide_counts(node->decide);

    datapath_room(node->datapath, kinds);
    datapath_quick_start(node->datapath, asked);
    for (int i = 0; i < DATAPATH_QUICK_START_COUNTS; i++)
        cJSON_AddNumberToObject(quick_start, asked[i].name, (double)asked[i].count);
    for (int i = 0; i < DATAPATH_ROOM_KINDS; i++) {
        cJSON *one = cJSON_CreateObject();

        cJSON_AddStringToObject(one, "kind", kinds[i].kind);
        cJSON_AddNumberToObject(one, "held", (double)kinds[i].held);
        cJSON_AddNumberToObject(one, "total", (double)kinds[i].total);
        cJSON_AddItemToArray(room, one);
    }
    for (int kind = 0; kind < BOUNDS_KINDS; kind++)
        cJSON_AddNumberToObject(refused, bounds_name((enum bounds_kind)kind), (double)counts.refused[kind]);

    cJSON_AddNumberToObject(object, "known_grants", (double)decide_counts(node->decide).grants);
    cJSON_AddNumberToObject(object, "applied_grants", (double)node->n_applied);
    if (node->streams) {
        cJSON_AddBoolToObject(object, "broker_connected", streams_connected(node->streams));
        cJSON_AddBoolToObject(object, "streams_synced", streams_synced(node->streams));
    }
    for (int i = 0; i < AGENT_LINKS_MAX; i++)
        if (node->links[i].used)
            cJSON_AddItemToArray(links, link_status(node, &node->links[i]));
}
