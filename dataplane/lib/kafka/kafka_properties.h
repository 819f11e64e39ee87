/* How clients of the broker identify themselves: librdkafka's own settings, from one file of `name=value` lines that
 * services and agents share (CHART_KAFKA_PROPERTIES). */
#pragma once

#include <librdkafka/rdkafka.h>
#include <stdio.h>

#define KAFKA_PROPERTIES_VARIABLE "CHART_KAFKA_PROPERTIES"

/* Put the file's settings into `conf`: those of security only, nothing that delivery or order depends on. 0, or a
 * negative errno; what is wrong and in which line is written to `errors`, `name` stands for the file there. */
int kafka_properties_read(FILE *file, const char *name, rd_kafka_conf_t *conf, FILE *errors);

/* The same with the file that the environment names; without one nothing is changed. */
int kafka_properties_apply(rd_kafka_conf_t *conf, FILE *errors);

/* One value of that file. 0, -ENOENT (no file, or it does not say), -ENAMETOOLONG or another negative errno. */
int kafka_properties_value(const char *name, char *ret, size_t size);
