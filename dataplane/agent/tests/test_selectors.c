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

static void every_pair_of_one_family(void **state) {
    (void)state;
    static struct chart_selector pairs[SELECTOR_PAIRS_MAX];
    struct decide_selector selector = {.n_more_sources = 1, .n_more_destinations = 2, .destination_port = 5201};
    assert_int_equal(decide_parse_prefix("10.0.0.1", &selector.source), 0);
    assert_int_equal(decide_parse_prefix("fd00::1", &selector.more_sources[0]), 0);
    assert_int_equal(decide_parse_prefix("10.0.0.2", &selector.destination), 0);
    assert_int_equal(decide_parse_prefix("10.9.0.0/16", &selector.more_destinations[0]), 0);
    assert_int_equal(decide_parse_prefix("fd00::2", &selector.more_destinations[1]), 0);
    assert_int_equal(selector_pairs_to_kernel(&selector, pairs, SELECTOR_PAIRS_MAX), 3);
    assert_int_equal(pairs[0].destination[3], htonl(0x0a000002));
    assert_int_equal(pairs[1].destination[3], htonl(0x0a090000));
    assert_int_equal(pairs[1].source[3], htonl(0x0a000001));
    assert_int_equal(pairs[2].destination[0], htonl(0xfd000000));
    for (int i = 0; i < 3; i++)
        assert_int_equal(pairs[i].destination_port, 5201);
    /* Any source goes with both families. */
    selector.source = (struct decide_prefix){0};
    selector.n_more_sources = 0;
    assert_int_equal(selector_pairs_to_kernel(&selector, pairs, SELECTOR_PAIRS_MAX), 3);
}

static void pairs_that_cannot_be_refused(void **state) {
    (void)state;
    struct chart_selector pairs[2];
    struct decide_selector selector = {.n_more_destinations = 2};
    assert_int_equal(selector_pairs_to_kernel(&selector, pairs, 2), -ENOSPC);
    selector.n_more_destinations = 0;
    assert_int_equal(decide_parse_prefix("10.0.0.1", &selector.source), 0);
    assert_int_equal(decide_parse_prefix("fd00::2", &selector.destination), 0);
    assert_int_equal(selector_pairs_to_kernel(&selector, pairs, 2), -EINVAL);
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
        cmocka_unit_test(ipv4_is_mapped),
        cmocka_unit_test(any_matches_both_families),
        cmocka_unit_test(ipv6_bits),
        cmocka_unit_test(too_many_bits_refused),
        cmocka_unit_test(specific_first),
        cmocka_unit_test(every_pair_of_one_family),
        cmocka_unit_test(pairs_that_cannot_be_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
