/* The overlay file: what is read, and that what is wrong is named with its place. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "paths/overlay_table.h"

#define LINK(name, remote) "{\"name\": \"" name "\", \"local\": \"10.0.1.1\", \"remote\": \"" remote "\"}"
#define OWNER(node, prefix) "{\"node\": \"" node "\", \"prefixes\": [\"" prefix "\"]}"

static const char whole[] =
    "{\"port\": 4789, \"links\": [{\"name\": \"north\", \"local\": \"10.0.1.1\", \"remote\": \"10.0.1.2\", "
    "\"interface\": \"to-north\", \"mtu\": 1500, \"capacity_bps\": 100000000}, {\"name\": \"south\", \"local\": "
    "\"fd00::1\", \"remote\": \"fd00::2\"}], \"owners\": [{\"node\": \"egress\", \"prefixes\": [\"10.3.0.0/16\", "
    "\"2001:db8::/32\"], \"paths\": [{\"next_hops\": [\"south\", \"north\"]}, {\"colour\": 3, \"next_hops\": "
    "[\"north\"], \"choice\": true, \"capacity_bps\": 60000000}]}, " OWNER("ingress", "10.2.0.0/16") "]}";

static void a_whole_file(void **state) {
    struct overlay_table table;
    char error[OVERLAY_ERROR_LEN];

    (void)state;
    assert_int_equal(overlay_file_parse(whole, strlen(whole), &table, error), 0);
    assert_int_equal(table.port, 4789);
    assert_int_equal(table.n_links, 2);
    assert_string_equal(table.links[0].interface, "to-north");
    assert_int_equal(table.links[0].capacity_bps, 100000000);
    assert_int_equal(table.links[1].remote.family, AF_INET6);
    assert_int_equal(table.n_owners, 2);
    assert_int_equal(table.owners[0].n_prefixes, 2);
    assert_int_equal(table.owners[0].n_routes, 2);
    assert_int_equal(table.owners[0].routes[0].n_hops, 2);
    assert_int_equal(table.owners[0].routes[0].hops[0], 1);
    assert_int_equal(table.owners[0].routes[0].hops[1], 0);
    assert_false(table.owners[0].routes[0].choice);
    assert_int_equal(table.owners[0].routes[1].colour, 3);
    assert_true(table.owners[0].routes[1].choice);
    assert_int_equal(table.owners[0].routes[1].capacity_bps, 60000000);
    assert_int_equal(table.owners[1].n_routes, 0);
    /* 70 octets in front of a packet between IPv6 addresses, 50 between IPv4 ones. */
    assert_int_equal(overlay_table_mtu(&table), 1430);
    overlay_table_free(&table);
    assert_null(table.links);
}

static void what_is_printed_is_read_again(void **state) {
    struct overlay_table table, again;
    char error[OVERLAY_ERROR_LEN], *text, *second;

    (void)state;
    assert_int_equal(overlay_file_parse(whole, strlen(whole), &table, error), 0);
    text = overlay_file_print(&table);
    assert_int_equal(overlay_file_parse(text, strlen(text), &again, error), 0);
    second = overlay_file_print(&again);
    assert_string_equal(text, second);
    assert_true(again.owners[0].routes[1].choice);
    assert_int_equal(again.owners[0].routes[1].capacity_bps, 60000000);
    free(text);
    free(second);
    overlay_table_free(&table);
    overlay_table_free(&again);
}

static void without_anything_there_is_no_overlay(void **state) {
    struct overlay_table table;
    char error[OVERLAY_ERROR_LEN];

    (void)state;
    assert_int_equal(overlay_file_parse("{}", 2, &table, error), 0);
    assert_int_equal(table.n_links, 0);
    assert_int_equal(table.port, OVERLAY_PORT);
    assert_int_equal(overlay_table_mtu(&table), 0);
    overlay_table_free(&table);
}

