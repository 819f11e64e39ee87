/* See signal_tables.h. This file: keys, and the sequences that must not be used again after a restart.
 *
 * An epoch's sequences are never used twice while the epoch is accepted. So that a restart needs no new epoch at once,
 * the file `signal-sequences` says up to where sequences may have been used (sending: well ahead of what was used;
 * receiving: the highest accepted a second ago), and the next process goes on behind that. */
#include "signal/signal_keys.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"

/* Sequences kept ahead on disk: what a pair can use in the second until the file is written again. */
#define AHEAD 65536u

void signal_keys_load(struct signal_tables *tables, const char *directory) {
    struct signal_kept kept;
    char word[8];
    unsigned element, epoch, sequence;
    FILE *file;
    if (!directory ||
        snprintf(tables->path, sizeof(tables->path), "%s/signal-sequences", directory) >= (int)sizeof(tables->path)) {
        tables->path[0] = '\0';
        return;
    }
    file = fopen(tables->path, "re");
    if (!file)
        return;
    while (fscanf(file, "%7s %u %u %u", word, &element, &epoch, &sequence) == 4) {
        struct signal_kept *grown = realloc(tables->kept, (tables->n_kept + 1) * sizeof(*grown));
        if (!grown || element > UINT16_MAX || epoch > UINT8_MAX || sequence > CHART_SEQUENCE_MAX)
            break;
        kept = (struct signal_kept){.out = strcmp(word, "out") == 0,
                                    .element = (uint16_t)element,
                                    .epoch = (uint8_t)epoch,
                                    .sequence = sequence};
        tables->kept = grown;
        tables->kept[tables->n_kept++] = kept;
    }
    fclose(file);
}

void signal_keys_free(struct signal_tables *tables) {
    free(tables->in);
    free(tables->out);
    free(tables->kept);
}

void signal_keys_forget(struct signal_tables *tables) {
    for (size_t i = 0; i < tables->n_in; i++)
        bpf_map_delete_elem(tables->fds.in, &tables->in[i]);
    for (size_t i = 0; i < tables->n_out; i++)
        bpf_map_delete_elem(tables->fds.out, &tables->out[i]);
    tables->n_in = tables->n_out = 0;
}

static uint32_t kept_sequence(const struct signal_tables *tables, bool out, uint16_t element, uint8_t epoch) {
    for (size_t i = 0; i < tables->n_kept; i++)
        if (tables->kept[i].out == out && tables->kept[i].element == element && tables->kept[i].epoch == epoch)
            return tables->kept[i].sequence;
    return 0;
}

static bool in_force(const struct signal_key *key, int64_t now_us) {
    return key->from_us <= now_us && (!key->until_us || now_us < key->until_us);
}

static void prepare(const struct signal_key *key, struct chart_hmac_key *ret) {
    struct chart_hmac_scratch scratch;
    chart_hmac_key_set(ret, key->key, &scratch);
    explicit_bzero(&scratch, sizeof(scratch));
}

/* Accept a sender's epoch; one that is accepted already keeps its window. */
static int accept_epoch(struct signal_tables *tables, const struct signal_key *key,
                        const struct chart_signal_in_key *in_key) {
    struct chart_signal_in value = {0};
    int status = 0;
    prepare(key, &value.key);
    value.replay.highest = kept_sequence(tables, false, key->sender, key->epoch);
    if (value.replay.highest) /* what came before is not known one by one: none of it comes again */
        memset(value.replay.blocks, 0xff, sizeof(value.replay.blocks));
    if (bpf_map_update_elem(tables->fds.in, in_key, &value, BPF_NOEXIST) && errno != EEXIST)
        status = -errno;
    explicit_bzero(&value, sizeof(value));
    return status;
}

/* Sign with this epoch from now on, unless it is the one in use. */
static int sign_with(struct signal_tables *tables, const struct signal_key *key) {
    struct chart_signal_out value = {0};
    uint32_t element = key->receiver;
    int status = 0;
    if (bpf_map_lookup_elem(tables->fds.out, &element, &value) == 0 && value.epoch == key->epoch)
        return 0;
    prepare(key, &value.key);
    value.epoch = key->epoch;
    value.asked_ns = 0; /* whether it answers is seen anew */
    value.sequence = kept_sequence(tables, true, key->receiver, key->epoch);
    if (bpf_map_update_elem(tables->fds.out, &element, &value, BPF_ANY))
        status = -errno;
    explicit_bzero(&value, sizeof(value));
    return status;
}

/* Whether two epochs of this sender began later. */
static bool superseded(const struct signal_key *keys, size_t n, const struct signal_key *key, int64_t now_us) {
    size_t later = 0;
    for (size_t i = 0; i < n; i++)
        if (&keys[i] != key && keys[i].receiver == key->receiver && keys[i].sender == key->sender &&
            keys[i].epoch != key->epoch && in_force(&keys[i], now_us) &&
            (keys[i].from_us > key->from_us || (keys[i].from_us == key->from_us && &keys[i] > key)))
            later++;
    return later >= 2;
}

static const struct signal_key *newest_to(const struct signal_key *keys, size_t n, uint16_t own, uint16_t receiver,
                                          int64_t now_us) {
    const struct signal_key *newest = NULL;
    for (size_t i = 0; i < n; i++)
        if (keys[i].sender == own && keys[i].receiver == receiver && in_force(&keys[i], now_us) &&
            (!newest || keys[i].from_us >= newest->from_us))
            newest = &keys[i];
    return newest;
}

