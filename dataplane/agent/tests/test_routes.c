/* Tests of routes.h: addresses are read, and in a network namespace of its own (root) the kernel is asked. */
#define _GNU_SOURCE
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "links/routes.h"

struct world {
    struct netlink netlink;
    struct routes routes;
    int64_t now_us;
};

static void run(const char *command) {
    assert_int_equal(system(command), 0);
}

static int set_up(void **state) {
    struct world *world = calloc(1, sizeof(*world));

    *state = world;
    if (!world)
        return -1;
    if (geteuid() != 0 || unshare(CLONE_NEWNET) < 0)
        return 0;
    run("ip link set lo up && ip link add n0 type veth peer name n1 && ip link add s0 type veth peer name s1");
    run("for i in n0 n1 s0 s1; do ip link set $i up; done");
    run("ip addr add 10.0.1.1/24 dev n0 && ip addr add 10.0.2.1/24 dev s0");
    run("ip -6 addr add fd00:1::1/64 dev n0 nodad && ip -6 addr add fd00:2::1/64 dev s0 nodad");
    if (netlink_open(&world->netlink) < 0)
        return -1;
    return routes_open(&world->routes);
}

static int tear_down(void **state) {
    struct world *world = *state;

    routes_close(&world->routes);
    netlink_close(&world->netlink);
    free(world);
    return 0;
}

static struct world *needs_root(void **state) {
    struct world *world = *state;

    if (!world->netlink.socket) {
        print_message("skipped: needs root\n");
        skip();
    }
    return world;
}

static void expect_address(const char *text, const char *wanted) {
    uint8_t family, address[16];
    char found[INET6_ADDRSTRLEN];

    assert_int_equal(routes_parse(text, &family, address), 0);
    assert_non_null(inet_ntop(family, address, found, sizeof(found)));
    assert_string_equal(found, wanted);
}

static void an_address_in_a_prefix_is_asked_for(void **state) {
    uint8_t family, address[16];

    (void)state;
    expect_address("10.1.1.1", "10.1.1.1");
    expect_address("10.1.1.1/32", "10.1.1.1");
    expect_address("10.1.1.2/30", "10.1.1.2");
    expect_address("10.1.0.0/16", "10.1.0.1");
    expect_address("10.1.0.0/31", "10.1.0.0");
    expect_address("fd00::/64", "fd00::1");
    expect_address("fd00::7/64", "fd00::7");
    expect_address("fd00::/127", "fd00::");
    assert_int_equal(routes_parse("10.1.0.0/33", &family, address), -EINVAL);
    assert_int_equal(routes_parse("10.1.0.0/", &family, address), -EINVAL);
    assert_int_equal(routes_parse("10.1.0.0/8x", &family, address), -EINVAL);
    assert_int_equal(routes_parse("alpha", &family, address), -EINVAL);
    assert_int_equal(routes_parse("", &family, address), -EINVAL);
    assert_int_equal(routes_parse("fd00:0000:0000:0000:0000:0000:0000:0000:0000:0000:1/64", &family, address), -EINVAL);
}

static bool look(struct world *world) {
    struct pollfd waiting = {.fd = routes_fd(&world->routes), .events = POLLIN};

    (void)poll(&waiting, 1, 1000);
    routes_heard(&world->routes);
    world->routes.rest_until_us = 0;
    return routes_look(&world->routes, &world->netlink, ++world->now_us);
}

static void expect_hops(const struct world *world, size_t at, const char *first, const char *second) {
    const struct route *route = &world->routes.routes[at];

    assert_int_equal(route->state, ROUTE_FORWARDED);
    assert_int_equal(route->n_hops, second ? 2 : 1);
    assert_int_equal(route->hops[0], if_nametoindex(first));
    if (second)
        assert_int_equal(route->hops[1], if_nametoindex(second));
}

static void the_kernel_says_by_which_interfaces(void **state) {
    struct world *world = needs_root(state);
    char *addresses[] = {"10.9.0.1/32", "fd00:9::1/128"}, *own[] = {"10.0.1.1"};

    assert_int_equal(routes_put(&world->routes, "bravo", addresses, 2), 0);
    assert_int_equal(routes_put(&world->routes, "same", own, 1), 0);
    assert_true(look(world));
    assert_int_equal(world->routes.routes[0].state, ROUTE_NONE);
    assert_int_equal(world->routes.routes[1].state, ROUTE_NONE);
    assert_int_equal(world->routes.routes[2].state, ROUTE_LOCAL);

    run("ip route add 10.9.0.0/24 via 10.0.1.2 && ip -6 route add fd00:9::/64 via fd00:1::2");
    assert_true(look(world));
    expect_hops(world, 0, "n0", NULL);
    expect_hops(world, 1, "n0", NULL);
    assert_false(routes_look(&world->routes, &world->netlink, ++world->now_us));

    run("ip route replace 10.9.0.0/24 nexthop via 10.0.1.2 nexthop via 10.0.2.2");
    run("ip -6 route replace fd00:9::/64 nexthop via fd00:1::2 nexthop via fd00:2::2");
    assert_true(look(world));
    expect_hops(world, 0, "n0", "s0");
    expect_hops(world, 1, "n0", "s0");
}

