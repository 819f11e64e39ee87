/* Where a node sends packets: other nodes' addresses from records of the streams, and routes into a node state. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chart/v1/topology.pb-c.h"
#include "streams/messages.h"
#include "streams/messages_routes.h"

struct heard {
    char node[32];
    char first[32];
    size_t n;
    int told;
};

static int on_addresses(const char *node, char *const *prefixes, size_t n, void *context) {
    struct heard *heard = context;

    snprintf(heard->node, sizeof(heard->node), "%s", node);
    snprintf(heard->first, sizeof(heard->first), "%s", n ? prefixes[0] : "");
    heard->n = n;
    heard->told++;
    return 0;
}

static int take(struct heard *heard, const char *key, const ProtobufCMessage *message) {
    const struct messages_intake intake = {.node = "alpha", .addresses = on_addresses, .context = heard};
    uint8_t buffer[512];
    struct streams_record record = {.topic = STREAMS_TOPOLOGY, .key = key};

    if (message) {
        record.length = protobuf_c_message_pack(message, buffer);
        record.value = buffer;
    }
    return messages_take(&intake, &record);
}

static void the_addresses_of_other_nodes_are_told(void **state) {
    Chart__V1__TopologyEntity entity = CHART__V1__TOPOLOGY_ENTITY__INIT;
    Chart__V1__Node node = CHART__V1__NODE__INIT;
    char *addresses[] = {"10.0.0.2/32", "10.2.0.0/16"};
    const uint8_t rubbish[] = {0xff};
    const struct messages_intake intake = {.node = "alpha", .addresses = on_addresses};
    const struct streams_record unreadable = {
        .topic = STREAMS_TOPOLOGY, .key = "bravo", .value = rubbish, .length = sizeof(rubbish)};
    struct heard heard = {0};

    (void)state;
    node.id = "bravo";
    node.n_addresses = 2;
    node.addresses = addresses;
    entity.entity_case = CHART__V1__TOPOLOGY_ENTITY__ENTITY_NODE;
    entity.node = &node;
    assert_int_equal(take(&heard, "bravo", &entity.base), 0);
    assert_string_equal(heard.node, "bravo");
    assert_string_equal(heard.first, "10.0.0.2/32");
    assert_int_equal(heard.n, 2);
    assert_int_equal(take(&heard, "bravo", NULL), 0);
    assert_int_equal(heard.n, 0);
    assert_int_equal(heard.told, 2);
    /* A link of another node is none of this one's business. */
    assert_int_equal(take(&heard, "bravo:eth0", NULL), 0);
    assert_int_equal(heard.told, 2);
    assert_int_equal(messages_take(&intake, &unreadable), -EBADMSG);
}

static void prefixes_of_the_same_hops_are_one_route(void **state) {
    const struct messages_hop north = {"n0", "alpha:n0"}, south = {"s0", "alpha:s0"}, tunnel = {"tun0", ""};
    const struct messages_route routes[] = {
        {.prefix = "10.0.0.9/32"},
        {.prefix = "10.0.0.2/32", .hops = {north}, .n_hops = 1},
        {.prefix = "10.0.0.3/32", .hops = {north}, .n_hops = 1},
        {.prefix = "10.0.0.4/32", .hops = {north, south}, .n_hops = 2},
        {.prefix = "10.0.0.5/32", .hops = {tunnel}, .n_hops = 1},
    };
    const struct messages_node_state told = {.routes = routes, .n_routes = sizeof(routes) / sizeof(routes[0])};
    Chart__V1__NodeState message = CHART__V1__NODE_STATE__INIT;
    Chart__V1__NodeState *read;
    uint8_t buffer[512];
    void *room = messages_add_routes(&message, &told);

    (void)state;
    assert_non_null(room);
    read = chart__v1__node_state__unpack(NULL, chart__v1__node_state__pack(&message, buffer), buffer);
    free(room);
    assert_non_null(read);
    assert_int_equal(read->n_routes, 4);
    assert_string_equal(read->routes[0]->prefixes[0], "10.0.0.9/32");
    assert_int_equal(read->routes[0]->n_next_hops, 0);
    assert_int_equal(read->routes[1]->n_prefixes, 2);
    assert_string_equal(read->routes[1]->prefixes[1], "10.0.0.3/32");
    assert_string_equal(read->routes[1]->next_hops[0]->link_id, "alpha:n0");
    assert_int_equal(read->routes[2]->n_next_hops, 2);
    assert_string_equal(read->routes[2]->next_hops[1]->interface, "s0");
    assert_string_equal(read->routes[3]->next_hops[0]->interface, "tun0");
    assert_string_equal(read->routes[3]->next_hops[0]->link_id, "");
    chart__v1__node_state__free_unpacked(read, NULL);
}

static void a_node_that_was_asked_for_nothing_tells_nothing(void **state) {
    const struct messages_node_state told = {0};
    Chart__V1__NodeState message = CHART__V1__NODE_STATE__INIT;
    void *room = messages_add_routes(&message, &told);

    (void)state;
    assert_non_null(room);
    assert_int_equal(message.n_routes, 0);
    free(room);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_addresses_of_other_nodes_are_told),
        cmocka_unit_test(prefixes_of_the_same_hops_are_one_route),
        cmocka_unit_test(a_node_that_was_asked_for_nothing_tells_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
