/* From what the registry states to command lines of ends, and what is refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ends_applications.h"
#include "ends_file.h"

#define ORIGIN                                                                                                         \
    "{\"tunnel\":\"west-east\",\"role\":\"origin\",\"interface\":\"itm0\",\"address\":\"10.0.0.6\",\"port\":7400,"     \
    "\"peer_node\":\"east\",\"period_ms\":500,\"congestion\":\"reno\","                                                \
    "\"classes\":[{\"name\":\"gold\",\"weight\":3,\"selector\":\"dscp=46\"}],\"prefixes\":[\"192.0.2.0/24\"]}"
#define DESTINATION                                                                                                    \
    "{\"tunnel\":\"east-west\",\"role\":\"destination\",\"interface\":\"itm1\",\"address\":\"fd00::1\","               \
    "\"port\":7401,\"peer_node\":\"east.example.net\"}"

#define PACING "{\"name\":\"pacing\",\"file\":\"aimd.so\",\"argument\":\"5,1,1\",\"limit_ms\":20,\"off\":false}"
#define WITH(applications)                                                                                             \
    "{\"node\":\"west\",\"tunnel_ends\":[{\"tunnel\":\"east-west\",\"role\":\"destination\",\"interface\":\"itm1\","   \
    "\"address\":\"fd00::1\",\"port\":7401,\"peer_node\":\"east\",\"applications\":[" applications "]}]}"

static const char *const SETTINGS[] = {"security.protocol=ssl"};
static const struct ends_node NODE = {
    .program = "/usr/sbin/chart-tunnel",
    .control_directory = "/var/lib/chart",
    .user = "nobody",
    .certificate = "/proc/self/fd/3",
    .key = "/proc/self/fd/4",
    .authority_ca = "/proc/self/fd/5",
    .name = "west",
    .domain = "chart.local",
    .authority = "https://authority:8443",
    .broker = "kafka:9092",
    .broker_settings = SETTINGS,
    .broker_setting_count = 1,
};

static const char *after(const struct end *end, const char *option) {
    for (size_t i = 0; i + 1 < end->count; i++)
        if (strcmp(end->arguments[i], option) == 0)
            return end->arguments[i + 1];
    return "";
}

static void test_every_end_gets_its_command_line(void **state) {
    struct ends ends;
    char fault[ENDS_FAULT_BYTES];
    struct options options;
    (void)state;
    assert_int_equal(ends_read("{\"node\":\"west\",\"tunnel_ends\":[" ORIGIN "," DESTINATION "]}", &NODE, &ends, fault),
                     0);
    assert_int_equal(ends.count, 2);
    struct end *origin = ends_find(&ends, "west-east"), *destination = ends_find(&ends, "east-west");
    assert_string_equal(origin->control, "/var/lib/chart/tunnel-west-east.sock");
    assert_string_equal(after(origin, "--destination"), "10.0.0.6:7400");
    assert_string_equal(after(origin, "--tls-name"), "east.node.chart.local");
    assert_string_equal(after(origin, "--class"), "gold=3:dscp=46");
    assert_string_equal(after(origin, "--broker-setting"), "security.protocol=ssl");
    assert_string_equal(after(destination, "--listen"), "[fd00::1]:7401");
    assert_string_equal(after(destination, "--tls-name"), "east.example.net.node.chart.local");
    assert_string_equal(after(destination, "--broker"), "");
    /* The program takes them. */
    assert_int_equal(options_read((int)origin->count, origin->arguments, &options), 0);
    assert_int_equal(options.role, ROLE_ORIGIN);
    assert_int_equal(options.period_us, 500000);
    assert_string_equal(options.congestion, "reno");
    assert_string_equal(options.routes[0], "192.0.2.0/24");
    assert_null(ends_find(&ends, "north"));
    ends_free(&ends);
}

static void test_a_change_is_seen(void **state) {
    struct ends ends, others;
    char fault[ENDS_FAULT_BYTES];
    struct ends_node other = NODE;
    (void)state;
    other.domain = "elsewhere";
    assert_int_equal(ends_read("{\"node\":\"west\",\"tunnel_ends\":[" ORIGIN "]}", &NODE, &ends, fault), 0);
    assert_int_equal(ends_read("{\"node\":\"west\",\"tunnel_ends\":[" ORIGIN "]}", &NODE, &others, fault), 0);
    assert_true(end_same(&ends.ends[0], &others.ends[0]));
    ends_free(&others);
    assert_int_equal(ends_read("{\"node\":\"west\",\"tunnel_ends\":[" ORIGIN "]}", &other, &others, fault), 0);
    assert_false(end_same(&ends.ends[0], &others.ends[0]));
    ends_free(&others);
    ends_free(&ends);
}

static void test_applications_are_no_part_of_the_command_line(void **state) {
    struct ends ends, others;
    char fault[ENDS_FAULT_BYTES];
    (void)state;
    assert_int_equal(ends_read(WITH(PACING), &NODE, &ends, fault), 0);
    assert_int_equal(ends_read(WITH(""), &NODE, &others, fault), 0);
    assert_int_equal(ends.ends[0].application_count, 1);
    assert_string_equal(ends.ends[0].applications[0].file, "aimd.so");
    assert_int_equal(ends.ends[0].applications[0].limit_ms, 20);
    assert_true(end_same(&ends.ends[0], &others.ends[0]));
    assert_true(end_same_applications(&ends.ends[0], &ends.ends[0]));
    assert_false(end_same_applications(&ends.ends[0], &others.ends[0]));
    ends_free(&ends);
    ends_free(&others);
    assert_int_equal(ends_read(WITH("{\"name\":\"a\",\"file\":\"../a.so\",\"limit_ms\":20}"), &NODE, &ends, fault),
                     -EINVAL);
    assert_non_null(strstr(fault, "a file without a folder"));
}

