/* The HTTP part that agent and tunnel share: an address has one program, and why it cannot be had is said. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "lib/metrics/metrics.h"

static void render(FILE *out, void *context) {
    (void)context;
    fputs("nothing\n", out);
}

static const char *not_ready(void *context) {
    (void)context;
    return NULL;
}

static const struct metrics_source source = {render, not_ready, NULL};

static void test_a_port_has_one_program(void **unused) {
    (void)unused;
    struct metrics *first = NULL, *second = NULL;
    char address[32];
    assert_int_equal(metrics_open("127.0.0.1:0", &source, &first), 0);
    assert_in_range(metrics_port(first), 1, 65535);
    snprintf(address, sizeof(address), "127.0.0.1:%d", metrics_port(first));
    assert_int_equal(metrics_open(address, &source, &second), -EADDRINUSE);
    assert_null(second);
    metrics_close(first);
    /* Free again, and at once. */
    assert_int_equal(metrics_open(address, &source, &second), 0);
    metrics_close(second);
}

static void test_what_cannot_be_listened_on_is_told(void **unused) {
    (void)unused;
    struct metrics *metrics = NULL;
    assert_int_equal(metrics_open("192.0.2.1:0", &source, &metrics), -EADDRNOTAVAIL);
    assert_int_equal(metrics_open("127.0.0.1", &source, &metrics), -EINVAL);
    assert_int_equal(metrics_open("127.0.0.1:65536", &source, &metrics), -EINVAL);
    assert_int_equal(metrics_open("localhost:1", &source, &metrics), -EINVAL);
    assert_null(metrics);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_port_has_one_program),
        cmocka_unit_test(test_what_cannot_be_listened_on_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
