/* Shared keys of the sensors of one lab or domain, and the message code made with them (HMAC-SHA-256, RFC 2104).
 *
 * Key file: one key per line, `<id 1..65535> <64 hexadecimal digits>`, `#` starts a comment. The first key signs, all
 * of them verify, so a key is rotated by adding the new one everywhere first and then moving it to the top. */
#ifndef CHART_SENSORS_KEYRING_H
#define CHART_SENSORS_KEYRING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "address.h"
#include "failure.h"

#define KEYRING_SECRET_BYTES 32
#define KEYRING_MAX_KEYS 16

struct keyring {
    size_t count;
    struct {
        uint16_t id;
        void *mac; /* EVP_MAC_CTX, keyed once */
    } keys[KEYRING_MAX_KEYS];
};

/* Read a key file; refuses one that group or others may read (failure kind `permission`). */
int keyring_load(const char *path, struct keyring *ret_keyring, struct failure *failure);
/* Parse the text of a key file. */
int keyring_parse(const char *text, size_t length, struct keyring *ret_keyring, struct failure *failure);
/* Write a new key file (mode 0600) with one random key of id 1; fails when the file exists. */
int keyring_generate(const char *path, struct failure *failure);
void keyring_free(struct keyring *keyring);

/* Sign a datagram (header already encoded) with the first key; its id must stand in the header. */
int keyring_sign(const struct keyring *keyring, const union address *source, const union address *destination,
                 uint8_t *datagram, size_t length);
/* True when the code was made with the key `key_id` of this ring; comparison in constant time. */
bool keyring_verify(const struct keyring *keyring, uint16_t key_id, const union address *source,
                    const union address *destination, const uint8_t *datagram, size_t length);

#endif