/* The commands for an end that is to have PACING and has `state`, as `action name` with blanks between. */
static const char *planned(const char *wanted, const char *state) {
    static char words[256];
    char fault[ENDS_FAULT_BYTES];
    struct ends ends;
    cJSON *parsed = cJSON_Parse(state), *command;
    assert_int_equal(ends_read(wanted, &NODE, &ends, fault), 0);
    cJSON *plan = ends_applications_plan(&ends.ends[0], "/usr/lib/chart/applications", parsed);
    assert_non_null(plan);
    words[0] = '\0';
    cJSON_ArrayForEach(command, plan) {
        const cJSON *action = cJSON_GetObjectItem(command, "action"), *name = cJSON_GetObjectItem(command, "name");
        size_t used = strlen(words);
        snprintf(words + used, sizeof(words) - used, "%s %s;", action->valuestring, name->valuestring);
    }
    cJSON_Delete(plan);
    cJSON_Delete(parsed);
    ends_free(&ends);
    return words;
}

#define HAS(state, file, argument, limit)                                                                              \
    "{\"applications\":[{\"name\":\"pacing\",\"state\":\"" state                                                       \
    "\",\"replacing\":false,\"file\":\"/usr/lib/chart/applications/" file "\",\"argument\":\"" argument                \
    "\",\"limit_us\":" limit "}]}"

static void test_an_end_gets_the_applications_that_it_is_to_have(void **state) {
    static const struct {
        const char *wanted, *has, *commands;
    } CASES[] = {
        {WITH(""), "{\"applications\":[]}", ""},
        {WITH(PACING), "{\"applications\":[]}", "load pacing;"},
        {WITH(PACING), HAS("on", "aimd.so", "5,1,1", "20000"), ""},
        {WITH(PACING), HAS("starting", "old.so", "5,1,1", "20000"), ""},
        {WITH(PACING), HAS("on", "old.so", "5,1,1", "20000"), "replace pacing;"},
        {WITH(PACING), HAS("on", "aimd.so", "5,1,1", "30000"), "replace pacing;"},
        {WITH(PACING), HAS("on", "aimd.so", "6,1,1", "20000"), "configure pacing;"},
        {WITH(PACING), HAS("off", "aimd.so", "5,1,1", "20000"), "on pacing;"},
        /* One that failed is left alone until something about it changes. */
        {WITH(PACING), HAS("failed", "aimd.so", "5,1,1", "20000"), ""},
        {WITH(PACING), HAS("failed", "aimd.so", "6,1,1", "20000"), "replace pacing;"},
        {WITH(""), HAS("on", "aimd.so", "5,1,1", "20000"), "unload pacing;"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++)
        assert_string_equal(planned(CASES[i].wanted, CASES[i].has), CASES[i].commands);
    assert_null(ends_applications_plan(NULL, "/", NULL));
}

static void test_what_is_wrong_is_said(void **state) {
    static const struct {
        const char *text, *words;
    } CASES[] = {
        {"{", "no JSON"},
        {"{\"node\":\"west\"}", "no list tunnel_ends"},
        {"{\"node\":\"east\",\"tunnel_ends\":[]}", "for node east, the certificate is of node west"},
        {"{\"node\":\"west\",\"tunnel_ends\":[{\"role\":\"origin\"}]}", "no tunnel"},
        {"{\"node\":\"west\",\"tunnel_ends\":[" ORIGIN "," ORIGIN "]}", "two ends here"},
        {"{\"node\":\"west\",\"tunnel_ends\":[{\"tunnel\":\"a\",\"role\":\"middle\",\"interface\":\"i\","
         "\"address\":\"10.0.0.6\",\"port\":7400,\"peer_node\":\"east\"}]}",
         "origin or destination, not middle"},
        {"{\"node\":\"west\",\"tunnel_ends\":[{\"tunnel\":\"../a\",\"role\":\"destination\",\"interface\":\"i\","
         "\"address\":\"10.0.0.6\",\"port\":7400,\"peer_node\":\"east\"}]}",
         "is not called ../a"},
        {"{\"node\":\"west\",\"tunnel_ends\":[{\"tunnel\":\"a\",\"role\":\"destination\",\"interface\":\"i\","
         "\"address\":\"10.0.0.6\",\"port\":70000,\"peer_node\":\"east\"}]}",
         "no port from 1 to 65535"},
    };
    struct ends ends;
    char fault[ENDS_FAULT_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        assert_int_equal(ends_read(CASES[i].text, &NODE, &ends, fault), -EINVAL);
        if (!strstr(fault, CASES[i].words))
            fail_msg("%s: %s", CASES[i].words, fault);
        assert_int_equal(ends.count, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_applications_are_no_part_of_the_command_line),
        cmocka_unit_test(test_an_end_gets_the_applications_that_it_is_to_have),
        cmocka_unit_test(test_every_end_gets_its_command_line),
        cmocka_unit_test(test_a_change_is_seen),
        cmocka_unit_test(test_what_is_wrong_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
