/* HMAC-SHA-256-128 (RFC 4868: 256-bit key, the first 128 bits of the result) over what a signal says and the flow it
 * says it of (Brassil et al., The CHART System, section 3: structure and addresses, anew between any two elements;
 * sender, epoch, sequence, protocol and ports are ours, against replay and against moving a signal to another flow).
 *
 * The key is kept as the two hash states after its inner and outer pad; a message has at most 55 octets, so a tag costs
 * two compressions. Message: the 18 octets before the tag, source, destination (4 or 16 octets each), protocol,
 * selector (4): 31 octets for IPv4, 55 for IPv6. The lengths keep the families apart, the protocol keeps ports and
 * flow labels apart.
 */
#ifndef CHART_QOS_HMAC_H
#define CHART_QOS_HMAC_H

#include "qos_structure.h"

#define CHART_HMAC_MESSAGE_MAX 55 /* octets; with padding and length it fills one block */

struct chart_hmac_key {
    __u32 inner[8];
    __u32 outer[8];
};

/* Intermediate data of one tag; BPF keeps it in a per-CPU map. */
struct chart_hmac_scratch {
    __u32 state[8];
    __u32 schedule[16];
    __u8 block[64];
};

static const __u32 chart_sha256_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static const __u32 chart_sha256_initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                              0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

/* A word turned right by two or three distances, the results added without carry. BPF has no instruction that turns:
 * there the word stands twice in 64 bits and is shifted, which takes two thirds of what shifting both ways takes. */
#ifdef __bpf__
CHART_INLINE __u32 chart_turned2(__u32 value, int first, int second) {
    __u64 twice = (__u64)value << 32 | value;
    CHART_OPAQUE(twice); /* else the compiler finds the rotation again and shifts both ways */
    return (__u32)(twice >> first ^ twice >> second);
}

CHART_INLINE __u32 chart_turned3(__u32 value, int first, int second, int third) {
    __u64 twice = (__u64)value << 32 | value;
    CHART_OPAQUE(twice);
    return (__u32)(twice >> first ^ twice >> second ^ twice >> third);
}
#else
CHART_INLINE __u32 chart_rotate(__u32 value, int bits) {
    return (value >> bits) | (value << (32 - bits));
}

CHART_INLINE __u32 chart_turned2(__u32 value, int first, int second) {
    return chart_rotate(value, first) ^ chart_rotate(value, second);
}

CHART_INLINE __u32 chart_turned3(__u32 value, int first, int second, int third) {
    return chart_turned2(value, first, second) ^ chart_rotate(value, third);
}
#endif

/* One round with the schedule word at `i`; from the second sixteen on that word is first made from earlier ones. */
#define CHART_SHA256_ROUND(a, b, c, d, e, f, g, h, i)                                                                  \
    do {                                                                                                               \
        __u32 word, sum;                                                                                               \
        if (base) {                                                                                                    \
            __u32 near = schedule[((i) + 14) & 15], far = schedule[((i) + 1) & 15];                                    \
            schedule[i] += (chart_turned2(near, 17, 19) ^ (near >> 10)) + schedule[((i) + 9) & 15] +                   \
                           (chart_turned2(far, 7, 18) ^ (far >> 3));                                                   \
        }                                                                                                              \
        word = schedule[i];                                                                                            \
        sum = (h) + chart_turned3(e, 6, 11, 25) + ((g) ^ ((e) & ((f) ^ (g)))) + chart_sha256_constants[base + (i)] +   \
              word;                                                                                                    \
        (d) += sum;                                                                                                    \
        (h) = sum + chart_turned3(a, 2, 13, 22) + (((a) & (b)) | ((c) & ((a) | (b))));                                 \
    } while (0)

