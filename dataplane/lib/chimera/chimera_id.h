/* Identifiers of the structured overlay Chimera: 160 bits on a ring, read as 40 digits of base 16, the most significant
 * first (Bavier et al., Increasing TCP Throughput with an Enhanced Internet Control Plane, section II.A; Zhao et al.,
 * Tapestry: A Global-scale Overlay for Rapid Service Deployment, section III). Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHIMERA_ID_BYTES 20
#define CHIMERA_DIGITS (2 * CHIMERA_ID_BYTES)
#define CHIMERA_BASE 16
/* As text: a character for each digit, and the end. */
#define CHIMERA_ID_TEXT (CHIMERA_DIGITS + 1)

struct chimera_id {
    uint8_t octets[CHIMERA_ID_BYTES];
};

/* The identifier of whoever has this public key (DER, SubjectPublicKeyInfo): the first 160 bits of its SHA-256. So a
 * certificate proves an identifier, and nobody chooses his own. */
struct chimera_id chimera_id_of_key(const uint8_t *key, size_t length);
/* 0, or -EINVAL: not 40 hexadecimal digits. */
int chimera_id_parse(const char *text, struct chimera_id *ret);
void chimera_id_print(const struct chimera_id *id, char ret[CHIMERA_ID_TEXT]);

static inline unsigned chimera_digit(const struct chimera_id *id, unsigned place) {
    uint8_t octet = id->octets[place / 2];

    return place % 2 ? octet & 15u : octet >> 4;
}

/* How many digits two have in common from the first one on; CHIMERA_DIGITS: they are the same. */
unsigned chimera_shared_digits(const struct chimera_id *one, const struct chimera_id *other);
/* From one clockwise to the other, on the ring. */
struct chimera_id chimera_clockwise(const struct chimera_id *from, const struct chimera_id *to);
/* The shorter way round. */
struct chimera_id chimera_distance(const struct chimera_id *one, const struct chimera_id *other);
/* As memcmp: by value. */
int chimera_compare(const struct chimera_id *one, const struct chimera_id *other);

static inline bool chimera_same(const struct chimera_id *one, const struct chimera_id *other) {
    return chimera_compare(one, other) == 0;
}
