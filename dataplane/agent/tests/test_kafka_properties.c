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
#include <unistd.h>

#include "lib/kafka/broker_identity.h"
#include "lib/kafka/kafka_properties.h"

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

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* As renewals do: a new file takes the old one's place. */
static void replace_file(const char *path, const char *text) {
    char draft[128];
    snprintf(draft, sizeof(draft), "%s.new", path);
    write_file(draft, text);
    assert_int_equal(rename(draft, path), 0);
}

static void streams_wait_for_their_certificate_and_follow_it(void **state) {
    (void)state;
    char folder[] = "/tmp/chart-identity-XXXXXX", properties[64], certificate[64], text[128];
    struct broker_identity identity;
    assert_non_null(mkdtemp(folder));
    snprintf(properties, sizeof(properties), "%s/kafka.properties", folder);
    snprintf(certificate, sizeof(certificate), "%s/node.pem", folder);
    snprintf(text, sizeof(text), "# who\nsecurity.protocol=ssl\n ssl.certificate.location = %s \n", certificate);
    write_file(properties, text);
    setenv(KAFKA_PROPERTIES_VARIABLE, properties, 1);

    broker_identity_open(&identity);
    assert_string_equal(identity.certificate, certificate);
    assert_false(broker_identity_ready(&identity));
    write_file(certificate, "one");
    assert_true(broker_identity_ready(&identity));
    broker_identity_use(&identity);
    assert_false(broker_identity_changed(&identity));
    replace_file(certificate, "two");
    assert_true(broker_identity_changed(&identity));
    broker_identity_use(&identity);
    assert_false(broker_identity_changed(&identity));
    unlink(certificate);
    /* What is gone is no other one: the streams that are open go on. */
    assert_false(broker_identity_changed(&identity));

    write_file(properties, "security.protocol=plaintext\n");
    broker_identity_open(&identity);
    assert_true(broker_identity_ready(&identity));
    assert_false(broker_identity_changed(&identity));
    unlink(properties);
    unsetenv(KAFKA_PROPERTIES_VARIABLE);
    assert_int_equal(rmdir(folder), 0);
}

static void one_value_is_found(void **state) {
    (void)state;
    char value[8];
    unsetenv(KAFKA_PROPERTIES_VARIABLE);
    assert_int_equal(kafka_properties_value("security.protocol", value, sizeof(value)), -ENOENT);
    setenv(KAFKA_PROPERTIES_VARIABLE, "/nonexistent/kafka.properties", 1);
    assert_int_equal(kafka_properties_value("security.protocol", value, sizeof(value)), -ENOENT);
    write_file("/tmp/chart-one-value.properties", "nothing\n#a=b\nb=c=d\nlong=123456789\n");
    setenv(KAFKA_PROPERTIES_VARIABLE, "/tmp/chart-one-value.properties", 1);
    assert_int_equal(kafka_properties_value("a", value, sizeof(value)), -ENOENT);
    assert_int_equal(kafka_properties_value("b", value, sizeof(value)), 0);
    assert_string_equal(value, "c=d");
    assert_int_equal(kafka_properties_value("long", value, sizeof(value)), -ENAMETOOLONG);
    unlink("/tmp/chart-one-value.properties");
    unsetenv(KAFKA_PROPERTIES_VARIABLE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_are_taken),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(a_missing_file_is_named),
        cmocka_unit_test(one_value_is_found),
        cmocka_unit_test(streams_wait_for_their_certificate_and_follow_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