static void forget_in(struct signal_tables *tables, const struct chart_signal_in_key *kept, size_t n_kept) {
    for (size_t i = 0; i < tables->n_in; i++) {
        bool found = false;
        for (size_t k = 0; k < n_kept && !found; k++)
            found = memcmp(&tables->in[i], &kept[k], sizeof(kept[k])) == 0;
        if (!found)
            bpf_map_delete_elem(tables->fds.in, &tables->in[i]);
    }
}

static void forget_out(struct signal_tables *tables, const uint32_t *kept, size_t n_kept) {
    for (size_t i = 0; i < tables->n_out; i++) {
        bool found = false;
        for (size_t k = 0; k < n_kept && !found; k++)
            found = tables->out[i] == kept[k];
        if (!found)
            bpf_map_delete_elem(tables->fds.out, &tables->out[i]);
    }
}

int signal_tables_keys(struct signal_tables *tables, const struct signal_key *keys, size_t n, int64_t now_us) {
    uint16_t own = (uint16_t)tables->config.element;
    struct chart_signal_in_key *in = calloc(n ? n : 1, sizeof(*in));
    uint32_t *out = calloc(n ? n : 1, sizeof(*out));
    size_t n_in = 0, n_out = 0;
    int status = in && out ? 0 : -ENOMEM;
    for (size_t i = 0; !status && i < n; i++) {
        const struct signal_key *key = &keys[i];
        int error = 0;
        if (!own || !in_force(key, now_us))
            continue;
        if (key->receiver == own && !superseded(keys, n, key, now_us)) {
            struct chart_signal_in_key in_key = {.sender = key->sender, .epoch = key->epoch};
            error = accept_epoch(tables, key, &in_key);
            in[n_in++] = in_key;
        }
        if (key->sender == own && newest_to(keys, n, own, key->receiver, now_us) == key) {
            error = sign_with(tables, key);
            out[n_out++] = key->receiver;
        }
        status = status ? status : error;
    }
    if (in && out) {
        forget_in(tables, in, n_in);
        forget_out(tables, out, n_out);
        free(tables->in);
        free(tables->out);
        tables->in = in;
        tables->n_in = n_in;
        tables->out = out;
        tables->n_out = n_out;
        return status;
    }
    free(in);
    free(out);
    return status;
}

int signal_tables_sequence(const struct signal_tables *tables, uint16_t element, uint8_t *ret_epoch,
                           uint32_t *ret_sequence) {
    struct chart_signal_out value;
    uint32_t key = element;
    if (bpf_map_lookup_elem(tables->fds.out, &key, &value))
        return -errno;
    *ret_epoch = (uint8_t)value.epoch;
    *ret_sequence = value.sequence;
    explicit_bzero(&value, sizeof(value));
    return 0;
}

uint32_t signal_tables_ignored(const struct signal_tables *tables, uint16_t element, bool *ret_answered) {
    struct chart_signal_out value;
    uint32_t key = element;
    *ret_answered = false;
    if (bpf_map_lookup_elem(tables->fds.out, &key, &value))
        return 0;
    *ret_answered = !value.asked_ns;
    explicit_bzero(&value.key, sizeof(value.key));
    return value.ignored;
}

uint8_t signal_tables_key_epoch(const struct signal_tables *tables) {
    uint8_t highest = 0;
    for (size_t i = 0; i < tables->n_out; i++) {
        uint8_t epoch = 0;
        uint32_t sequence = 0;
        if (signal_tables_sequence(tables, (uint16_t)tables->out[i], &epoch, &sequence) == 0 && epoch > highest)
            highest = epoch;
    }
    return highest;
}

static int write_sequences(const struct signal_tables *tables, FILE *file) {
    struct chart_signal_in in;
    for (size_t i = 0; i < tables->n_out; i++) {
        uint8_t epoch = 0;
        uint32_t sequence = 0;
        if (signal_tables_sequence(tables, (uint16_t)tables->out[i], &epoch, &sequence))
            continue;
        sequence = sequence < CHART_SEQUENCE_MAX - AHEAD ? sequence + AHEAD : CHART_SEQUENCE_MAX;
        fprintf(file, "out %u %u %u\n", tables->out[i], epoch, sequence);
    }
    for (size_t i = 0; i < tables->n_in; i++)
        if (bpf_map_lookup_elem(tables->fds.in, &tables->in[i], &in) == 0)
            fprintf(file, "in %u %u %u\n", tables->in[i].sender, tables->in[i].epoch, in.replay.highest);
    explicit_bzero(&in, sizeof(in));
    return ferror(file) ? -EIO : 0;
}

int signal_tables_keep(struct signal_tables *tables) {
    char fresh[sizeof(tables->path) + 8];
    FILE *file;
    int status;
    if (!tables->path[0] || (!tables->n_in && !tables->n_out))
        return 0;
    snprintf(fresh, sizeof(fresh), "%s.new", tables->path);
    file = fopen(fresh, "we");
    status = file ? write_sequences(tables, file) : -errno;
    if (file && fclose(file) && !status)
        status = -errno;
    if (!status && rename(fresh, tables->path))
        status = -errno;
    if (status && !tables->write_failed)
        log_warning("cannot write %s: %s; after a restart this element needs new keys", tables->path,
                    strerror(-status));
    tables->write_failed = status != 0;
    return status;
}
