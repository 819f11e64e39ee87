/* Authentication of the records that a node writes to the streams (services/chart/common/record_mac.py). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RECORD_MAC_HEADER "chart-mac"
#define RECORD_MAC_LEN 320

/* The value of the header for a record under an epoch of the node's stream key; pure. False: it cannot be made. */
bool record_mac(const char *node, uint8_t epoch, const uint8_t key_octets[32], const char *topic, const char *key,
                const void *value, size_t length, char ret[RECORD_MAC_LEN]);