static void what_is_wrong_is_named(void **state) {
    static const struct {
        const char *text;
        const char *told;
    } cases[] = {
        {"{\"links\": 3}", "links: expected an array of at most 63"},
        {"{\"tunnels\": []}", "file: unknown field tunnels"},
        {"{\"links\": [{\"local\": \"10.0.0.1\", \"remote\": \"10.0.0.2\"}]}", "links[0].name: expected a text"},
        {"{\"links\": [{\"name\": \"a\", \"local\": \"10.0.0.0/8\", \"remote\": \"10.0.0.2\"}]}",
         "links[0].local: expected an address"},
        {"{\"links\": [{\"name\": \"a\", \"local\": \"10.0.0.1\", \"remote\": \"10.0.0.2\", \"mtu\": 900}]}",
         "links[0].mtu: expected at least 1350"},
        {"{\"links\": [" LINK("a", "fd00::2") "]}", "a: local and remote have to be addresses of one family"},
        {"{\"links\": [" LINK("a", "10.0.1.2") ", " LINK("a", "10.0.1.3") "]}", "a: two links of this name"},
        {"{\"links\": [" LINK("a", "10.0.1.2") ", " LINK("b", "10.0.1.2") "]}",
         "b: another link ends at the same address"},
        {"{\"owners\": [" OWNER("a", "10.0.0.0/8") ", " OWNER("a", "11.0.0.0/8") "]}", "a: two owners of this name"},
        {"{\"owners\": [" OWNER("a", "10.0.0.0/8") ", " OWNER("b", "10.9.0.0/8") "]}",
         "owners: a and b own the same prefix"},
        {"{\"owners\": [" OWNER("a", "10/8") "]}", "owners[0].prefixes: expected prefixes"},
        {"{\"owners\": [{\"node\": \"a\", \"prefixes\": [], \"paths\": [{\"next_hops\": [\"x\"]}]}]}",
         "owner a: next hop x is the name of no link"},
        {"{\"owners\": [{\"node\": \"a\", \"prefixes\": [], \"paths\": [{\"next_hops\": []}]}]}",
         "paths[0].next_hops: expected the names of 1 to 4 links"},
        {"{\"owners\": [{\"node\": \"a\", \"prefixes\": [], \"paths\": [{\"colour\": 16, \"next_hops\": []}]}]}",
         "paths[0].colour: expected a whole number from 0 to 15"},
        {"{\"links\": [" LINK("n", "10.0.1.2") "], \"owners\": [{\"node\": \"a\", \"prefixes\": [], \"paths\": "
                                               "[{\"next_hops\": [\"n\"]}, {\"next_hops\": [\"n\"]}]}]}",
         "a: two paths of one colour"},
        {"{\"owners\": [{\"node\": \"a\", \"prefixes\": [], \"paths\": [{\"choice\": 1, \"next_hops\": [\"n\"]}]}]}",
         "paths[0].choice: expected true or false"},
        {"[", "not JSON near octet"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct overlay_table table;
        char error[OVERLAY_ERROR_LEN];

        assert_int_equal(overlay_file_parse(cases[i].text, strlen(cases[i].text), &table, error), -EINVAL);
        if (!strstr(error, cases[i].told))
            fail_msg("%s: told \"%s\" instead of \"%s\"", cases[i].text, error, cases[i].told);
    }
}

static void a_prefix_is_what_stands_before_its_length(void **state) {
    struct decide_prefix one, other, ipv6;
    struct chart_overlay_prefix first, second, third;

    (void)state;
    assert_int_equal(decide_parse_prefix("10.3.255.255/16", &one), 0);
    assert_int_equal(decide_parse_prefix("10.3.0.0/16", &other), 0);
    assert_int_equal(decide_parse_prefix("2001:db8::/32", &ipv6), 0);
    first = overlay_prefix_to_kernel(&one);
    second = overlay_prefix_to_kernel(&other);
    third = overlay_prefix_to_kernel(&ipv6);
    assert_memory_equal(&first, &second, sizeof(first));
    assert_int_equal(first.bits, 96 + 16);
    assert_int_equal(third.bits, 32);
}

static void an_owner_is_unreachable_without_a_link_that_answers(void **state) {
    static const char text[] = "{\"links\": [{\"name\": \"north\", \"local\": \"10.0.1.1\", \"remote\": \"10.0.1.2\"},"
                               " {\"name\": \"south\", \"local\": \"10.0.2.1\", \"remote\": \"10.0.2.2\"}],"
                               " \"owners\": [{\"node\": \"self\", \"prefixes\": [\"10.2.0.0/16\"]},"
                               " {\"node\": \"both\", \"prefixes\": [\"10.3.0.0/16\"],"
                               " \"paths\": [{\"colour\": 0, \"next_hops\": [\"north\", \"south\"]}]},"
                               " {\"node\": \"other\", \"prefixes\": [\"10.4.0.0/16\"],"
                               " \"paths\": [{\"colour\": 0, \"next_hops\": [\"north\"]}]}]}";
    struct overlay_table table;
    char error[OVERLAY_ERROR_LEN];

    (void)state;
    assert_int_equal(overlay_file_parse(text, strlen(text), &table, error), 0);
    assert_int_equal(overlay_table_unreachable(&table, "self", (const bool[]){true, true}), 0);
    assert_int_equal(overlay_table_unreachable(&table, "self", (const bool[]){false, true}), 1);
    assert_int_equal(overlay_table_unreachable(&table, "self", (const bool[]){false, false}), 2);
    overlay_table_free(&table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_file),
        cmocka_unit_test(what_is_printed_is_read_again),
        cmocka_unit_test(without_anything_there_is_no_overlay),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(a_prefix_is_what_stands_before_its_length),
        cmocka_unit_test(an_owner_is_unreachable_without_a_link_that_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
