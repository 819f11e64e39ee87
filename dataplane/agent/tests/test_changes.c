/* Tests of changes.h: settings of a network namespace of its own (root) are changed, noted and put back. */
#define _GNU_SOURCE
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "node/changes.h"

static const char limit[] = "net/ipv4/tcp_rmem", link_name[] = "lo";
static char directory[] = "/tmp/chart-changes-XXXXXX";
static char path[64];

struct world {
    struct netlink netlink;
    struct changes changes;
    char limit[CHANGES_VALUE_LEN];
    char sizes[CHANGES_VALUE_LEN];
};

static int set_up(void **state) {
    struct world *world = calloc(1, sizeof(*world));

    *state = world;
    if (!world || !mkdtemp(directory))
        return -1;
    snprintf(path, sizeof(path), "%s/changed-settings", directory);
    if (geteuid() != 0 || unshare(CLONE_NEWNET) < 0)
        return 0;
    return netlink_open(&world->netlink);
}

static int tear_down(void **state) {
    struct world *world = *state;

    netlink_close(&world->netlink);
    free(world);
    unlink(path);
    return rmdir(directory);
}

static struct world *needs_root(void **state) {
    struct world *world = *state;

    if (!world->netlink.socket) {
        print_message("skipped: needs root\n");
        skip();
    }
    assert_int_equal(changes_open(directory, &world->netlink, &world->changes), 0);
    assert_int_equal(changes_read(&world->changes, CHANGE_SYSCTL, limit, world->limit), 0);
    assert_int_equal(changes_read(&world->changes, CHANGE_OFFLOAD, link_name, world->sizes), 0);
    return world;
}

static void assert_now(const struct world *world, enum change_kind kind, const char *name, const char *expected) {
    char present[CHANGES_VALUE_LEN];

    assert_int_equal(changes_read(&world->changes, kind, name, present), 0);
    assert_string_equal(present, expected);
}

static void change_both(struct world *world) {
    char sizes[CHANGES_VALUE_LEN];
    struct netlink_offload offload = {0};

    assert_int_equal(sscanf(world->sizes, "%u %u %u %u", &offload.gso_max_bytes, &offload.gro_max_bytes,
                            &offload.gso_ipv4_max_bytes, &offload.gro_ipv4_max_bytes),
                     4);
    offload.gso_max_bytes = offload.gro_max_bytes = 12500;
    if (offload.gso_ipv4_max_bytes)
        offload.gso_ipv4_max_bytes = offload.gro_ipv4_max_bytes = 12500;
    netlink_offload_text(&offload, sizes, sizeof(sizes));
    assert_int_equal(changes_set(&world->changes, CHANGE_SYSCTL, limit, "4096 131072 67108864"), 0);
    assert_int_equal(changes_set(&world->changes, CHANGE_OFFLOAD, link_name, sizes), 0);
    assert_now(world, CHANGE_SYSCTL, limit, "4096 131072 67108864");
    assert_now(world, CHANGE_OFFLOAD, link_name, sizes);
    assert_int_equal(access(path, F_OK), 0);
}

static void what_was_changed_is_put_back(void **state) {
    struct world *world = needs_root(state);

    change_both(world);
    changes_undo_all(&world->changes);
    assert_now(world, CHANGE_SYSCTL, limit, world->limit);
    assert_now(world, CHANGE_OFFLOAD, link_name, world->sizes);
    assert_int_equal(access(path, F_OK), -1);
}

static void what_a_killed_agent_left_is_put_back_by_the_next(void **state) {
    struct world *world = needs_root(state);
    struct changes next;

    change_both(world);
    assert_int_equal(changes_open(directory, &world->netlink, &next), 2);
    assert_now(world, CHANGE_SYSCTL, limit, world->limit);
    assert_now(world, CHANGE_OFFLOAD, link_name, world->sizes);
    assert_int_equal(access(path, F_OK), -1);
}

static void what_somebody_else_changed_since_stays(void **state) {
    struct world *world = needs_root(state);
    struct changes other = {.state_dir = "/tmp/chart-changes-that-is-not-there", .netlink = &world->netlink};

    change_both(world);
    /* Nobody changes what he cannot note first. */
    assert_int_equal(changes_set(&other, CHANGE_SYSCTL, limit, "4096 65536 1048576"), -ENOENT);
    assert_now(world, CHANGE_SYSCTL, limit, "4096 131072 67108864");
    assert_int_equal(changes_set(&world->changes, CHANGE_SYSCTL, limit, "4096 65536 1048576"), 0);
    strcpy(world->changes.list[0].after, "4096 131072 67108864");
    changes_undo_all(&world->changes);
    assert_now(world, CHANGE_SYSCTL, limit, "4096 65536 1048576");
    assert_int_equal(access(path, F_OK), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_changed_is_put_back),
        cmocka_unit_test(what_a_killed_agent_left_is_put_back_by_the_next),
        cmocka_unit_test(what_somebody_else_changed_since_stays),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
