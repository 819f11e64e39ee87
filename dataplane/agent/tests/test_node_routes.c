/* What a node tells of its routes: in a network namespace of its own (root) the kernel is asked, and the state made. */
#define _GNU_SOURCE
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "node/node.h"

static void run(const char *command) {
    assert_int_equal(system(command), 0);
}

static void a_node_tells_interfaces_with_their_links(void **state) {
    char *addresses[] = {"10.9.0.1/32", "10.9.0.2/32", "10.9.1.0/24", "10.9.2.0/24", "10.0.1.1/32"};
    static const struct agent_options options;
    struct node *node = calloc(1, sizeof(*node));
    struct messages_node_state told = {0};

    (void)state;
    assert_non_null(node);
    if (geteuid() != 0 || unshare(CLONE_NEWNET) < 0) {
        free(node);
        print_message("skipped: needs root\n");
        skip();
    }
    run("ip link set lo up && ip link add n0 type veth peer name n1 && ip link add s0 type veth peer name s1");
    run("for i in n0 n1 s0 s1; do ip link set $i up; done");
    run("ip addr add 10.0.1.1/24 dev n0 && ip addr add 10.0.2.1/24 dev s0");
    run("ip route add 10.9.0.0/24 via 10.0.1.2");
    run("ip route add 10.9.1.0/24 nexthop via 10.0.1.2 nexthop via 10.0.2.2");
    assert_int_equal(netlink_open(&node->netlink), 0);
    assert_int_equal(routes_open(&node->routes), 0);
    node->options = &options;
    node->decide = decide_new("alpha");
    assert_non_null(node->decide);
    node->links[3] = (struct node_link){.used = true, .id = "alpha:n0", .interface_name = "n0"};
    assert_int_equal(node_routes_addresses("bravo", addresses, 5, node), 0);

    /* Nothing is told of what was not asked for yet. */
    assert_true(node_routes_tell(node, &told));
    assert_int_equal(told.n_routes, 0);

    node->looked = true;
    node_routes_follow(node, 1);
    assert_true(node_routes_tell(node, &told));
    /* The node's own address is left out; those of the same hops are next to each other, that without any first. */
    assert_int_equal(told.n_routes, 4);
    assert_string_equal(told.routes[0].prefix, "10.9.2.0/24");
    assert_int_equal(told.routes[0].n_hops, 0);
    assert_string_equal(told.routes[1].prefix, "10.9.0.1/32");
    assert_string_equal(told.routes[2].prefix, "10.9.0.2/32");
    assert_int_equal(told.routes[2].n_hops, 1);
    assert_string_equal(told.routes[2].hops[0].interface, "n0");
    assert_string_equal(told.routes[2].hops[0].link_id, "alpha:n0");
    assert_string_equal(told.routes[3].prefix, "10.9.1.0/24");
    assert_int_equal(told.routes[3].n_hops, 2);
    assert_string_equal(told.routes[3].hops[1].interface, "s0");
    assert_string_equal(told.routes[3].hops[1].link_id, "");

    free(node->told_routes);
    decide_free(node->decide);
    routes_close(&node->routes);
    netlink_close(&node->netlink);
    free(node);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_node_tells_interfaces_with_their_links)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
