/* The command line of chart-blast: what it takes, and that what it refuses is said in words. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <string.h>

#include "options.h"

#define WORDS_MAX 16

static struct blast_options options;
static char complaint[256];

static enum blast_parsed parse(const char *line) {
    static char words[256];
    char *argv[WORDS_MAX + 1] = {"chart-blast"}, *rest = NULL;
    int argc = 1;
    snprintf(words, sizeof(words), "%s", line);
    for (char *word = strtok_r(words, " ", &rest); word && argc < WORDS_MAX; word = strtok_r(NULL, " ", &rest))
        argv[argc++] = word;
    complaint[0] = '\0';
    return blast_options_parse(argc, argv, &options, complaint, sizeof(complaint));
}

static void test_a_sender(void **state) {
    (void)state;
    assert_int_equal(parse("send --connect [fd00::2]:5210 -a all -g 1.5M --service variable -n 1G --json -i 0"),
                     BLAST_RUN);
    assert_true(options.send && options.json && options.asks && !options.udp && !options.listen);
    assert_string_equal(options.host, "fd00::2");
    assert_string_equal(options.port, "5210");
    assert_true(options.ask.available_bps == CHART_ALL);
    assert_int_equal(options.ask.guaranteed_bps, 1500000);
    assert_int_equal(options.ask.service, CHART_SERVICE_VARIABLE);
    assert_int_equal(options.bytes, 1000000000);
    assert_true(options.interval_s == 0);
}

static void test_a_receiver(void **state) {
    (void)state;
    assert_int_equal(parse("receive --udp --listen 5210"), BLAST_RUN);
    assert_true(!options.send && options.udp && options.listen);
    assert_string_equal(options.host, "");
    assert_int_equal(parse("receive --listen 10.0.0.1:9"), BLAST_RUN);
    assert_string_equal(options.host, "10.0.0.1");
}

static void test_wrong_lines_are_answered_with_words(void **state) {
    static const char *const lines[][2] = {
        {"", "begin with"},
        {"fly --connect a:1", "begin with"},
        {"send", "--connect HOST:PORT"},
        {"send --connect a", "HOST:PORT"},
        {"send --connect ::1:80", "[IPv6]"},
        {"send --connect a:70000", "65535"},
        {"send --connect a:1 --bytes 0", "size"},
        {"send --connect a:1 --available 5X", "5X"},
        {"send --connect a:1 --available -5", "rate"},
        {"send --connect a:1 --available 0", "above 0"},
        {"send --connect a:1 --guaranteed all", "rate like"},
        {"send --connect a:1 --burst-tolerance 16", "0 to 15"},
        {"send --connect a:1 --service best", "guaranteed"},
        {"send --connect a:1 --duration nan", "time"},
        {"send --connect a:1 --datagram 8", "32 to"},
        {"send --connect a:1 --fallback 0", "above 0"},
        {"send --connect a:1 --require", "--require needs"},
        {"send --connect a:1 --available", "needs a value"},
        {"send --connect a:1 --speed 9", "no option"},
        {"send --connect a:1 more", "too many"},
        {"send --udp --listen 1", "connects"},
        {"receive --listen 1 --available 5M", "side that sends"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        assert_int_equal(parse(lines[i][0]), BLAST_WRONG);
        if (!strstr(complaint, lines[i][1]))
            fail_msg("%s: %s does not say %s", lines[i][0], complaint, lines[i][1]);
    }
    assert_int_equal(parse("--help"), BLAST_HELP);
    assert_int_equal(parse("send --version"), BLAST_VERSION);
}

static void test_amounts(void **state) {
    uint64_t value = 0;
    (void)state;
    assert_true(blast_parse_amount("2k", false, &value) && value == 2000);
    assert_true(blast_parse_amount("0.5T", false, &value) && value == 500000000000ull);
    assert_true(blast_parse_amount("64000", false, &value) && value == 64000);
    assert_false(blast_parse_amount("all", false, &value));
    assert_false(blast_parse_amount("1kk", false, &value));
    assert_false(blast_parse_amount("inf", false, &value));
    assert_false(blast_parse_amount("1e30", false, &value));
    assert_false(blast_parse_amount("", false, &value));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_sender),
        cmocka_unit_test(test_a_receiver),
        cmocka_unit_test(test_wrong_lines_are_answered_with_words),
        cmocka_unit_test(test_amounts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
