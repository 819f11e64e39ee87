/* What the authority told this node: next hops, element ids, authorisations, keys. Answers in, tables of
 * signal_tables.h out; no clock, no network. Keys are wiped when they are dropped.
 *
 * Brassil et al., The CHART System, section 3: an element looks up the next one for a destination, signs with a key of
 * the pair and verifies with another; authorisations are downloaded and decide what a client may ask. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/authority/keys.h"
#include "signal/signal_file.h"

#define AUTHORITY_ID_LEN 40
/* Neighbours times two; further ones are left out and said. */
#define AUTHORITY_PAIRS_MAX 1024

struct authority_hop {
    char prefix[64];
    char next_element[AUTHORITY_NAME_LEN];
    /* Where the element takes the UDP shim; family 0: not known. */
    struct decide_prefix shim;
};

struct authority_element {
    char name[AUTHORITY_NAME_LEN];
    uint16_t id;
};

struct authority_authorisation {
    char id[AUTHORITY_ID_LEN];
    struct signal_authorisation value;
};

struct authority_state {
    char node[AUTHORITY_NAME_LEN];
    int64_t hops_revision;
    int64_t authorisations_revision;
    struct authority_hop *hops;
    size_t n_hops;
    struct authority_element *elements;
    size_t n_elements;
    char (*senders)[AUTHORITY_NAME_LEN];
    size_t n_senders;
    struct authority_authorisation *authorisations;
    size_t n_authorisations;
    bool drop_unauthorised;
    uint64_t free_bps;
    struct authority_pair pairs[AUTHORITY_PAIRS_MAX];
    size_t n_pairs;
};

void authority_state_init(struct authority_state *state, const char *node);
void authority_state_free(struct authority_state *state);

/* Take an answer of the authority. 0, -ENOMEM, or -EINVAL with a sentence that never holds a key; then nothing changed
 * that was sound before. */
int authority_take_next_hops(struct authority_state *state, const char *text, char error[AUTHORITY_ERROR_LEN]);
int authority_take_authorisations(struct authority_state *state, const char *text, char error[AUTHORITY_ERROR_LEN]);

/* Bring the pairs to what next hops and senders need. False: more than there is room for. */
bool authority_state_pairs(struct authority_state *state);
/* Forget every key: this node was revoked. */
void authority_state_wipe_keys(struct authority_state *state);

/* What the signalling shall have now; free with signal_file_free. 0 or -ENOMEM. */
int authority_state_tables(const struct authority_state *state, struct signal_file *ret);

/* This element and this node sign with different keys: a signal of it came with an epoch which this node does not know,
 * or it answers nothing. Which of the two is behind is not known: the keys of both directions are asked for. */
void authority_state_behind(struct authority_state *state, uint16_t element, int64_t now_us);
/* The element to which this node signs with this pair has ignored so many requests (signal_source_ignored); whether it
 * answered since. */
void authority_state_ignored(struct authority_state *state, struct authority_pair *pair, uint32_t ignored,
                             bool answered, int64_t now_us);
/* How many neighbours have answered nothing for some seconds although they were asked in the last minute; the name of
 * the first of them and since when. */
size_t authority_state_silent(const struct authority_state *state, int64_t now_us, const char **ret_first,
                              int64_t *ret_since_us);

uint16_t authority_element_id(const struct authority_state *state, const char *name);
