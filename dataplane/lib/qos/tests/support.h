/* What the codec's unit tests share: cmocka, the vectors of vectors.json, hex. */
#ifndef CHART_QOS_TESTS_SUPPORT_H
#define CHART_QOS_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <cjson/cJSON.h>

#include "qos.h"

/* The named list of vectors.json (path in CHART_QOS_VECTORS); lives until the program ends. */
const cJSON *vectors(const char *list);

const char *text_of(const cJSON *object, const char *name);
uint64_t number_of(const cJSON *object, const char *name); /* also of numbers written as text */

/* A heap block of exactly the octets written in hex, so that the address sanitizer sees a read beyond. */
uint8_t *octets_of(const cJSON *object, const char *name, uint32_t *ret_length);

/* The error's number by name. */
int error_of(const char *name);

int parse(const char *carrier, struct chart_parsed *ret_parsed, const uint8_t *octets, uint32_t length);

#endif
