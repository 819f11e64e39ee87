/* Common to the unit tests: cmocka with what it needs, and keys. */
#ifndef CHART_SENSORS_TESTS_SUPPORT_H
#define CHART_SENSORS_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "address.h"
#include "keyring.h"

#define KEY_ONE "1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
#define KEY_TWO "2 ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eff\n"

static inline union address test_address(const char *text, uint16_t port) {
    union address address = {.v4 = {.sin_family = AF_INET, .sin_port = htons(port)}};

    assert_int_equal(inet_pton(AF_INET, text, &address.v4.sin_addr), 1);
    return address;
}

static inline struct keyring test_keyring(const char *text) {
    struct keyring keyring;
    struct failure failure = {0};

    assert_int_equal(keyring_parse(text, strlen(text), &keyring, &failure), 0);
    return keyring;
}

#endif
