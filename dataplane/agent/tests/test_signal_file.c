/* The signal file: what is read, and that what is wrong is named with its place and never with a key. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "signal/signal_file.h"

#define KEY "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F"

static const char whole[] =
    "{\"element\": 7, \"policy\": {\"unauthorised\": \"drop\", \"hold_ms\": 1500, \"tries\": 4}, \"shim\": {\"ipv4\": "
    "\"10.0.0.7\", \"ipv6\": \"fd00::7\"}, \"keys\": [{\"sender\": 7, \"receiver\": 8, \"epoch\": 3, \"key\": \"" KEY
    "\", \"from\": 5}], \"next_hops\": [{\"prefix\": \"10.1.0.0/16\", \"element\": 8, \"shim_address\": "
    "\"10.0.0.8\"}], "
    "\"authorisations\": [{\"prefix\": \"fd00::/8\", \"guaranteed_bps\": 5, \"services\": [\"available\", "
    "\"variable\"]}], \"asks\": [{\"selector\": {\"protocol\": \"udp\", \"destination_port\": 53, \"dscp\": 0}, "
    "\"available_bps\": "
    "9, "
    "\"service\": \"maximum\"}], \"links\": [{\"interface\": \"eth0\", \"explicit_bps\": 0}]}";

static void test_a_whole_file(void **state) {
    struct signal_file file;
    char error[SIGNAL_FILE_ERROR_LEN];
    (void)state;
    assert_int_equal(signal_file_parse(whole, strlen(whole), &file, error), 0);
    assert_int_equal(file.policy.element, 7);
    assert_true(file.policy.drop_unauthorised);
    assert_int_equal(file.policy.hold_us, 1500000);
    assert_int_equal(file.policy.commitment_us, 0);
    assert_int_equal(file.policy.tries, 4);
    assert_int_equal(file.policy.shim6.family, AF_INET6);
    assert_int_equal(file.n_keys, 1);
    assert_int_equal(file.keys[0].epoch, 3);
    assert_int_equal(file.keys[0].key[31], 0x1f);
    assert_int_equal(file.keys[0].from_us, 5000);
    assert_int_equal(file.hops[0].element, 8);
    assert_int_equal(file.hops[0].prefix.bits, 16);
    assert_int_equal(file.hops[0].shim.bits, 32);
    assert_int_equal(file.authorisations[0].services, 9);
    assert_int_equal(file.asks[0].service, 2);
    assert_int_equal(file.asks[0].selector.protocol, 17);
    assert_int_equal(file.asks[0].selector.dscp_plus_one, 1);
    assert_true(file.links[0].has_explicit);
    assert_false(file.links[0].has_guaranteed);
    signal_file_free(&file);
    assert_null(file.keys);
}

static void test_default_asks_stand_behind_the_files_own(void **state) {
    static const char text[] = "{\"default_asks\": [\"telephony\"], \"asks\": [{\"available_bps\": 9}]}";
    struct signal_file file;
    char error[SIGNAL_FILE_ERROR_LEN];
    (void)state;
    assert_int_equal(signal_file_parse(text, strlen(text), &file, error), 0);
    assert_int_equal(file.n_asks, 3);
    assert_int_equal(file.asks[0].available_bps, 9);
    assert_int_equal(file.asks[1].selector.protocol, 17);
    assert_int_equal(file.asks[1].selector.dscp_plus_one, 47);
    assert_int_equal(file.asks[2].selector.destination_port, 5004);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(file.asks[i].guaranteed_bps, 82000);
        assert_int_equal(file.asks[i].service, 1);
        assert_true(file.asks[i].delay_priority >= 128);
    }
    signal_file_free(&file);
}

static void test_what_is_wrong_is_named(void **state) {
    static const struct {
        const char *text, *told;
    } wrong[] = {
        {"", "not JSON"},
        {"[]", "file: expected an object"},
        {"{\"elements\": 1}", "file: unknown field elements"},
        {"{\"element\": 65536}", "file.element: expected a whole number from 0 to 65535"},
        {"{\"keys\": {}}", "keys: expected an array"},
        {"{\"keys\": [{\"sender\": 1, \"receiver\": 1, \"key\": \"" KEY "\"}]}",
         "keys[0].sender: expected two different"},
        {"{\"keys\": [{\"sender\": 1, \"receiver\": 2, \"key\": \"secret\"}]}", "keys[0].key: expected 64 hexadecimal"},
        {"{\"keys\": [{\"sender\": 1, \"receiver\": 2, \"epoch\": 256}]}", "keys[0].epoch: expected"},
        {"{\"next_hops\": [{\"prefix\": \"10.0.0.0/33\", \"element\": 1}]}", "next_hops[0].prefix: expected a prefix"},
        {"{\"next_hops\": [{\"prefix\": \"10.0.0.0/8\"}]}", "next_hops[0].element: expected an element"},
        {"{\"authorisations\": [{\"prefix\": \"::/0\", \"services\": [\"best\"]}]}",
         "authorisations[0].services: expected"},
        {"{\"asks\": [{\"guaranteed_bps\": 0}]}", "asks[0].available_bps: an ask without any rate"},
        {"{\"asks\": [{\"burst_tolerance\": 16}]}", "asks[0].burst_tolerance: expected a whole number from 0 to 15"},
        {"{\"asks\": [{\"selector\": {\"dscp\": 64}}]}", "asks[0].dscp: expected a whole number from 0 to 63"},
        {"{\"asks\": [{\"selector\": {\"cgroup_id\": 1}}]}", "asks[0]: unknown field cgroup_id"},
        {"{\"default_asks\": \"telephony\"}", "default_asks: expected an array of names"},
        {"{\"default_asks\": [\"television\"]}", "default_asks: expected \"telephony\""},
        {"{\"links\": [{\"explicit_bps\": 1}]}", "links[0].interface: expected"},
        {"{\"policy\": {\"unauthorised\": \"maybe\"}}", "policy.unauthorised: expected"},
        {"{\"shim\": {\"ipv4\": \"10.0.0.0/8\"}}", "shim.ipv4: expected an IPv4 address"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct signal_file file;
        char error[SIGNAL_FILE_ERROR_LEN];
        assert_int_equal(signal_file_parse(wrong[i].text, strlen(wrong[i].text), &file, error), -EINVAL);
        if (!strstr(error, wrong[i].told))
            fail_msg("\"%s\" was told as \"%s\"", wrong[i].told, error);
        assert_null(strstr(error, "secret"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_whole_file),
        cmocka_unit_test(test_default_asks_stand_behind_the_files_own),
        cmocka_unit_test(test_what_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
