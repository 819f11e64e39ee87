/* See keys.h. */
#include "lib/authority/keys.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#define ASK_EVERY_US 5000000
#define ASK_SOONEST_US 200000
#define RENEWAL_SLACK_US 50000

void authority_pair_wipe(struct authority_pair *pair) {
    explicit_bzero(pair->epochs, sizeof(pair->epochs));
    pair->n_epochs = 0;
}

void authority_pair_plan(struct authority_pair *pair, int64_t now_us) {
    int64_t due_us = pair->renew_at_us + RENEWAL_SLACK_US;
    pair->ask_at_us = due_us < now_us + ASK_EVERY_US ? due_us : now_us + ASK_EVERY_US;
    if (pair->ask_at_us < now_us + ASK_SOONEST_US)
        pair->ask_at_us = now_us + ASK_SOONEST_US;
}

void authority_pair_behind(struct authority_pair *pair, int64_t now_us) {
    /* An answer with the new epoch ends the matter; whoever makes epochs up is not to have this node ask for ever. */
    if (pair->n_epochs && pair->epochs[pair->n_epochs - 1].generation != pair->behind_generation)
        pair->behind_times = 0;
    if (now_us < pair->behind_at_us)
        return;
    pair->behind_generation = pair->n_epochs ? pair->epochs[pair->n_epochs - 1].generation : 0;
    pair->behind_at_us = now_us + ((int64_t)ASK_SOONEST_US << pair->behind_times);
    if ((int64_t)ASK_SOONEST_US << pair->behind_times < ASK_EVERY_US)
        pair->behind_times++;
    if (now_us < pair->ask_at_us)
        pair->ask_at_us = now_us;
}

bool authority_number(const cJSON *object, const char *name, double most, int64_t *ret) {
    const cJSON *field = cJSON_GetObjectItemCaseSensitive(object, name);
    if (!cJSON_IsNumber(field) || !(field->valuedouble >= 0 && field->valuedouble <= most))
        return false;
    *ret = (int64_t)field->valuedouble;
    return true;
}

static int fail(char error[AUTHORITY_ERROR_LEN], const char *what) {
    snprintf(error, AUTHORITY_ERROR_LEN, "%s", what);
    return -EINVAL;
}

const struct authority_epoch *authority_signing_epoch(const struct authority_pair *pair, int64_t now_us) {
    const struct authority_epoch *found = NULL;
    for (size_t i = 0; i < pair->n_epochs; i++) {
        const struct authority_epoch *one = &pair->epochs[i];
        if (one->sign_from_us <= now_us && one->expires_at_us > now_us &&
            (!found || one->generation > found->generation))
            found = one;
    }
    return found;
}

static bool take_epoch(struct authority_epoch *epoch, cJSON *item, int64_t ahead_us) {
    cJSON *key = cJSON_GetObjectItemCaseSensitive(item, "key");
    uint8_t octets[36];
    int64_t number, generation;
    bool good = cJSON_IsString(key) && strlen(key->valuestring) == 44 && key->valuestring[43] == '=' &&
                EVP_DecodeBlock(octets, (const unsigned char *)key->valuestring, 44) == 33 &&
                authority_number(item, "epoch", UINT8_MAX, &number) &&
                authority_number(item, "generation", AUTHORITY_MOMENT_MAX, &generation) &&
                authority_number(item, "sign_from_us", AUTHORITY_MOMENT_MAX, &epoch->sign_from_us) &&
                authority_number(item, "expires_at_us", AUTHORITY_MOMENT_MAX, &epoch->expires_at_us);
    if (good) {
        memcpy(epoch->key, octets, sizeof(epoch->key));
        epoch->epoch = (uint8_t)number;
        epoch->generation = (uint64_t)generation;
        epoch->sign_from_us -= ahead_us;
        epoch->expires_at_us -= ahead_us;
    }
    explicit_bzero(octets, sizeof(octets));
    return good;
}

/* Also of an answer that is of no use otherwise: it may hold keys all the same. */
static void wipe_and_delete(cJSON *root) {
    cJSON *epochs = cJSON_GetObjectItemCaseSensitive(root, "epochs"), *item;
    cJSON_ArrayForEach(item, epochs) {
        cJSON *key = cJSON_GetObjectItemCaseSensitive(item, "key");
        if (cJSON_IsString(key))
            explicit_bzero(key->valuestring, strlen(key->valuestring));
    }
    cJSON_Delete(root);
}

static int take_key_set(struct authority_pair *pair, cJSON *root, int64_t ahead_us, char error[AUTHORITY_ERROR_LEN]) {
    cJSON *epochs = cJSON_GetObjectItemCaseSensitive(root, "epochs");
    struct authority_epoch fresh[AUTHORITY_EPOCHS] = {0};
    int n = cJSON_IsArray(epochs) ? cJSON_GetArraySize(epochs) : 0;
    int64_t renew_at_us;
    bool good =
        n >= 1 && n <= AUTHORITY_EPOCHS && authority_number(root, "renew_at_us", AUTHORITY_MOMENT_MAX, &renew_at_us);
    for (int i = 0; good && i < n; i++)
        good = take_epoch(&fresh[i], cJSON_GetArrayItem(epochs, i), ahead_us);
    if (good) {
        memcpy(pair->epochs, fresh, sizeof(fresh));
        pair->n_epochs = (size_t)n;
        pair->renew_at_us = renew_at_us - ahead_us;
        pair->ahead_us = ahead_us;
    }
    explicit_bzero(fresh, sizeof(fresh));
    return good ? 0 : fail(error, "the keys cannot be read");
}

int authority_take_keys(struct authority_pair *pair, const char *text, int64_t now_us,
                        char error[AUTHORITY_ERROR_LEN]) {
    cJSON *root = cJSON_Parse(text);
    int64_t sender, receiver, server_us;
    int status;
    if (!root || !authority_number(root, "sender_id", UINT16_MAX, &sender) ||
        !authority_number(root, "receiver_id", UINT16_MAX, &receiver) ||
        !authority_number(root, "now_us", AUTHORITY_MOMENT_MAX, &server_us))
        status = fail(error, "the keys name no elements");
    else
        status = take_key_set(pair, root, server_us - now_us, error);
    if (!status) {
        pair->sender_id = (uint16_t)sender;
        pair->receiver_id = (uint16_t)receiver;
    }
    wipe_and_delete(root);
    return status;
}

int authority_take_stream_keys(struct authority_pair *pair, const char *text, int64_t now_us,
                               char error[AUTHORITY_ERROR_LEN]) {
    cJSON *root = cJSON_Parse(text);
    int64_t server_us;
    int status = root && authority_number(root, "now_us", AUTHORITY_MOMENT_MAX, &server_us)
                     ? take_key_set(pair, root, server_us - now_us, error)
                     : fail(error, "the stream keys cannot be read");
    wipe_and_delete(root);
    return status;
}
