/* The command line: what is taken, and what each fault is called. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "options.h"

#define READ(ret, said, ...)                                                                                           \
    read_words(ret, said, (const char *[]){"chart-proxy", __VA_ARGS__},                                                \
               sizeof((const char *[]){"chart-proxy", __VA_ARGS__}) / sizeof(char *))

/* said: freed by the caller. */
static int read_words(struct options *ret, char **said, const char *const *words, size_t count) {
    size_t bytes;
    FILE *errors = open_memstream(said, &bytes);
    assert_non_null(errors);
    int error = options_parse((int)count, (char **)words, errors, ret);
    fclose(errors);
    return error;
}

static void expect_fault(const char *option, const char *value, const char *fault) {
    struct options options = {.port = 7};
    char *said;
    int error = value ? READ(&options, &said, "--interface", "a", option, value)
                      : READ(&options, &said, "--interface", "a", option);
    assert_int_equal(error, -EINVAL);
    assert_non_null(strstr(said, option));
    if (!strstr(said, fault))
        fail_msg("%s %s: %s", option, value, said);
    assert_int_equal(options.port, 7);
    free(said);
}

static void test_everything_is_taken(void **unused) {
    (void)unused;
    struct options options;
    char *said;
    int error = READ(&options, &said, "--interface", "lan0", "--interface", "wan0", "--host", "10.0.0.0/24", "--host",
                     "fd00::1", "--port", "1000", "--queue", "0", "--table", "300", "--mark", "0x10", "--connections",
                     "10", "--buffer-kib", "64", "--connect-s", "3", "--idle-s", "60", "--drain-s", "0", "--new-ports",
                     "--metrics", "127.0.0.1:1");
    assert_int_equal(error, 0);
    assert_string_equal(said, "");
    assert_int_equal(options.interface_count, 2);
    assert_string_equal(options.interfaces[1], "wan0");
    assert_string_equal(options.hosts[0].prefix, "10.0.0.0/24");
    assert_false(options.hosts[0].ipv6);
    assert_string_equal(options.hosts[1].prefix, "fd00::1/128");
    assert_true(options.hosts[1].ipv6);
    assert_int_equal(options.port, 1000);
    assert_int_equal(options.queue, 0);
    assert_int_equal(options.table, 300);
    assert_int_equal(options.mark, 16);
    assert_int_equal(options.connections, 10);
    assert_int_equal(options.buffer_bytes, 65536);
    assert_int_equal(options.connect_us, 3000000);
    assert_int_equal(options.idle_us, 60000000);
    assert_int_equal(options.drain_us, 0);
    assert_true(options.ipv6);
    assert_true(options.new_ports);
    free(said);
}

static void test_faults_are_named(void **unused) {
    (void)unused;
    expect_fault("--wrong", NULL, "unknown option");
    expect_fault("--port", NULL, "needs PORT");
    expect_fault("--port", "0", "from 1 to 65535");
    expect_fault("--port", "-1", "from 1 to 65535");
    expect_fault("--mark", "0", "from 1");
    expect_fault("--connections", "many", "from 1 to 65536");
    expect_fault("--table", "255", "from 256");
    expect_fault("--host", "10.0.0.0/33", "ADDRESS/LENGTH");
    expect_fault("--host", "10.0.0.0/", "ADDRESS/LENGTH");
    expect_fault("--host", "example.org", "ADDRESS/LENGTH");
    expect_fault("--interface", "a b", "name of an interface");
    expect_fault("--interface", "sixteen-letters-", "name of an interface");
}

static void test_what_belongs_together(void **unused) {
    (void)unused;
    struct options options;
    char *said;
    assert_int_equal(READ(&options, &said, "--no-ipv6"), -EINVAL);
    assert_non_null(strstr(said, "--interface is missing"));
    free(said);
    assert_int_equal(READ(&options, &said, "--interface", "a", "--no-ipv6", "--host", "::1"), -EINVAL);
    assert_non_null(strstr(said, "exclude each other"));
    free(said);
    assert_int_equal(READ(&options, &said, "--cleanup"), 0);
    assert_int_equal(options.action, OPTIONS_CLEANUP);
    free(said);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_is_taken),
        cmocka_unit_test(test_faults_are_named),
        cmocka_unit_test(test_what_belongs_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
