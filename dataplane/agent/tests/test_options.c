/* The command line of chart-agent. */
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

#include "core/options.h"

static int parse(const char *const *words, struct options *ret, char **ret_errors) {
    char *argv[32] = {"chart-agent"};
    int argc = 1;
    size_t size;
    for (; words[argc - 1]; argc++)
        argv[argc] = (char *)words[argc - 1];
    FILE *errors = open_memstream(ret_errors, &size);
    int result = options_parse(argc, argv, errors, ret);
    fclose(errors);
    return result;
}

static void a_whole_line(void **state) {
    (void)state;
    const char *const words[] = {
        "--node", "alpha",    "--state-dir", "/s", "--cgroup", "/c", "--link", "alpha:to-bravo=to-bravo:100000000",
        "--link", "a:b=eth0", "--rate-file", "/r", NULL};
    struct options options;
    char *errors;
    assert_int_equal(parse(words, &options, &errors), 0);
    assert_int_equal(options.action, OPTIONS_RUN);
    assert_string_equal(options.agent.node, "alpha");
    assert_int_equal(options.agent.n_links, 2);
    assert_string_equal(options.agent.links[0].id, "alpha:to-bravo");
    assert_string_equal(options.agent.links[0].interface, "to-bravo");
    assert_int_equal(options.agent.links[0].capacity_bps, 100000000);
    assert_int_equal(options.agent.links[1].capacity_bps, 0);
    assert_int_equal(options.agent.sensor_port, 18300);
    free(errors);
}

static void values_behind_equals_signs(void **state) {
    (void)state;
    const char *const words[] = {"--node=alpha", "--state-dir=/s", "--cgroup=/c", "--link=a:b=eth0:1", NULL};
    const char *const told[][2] = {{"--off=1", "takes no value"},
                                   {"--nod=alpha", "unknown option --nod=alpha"},
                                   {"--node", "--node needs"},
                                   {"=", "unknown option ="}};
    struct options options;
    char *errors;
    assert_int_equal(parse(words, &options, &errors), 0);
    assert_string_equal(options.agent.node, "alpha");
    assert_string_equal(options.agent.links[0].id, "a:b");
    assert_string_equal(options.agent.links[0].interface, "eth0");
    free(errors);
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
        const char *const wrong[] = {told[i][0], NULL};
        assert_int_equal(parse(wrong, &options, &errors), -EINVAL);
        assert_non_null(strstr(errors, told[i][1]));
        free(errors);
    }
}

static void edges(void **state) {
    (void)state;
    const char *const words[] = {"--node",          "alpha",  "--state-dir", "/s",     "--cgroup",      "/c",
                                 "--edge",          "to-isp", "--edge",      "eth0:1", "--edge-exceed", "drop",
                                 "--edge-depth-ms", "20",     NULL};
    struct options options;
    char *errors;
    assert_int_equal(parse(words, &options, &errors), 0);
    assert_int_equal(options.agent.n_edges, 2);
    assert_string_equal(options.agent.edges[0].interface, "to-isp");
    assert_int_equal(options.agent.edges[0].aggregate_bps, 0);
    assert_int_equal(options.agent.edges[1].aggregate_bps, 1);
    assert_true(options.agent.edge_drop);
    assert_int_equal(options.agent.edge_depth_ms, 20);
    free(errors);
}

static void refused(const char *const *words, const char *says) {
    struct options options;
    char *errors;
    assert_int_equal(parse(words, &options, &errors), -EINVAL);
    if (!strstr(errors, says))
        fail_msg("said \"%s\", expected \"%s\"", errors, says);
    free(errors);
}

static void mistakes_are_named(void **state) {
    (void)state;
    refused((const char *const[]){"--status", NULL}, "--state-dir is missing");
    refused((const char *const[]){"--state-dir", "/s", NULL}, "--node is missing");
    refused((const char *const[]){"--state-dir", "/s", "--node", "a", NULL}, "--cgroup is missing");
    refused((const char *const[]){"--nodes", "a", NULL}, "unknown option --nodes");
    refused((const char *const[]){"--node", NULL}, "--node needs NAME");
    refused((const char *const[]){"--link", "eth0", NULL}, "expected ID=IFACE");
    refused((const char *const[]){"--link", "a=eth0:-1", NULL}, "expected ID=IFACE");
    refused((const char *const[]){"--sensor-port", "65536", NULL}, "from 0 to 65535");
    refused((const char *const[]){"--sensor-port", "udp", NULL}, "from 0 to 65535");
    refused((const char *const[]){"--edge", "", NULL}, "expected IFACE[:AGGREGATE_BPS]");
    refused((const char *const[]){"--edge", "eth0:many", NULL}, "expected IFACE[:AGGREGATE_BPS]");
    refused((const char *const[]){"--edge-exceed", "shape", NULL}, "expected drop or remark");
    refused((const char *const[]){"--edge-depth-ms", "-1", NULL}, "expected milliseconds from 0 to 65535");
    refused((const char *const[]){"--node", "a", "--state-dir", "/s", "--cgroup", "/c", "--rate-file", "/r",
                                  "--bootstrap", "h:1", NULL},
            "exclude each other");
}

static void help_names_every_option(void **state) {
    (void)state;
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    options_help(out);
    fclose(out);
    assert_non_null(strstr(text, "--default-congestion"));
    assert_non_null(strstr(text, "--cleanup"));
    assert_non_null(strstr(text, "Exit status"));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_line),       cmocka_unit_test(values_behind_equals_signs), cmocka_unit_test(edges),
        cmocka_unit_test(mistakes_are_named), cmocka_unit_test(help_names_every_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
