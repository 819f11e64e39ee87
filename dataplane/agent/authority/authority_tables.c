/* See authority_state.h. This file: what follows from the answers: pairs, keys to sign with, tables. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "authority/authority_state.h"
#include "signal/default_asks.h"

/* A lost packet or an agent that starts anew is over sooner; flows ask again every 10 s. */
#define SILENT_AFTER_US 5000000ll
#define SILENT_UNTIL_US 60000000ll

static struct authority_pair *find_pair(struct authority_state *state, const char *sender, const char *receiver) {
    for (size_t i = 0; i < state->n_pairs; i++)
        if (strcmp(state->pairs[i].sender, sender) == 0 && strcmp(state->pairs[i].receiver, receiver) == 0)
            return &state->pairs[i];
    return NULL;
}

static bool want_pair(struct authority_state *state, const char *sender, const char *receiver) {
    struct authority_pair *pair = find_pair(state, sender, receiver);
    /* Of a neighbour that is not enrolled there are no keys. */
    if (!authority_element_id(state, strcmp(sender, state->node) == 0 ? receiver : sender))
        return true;
    if (!pair) {
        if (state->n_pairs == AUTHORITY_PAIRS_MAX)
            return false;
        pair = &state->pairs[state->n_pairs++];
        *pair = (struct authority_pair){0};
        snprintf(pair->sender, sizeof(pair->sender), "%s", sender);
        snprintf(pair->receiver, sizeof(pair->receiver), "%s", receiver);
    }
    pair->wanted = true;
    return true;
}

bool authority_state_pairs(struct authority_state *state) {
    bool whole = true;
    for (size_t i = 0; i < state->n_pairs; i++)
        state->pairs[i].wanted = false;
    for (size_t i = 0; i < state->n_hops; i++)
        whole &= want_pair(state, state->node, state->hops[i].next_element);
    for (size_t i = 0; i < state->n_senders; i++)
        whole &= want_pair(state, state->senders[i], state->node);
    for (size_t i = state->n_pairs; i-- > 0;) {
        struct authority_pair *last = &state->pairs[state->n_pairs - 1];
        /* One that is being asked for stays until the answer came. */
        if (state->pairs[i].wanted || state->pairs[i].asking || last->asking)
            continue;
        authority_pair_wipe(&state->pairs[i]);
        state->pairs[i] = *last;
        authority_pair_wipe(last);
        state->n_pairs--;
    }
    return whole;
}

void authority_state_behind(struct authority_state *state, uint16_t element, int64_t now_us) {
    for (size_t i = 0; element && i < state->n_pairs; i++) {
        struct authority_pair *pair = &state->pairs[i];
        bool sending = strcmp(pair->sender, state->node) == 0;
        if ((sending ? pair->receiver_id : pair->sender_id) == element)
            authority_pair_behind(pair, now_us);
    }
}

void authority_state_ignored(struct authority_state *state, struct authority_pair *pair, uint32_t ignored,
                             bool answered, int64_t now_us) {
    if (answered)
        pair->silent_since_us = 0;
    /* The count begins anew after there was no key. */
    if (ignored > pair->ignored) {
        authority_state_behind(state, pair->receiver_id, now_us);
        pair->ignored_at_us = now_us;
        if (!answered && !pair->silent_since_us)
            pair->silent_since_us = now_us;
    }
    pair->ignored = ignored;
}

size_t authority_state_silent(const struct authority_state *state, int64_t now_us, const char **ret_first,
                              int64_t *ret_since_us) {
    size_t n = 0;
    for (size_t i = 0; i < state->n_pairs; i++) {
        const struct authority_pair *pair = &state->pairs[i];
        if (!pair->wanted || !pair->silent_since_us || now_us < pair->silent_since_us + SILENT_AFTER_US ||
            now_us > pair->ignored_at_us + SILENT_UNTIL_US || strcmp(pair->sender, state->node) != 0)
            continue;
        if (n++ == 0) {
            *ret_first = pair->receiver;
            *ret_since_us = pair->silent_since_us;
        }
    }
    return n;
}

uint16_t authority_element_id(const struct authority_state *state, const char *name) {
    for (size_t i = 0; i < state->n_elements; i++)
        if (strcmp(state->elements[i].name, name) == 0)
            return state->elements[i].id;
    return 0;
}

static void fill_keys(const struct authority_state *state, struct signal_file *file) {
    for (size_t i = 0; i < state->n_pairs; i++) {
        const struct authority_pair *pair = &state->pairs[i];
        bool sending = strcmp(pair->sender, state->node) == 0;
        if (!pair->wanted)
            continue;
        for (size_t e = 0; e < pair->n_epochs; e++) {
            const struct authority_epoch *epoch = &pair->epochs[e];
            struct signal_key *key = &file->keys[file->n_keys++];
            /* A receiver accepts an epoch as soon as it knows it; the generation keeps the order. */
            *key = (struct signal_key){.sender = pair->sender_id,
                                       .receiver = pair->receiver_id,
                                       .epoch = epoch->epoch,
                                       .from_us = sending ? epoch->sign_from_us : (int64_t)epoch->generation,
                                       .until_us = epoch->expires_at_us};
            memcpy(key->key, epoch->key, sizeof(key->key));
        }
    }
}

int authority_state_tables(const struct authority_state *state, struct signal_file *ret) {
    struct signal_file file = {
        .policy = {.element = authority_element_id(state, state->node),
                   .drop_unauthorised = state->drop_unauthorised,
                   .free_bps = state->free_bps},
        .keys = calloc(state->n_pairs * AUTHORITY_EPOCHS + 1, sizeof(struct signal_key)),
        .hops = calloc(state->n_hops + 1, sizeof(struct signal_hop)),
        .authorisations = calloc(state->n_authorisations + 1, sizeof(struct signal_authorisation)),
    };
    if (!file.keys || !file.hops || !file.authorisations || default_asks_add("telephony", &file.asks, &file.n_asks)) {
        signal_file_free(&file);
        return -ENOMEM;
    }
    fill_keys(state, &file);
    for (size_t i = 0; i < state->n_hops; i++) {
        struct signal_hop *hop = &file.hops[file.n_hops];
        hop->element = authority_element_id(state, state->hops[i].next_element);
        hop->shim = state->hops[i].shim;
        if (hop->element && decide_parse_prefix(state->hops[i].prefix, &hop->prefix) == 0)
            file.n_hops++;
    }
    for (size_t i = 0; i < state->n_authorisations; i++)
        file.authorisations[file.n_authorisations++] = state->authorisations[i].value;
    *ret = file;
    return 0;
}
