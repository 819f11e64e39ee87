/* Session rules, the tags of a node and what runs on it, from records of the streams. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <cjson/cJSON.h>
#include <errno.h>
#include <linux/bpf.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "chart/v1/session_rule.pb-c.h"
#include "chart/v1/topology.pb-c.h"
#include "links/edges.h"
#include "signal_maps.h"
#include "streams/messages.h"

struct heard {
    struct session_rule rule;
    int rules, removed;
    char tags[256];
    char tags_of_rule[256];
    int told_tags;
    struct edges_wanted edges;
    char ends[2048];
};

static void join(char *ret, size_t size, const char *const *tags, size_t n) {
    ret[0] = '\0';
    for (size_t i = 0; i < n; i++)
        snprintf(ret + strlen(ret), size - strlen(ret), "%s ", tags[i]);
}

static int on_rule(const struct session_rule *rule, void *context) {
    struct heard *heard = context;
    heard->rule = *rule;
    heard->rules++;
    join(heard->tags_of_rule, sizeof(heard->tags_of_rule), rule->tags, rule->n_tags);
    return 1;
}

static void on_no_rule(const char *id, void *context) {
    assert_string_equal(id, "calls");
    ((struct heard *)context)->removed++;
}

static int on_tags(const char *const *tags, size_t n, void *context) {
    struct heard *heard = context;
    heard->told_tags++;
    join(heard->tags, sizeof(heard->tags), tags, n);
    return 1;
}

static void on_edges(const struct edges_wanted *edges, void *context) {
    ((struct heard *)context)->edges = *edges;
}

static int on_ends(const char *text, void *context) {
    struct heard *heard = context;
    snprintf(heard->ends, sizeof(heard->ends), "%s", text);
    return 0;
}

static int take(struct heard *heard, enum streams_in topic, const char *key, const ProtobufCMessage *message) {
    uint8_t octets[1024];
    size_t length = message ? protobuf_c_message_pack(message, octets) : 0;
    const struct streams_record record = {
        .topic = topic, .key = key, .value = message ? octets : NULL, .length = length, .traceparent = ""};
    const struct messages_intake intake = {.node = "alpha",
                                           .rule = on_rule,
                                           .no_rule = on_no_rule,
                                           .tags = on_tags,
                                           .edges = on_edges,
                                           .ends = on_ends,
                                           .context = heard};
    return messages_take(&intake, &record);
}

/* Voice by ports and by code point, on two nodes and those with a tag. */
struct stated {
    Chart__V1__SessionRule rule;
    Chart__V1__SessionSelector selectors[2], *selector_pointers[2];
    Chart__V1__PortRange ports;
    Chart__V1__SessionRule__NodeTagsEntry tag, *tag_pointers[1];
    char *nodes[2];
};

static void state_rule(struct stated *stated) {
    memset(stated, 0, sizeof(*stated));
    chart__v1__session_rule__init(&stated->rule);
    chart__v1__port_range__init(&stated->ports);
    chart__v1__session_rule__node_tags_entry__init(&stated->tag);
    stated->tag.key = "site";
    stated->tag.value = "lab";
    stated->tag_pointers[0] = &stated->tag;
    stated->nodes[0] = "bravo";
    stated->nodes[1] = "alpha";
    for (int i = 0; i < 2; i++) {
        chart__v1__session_selector__init(&stated->selectors[i]);
        stated->selectors[i].protocol = IPPROTO_UDP;
        stated->selector_pointers[i] = &stated->selectors[i];
    }
    stated->ports.first = 16384;
    stated->ports.last = 32767;
    stated->selectors[0].remote_ports = &stated->ports;
    stated->selectors[0].local_prefix = "10.0.0.0/8";
    stated->selectors[1].dscp_plus_one = 47;
    stated->rule.id = "calls";
    stated->rule.revision = 7;
    stated->rule.n_selectors = 2;
    stated->rule.selectors = stated->selector_pointers;
    stated->rule.service = CHART__V1__SERVICE_TYPE__SERVICE_TYPE_VARIABLE;
    stated->rule.guaranteed_bps = 82000;
    stated->rule.available_bps = 9000;
    stated->rule.delay_class = 6;
    stated->rule.preemption_priority = 5;
    stated->rule.burst_tolerance = 2;
    stated->rule.n_nodes = 2;
    stated->rule.nodes = stated->nodes;
    stated->rule.n_node_tags = 1;
    stated->rule.node_tags = stated->tag_pointers;
    stated->rule.enabled = true;
    stated->rule.authorised = true;
}

