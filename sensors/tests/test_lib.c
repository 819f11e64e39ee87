/* Parsers of the library: options, requests of --serve, key files, wire headers, ICMP replies; and statistics. */
#include "support.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "chirp.h"
#include "icmp.h"
#include "ping.h"
#include "serve.h"
#include "statistics.h"
#include "wire.h"

static void command_line_and_json_set_the_same(void **state) {
    char *arguments[] = {"ping", "--destination", "10.0.0.2", "--interval-ms=2.5", "--count", "7", "--json", NULL};
    struct ping_parameters by_line, by_json;
    struct failure failure = {0};
    cJSON *id;
    (void)state;

    ping_defaults(&by_line);
    ping_defaults(&by_json);
    assert_int_equal(options_read_arguments(&PING_OPTIONS, 7, arguments, &by_line, &failure), OPTIONS_READ);
    assert_int_equal(serve_parse_request(&PING_OPTIONS,
                                         "{\"id\":\"a\",\"destination\":\"10.0.0.2\",\"interval_ms\":\"2.5\","
                                         "\"count\":7,\"json\":true,\"port\":null}",
                                         &by_json, &id, &failure),
                     0);
    assert_string_equal(id->valuestring, "a");
    cJSON_Delete(id);
    assert_memory_equal(&by_line, &by_json, sizeof(by_line));
    assert_int_equal(by_json.count, 7);
}

static void nonsense_is_refused_in_one_line(void **state) {
    static const char *const LINES[] = {
        "",
        "[]",
        "7",
        "{",
        "{\"id\":1,\"count\":0}",
        "{\"id\":1,\"count\":1.5}",
        "{\"id\":1,\"count\":\"many\"}",
        "{\"id\":1,\"count\":\"nan\"}",
        "{\"id\":1,\"count\":[1]}",
        "{\"id\":1,\"unknown\":1}",
        "{\"id\":1,\"key_file\":\"/etc/shadow\"}",
        "{\"id\":1,\"serve\":true}",
        "{\"id\":{},\"count\":1}",
        "{\"count\":1}",
    };
    (void)state;

    for (size_t i = 0; i < sizeof(LINES) / sizeof(LINES[0]); i++) {
        struct ping_parameters parameters;
        struct failure failure = {0};
        cJSON *id;

        ping_defaults(&parameters);
        assert_int_equal(serve_parse_request(&PING_OPTIONS, LINES[i], &parameters, &id, &failure), -1);
        assert_int_equal(failure.kind, FAILURE_USAGE);
        assert_true(failure.message[0] != '\0' && !strchr(failure.message, '\n'));
        cJSON_Delete(id);
    }
}

static void bad_arguments_are_usage_errors(void **state) {
    char *unknown[] = {"ping", "--nope", NULL};
    char *missing[] = {"ping", "--count", NULL};
    char *stray[] = {"ping", "10.0.0.2", "10.0.0.3", NULL};
    struct ping_parameters parameters;
    struct failure failure = {0};
    (void)state;

    ping_defaults(&parameters);
    assert_int_equal(options_read_arguments(&PING_OPTIONS, 2, unknown, &parameters, &failure), OPTIONS_FAILED);
    assert_int_equal(options_read_arguments(&PING_OPTIONS, 2, missing, &parameters, &failure), OPTIONS_FAILED);
    assert_int_equal(options_read_arguments(&PING_OPTIONS, 3, stray, &parameters, &failure), OPTIONS_FAILED);
    assert_int_equal(failure.kind, FAILURE_USAGE);
    ping_defaults(&parameters);
    assert_int_equal(ping_check(&parameters, &failure), -1);
}

static void a_host_needs_no_option(void **state) {
    char *arguments[] = {"ping", "--count", "3", "10.0.0.2", NULL};
    struct ping_parameters parameters;
    struct failure failure = {0};
    (void)state;

    ping_defaults(&parameters);
    assert_int_equal(options_read_arguments(&PING_OPTIONS, 4, arguments, &parameters, &failure), OPTIONS_READ);
    assert_string_equal(parameters.common.destination, "10.0.0.2");
    assert_int_equal(parameters.count, 3);
}

static void lines_come_out_whole(void **state) {
    struct serve_input *input = calloc(1, sizeof(*input));
    char *line = malloc(SERVE_LINE_MAX_BYTES);
    char big[SERVE_LINE_MAX_BYTES];
    int ends[2];
    (void)state;

    assert_int_equal(pipe(ends), 0);
    input->descriptor = ends[0];
    assert_int_equal(write(ends[1], "one\n\n  \ntw", 10), 10);
    assert_true(serve_fill(input));
    assert_int_equal(serve_next_line(input, line), SERVE_LINE);
    assert_string_equal(line, "one");
    assert_int_equal(serve_next_line(input, line), SERVE_NOTHING);
    assert_int_equal(write(ends[1], "o\n", 2), 2);
    assert_true(serve_fill(input));
    assert_int_equal(serve_next_line(input, line), SERVE_LINE);
    assert_string_equal(line, "two");
    memset(big, 'x', sizeof(big));
    assert_int_equal(write(ends[1], big, sizeof(big)), sizeof(big));
    assert_true(serve_fill(input));
    assert_int_equal(serve_next_line(input, line), SERVE_NOTHING);
    assert_int_equal(write(ends[1], "x\nlast", 6), 6);
    close(ends[1]);
    assert_true(serve_fill(input));
    assert_int_equal(serve_next_line(input, line), SERVE_TOO_LONG);
    assert_false(serve_fill(input));
    assert_int_equal(serve_next_line(input, line), SERVE_LINE);
    assert_string_equal(line, "last");
    close(ends[0]);
    free(line);
    free(input);
}

