/* See chimera_id.h. */
#include "lib/chimera/chimera_id.h"

#include <errno.h>
#include <openssl/sha.h>
#include <string.h>

struct chimera_id chimera_id_of_key(const uint8_t *key, size_t length) {
    uint8_t digest[SHA256_DIGEST_LENGTH];
    struct chimera_id id;

    SHA256(key, length, digest);
    memcpy(id.octets, digest, sizeof(id.octets));
    return id;
}

static int digit_of(char character) {
    if (character >= '0' && character <= '9')
        return character - '0';
    if (character >= 'a' && character <= 'f')
        return character - 'a' + 10;
    return -1;
}

int chimera_id_parse(const char *text, struct chimera_id *ret) {
    if (strlen(text) != CHIMERA_DIGITS)
        return -EINVAL;
    for (size_t i = 0; i < CHIMERA_ID_BYTES; i++) {
        int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);

        if (high < 0 || low < 0)
            return -EINVAL;
        ret->octets[i] = (uint8_t)(high << 4 | low);
    }
    return 0;
}

void chimera_id_print(const struct chimera_id *id, char ret[CHIMERA_ID_TEXT]) {
    for (unsigned i = 0; i < CHIMERA_DIGITS; i++)
        ret[i] = "0123456789abcdef"[chimera_digit(id, i)];
    ret[CHIMERA_DIGITS] = '\0';
}

unsigned chimera_shared_digits(const struct chimera_id *one, const struct chimera_id *other) {
    unsigned place = 0;

    while (place < CHIMERA_DIGITS && chimera_digit(one, place) == chimera_digit(other, place))
        place++;
    return place;
}

struct chimera_id chimera_clockwise(const struct chimera_id *from, const struct chimera_id *to) {
    struct chimera_id between;
    int borrow = 0;

    for (size_t i = CHIMERA_ID_BYTES; i-- > 0;) {
        int difference = to->octets[i] - from->octets[i] - borrow;

        borrow = difference < 0;
        between.octets[i] = (uint8_t)(difference & 0xff);
    }
    return between;
}

struct chimera_id chimera_distance(const struct chimera_id *one, const struct chimera_id *other) {
    struct chimera_id there = chimera_clockwise(one, other), back = chimera_clockwise(other, one);

    return chimera_compare(&there, &back) <= 0 ? there : back;
}

int chimera_compare(const struct chimera_id *one, const struct chimera_id *other) {
    return memcmp(one->octets, other->octets, CHIMERA_ID_BYTES);
}