static void test_a_rule_becomes_asks(void **state) {
    struct heard heard = {0};
    struct stated stated;
    (void)state;
    state_rule(&stated);
    assert_int_equal(take(&heard, STREAMS_SESSION_RULE, "calls", &stated.rule.base), 0);
    assert_int_equal(heard.rules, 1);
    assert_string_equal(heard.rule.fault, "");
    assert_int_equal(heard.rule.revision, 7);
    assert_true(heard.rule.authorised && heard.rule.names_nodes && heard.rule.names_this_node);
    assert_string_equal(heard.tags_of_rule, "site=lab ");
    assert_int_equal(heard.rule.n_asks, 2);
    const struct signal_ask *ask = &heard.rule.asks[0];
    assert_int_equal(ask->selector.destination_port, 16384);
    assert_int_equal(ask->destination_port_last, 32767);
    assert_int_equal(ask->selector.source_port, 0);
    assert_int_equal(ask->selector.source.family, AF_INET);
    assert_int_equal(ask->selector.source.bits, 8);
    assert_int_equal(ask->guaranteed_bps, 82000);
    assert_int_equal(ask->delay_priority, 218);
    assert_int_equal(ask->preemption_priority, 5);
    assert_int_equal(ask->burst_tolerance, 2);
    assert_int_equal(ask->service, CHART_VARIABLE);
    assert_int_equal(heard.rule.asks[1].selector.dscp_plus_one, 47);
    assert_int_equal(heard.rule.asks[1].selector.protocol, IPPROTO_UDP);
}

static void test_what_is_disabled_or_gone_is_no_rule(void **state) {
    struct heard heard = {0};
    struct stated stated;
    (void)state;
    state_rule(&stated);
    stated.rule.enabled = false;
    assert_int_equal(take(&heard, STREAMS_SESSION_RULE, "calls", &stated.rule.base), 0);
    assert_int_equal(heard.removed, 1);
    assert_int_equal(take(&heard, STREAMS_SESSION_RULE, "calls", NULL), 0);
    assert_int_equal(heard.removed, 2);
    assert_int_equal(heard.rules, 0);
}

/* The rule is known all the same, so that the node can say what is wrong. */
static void test_a_rule_that_cannot_be_understood_says_why(void **state) {
    struct heard heard = {0};
    struct stated stated;
    (void)state;
    state_rule(&stated);
    stated.selectors[1].dscp_plus_one = 65;
    assert_int_equal(take(&heard, STREAMS_SESSION_RULE, "calls", &stated.rule.base), 0);
    assert_string_equal(heard.rule.fault, "selector 2: its DSCP is out of range");
    assert_int_equal(heard.rule.n_asks, 0);
    state_rule(&stated);
    stated.ports.first = 40000;
    take(&heard, STREAMS_SESSION_RULE, "calls", &stated.rule.base);
    assert_string_equal(heard.rule.fault, "selector 1: ports are out of range");
    state_rule(&stated);
    stated.selectors[0].remote_prefix = "fd00::/8";
    take(&heard, STREAMS_SESSION_RULE, "calls", &stated.rule.base);
    assert_string_equal(heard.rule.fault, "selector 1: its prefixes are of two address families");
    state_rule(&stated);
    stated.rule.service = 9;
    take(&heard, STREAMS_SESSION_RULE, "calls", &stated.rule.base);
    assert_string_equal(heard.rule.fault, "this agent does not know its service");
    state_rule(&stated);
    stated.rule.delay_class = 8;
    take(&heard, STREAMS_SESSION_RULE, "calls", &stated.rule.base);
    assert_string_equal(heard.rule.fault, "priority, burst tolerance or delay class is out of range");
}

