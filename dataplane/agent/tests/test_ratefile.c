/* The rate file: what is understood, and what every mistake is told. */
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

#include "grants/ratefile.h"

static void refused(const char *text, const char *place) {
    struct ratefile ratefile = {0};
    char error[RATEFILE_ERROR_LEN];
    assert_int_equal(ratefile_parse(text, strlen(text), &ratefile, error), -EINVAL);
    if (!strstr(error, place))
        fail_msg("%s: said \"%s\", expected \"%s\"", text, error, place);
    assert_null(ratefile.grants);
}

static void understands_everything(void **state) {
    (void)state;
    static const char text[] =
        "{\"enforcement\": \"observe\", \"grants\": [{\"request_id\": \"a\", \"selector\": {\"source_prefix\": "
        "\"10.0.0.0/8\", \"destination_prefix\": null, \"protocol\": \"tcp\", \"source_port\": null, "
        "\"destination_port\": 5201, \"dscp\": 0, \"cgroup_id\": 77}, \"guaranteed_bps\": 1000, \"available_bps\": "
        "99000000, \"valid_for_ms\": 2500, \"sending\": false, \"expedited\": true}, {\"request_id\": \"b\"}]}";
    struct ratefile ratefile;
    char error[RATEFILE_ERROR_LEN];
    assert_int_equal(ratefile_parse(text, strlen(text), &ratefile, error), 0);
    assert_int_equal(ratefile.mode, DECIDE_MODE_OBSERVE);
    assert_int_equal(ratefile.n_grants, 2);
    const struct decide_applied *grant = &ratefile.grants[0];
    assert_string_equal(grant->request_id, "a");
    assert_int_equal(grant->selector.source.bits, 8);
    assert_int_equal(grant->selector.destination.family, 0);
    assert_int_equal(grant->selector.protocol, 6);
    assert_int_equal(grant->selector.destination_port, 5201);
    assert_int_equal(grant->selector.dscp_plus_one, 1);
    assert_int_equal(grant->selector.cgroup_id, 77);
    assert_int_equal(grant->gr_bps, 1000);
    assert_int_equal(grant->ar_bps, 99000000);
    assert_false(grant->sending);
    assert_int_equal(grant->class, DECIDE_CLASS_EXPEDITED);
    assert_int_equal(ratefile.grants[1].class, DECIDE_CLASS_EXPLICIT_RATE);
    assert_int_equal(ratefile.valid_for_us[0], 2500000);
    assert_true(ratefile.grants[1].sending);
    assert_int_equal(ratefile.grants[1].selector.dscp_plus_one, 0);
    ratefile_free(&ratefile);
}

static void empty_object_means_no_grants(void **state) {
    (void)state;
    struct ratefile ratefile;
    char error[RATEFILE_ERROR_LEN];
    assert_int_equal(ratefile_parse("{}", 2, &ratefile, error), 0);
    assert_int_equal(ratefile.mode, DECIDE_MODE_OBSERVE);
    assert_int_equal(ratefile.n_grants, 0);
    ratefile_free(&ratefile);
}

static void mistakes_are_named(void **state) {
    (void)state;
    refused("", "not JSON");
    refused("{\"grants\": [", "not JSON");
    refused("[]", "expected an object");
    refused("{\"grant\": []}", "unknown field grant");
    refused("{\"grants\": {}}", "expected an array");
    refused("{\"enforcement\": \"yes\"}", "enforcement");
    refused("{\"grants\": [{}]}", "grants[0]: request_id");
    refused("{\"grants\": [{\"request_id\": \"a\"}, {\"request_id\": \"a\"}]}", "grants[1]: request_id stands twice");
    refused("{\"grants\": [{\"request_id\": \"a\", \"available_bps\": -1}]}", "grants[0].available_bps");
    refused("{\"grants\": [{\"request_id\": \"a\", \"guaranteed_bps\": 1.5}]}", "grants[0].guaranteed_bps");
    refused("{\"grants\": [{\"request_id\": \"a\", \"selector\": {\"source_prefix\": \"10.0.0.0/40\"}}]}",
            "source_prefix");
    refused("{\"grants\": [{\"request_id\": \"a\", \"selector\": {\"destination_port\": 65536}}]}", "destination_port");
    refused("{\"grants\": [{\"request_id\": \"a\", \"selector\": {\"protocol\": \"sctp\"}}]}", "protocol");
    refused("{\"grants\": [{\"request_id\": \"a\", \"sending\": 1}]}", "sending");
    refused("{\"grants\": [{\"request_id\": \"a\", \"expedited\": 1}]}", "expedited");
}

static void too_many_grants(void **state) {
    (void)state;
    size_t size = 64 * 1024, used;
    char *text = malloc(size);
    assert_non_null(text);
    used = (size_t)snprintf(text, size, "{\"grants\": [");
    for (int i = 0; i < 257; i++)
        used += (size_t)snprintf(text + used, size - used, "%s{\"request_id\": \"g%d\"}", i ? "," : "", i);
    snprintf(text + used, size - used, "]}");
    refused(text, "at most 256");
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(understands_everything),
        cmocka_unit_test(empty_object_means_no_grants),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(too_many_grants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
