/* Keys as the authority gives them: of a pair of elements, and the stream key under which a node signs its records.
 * Answers in, the key to sign with out; no clock, no network. Keys are wiped when they are dropped. */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AUTHORITY_NAME_LEN 360
#define AUTHORITY_EPOCHS 2
#define AUTHORITY_ERROR_LEN 256
/* Numbers of the authority's JSON are whole in a double up to here. */
#define AUTHORITY_MOMENT_MAX 9e15

struct authority_epoch {
    uint8_t epoch;
    uint8_t key[32];
    uint64_t generation;
    /* Local clock. */
    int64_t sign_from_us;
    int64_t expires_at_us;
};

struct authority_pair {
    char sender[AUTHORITY_NAME_LEN];
    char receiver[AUTHORITY_NAME_LEN];
    uint16_t sender_id;
    uint16_t receiver_id;
    struct authority_epoch epochs[AUTHORITY_EPOCHS];
    size_t n_epochs;
    int64_t renew_at_us;
    /* How far the authority's clock is ahead of this machine's. */
    int64_t ahead_us;
    /* For the client: when to ask next, whether it asks now, whether a new epoch was had since this process began. */
    int64_t ask_at_us;
    bool asking;
    bool started;
    bool wanted;
    /* There is a newer epoch than these: see authority_pair_behind. */
    uint64_t behind_generation;
    int64_t behind_at_us;
    unsigned behind_times;
    /* Requests that the receiver ignored, at the last look; since when it answers nothing (0: it does), and when it
     * ignored one last. */
    uint32_t ignored;
    int64_t silent_since_us;
    int64_t ignored_at_us;
};

/* now_us: this machine's clock when the answer came; times of the authority are moved by the difference. 0, or -EINVAL
 * with a sentence that never holds a key; then nothing changed that was sound before. */
int authority_take_keys(struct authority_pair *pair, const char *text, int64_t now_us, char error[AUTHORITY_ERROR_LEN]);
/* A node's stream key: those epochs with which records are signed now. */
int authority_take_stream_keys(struct authority_pair *pair, const char *text, int64_t now_us,
                               char error[AUTHORITY_ERROR_LEN]);

/* The newest epoch whose first use has come; NULL: none. */
const struct authority_epoch *authority_signing_epoch(const struct authority_pair *pair, int64_t now_us);

/* After an answer: when to ask next. A revoked node loses its keys, a rotated key is known, within two of these. */
void authority_pair_plan(struct authority_pair *pair, int64_t now_us);
/* There may be an epoch that is not among these: one end started anew a moment ago. The keys are asked for at once;
 * again after 200 ms and then ever later, up to every 6.4 s, as long as no newer epoch comes. */
void authority_pair_behind(struct authority_pair *pair, int64_t now_us);
void authority_pair_wipe(struct authority_pair *pair);

/* A number of 0 to `most` in an answer. False: there is none. */
bool authority_number(const cJSON *object, const char *name, double most, int64_t *ret);
