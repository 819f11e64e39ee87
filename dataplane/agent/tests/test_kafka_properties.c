/* The file in which a deployment states how clients of the broker identify themselves. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "streams/kafka_properties.h"

static int read_text(const char *text, rd_kafka_conf_t *conf, char **ret_errors) {
    size_t size;
    FILE *errors = open_memstream(ret_errors, &size);
    FILE *file = fmemopen((void *)text, strlen(text), "r");
    int result = kafka_properties_read(file, "k", conf, errors);
    fclose(file);
    fclose(errors);
    return result;
}

static void settings_are_taken(void **state) {
    (void)state;
    char value[64], *errors;
    size_t size = sizeof(value);
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    assert_int_equal(
        read_text("# production\n\n security.protocol = sasl_plaintext \nsasl.password=a=b", conf, &errors), 0);
    assert_int_equal(rd_kafka_conf_get(conf, "security.protocol", value, &size), RD_KAFKA_CONF_OK);
    assert_string_equal(value, "sasl_plaintext");
    size = sizeof(value);
    assert_int_equal(rd_kafka_conf_get(conf, "sasl.password", value, &size), RD_KAFKA_CONF_OK);
    assert_string_equal(value, "a=b");
    rd_kafka_conf_destroy(conf);
    free(errors);
}

static void refused(const char *text, const char *says) {
    char *errors;
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    assert_int_equal(read_text(text, conf, &errors), -EINVAL);
    if (!strstr(errors, says))
        fail_msg("said \"%s\", expected \"%s\"", errors, says);
    rd_kafka_conf_destroy(conf);
    free(errors);
}

static void mistakes_are_named(void **state) {
    (void)state;
    refused("security.protocol", "k:1: expected name=value");
    refused("\n=ssl", "k:2: expected name=value");
    refused("acks=0", "k:1: acks may not be set here");
    refused("security.protocol=none", "k:1: Invalid value");
}

static void a_missing_file_is_named(void **state) {
    (void)state;
    char *errors;
    size_t size;
    FILE *stream = open_memstream(&errors, &size);
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    setenv(KAFKA_PROPERTIES_VARIABLE, "/nonexistent/kafka.properties", 1);
    assert_int_equal(kafka_properties_apply(conf, stream), -ENOENT);
    unsetenv(KAFKA_PROPERTIES_VARIABLE);
    assert_int_equal(kafka_properties_apply(conf, stream), 0);
    fclose(stream);
    assert_non_null(strstr(errors, "cannot read /nonexistent/kafka.properties: No such file"));
    rd_kafka_conf_destroy(conf);
    free(errors);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_are_taken),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(a_missing_file_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
