/* Datagrams to the responder. First byte: even: as they come; odd: signed first, so that what lies behind the
 * authentication is reached too. The input is a sequence of datagrams, each with two bytes of length before it. */
#include <stdlib.h>
#include <string.h>

#include "responder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct keyring keyring;

/* A session that the input can use: its token is put into the datagrams that ask for it by token 0. */
static void put_token(uint8_t *bytes, const uint8_t *token) {
    static const uint8_t NONE[8];

    if (memcmp(bytes + 24, NONE, 8) == 0 && bytes[5] != WIRE_HELLO)
        memcpy(bytes + 24, token, 8);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char KEY[] = "1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    static const struct responder_limits LIMITS = {1000, 500};
    union address client = {.v4 = {.sin_family = AF_INET, .sin_port = 1}};
    union address server = {.v4 = {.sin_family = AF_INET, .sin_port = 2}};
    struct responder *responder;
    uint8_t token[8] = {0};
    struct failure failure;
    size_t at = 1;

    if (keyring.count == 0 && keyring_parse(KEY, sizeof(KEY) - 1, &keyring, &failure) < 0)
        abort();
    if (size < 1)
        return 0;
    responder = responder_new(&keyring, &LIMITS);
    for (int64_t now = 1; at + 2 <= size; now += 1000) {
        uint8_t bytes[WIRE_DATAGRAM_MAX_BYTES + 1];
        uint8_t reply[WIRE_DATAGRAM_MAX_BYTES];
        size_t length = (size_t)data[at] << 8 | data[at + 1];
        struct responder_datagram datagram;
        size_t reply_length;

        at += 2;
        if (length > size - at)
            length = size - at;
        if (length > sizeof(bytes))
            length = sizeof(bytes);
        memcpy(bytes, data + at, length);
        at += length;
        if (data[0] % 2 && length >= WIRE_HEADER_BYTES) {
            put_token(bytes, token);
            (void)keyring_sign(&keyring, &client, &server, bytes, length);
        }
        datagram = (struct responder_datagram){bytes, length, client, server, now, now, now};
        reply_length = responder_handle(responder, &datagram, reply);
        if (reply_length > length)
            abort();
        if (reply_length >= WIRE_HEADER_BYTES && reply[5] == WIRE_WELCOME)
            memcpy(token, reply + 24, sizeof(token));
    }
    responder_free(responder);
    return 0;
}
