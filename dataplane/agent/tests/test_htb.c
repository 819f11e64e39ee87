/* Tests of htb.h: the plan as pure figures, and the kernel's queue on a veth pair in a network namespace of its own
 * (root). */
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
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "links/htb.h"

#define MBPS 1000000ull
#define DATAGRAM_BYTES 972
#define IP_UDP_ETHERNET_BYTES 42

static uint64_t guaranteed(const struct htb_plan *plan) {
    uint64_t sum = 0;

    for (int i = 0; i < HTB_CLASSES; i++)
        sum += plan->classes[i].rate_bytes_per_s;
    return sum;
}

static void plan_never_promises_more_than_the_link(void **state) {
    (void)state;
    static const uint64_t capacities[] = {100000, MBPS, 100 * MBPS, 10000 * MBPS, 400000 * MBPS};

    for (size_t i = 0; i < sizeof(capacities) / sizeof(capacities[0]); i++) {
        for (int share = 0; share <= 12; share++) {
            struct htb_plan plan;

            htb_make_plan(capacities[i], capacities[i] * share / 10, 1500, 14, &plan);
            assert_true(guaranteed(&plan) <= plan.link_bytes_per_s);
            for (int c = 0; c < HTB_CLASSES; c++) {
                assert_true(plan.classes[c].rate_bytes_per_s > 0);
                assert_int_equal(plan.classes[c].ceil_bytes_per_s, plan.link_bytes_per_s);
                assert_true(plan.classes[c].queue_bytes >= 20 * 1514);
            }
            assert_true(plan.burst_bytes >= plan.gso_max_bytes + 1514);
        }
    }
}

static void plan_scales_for_the_ethernet_header(void **state) {
    (void)state;
    struct htb_plan tun, veth;

    htb_make_plan(100 * MBPS, 20 * MBPS, 1500, 0, &tun);
    htb_make_plan(100 * MBPS, 20 * MBPS, 1500, 14, &veth);
    assert_int_equal(tun.link_bytes_per_s, 12375000);
    assert_int_equal(tun.classes[HTB_LEGACY].rate_bytes_per_s, 2500000);
    assert_int_equal(veth.link_bytes_per_s, 12490499);
    assert_int_equal(tun.gso_max_bytes, 12500);
    assert_int_equal(tun.classes[HTB_LEGACY].queue_bytes, 618750);
}

static void plan_without_a_known_share_keeps_what_admission_leaves(void **state) {
    (void)state;
    struct htb_plan plan;

    htb_make_plan(100 * MBPS, 0, 1500, 0, &plan);
    assert_int_equal(plan.classes[HTB_LEGACY].rate_bytes_per_s, 2375000);
}

static void offload_is_bounded_to_a_millisecond(void **state) {
    (void)state;
    struct htb_plan plan;

    htb_make_plan(1 * MBPS, 0, 1500, 14, &plan);
    assert_int_equal(plan.gso_max_bytes, 3000);
    htb_make_plan(1000 * MBPS, 0, 1500, 14, &plan);
    assert_int_equal(plan.gso_max_bytes, 65536);
}

struct kernel {
    struct netlink netlink;
    struct netlink_interface interface;
    struct htb_link link;
};

static int run(const char *command) {
    int status = system(command);

    if (status != 0)
        print_message("failed: %s\n", command);
    return status;
}

static int kernel_setup(void **state) {
    struct kernel *kernel = calloc(1, sizeof(*kernel));

    *state = kernel;
    if (!kernel || geteuid() != 0 || unshare(CLONE_NEWNET) < 0)
        return 0;
    if (run("ip link add to-bravo type veth peer name peer && ip link set to-bravo up && ip link set peer up && "
            "ip addr add 10.9.0.1/30 dev to-bravo && ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev to-bravo"))
        return -1;
    if (netlink_open(&kernel->netlink))
        return -1;
    return netlink_interface(&kernel->netlink, 0, "to-bravo", &kernel->interface);
}

static int kernel_teardown(void **state) {
    struct kernel *kernel = *state;

    netlink_close(&kernel->netlink);
    free(kernel);
    return 0;
}

static struct kernel *needs_kernel(void **state) {
    struct kernel *kernel = *state;

    if (!kernel->netlink.socket) {
        print_message("skipped: needs root and network namespaces\n");
        skip();
    }
    return kernel;
}

/* Send datagrams with SO_PRIORITY set to a class id, as the classifier does. */
static void send_datagrams(uint32_t priority, int n) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
    char payload[DATAGRAM_BYTES] = {0};

    inet_pton(AF_INET, "10.9.0.2", &to.sin_addr);
    assert_true(fd >= 0);
    if (priority)
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, sizeof(priority)), 0);
    for (int i = 0; i < n; i++)
        assert_int_equal(sendto(fd, payload, sizeof(payload), 0, (struct sockaddr *)&to, sizeof(to)), DATAGRAM_BYTES);
    close(fd);
}