static void test_a_node_knows_its_tags(void **state) {
    Chart__V1__TopologyEntity entity = CHART__V1__TOPOLOGY_ENTITY__INIT;
    Chart__V1__Node node = CHART__V1__NODE__INIT;
    Chart__V1__Node__TagsEntry tag = CHART__V1__NODE__TAGS_ENTRY__INIT, *tags[] = {&tag};
    struct heard heard = {0};
    (void)state;
    tag.key = "role";
    tag.value = "edge";
    node.id = "alpha";
    node.n_tags = 1;
    node.tags = tags;
    entity.entity_case = CHART__V1__TOPOLOGY_ENTITY__ENTITY_NODE;
    entity.node = &node;
    assert_int_equal(take(&heard, STREAMS_TOPOLOGY, "alpha", &entity.base), 0);
    assert_string_equal(heard.tags, "role=edge ");
    assert_int_equal(take(&heard, STREAMS_TOPOLOGY, "bravo", &entity.base), 0);
    assert_int_equal(heard.told_tags, 1);
    assert_int_equal(take(&heard, STREAMS_TOPOLOGY, "alpha", NULL), 0);
    assert_string_equal(heard.tags, "");
}

static void test_a_node_knows_its_edges(void **state) {
    Chart__V1__TopologyEntity entity = CHART__V1__TOPOLOGY_ENTITY__INIT;
    Chart__V1__Node node = CHART__V1__NODE__INIT;
    Chart__V1__NodeEdge edges[3], *pointers[3];
    struct heard heard = {0};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        chart__v1__node_edge__init(&edges[i]);
        pointers[i] = &edges[i];
    }
    edges[0].interface = "eth1";
    edges[0].aggregate_bps = 10000000;
    edges[0].exceed = CHART__V1__EDGE_EXCEED__EDGE_EXCEED_DROP;
    edges[0].depth_ms = 20;
    edges[1].interface = "longer-than-the-kernel-takes";
    edges[2].interface = "eth2";
    node.id = "alpha";
    node.n_edges = 3;
    node.edges = pointers;
    entity.entity_case = CHART__V1__TOPOLOGY_ENTITY__ENTITY_NODE;
    entity.node = &node;
    assert_int_equal(take(&heard, STREAMS_TOPOLOGY, "alpha", &entity.base), 0);
    assert_int_equal(heard.edges.n, 2);
    assert_int_equal(heard.edges.left_out, 1);
    assert_string_equal(heard.edges.edges[0].interface, "eth1");
    assert_int_equal(heard.edges.edges[0].aggregate_bps, 10000000);
    assert_int_equal(heard.edges.edges[0].depth_ms, 20);
    assert_true(heard.edges.edges[0].drop);
    assert_string_equal(heard.edges.edges[1].interface, "eth2");
    assert_int_equal(heard.edges.edges[1].depth_ms, EDGE_DEPTH_MS);
    assert_false(heard.edges.edges[1].drop);
    assert_int_equal(take(&heard, STREAMS_TOPOLOGY, "alpha", NULL), 0);
    assert_int_equal(heard.edges.n, 0);
}