static void it_is_known_to_whom_routes_changed(void **state) {
    struct world *world = needs_root(state);
    struct decide_selector to_bravo = {0}, to_others = {0};
    char *other[] = {"10.8.0.1/32"};

    assert_int_equal(decide_parse_prefix("10.9.0.1/32", &to_bravo.destination), 0);
    assert_int_equal(decide_parse_prefix("10.8.0.0/24", &to_others.destination), 0);
    run("ip route add 10.8.0.0/24 via 10.0.1.2");
    assert_int_equal(routes_put(&world->routes, "charlie", other, 1), 0);
    assert_true(look(world));
    assert_true(routes_changed_towards(&world->routes, &to_others));
    assert_false(routes_changed_towards(&world->routes, &to_bravo));
    run("ip route replace 10.9.0.0/24 nexthop via 10.0.1.2");
    /* Told but not read yet, as between two turns of a busy agent. */
    assert_false(world->routes.stale);
    assert_false(routes_are_current(&world->routes));
    assert_true(look(world));
    assert_true(routes_are_current(&world->routes));
    assert_false(routes_changed_towards(&world->routes, &to_others));
    assert_true(routes_changed_towards(&world->routes, &to_bravo));
    run("ip route replace 10.9.0.0/24 nexthop via 10.0.1.2 nexthop via 10.0.2.2 && ip route del 10.8.0.0/24");
    assert_true(look(world));
    assert_int_equal(routes_put(&world->routes, "charlie", NULL, 0), 0);
}

static void a_rule_and_a_cut_link_are_seen(void **state) {
    struct world *world = needs_root(state);

    run("ip route add 10.9.0.0/24 via 10.0.2.2 table 77 && ip rule add to 10.9.0.1 table 77");
    assert_true(look(world));
    expect_hops(world, 0, "s0", NULL);
    run("ip rule del to 10.9.0.1 table 77");
    assert_true(look(world));
    expect_hops(world, 0, "n0", "s0");
    run("ip link set s0 down");
    assert_true(look(world));
    expect_hops(world, 0, "n0", NULL);
    run("ip route replace blackhole 10.9.0.0/24");
    assert_true(look(world));
    assert_int_equal(world->routes.routes[0].state, ROUTE_NONE);
}

static void a_node_s_addresses_are_replaced_and_removed(void **state) {
    struct world *world = needs_root(state);
    char *addresses[] = {"10.9.0.2", "nonsense"};

    assert_int_equal(routes_put(&world->routes, "bravo", addresses, 2), 0);
    assert_int_equal(world->routes.n, 2);
    assert_string_equal(world->routes.routes[1].prefix, "10.9.0.2");
    assert_int_equal(routes_put(&world->routes, "bravo", NULL, 0), 0);
    assert_int_equal(routes_put(&world->routes, "same", NULL, 0), 0);
    assert_int_equal(world->routes.n, 0);
}

static void what_there_is_no_room_for_is_counted(void **state) {
    struct world *world = needs_root(state);
    char text[32], *one[] = {text};

    for (int i = 0; i < ROUTES_MAX + 2; i++) {
        char node[16];

        snprintf(text, sizeof(text), "10.20.%d.%d", i / 256, i % 256);
        snprintf(node, sizeof(node), "n%d", i);
        assert_int_equal(routes_put(&world->routes, node, one, 1), 0);
    }
    assert_int_equal(world->routes.n, ROUTES_MAX);
    assert_int_equal(world->routes.left_out, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_in_a_prefix_is_asked_for),
        cmocka_unit_test(the_kernel_says_by_which_interfaces),
        cmocka_unit_test(it_is_known_to_whom_routes_changed),
        cmocka_unit_test(a_rule_and_a_cut_link_are_seen),
        cmocka_unit_test(a_node_s_addresses_are_replaced_and_removed),
        cmocka_unit_test(what_there_is_no_room_for_is_counted),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