static void install_is_idempotent_and_counts_per_class(void **state) {
    struct kernel *kernel = needs_kernel(state);
    struct htb_stats before, after;
    const uint64_t one = DATAGRAM_BYTES + IP_UDP_ETHERNET_BYTES;

    assert_int_equal(htb_install(&kernel->netlink, &kernel->interface, 100 * MBPS, 0, 1, &kernel->link), 0);
    assert_int_equal(htb_read(&kernel->netlink, kernel->interface.ifindex, &before), 0);
    send_datagrams(0, 3);
    send_datagrams(HTB_CLASS_ID(HTB_MINOR_EXPLICIT_RATE), 5);
    assert_int_equal(htb_install(&kernel->netlink, &kernel->interface, 100 * MBPS, 30 * MBPS, 2, &kernel->link), 0);
    assert_int_equal(htb_read(&kernel->netlink, kernel->interface.ifindex, &after), 0);
    /* Counters went on: the queue was adopted, not made anew. Other packets (IPv6 neighbour discovery) may be legacy
     * too. */
    assert_int_equal(after.classes[HTB_EXPLICIT_RATE].bytes, 5 * one);
    assert_int_equal(after.classes[HTB_EXPLICIT_RATE].packets, 5);
    assert_true(after.classes[HTB_LEGACY].bytes - before.classes[HTB_LEGACY].bytes >= 3 * one);
    assert_int_equal(after.classes[HTB_EXPEDITED].bytes, 0);
}

static void a_removed_queue_is_gone(void **state) {
    struct kernel *kernel = needs_kernel(state);

    assert_int_equal(htb_remove(&kernel->netlink, &kernel->link), 0);
    assert_int_equal(htb_cleanup(&kernel->netlink, kernel->interface.ifindex), 0);
}

static void share_is_followed_but_not_too_often(void **state) {
    struct kernel *kernel = needs_kernel(state);
    struct htb_link *link = &kernel->link;

    assert_int_equal(htb_install(&kernel->netlink, &kernel->interface, 100 * MBPS, 20 * MBPS, 0, link), 0);
    assert_int_equal(htb_follow(&kernel->netlink, link, 40 * MBPS, HTB_CHANGE_INTERVAL_US - 1), 0);
    assert_int_equal(htb_follow(&kernel->netlink, link, 21 * MBPS, HTB_CHANGE_INTERVAL_US), 0);
    assert_int_equal(htb_follow(&kernel->netlink, link, 40 * MBPS, HTB_CHANGE_INTERVAL_US), 1);
    assert_int_equal(htb_follow(&kernel->netlink, link, 40 * MBPS, 3 * HTB_CHANGE_INTERVAL_US), 0);
    assert_int_equal(htb_follow(&kernel->netlink, link, 10 * MBPS, 3 * HTB_CHANGE_INTERVAL_US), 1);
    assert_int_equal(run("tc class show dev to-bravo | grep -q 'c4a0:30 .*prio 2 .*rate 10093Kbit ceil 99923Kbit'"), 0);
}

static void cleanup_removes_what_a_killed_agent_left(void **state) {
    struct kernel *kernel = needs_kernel(state);
    struct htb_stats stats;

    assert_int_equal(htb_cleanup(&kernel->netlink, kernel->interface.ifindex), 1);
    assert_int_equal(htb_cleanup(&kernel->netlink, kernel->interface.ifindex), 0);
    assert_int_equal(htb_read(&kernel->netlink, kernel->interface.ifindex, &stats), -ENOENT);
    memset(&kernel->link, 0, sizeof(kernel->link));
}

static void another_ones_qdisc_is_left_alone(void **state) {
    struct kernel *kernel = needs_kernel(state);
    struct htb_link link = {0};

    assert_int_equal(run("tc qdisc add dev to-bravo root handle 1: pfifo limit 10"), 0);
    assert_int_equal(htb_install(&kernel->netlink, &kernel->interface, 100 * MBPS, 0, 0, &link), -EBUSY);
    assert_false(link.installed);
    assert_int_equal(htb_cleanup(&kernel->netlink, kernel->interface.ifindex), 0);
    assert_int_equal(run("tc qdisc show dev to-bravo | grep -q 'pfifo 1: root'"), 0);
}

static void unknown_interfaces_are_told(void **state) {
    struct kernel *kernel = needs_kernel(state);
    struct netlink_interface interface;

    assert_int_equal(netlink_interface(&kernel->netlink, 0, "nowhere", &interface), -ENODEV);
    assert_int_equal(netlink_interface(&kernel->netlink, 0, "a-name-that-is-much-too-long", &interface), -ENODEV);
    assert_int_equal(htb_read(&kernel->netlink, 4242, &(struct htb_stats){0}), -ENOENT);
}

int main(void) {
    const struct CMUnitTest plan[] = {
        cmocka_unit_test(plan_never_promises_more_than_the_link),
        cmocka_unit_test(plan_scales_for_the_ethernet_header),
        cmocka_unit_test(plan_without_a_known_share_keeps_what_admission_leaves),
        cmocka_unit_test(offload_is_bounded_to_a_millisecond),
    };
    const struct CMUnitTest kernel[] = {
        cmocka_unit_test(install_is_idempotent_and_counts_per_class),
        cmocka_unit_test(a_removed_queue_is_gone),
        cmocka_unit_test(share_is_followed_but_not_too_often),
        cmocka_unit_test(cleanup_removes_what_a_killed_agent_left),
        cmocka_unit_test(another_ones_qdisc_is_left_alone),
        cmocka_unit_test(unknown_interfaces_are_told),
    };

    return cmocka_run_group_tests(plan, NULL, NULL) + cmocka_run_group_tests(kernel, kernel_setup, kernel_teardown);
}