static void test_a_node_knows_its_ends(void **state) {
    static const char ENDS[] =
        "{\"node\":\"alpha\",\"tunnel_ends\":[{\"tunnel\":\"a-b\",\"role\":\"origin\",\"interface\":\"itm0\","
        "\"address\":\"10.0.0.2\",\"port\":7400,\"peer_node\":\"bravo\",\"period_ms\":500,\"congestion\":\"reno\","
        "\"applications\":[{\"name\":\"pacing\",\"file\":\"aimd.so\",\"argument\":\"5,1,1\",\"limit_ms\":20,\"off\":"
        "true}],"
        "\"classes\":[{\"name\":\"gold\",\"weight\":3,\"selector\":\"dscp=46\"}],\"prefixes\":[\"192.0.2.0/24\"]}],"
        "\"proxied_traffic\":{\"interfaces\":[\"eth1\"],\"prefixes\":[],\"mode\":\"new-ports\"}}";
    static const char NONE[] = "{\"node\":\"alpha\",\"tunnel_ends\":[],"
                               "\"proxied_traffic\":{\"interfaces\":[],\"prefixes\":[],\"mode\":\"same-ports\"}}";
    Chart__V1__TopologyEntity entity = CHART__V1__TOPOLOGY_ENTITY__INIT;
    Chart__V1__Node node = CHART__V1__NODE__INIT;
    Chart__V1__TunnelEndClass class = CHART__V1__TUNNEL_END_CLASS__INIT, *classes[] = {&class};
    Chart__V1__TunnelEndApplication application = CHART__V1__TUNNEL_END_APPLICATION__INIT,
                                    *applications[] = {&application};
    Chart__V1__TunnelEnd end = CHART__V1__TUNNEL_END__INIT, *ends[] = {&end};
    Chart__V1__ProxiedTraffic proxied = CHART__V1__PROXIED_TRAFFIC__INIT;
    char *prefixes[] = {"192.0.2.0/24"}, *interfaces[] = {"eth1"};
    struct heard heard = {0};
    (void)state;
    class.name = "gold", class.weight = 3, class.selector = "dscp=46";
    end.tunnel = "a-b", end.role = CHART__V1__TUNNEL_ROLE__TUNNEL_ROLE_ORIGIN, end.interface = "itm0";
    end.address = "10.0.0.2", end.port = 7400, end.peer_node = "bravo", end.period_ms = 500, end.congestion = "reno";
    end.n_classes = end.n_prefixes = 1, end.classes = classes, end.prefixes = prefixes;
    application.name = "pacing", application.file = "aimd.so", application.argument = "5,1,1";
    application.limit_ms = 20, application.off = true;
    end.n_applications = 1, end.applications = applications;
    proxied.n_interfaces = 1, proxied.interfaces = interfaces;
    proxied.mode = CHART__V1__PROXY_MODE__PROXY_MODE_NEW_PORTS;
    node.id = "alpha", node.n_tunnel_ends = 1, node.tunnel_ends = ends, node.proxied_traffic = &proxied;
    entity.entity_case = CHART__V1__TOPOLOGY_ENTITY__ENTITY_NODE;
    entity.node = &node;
    assert_int_equal(take(&heard, STREAMS_TOPOLOGY, "bravo", &entity.base), 0);
    assert_string_equal(heard.ends, "");
    assert_int_equal(take(&heard, STREAMS_TOPOLOGY, "alpha", &entity.base), 0);
    cJSON *written = cJSON_Parse(heard.ends), *wanted = cJSON_Parse(ENDS), *none = cJSON_Parse(NONE);
    assert_true(cJSON_Compare(written, wanted, true));
    cJSON_Delete(written);
    assert_int_equal(take(&heard, STREAMS_TOPOLOGY, "alpha", NULL), 0);
    written = cJSON_Parse(heard.ends);
    assert_true(cJSON_Compare(written, none, true));
    cJSON_Delete(written), cJSON_Delete(wanted), cJSON_Delete(none);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_rule_becomes_asks),
        cmocka_unit_test(test_what_is_disabled_or_gone_is_no_rule),
        cmocka_unit_test(test_a_rule_that_cannot_be_understood_says_why),
        cmocka_unit_test(test_a_node_knows_its_tags),
        cmocka_unit_test(test_a_node_knows_its_edges),
        cmocka_unit_test(test_a_node_knows_its_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
