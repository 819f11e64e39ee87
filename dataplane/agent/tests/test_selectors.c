/* Selectors in the kernel's form: prefixes, order. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "grants/selectors.h"

static struct chart_selector convert(const char *source, const char *destination) {
    struct decide_selector selector = {0};
    struct chart_selector kernel;
    assert_int_equal(decide_parse_prefix(source, &selector.source), 0);
    assert_int_equal(decide_parse_prefix(destination, &selector.destination), 0);
    assert_int_equal(selector_to_kernel(&selector, &kernel), 0);
    return kernel;
}

static void ipv4_is_mapped(void **state) {
    (void)state;
    struct chart_selector kernel = convert("10.1.2.3/20", "");
    assert_int_equal(kernel.source[2], htonl(0xffff));
    assert_int_equal(kernel.source[3], htonl(0x0a010000));
    assert_int_equal(kernel.source_mask[0], 0xffffffff);
    assert_int_equal(kernel.source_mask[3], htonl(0xfffff000));
}

static void any_matches_both_families(void **state) {
    (void)state;
    struct chart_selector kernel = convert("", "0.0.0.0/0");
    for (int i = 0; i < 4; i++)
        assert_int_equal(kernel.source_mask[i], 0);
    /* Any IPv4 address, but no IPv6 one. */
    assert_int_equal(kernel.destination_mask[2], 0xffffffff);
    assert_int_equal(kernel.destination_mask[3], 0);
}

static void ipv6_bits(void **state) {
    (void)state;
    struct chart_selector kernel = convert("fd00:1:2:3::/61", "");
    assert_int_equal(kernel.source_mask[1], htonl(0xfffffff8));
    assert_int_equal(kernel.source[1], htonl(0x00020000));
    assert_int_equal(kernel.source_mask[2], 0);
}

static void too_many_bits_refused(void **state) {
    (void)state;
    struct decide_selector selector = {.source = {.family = AF_INET, .bits = 33}};
    struct chart_selector kernel;
    assert_int_equal(selector_to_kernel(&selector, &kernel), -EINVAL);
}

static void specific_first(void **state) {
    (void)state;
    struct chart_selector selectors[4] = {convert("10.0.0.0/8", ""), convert("10.0.0.1", "10.0.0.2"),
                                          convert("10.0.0.0/8", ""), convert("", "")};
    selectors[0].grant = 7;
    selectors[1].grant = 2;
    selectors[2].grant = 3;
    selectors[3].grant = 4;
    selectors[3].destination_port = 5201;
    selector_sort(selectors, 4);
    assert_int_equal(selectors[0].grant, 4); /* a port says more than any prefix */
    assert_int_equal(selectors[1].grant, 2);
    assert_int_equal(selectors[2].grant, 3); /* of equals the older */
    assert_int_equal(selectors[3].grant, 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ipv4_is_mapped), cmocka_unit_test(any_matches_both_families),
        cmocka_unit_test(ipv6_bits),      cmocka_unit_test(too_many_bits_refused),
        cmocka_unit_test(specific_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
