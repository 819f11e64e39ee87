/* Edges of the registry: kept on disk, and before those of the command line. */
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
#include <unistd.h>

#include "links/edges.h"

static char directory[] = "/tmp/edges-XXXXXX";
static char path[64];

static int make_directory(void **state) {
    (void)state;
    if (!mkdtemp(directory))
        return -1;
    snprintf(path, sizeof(path), "%s/edges", directory);
    return 0;
}

static int remove_directory(void **state) {
    (void)state;
    unlink(path);
    return rmdir(directory);
}

static void nothing_kept_means_none(void **state) {
    struct edges_wanted edges = {.n = 7};
    (void)state;
    assert_int_equal(edges_read(directory, &edges), 0);
    assert_int_equal(edges.n, 0);
}

static void as_many_as_there_may_be_are_kept(void **state) {
    struct edges_wanted edges = {.n = EDGES_MAX}, read = {0};
    (void)state;
    for (size_t i = 0; i < EDGES_MAX; i++) {
        struct edge_wanted *edge = &edges.edges[i];
        *edge = (struct edge_wanted){.aggregate_bps = UINT64_MAX - i, .depth_ms = UINT16_MAX, .drop = i % 2};
        snprintf(edge->interface, sizeof(edge->interface), "interface-%05zu", i);
    }
    assert_int_equal(edges_write(directory, &edges), 0);
    assert_int_equal(edges_read(directory, &read), 0);
    assert_memory_equal(&read, &edges, sizeof(edges));
    edges = (struct edges_wanted){0};
    assert_int_equal(edges_write(directory, &edges), 0);
    assert_int_equal(edges_read(directory, &read), 0);
    assert_int_equal(read.n, 0);
}

static void what_is_broken_is_no_edge(void **state) {
    static const char *const texts[] = {"eth1", "eth1 x 100 drop\n", "eth1 1 100 perhaps\n",
                                        "eth1 1 100 drop\neth2 1 100\n"};
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct edges_wanted edges;
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(texts[i], file);
        fclose(file);
        assert_int_equal(edges_read(directory, &edges), -EBADMSG);
        assert_int_equal(edges.n, 0);
    }
}

static void the_registry_goes_before_the_command_line(void **state) {
    struct agent_options options = {.edges = {{.interface = "eth1", .aggregate_bps = 1}, {.interface = "eth3"}},
                                    .n_edges = 2,
                                    .edge_drop = true,
                                    .edge_depth_ms = 20};
    struct edges_wanted stated = {
        .edges = {{.interface = "eth1", .aggregate_bps = 2, .depth_ms = 50}, {.interface = "eth2", .depth_ms = 60}},
        .n = 2};
    struct edges_wanted merged;
    (void)state;
    edges_merge(&options, &stated, &merged);
    assert_int_equal(merged.n, 3);
    assert_memory_equal(merged.edges, stated.edges, 2 * sizeof(stated.edges[0]));
    assert_string_equal(merged.edges[2].interface, "eth3");
    assert_int_equal(merged.edges[2].depth_ms, 20);
    assert_true(merged.edges[2].drop);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_kept_means_none),
        cmocka_unit_test(as_many_as_there_may_be_are_kept),
        cmocka_unit_test(what_is_broken_is_no_edge),
        cmocka_unit_test(the_registry_goes_before_the_command_line),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
