/* The node's key for the origin's records, see signing.h. */
#include "signing.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/authority/https.h"
#include "lib/authority/keys.h"

#define FILE_NAME_BYTES 512
#define ASK_LIMIT_S 10L
#define RETRY_US 2000000
/* No answer plans the next question later than this. */
#define ASK_LATEST_US 10000000
/* While an answer is awaited, and otherwise at most between two looks. */
#define LOOK_SOON_US 50000
#define LOOK_LATE_US 1000000

struct signing {
    struct authority_https *https;
    struct authority_pair pair;
    char certificate[FILE_NAME_BYTES], key[FILE_NAME_BYTES];
    char fault[AUTHORITY_ERROR_LEN];
};

static int64_t wall_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

int signing_open(const struct options *options, struct signing **ret) {
    static const struct authority_loop ticks_alone;
    struct signing *signing = calloc(1, sizeof(*signing));
    if (!signing)
        return -ENOMEM;
    const char *folder = options->state_dir;
    int certificate_bytes = folder ? snprintf(signing->certificate, FILE_NAME_BYTES, "%s/node.pem", folder)
                                   : snprintf(signing->certificate, FILE_NAME_BYTES, "%s", options->tls.certificate);
    int key_bytes = folder ? snprintf(signing->key, FILE_NAME_BYTES, "%s/node.key", folder)
                           : snprintf(signing->key, FILE_NAME_BYTES, "%s", options->tls.key);
    int node_bytes = snprintf(signing->pair.sender, sizeof(signing->pair.sender), "%s", options->node);
    int error = -EINVAL;
    if (certificate_bytes < FILE_NAME_BYTES && key_bytes < FILE_NAME_BYTES &&
        node_bytes < (int)sizeof(signing->pair.sender))
        error = authority_https_open(&ticks_alone, options->authority, options->authority_ca, &signing->https);
    if (error) {
        fprintf(stderr, "chart-tunnel: --authority %s, certificate %s: not addresses and a file that can be used\n",
                options->authority, signing->certificate);
        free(signing);
        return error;
    }
    authority_https_identity(signing->https, signing->certificate, signing->key);
    *ret = signing;
    return 0;
}

void signing_close(struct signing *signing) {
    if (!signing)
        return;
    authority_https_close(signing->https);
    authority_pair_wipe(&signing->pair);
    free(signing);
}

static void complain(struct signing *signing, const char *why) {
    char text[AUTHORITY_ERROR_LEN];
    snprintf(text, sizeof(text), "%.200s", why);
    if (strcmp(text, signing->fault) != 0)
        fprintf(stderr, "chart-tunnel: no key to sign reports with: %s\n", text);
    memcpy(signing->fault, text, sizeof(text));
}

static void complain_of_refusal(struct signing *signing, const char *text) {
    cJSON *problem = cJSON_Parse(text);
    const cJSON *detail = cJSON_GetObjectItemCaseSensitive(problem, "detail");
    complain(signing, cJSON_IsString(detail) ? detail->valuestring : "the authority refuses it");
    cJSON_Delete(problem);
}

static void on_answer(void *context, long status, const char *text) {
    struct signing *signing = context;
    int64_t now_us = wall_us();
    char error[AUTHORITY_ERROR_LEN] = "";
    signing->pair.asking = false;
    signing->pair.ask_at_us = now_us + RETRY_US;
    if (status == 200 && authority_take_stream_keys(&signing->pair, text, now_us, error) == 0) {
        authority_pair_plan(&signing->pair, now_us);
        signing->fault[0] = '\0';
        return;
    }
    /* Revoked, or enrolled no more: what this node holds is worth nothing any more. */
    if (status == 403 || status == 404)
        authority_pair_wipe(&signing->pair);
    if (status && status != 200)
        complain_of_refusal(signing, text);
    else
        complain(signing, status ? error : text);
}

static void ask(struct signing *signing, int64_t wall_now_us) {
    char path[AUTHORITY_NAME_LEN + 32];
    signing->pair.ask_at_us = wall_now_us + RETRY_US;
    if (access(signing->certificate, R_OK) < 0 || access(signing->key, R_OK) < 0) {
        snprintf(path, sizeof(path), "the node's certificate cannot be read: %s", strerror(errno));
        complain(signing, path);
        return;
    }
    snprintf(path, sizeof(path), "/v1/stream-keys/%s", signing->pair.sender);
    signing->pair.asking = true;
    if (authority_https_ask(signing->https, path, NULL, ASK_LIMIT_S, on_answer, signing))
        signing->pair.asking = false;
}

uint64_t signing_tick(struct signing *signing, uint64_t now_us) {
    int64_t wall_now_us = wall_us();
    if (signing->pair.asking)
        authority_https_tick(signing->https);
    /* A clock that was set back does not delay the next question. */
    if (!signing->pair.asking &&
        (wall_now_us >= signing->pair.ask_at_us || signing->pair.ask_at_us > wall_now_us + ASK_LATEST_US))
        ask(signing, wall_now_us);
    return now_us + (signing->pair.asking ? LOOK_SOON_US : LOOK_LATE_US);
}

bool signing_code(const struct signing *signing, const char *topic, const char *key, const void *value, size_t bytes,
                  char ret[RECORD_MAC_LEN]) {
    const struct authority_epoch *epoch = authority_signing_epoch(&signing->pair, wall_us());
    return epoch && record_mac(signing->pair.sender, epoch->epoch, epoch->key, topic, key, value, bytes, ret);
}

bool signing_ready(const struct signing *signing) {
    return authority_signing_epoch(&signing->pair, wall_us()) != NULL;
}

const char *signing_fault(const struct signing *signing) {
    return signing->fault;
}