/* FIPS 180-4 section 6.2.2: take the block in scratch->schedule into scratch->state. */
CHART_CALLED int chart_sha256_compress(struct chart_hmac_scratch *scratch) {
    __u32 *state, *schedule, a, b, c, d, e, f, g, h, base;

    if (!scratch)
        return 0;
    state = scratch->state;
    schedule = scratch->schedule;
    a = state[0], b = state[1], c = state[2], d = state[3];
    e = state[4], f = state[5], g = state[6], h = state[7];
    for (base = 0; base < 64; base += 16) {
        CHART_SHA256_ROUND(a, b, c, d, e, f, g, h, 0);
        CHART_SHA256_ROUND(h, a, b, c, d, e, f, g, 1);
        CHART_SHA256_ROUND(g, h, a, b, c, d, e, f, 2);
        CHART_SHA256_ROUND(f, g, h, a, b, c, d, e, 3);
        CHART_SHA256_ROUND(e, f, g, h, a, b, c, d, 4);
        CHART_SHA256_ROUND(d, e, f, g, h, a, b, c, 5);
        CHART_SHA256_ROUND(c, d, e, f, g, h, a, b, 6);
        CHART_SHA256_ROUND(b, c, d, e, f, g, h, a, 7);
        CHART_SHA256_ROUND(a, b, c, d, e, f, g, h, 8);
        CHART_SHA256_ROUND(h, a, b, c, d, e, f, g, 9);
        CHART_SHA256_ROUND(g, h, a, b, c, d, e, f, 10);
        CHART_SHA256_ROUND(f, g, h, a, b, c, d, e, 11);
        CHART_SHA256_ROUND(e, f, g, h, a, b, c, d, 12);
        CHART_SHA256_ROUND(d, e, f, g, h, a, b, c, 13);
        CHART_SHA256_ROUND(c, d, e, f, g, h, a, b, 14);
        CHART_SHA256_ROUND(b, c, d, e, f, g, h, a, 15);
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
    return 0;
}

/* Prepare a 256-bit key: done once per key, by whoever fills the key map. */
CHART_INLINE void chart_hmac_key_set(struct chart_hmac_key *ret_key, const __u8 key[CHART_KEY_OCTETS],
                                     struct chart_hmac_scratch *scratch) {
    __u32 i;

    for (i = 0; i < 16; i++)
        scratch->schedule[i] = (i < 8 ? chart_get32(key + 4 * i) : 0) ^ 0x36363636u;
    __builtin_memcpy(scratch->state, chart_sha256_initial, sizeof(scratch->state));
    chart_sha256_compress(scratch);
    __builtin_memcpy(ret_key->inner, scratch->state, sizeof(ret_key->inner));
    for (i = 0; i < 16; i++)
        scratch->schedule[i] = (i < 8 ? chart_get32(key + 4 * i) : 0) ^ 0x5c5c5c5cu;
    __builtin_memcpy(scratch->state, chart_sha256_initial, sizeof(scratch->state));
    chart_sha256_compress(scratch);
    __builtin_memcpy(ret_key->outer, scratch->state, sizeof(ret_key->outer));
}

/* Tag of the `length` <= 55 octets at the start of scratch->block, the rest of which is 0. */
CHART_INLINE void chart_hmac_finish(__u8 ret_tag[CHART_TAG_OCTETS], const struct chart_hmac_key *key, __u32 length,
                                    struct chart_hmac_scratch *scratch) {
    __u32 i;

    if (length > CHART_HMAC_MESSAGE_MAX)
        length = CHART_HMAC_MESSAGE_MAX;
    scratch->block[length] = 0x80;
    chart_put16(scratch->block + 62, (64 + length) * 8);
    for (i = 0; i < 16; i++)
        scratch->schedule[i] = chart_get32(scratch->block + 4 * i);
    __builtin_memcpy(scratch->state, key->inner, sizeof(scratch->state));
    chart_sha256_compress(scratch);

    __builtin_memcpy(scratch->schedule, scratch->state, sizeof(scratch->state));
    scratch->schedule[8] = 0x80000000u;
    for (i = 9; i < 15; i++)
        scratch->schedule[i] = 0;
    scratch->schedule[15] = (64 + 32) * 8;
    __builtin_memcpy(scratch->state, key->outer, sizeof(scratch->state));
    chart_sha256_compress(scratch);
    for (i = 0; i < 4; i++)
        chart_put32(ret_tag + 4 * i, scratch->state[i]);
}

/* The tag that `signal` (all but its tag) has on `flow` under `key`. */
CHART_INLINE void chart_signal_tag(__u8 ret_tag[CHART_TAG_OCTETS], const struct chart_signal *signal,
                                   const struct chart_flow *flow, const struct chart_hmac_key *key,
                                   struct chart_hmac_scratch *scratch) {
    __u8 *block = scratch->block;

    __builtin_memset(block, 0, sizeof(scratch->block));
    chart_signal_pack_signed(block, signal);
    if (flow->family == 6) {
        __builtin_memcpy(block + 18, flow->source, 16);
        __builtin_memcpy(block + 34, flow->destination, 16);
        block[50] = flow->protocol;
        __builtin_memcpy(block + 51, flow->selector, 4);
        chart_hmac_finish(ret_tag, key, 55, scratch);
    } else {
        __builtin_memcpy(block + 18, flow->source, 4);
        __builtin_memcpy(block + 22, flow->destination, 4);
        block[26] = flow->protocol;
        __builtin_memcpy(block + 27, flow->selector, 4);
        chart_hmac_finish(ret_tag, key, 31, scratch);
    }
}

/* Compare two tags in a time that does not depend on where they differ. Returns 1 if they are equal. */
CHART_INLINE int chart_tag_equal(const __u8 first[CHART_TAG_OCTETS], const __u8 second[CHART_TAG_OCTETS]) {
    __u32 difference = 0, i;

    for (i = 0; i < CHART_TAG_OCTETS; i++) {
        difference |= first[i] ^ second[i];
        __asm__ volatile("" : "+r"(difference)); /* no early way out */
    }
    return difference == 0;
}

#endif
