/* The text of rules and routes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rules.h"

static const struct options plain = {
    .interfaces = {"lan0"}, .interface_count = 1, .port = 18450, .queue = 7, .table = 300, .mark = 0x10, .ipv6 = true};

typedef void writer(FILE *out, const struct options *options, bool ipv6);

static char *text_of(writer *write, const struct options *options, bool ipv6) {
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    write(out, options, ipv6);
    fclose(out);
    return text;
}

static void test_the_chain_of_one_interface(void **unused) {
    (void)unused;
    char *text = text_of(rules_write_chain, &plain, false);
    assert_string_equal(text,
                        "*mangle\n"
                        ":CHART-PROXY - [0:0]\n"
                        "-A CHART-PROXY -p tcp -m mark --mark 0x10 -j TPROXY --on-ip 127.0.0.1 --on-port 18450 "
                        "--tproxy-mark 0x10/0xffffffff\n"
                        "-A CHART-PROXY -i lan0 -p tcp --syn -m addrtype ! --dst-type LOCAL -j NFQUEUE --queue-num 7 "
                        "--queue-bypass\n"
                        "-A CHART-PROXY -p tcp -m socket --transparent -j MARK --set-mark 0x10\n"
                        "COMMIT\n");
    free(text);
    text = text_of(rules_write_chain, &plain, true);
    assert_non_null(strstr(text, "--on-ip ::1 "));
    free(text);
}

static size_t count_of(const char *text, const char *part) {
    size_t count = 0;
    for (; (text = strstr(text, part)) != NULL; text++)
        count++;
    return count;
}

static void test_hosts_of_either_family_both_ways(void **unused) {
    (void)unused;
    struct options options = plain;
    options.interfaces[1] = "wan0";
    options.interface_count = 2;
    options.hosts[0] = (struct host_option){"10.0.0.0/24", false};
    options.hosts[1] = (struct host_option){"fd00::/64", true};
    options.host_count = 2;
    char *v4 = text_of(rules_write_chain, &options, false), *v6 = text_of(rules_write_chain, &options, true);
    assert_int_equal(count_of(v4, "NFQUEUE"), 4);
    assert_non_null(strstr(v4, "-i wan0 -p tcp --syn -s 10.0.0.0/24 -m"));
    assert_non_null(strstr(v4, "-i lan0 -p tcp --syn -d 10.0.0.0/24 -m"));
    assert_null(strstr(v4, "fd00"));
    assert_int_equal(count_of(v6, "NFQUEUE"), 4);
    assert_null(strstr(v6, "10.0"));
    free(v4);
    free(v6);
}

/* A proxy that is gone must not be a black hole: no rule drops, and none sends to the listener what nobody has marked.
 */
static void test_no_rule_harms_without_a_proxy(void **unused) {
    (void)unused;
    char *text = text_of(rules_write_chain, &plain, false), *rest = text, *line;
    while ((line = strsep(&rest, "\n")) != NULL) {
        assert_null(strstr(line, "DROP"));
        if (strstr(line, "NFQUEUE"))
            assert_non_null(strstr(line, "--queue-bypass"));
        if (strstr(line, "TPROXY --"))
            assert_non_null(strstr(line, "-m mark --mark 0x10 "));
    }
    free(text);
}

static void test_routes(void **unused) {
    (void)unused;
    char *text = text_of(rules_write_routes, &plain, true);
    assert_string_equal(text, "route replace local ::/0 dev lo table 300\n");
    free(text);
    text = text_of(rules_write_routes, &plain, false);
    assert_string_equal(text, "route replace local 0.0.0.0/0 dev lo table 300\n");
    free(text);
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    rules_write_policy(out, &plain, true);
    rules_write_policy(out, &plain, false);
    rules_write_jump(out);
    fclose(out);
    assert_string_equal(text, "rule add fwmark 0x10 lookup 300 priority 300\n"
                              "rule delete fwmark 0x10 lookup 300 priority 300\n"
                              "*mangle\n-I PREROUTING -j CHART-PROXY\nCOMMIT\n");
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_chain_of_one_interface),
        cmocka_unit_test(test_hosts_of_either_family_both_ways),
        cmocka_unit_test(test_no_rule_harms_without_a_proxy),
        cmocka_unit_test(test_routes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