static void key_files(void **state) {
    static const char *const BAD[] = {"",
                                      "# nothing\n",
                                      "1 00\n",
                                      "0 "
                                      "00",
                                      "x",
                                      KEY_ONE KEY_ONE,
                                      "70000 00",
                                      "1"};
    struct keyring keyring = test_keyring("# comment\n\n" KEY_TWO KEY_ONE);
    struct failure failure = {0};
    (void)state;

    assert_int_equal(keyring.count, 2);
    assert_int_equal(keyring.keys[0].id, 2);
    keyring_free(&keyring);
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++)
        assert_int_equal(keyring_parse(BAD[i], strlen(BAD[i]), &keyring, &failure), -1);
}

static void key_file_must_be_private(void **state) {
    char folder[] = "/tmp/chart-key-XXXXXX";
    char path[64];
    struct keyring keyring;
    struct failure failure = {0};
    (void)state;

    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/key", folder);
    assert_int_equal(keyring_generate(path, &failure), 0);
    assert_int_equal(keyring_generate(path, &failure), -1);
    assert_int_equal(keyring_load(path, &keyring, &failure), 0);
    keyring_free(&keyring);
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(keyring_load(path, &keyring, &failure), -1);
    assert_int_equal(failure.kind, FAILURE_PERMISSION);
    unlink(path);
    rmdir(folder);
}

static void wire_header_survives(void **state) {
    struct wire_header header = {WIRE_FETCH, 1, 100, 30, 0x01020304, 0x1122334455667788, 9, 10, 11, 12, 13};
    struct wire_header decoded;
    uint8_t bytes[100] = {0};
    (void)state;

    memset(&decoded, 0, sizeof(decoded));
    wire_encode(&header, bytes);
    assert_int_equal(wire_decode(bytes, sizeof(bytes), &decoded), 0);
    assert_int_equal(decoded.session, header.session);
    assert_int_equal(decoded.train, header.train);
    assert_int_equal(decoded.count, 13);
    assert_int_equal(bytes[16], 0x11); /* network order */
    assert_int_equal(wire_decode(bytes, 99, &decoded), -EBADMSG);
    assert_int_equal(wire_decode(bytes, 10, &decoded), -EBADMSG);
    bytes[4] = 2;
    assert_int_equal(wire_decode(bytes, 100, &decoded), -EBADMSG);
    bytes[4] = 1;
    bytes[11] = 37;
    assert_int_equal(wire_decode(bytes, 100, &decoded), -EBADMSG);
}

static void icmp_replies(void **state) {
    struct icmp_echo echo = {0x1234, 0x5678, 0x99};
    struct icmp_echo read;
    uint8_t bytes[84] = {0x45};
    (void)state;

    icmp_make_request(AF_INET, &echo, bytes + 20, 64);
    assert_false(icmp_read_reply(AF_INET, true, bytes, sizeof(bytes), &read));
    bytes[20] = 0;
    assert_true(icmp_read_reply(AF_INET, true, bytes, sizeof(bytes), &read));
    assert_int_equal(read.sequence, 0x5678);
    assert_int_equal(read.mark, 0x99);
    assert_true(icmp_read_reply(AF_INET, false, bytes + 20, 64, &read));
    bytes[0] = 0x4f;
    assert_false(icmp_read_reply(AF_INET, true, bytes, 30, &read));
}

static void statistics(void **state) {
    double samples[] = {4, 1, 3, 2};
    (void)state;

    assert_true(statistics_mean(samples, 4) == 2.5);
    assert_true(statistics_minimum(samples, 4) == 1);
    assert_true(statistics_jitter(samples, 4) == 2);
    assert_true(statistics_percentile(samples, 4, 0.95) == 4);
    assert_true(statistics_percentile(samples, 4, 0.5) == 2);
    assert_true(statistics_mean(samples, 0) == 0);
}

static void declarations_bound_the_cost(void **state) {
    struct chirp_parameters chirp;
    struct ping_parameters ping;
    uint64_t bytes, duration_ms;
    (void)state;

    chirp_defaults(&chirp);
    chirp_declare(&chirp, &bytes, &duration_ms);
    assert_true(bytes > 100000 && bytes <= 1500000);
    assert_true(duration_ms <= 5000);
    ping_defaults(&ping);
    ping_declare(&ping, &bytes, &duration_ms);
    assert_int_equal(bytes, 1000);
    assert_int_equal(duration_ms, 1900);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(command_line_and_json_set_the_same),
        cmocka_unit_test(nonsense_is_refused_in_one_line),
        cmocka_unit_test(bad_arguments_are_usage_errors),
        cmocka_unit_test(a_host_needs_no_option),
        cmocka_unit_test(lines_come_out_whole),
        cmocka_unit_test(key_files),
        cmocka_unit_test(key_file_must_be_private),
        cmocka_unit_test(wire_header_survives),
        cmocka_unit_test(icmp_replies),
        cmocka_unit_test(statistics),
        cmocka_unit_test(declarations_bound_the_cost),
    };
    return cmocka_run_group_tests_name("library", tests, NULL, NULL);
}
