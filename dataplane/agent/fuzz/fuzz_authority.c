/* What the authority answers, in the agent: next hops, authorisations, keys, keys of records, one after the other into
 * the same state, as the client takes them. First octet of each part: which. Parts end at a zero octet. */
#include <stdlib.h>
#include <string.h>

#include "authority/authority_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct authority_state state;

static void try_keys(const char *text, char error[AUTHORITY_ERROR_LEN]) {
    struct authority_pair records = {0};
    for (size_t i = 0; i < state.n_pairs; i++)
        if (authority_take_keys(&state.pairs[i], text, 1, error) == 0)
            (void)authority_signing_epoch(&state.pairs[i], 1);
    if (authority_take_stream_keys(&records, text, 1, error) == 0 && records.n_epochs > AUTHORITY_EPOCHS)
        abort();
    authority_pair_wipe(&records);
}

static void try_part(const char *text) {
    struct signal_file tables;
    char error[AUTHORITY_ERROR_LEN] = "";
    int status = 0;
    if (*text == 'k') {
        try_keys(text + 1, error);
    } else {
        status = *text == 'a' ? authority_take_authorisations(&state, text + 1, error)
                              : authority_take_next_hops(&state, text + 1, error);
        /* Every fault is told in words. */
        if (status && !*error)
            abort();
    }
    (void)authority_state_pairs(&state);
    if (state.n_pairs > AUTHORITY_PAIRS_MAX || authority_state_tables(&state, &tables))
        abort();
    for (size_t i = 0; i < tables.n_hops; i++)
        if (!tables.hops[i].element)
            abort();
    signal_file_free(&tables);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1), *part;
    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    authority_state_init(&state, "alpha");
    for (part = text; part < text + size; part += strlen(part) + 1)
        try_part(part);
    authority_state_free(&state);
    free(text);
    return 0;
}
