/* What the registry states, from the agent's file into what the rules are made of. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "followed.h"
#include "rules.h"

#define TEXT(interfaces, prefixes, mode)                                                                               \
    "{\"node\":\"a\",\"tunnel_ends\":[],\"proxied_traffic\":{\"interfaces\":[" interfaces "],\"prefixes\":[" prefixes  \
    "],\"mode\":\"" mode "\"}}"

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void test_what_is_stated_is_taken(void **state) {
    struct followed followed = {.path = ""};
    struct options options = {.ipv6 = true, .queue = 5};
    char fault[FOLLOWED_FAULT_BYTES], *chain = NULL;
    size_t bytes;
    (void)state;
    assert_int_equal(
        followed_take(&followed, TEXT("\"lan0\",\"wan0\"", "\"10.0.0.0/24\"", "new-ports"), &options, fault), 0);
    assert_true(options.new_ports);
    FILE *out = open_memstream(&chain, &bytes);
    rules_write_chain(out, &options, false);
    fclose(out);
    assert_non_null(strstr(chain, "-i lan0 -p tcp --syn -s 10.0.0.0/24"));
    assert_non_null(strstr(chain, "-i wan0 -p tcp --syn -d 10.0.0.0/24"));
    free(chain);
    assert_int_equal(followed_take(&followed, TEXT("", "", "same-ports"), &options, fault), 0);
    assert_int_equal(options.interface_count + options.host_count, 0);
    assert_false(options.new_ports);
    assert_int_equal(options.queue, 5);
}

static void test_what_is_wrong_changes_nothing(void **state) {
    static const struct {
        const char *text, *words;
    } CASES[] = {
        {"{", "no proxied_traffic"},
        {"{\"proxied_traffic\":{}}", "no proxied_traffic with a mode"},
        {TEXT("\"lan0\"", "", "transparent"), "same-ports or new-ports, not transparent"},
        {TEXT("\"lan0; rm\"", "", "same-ports"), "not the name of an interface: lan0; rm"},
        {TEXT("\"lan0\"", "\"ten\"", "same-ports"), "not an address or a network: ten"},
        {TEXT("\"lan0\"", "\"fd00::/8\"", "same-ports"), "IPv6 under --no-ipv6"},
    };
    struct followed followed = {.path = ""};
    struct options options = {.ipv6 = false, .interface_count = 1, .interfaces = {"eth9"}};
    char fault[FOLLOWED_FAULT_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        assert_int_equal(followed_take(&followed, CASES[i].text, &options, fault), -EINVAL);
        if (!strstr(fault, CASES[i].words))
            fail_msg("%s: %s", CASES[i].words, fault);
        assert_int_equal(options.interface_count, 1);
        assert_string_equal(options.interfaces[0], "eth9");
    }
}

static void test_the_file_is_read_when_it_changes(void **state) {
    char directory[] = "/tmp/chart-proxy-XXXXXX", path[64];
    struct options options = {.ipv6 = true, .state_dir = directory};
    struct followed followed;
    (void)state;
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/ends.json", directory);
    assert_int_equal(followed_open(&followed, &options), 0);
    assert_int_equal(followed_look(&followed, &options), 0);
    write_file(path, TEXT("\"lan0\"", "", "same-ports"));
    assert_int_equal(followed_look(&followed, &options), 1);
    assert_string_equal(options.interfaces[0], "lan0");
    assert_int_equal(followed_look(&followed, &options), 0);
    write_file(path, "nonsense");
    followed.changed.tv_sec = 0;
    assert_int_equal(followed_look(&followed, &options), 0);
    assert_int_equal(options.interface_count, 1);
    unlink(path);
    rmdir(directory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_stated_is_taken),
        cmocka_unit_test(test_what_is_wrong_changes_nothing),
        cmocka_unit_test(test_the_file_is_read_when_it_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
