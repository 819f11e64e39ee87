/* The module: what is asked when, back-off, hand-over; see authority.h. */
#include "authority/authority.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "authority/authority_client.h"
#include "core/agent.h"
#include "core/log.h"
#include "core/loop.h"
#include "lib/authority/https.h"
#include "signal/signal_source.h"

#define TICK_US 50000u
#define SECOND_US 1000000
#define BACK_OFF_MAX_US (30ll * SECOND_US)
#define TOKEN_RETRY_US (2ll * SECOND_US)
#define POLL_WAIT_S 20
#define POLL_LIMIT_S 30L
#define ASK_LIMIT_S 10L
/* A service account token of Kubernetes has one or two thousand characters, a one-time token 43. */
#define TOKEN_MAX 8192
#define ASKING_MAX 16

struct asked {
    struct authority *authority;
    struct authority_pair *pair;
};

static int64_t back_off_us(unsigned failures) {
    int64_t wait_us = (int64_t)SECOND_US << (failures < 6 ? failures : 5);
    return wait_us < BACK_OFF_MAX_US ? wait_us : BACK_OFF_MAX_US;
}

static void failed(struct authority *authority, struct poll *poll, const char *what, long status, const char *text) {
    char why[AUTHORITY_ERROR_LEN] = "";
    cJSON *problem = status ? cJSON_Parse(text) : NULL;
    const cJSON *detail = cJSON_GetObjectItemCaseSensitive(problem, "detail");
    snprintf(why, sizeof(why), "%.190s", status ? (cJSON_IsString(detail) ? detail->valuestring : "refused") : text);
    authority_complain(authority, what, why);
    cJSON_Delete(problem);
    poll->failures++;
    poll->at_us = agent_now_us() + back_off_us(poll->failures);
}

static void succeeded(struct authority *authority, struct poll *poll, int64_t again_us) {
    poll->failures = 0;
    poll->at_us = agent_now_us() + again_us;
    authority->error[0] = '\0';
}

/* 403 with this problem type: whatever this node holds is worth nothing any more. */
static bool is_revoked(long status, const char *text) {
    return status == 403 && strstr(text, "urn:chart:problem:certificate-revoked");
}

static void stand_down(struct authority *authority) {
    if (!authority->revoked)
        log_error("authority: this node's certificate is revoked; its keys are forgotten");
    authority->revoked = true;
    authority_state_wipe_keys(&authority->state);
    authority_pair_wipe(&authority->records);
    authority->dirty = true;
}

static void on_certificate(void *context, long status, const char *text) {
    struct authority *authority = context;
    struct poll *poll = &authority->certificate;
    cJSON *answer = status == 201 ? cJSON_Parse(text) : NULL;
    const cJSON *pem = cJSON_GetObjectItemCaseSensitive(answer, "certificate");
    int error = cJSON_IsString(pem) ? authority_identity_keep(&authority->identity, pem->valuestring) : -EBADMSG;
    poll->asking = false;
    cJSON_Delete(answer);
    if (is_revoked(status, text))
        stand_down(authority);
    if (error) {
        failed(authority, poll, "no certificate", status, status == 201 ? "it cannot be kept" : text);
        return;
    }
    if (authority->revoked)
        authority->state.hops_revision = authority->state.authorisations_revision = 0;
    authority->revoked = false;
    authority_https_identity(authority->https, authority->identity.certificate_file, authority->identity.key_file);
    succeeded(authority, poll, 0);
    log_info("authority: certificate of node %s is there", authority->state.node);
}

/* With a token when there is no good certificate, with the certificate when half of its life is over. */
static void ask_certificate(struct authority *authority, bool renewal) {
    struct poll *poll = &authority->certificate;
    char token[TOKEN_MAX] = "", why[AUTHORITY_ERROR_LEN], identity[AUTHORITY_NAME_LEN + sizeof("node/")], *csr = NULL,
         *body;
    cJSON *request;
    int error;
    const char *token_file = agent_options(authority->agent)->enrolment_token_file;
    if (!renewal && (error = authority_identity_token(token_file, token, sizeof(token)))) {
        if (token_file)
            authority_identity_no_token(token_file, error, why, sizeof(why));
        else
            authority_identity_lack(&authority->identity, agent_now_us(), why, sizeof(why));
        authority_complain(authority, "no certificate", why);
        /* Whoever starts the agent first puts the token there afterwards. */
        poll->at_us = agent_now_us() + (token_file ? TOKEN_RETRY_US : BACK_OFF_MAX_US);
        return;
    }
    error = authority_identity_request(&authority->identity, authority->state.node, &csr);
    request = error ? NULL : cJSON_CreateObject();
    if (request) {
        cJSON_AddStringToObject(request, "csr", csr);
        if (!renewal) {
            /* A token of another node is refused instead of making this one pass for that. */
            snprintf(identity, sizeof(identity), "node/%s", authority->state.node);
            cJSON_AddStringToObject(request, "identity", identity);
            cJSON_AddStringToObject(request, "token", token);
        }
    }
    body = request ? cJSON_PrintUnformatted(request) : NULL;
    authority_https_identity(authority->https, renewal ? authority->identity.certificate_file : NULL,
                             renewal ? authority->identity.key_file : NULL);
    error =
        body ? authority_https_ask(authority->https, "/v1/certificates", body, ASK_LIMIT_S, on_certificate, authority)
             : -ENOMEM;
    poll->asking = error == 0;
    if (error)
        failed(authority, poll, "no certificate", 0, strerror(-error));
    if (body)
        explicit_bzero(body, strlen(body));
    explicit_bzero(token, sizeof(token));
    free(body);
    free(csr);
    cJSON_Delete(request);
}

static void on_hops(void *context, long status, const char *text) {
    struct authority *authority = context;
    char error[AUTHORITY_ERROR_LEN] = "";
    authority->hops.asking = false;
    if (is_revoked(status, text))
        stand_down(authority);
    if (status != 200 || authority_take_next_hops(&authority->state, text, error)) {
        failed(authority, &authority->hops, "next hops", status == 200 ? 0 : status, status == 200 ? error : text);
        return;
    }
    if (!authority_state_pairs(&authority->state))
        authority_complain(authority, "next hops", "more neighbours than there is room for");
    succeeded(authority, &authority->hops, 0);
    authority->dirty = true;
}

static void on_authorisations(void *context, long status, const char *text) {
    struct authority *authority = context;
    char error[AUTHORITY_ERROR_LEN] = "";
    struct poll *poll = &authority->authorisations;
    poll->asking = false;
    if (is_revoked(status, text))
        stand_down(authority);
    if (status != 200 || authority_take_authorisations(&authority->state, text, error)) {
        failed(authority, poll, "authorisations", status == 200 ? 0 : status, status == 200 ? error : text);
        return;
    }
    succeeded(authority, poll, 0);
    authority->dirty = true;
}

static void on_keys(void *context, long status, const char *text) {
    struct asked *asked = context;
    struct authority *authority = asked->authority;
    struct authority_pair *pair = asked->pair;
    int64_t now_us = agent_now_us();
    char error[AUTHORITY_ERROR_LEN] = "", what[64];
    int result = -EINVAL;
    free(asked);
    authority->asking--;
    pair->asking = false;
    if (status == 200)
        result = pair == &authority->records ? authority_take_stream_keys(pair, text, now_us, error)
                                             : authority_take_keys(pair, text, now_us, error);
    if (is_revoked(status, text))
        stand_down(authority);
    if (result == 0) {
        pair->started = true;
        authority_pair_plan(pair, now_us);
        authority_note_clock(authority, pair->ahead_us);
        authority->dirty = true;
        return;
    }
    if (status == 403 || status == 404) {
        /* The other end is enrolled no more, or the pair is none any more. */
        authority_pair_wipe(pair);
        authority->dirty = true;
    }
    snprintf(what, sizeof(what), "keys of %.24s > %.24s", pair->sender, pair->receiver);
    if (status != 429)
        authority_complain(authority, what, status == 200 ? error : (status ? "refused" : text));
    pair->ask_at_us = now_us + 2 * SECOND_US;
}

static void ask_keys(struct authority *authority, struct authority_pair *pair) {
    struct asked *asked = malloc(sizeof(*asked));
    char path[2 * AUTHORITY_NAME_LEN + 32];
    if (!asked)
        return;
    *asked = (struct asked){authority, pair};
    /* Once per start a new epoch: windows and sequences of the process before are lost. */
    if (pair == &authority->records)
        snprintf(path, sizeof(path), "/v1/stream-keys/%s", pair->sender);
    else
        snprintf(path, sizeof(path), "/v1/keys/%s/%s%s", pair->sender, pair->receiver,
                 pair->started ? "" : "?start=true");
    pair->asking = true;
    authority->asking++;
    if (authority_https_ask(authority->https, path, NULL, ASK_LIMIT_S, on_keys, asked)) {
        free(asked);
        pair->asking = false;
        authority->asking--;
        pair->ask_at_us = agent_now_us() + SECOND_US;
    }
}

static void ask_changes(struct authority *authority, struct poll *poll, const char *resource, int64_t revision,
                        authority_answer answer) {
    char path[96];
    if (poll->asking || agent_now_us() < poll->at_us)
        return;
    snprintf(path, sizeof(path), "/v1/%s?since=%lld&wait_s=%d", resource, (long long)revision, POLL_WAIT_S);
    poll->asking = authority_https_ask(authority->https, path, NULL, POLL_LIMIT_S, answer, authority) == 0;
    if (!poll->asking)
        poll->at_us = agent_now_us() + SECOND_US;
}

/* An epoch that a neighbour is past sequence 2^23 with is renewed by asking as after a start. */
static void renew_exhausted(struct authority *authority) {
    struct authority_state *state = &authority->state;
    for (size_t i = 0; i < state->n_pairs; i++)
        if (strcmp(state->pairs[i].sender, state->node) == 0 && signal_source_exhausted(state->pairs[i].receiver_id))
            state->pairs[i].started = false;
}

/* A neighbour that started anew refuses what is signed as before. */
static void look_for_silence(struct authority *authority, int64_t now_us) {
    struct authority_state *state = &authority->state;
    for (size_t i = 0; i < state->n_pairs; i++) {
        struct authority_pair *pair = &state->pairs[i];
        if (strcmp(pair->sender, state->node) == 0) {
            bool answered;
            uint32_t ignored = signal_source_ignored(pair->receiver_id, &answered);
            authority_state_ignored(state, pair, ignored, answered, now_us);
        }
    }
    authority_say_silence(authority, now_us);
}

static void hand_over(struct authority *authority) {
    struct signal_file tables;
    if (authority_state_tables(&authority->state, &tables)) {
        authority_complain(authority, "tables", "no memory");
        return;
    }
    /* It takes the tables over and wipes the keys when it is done with them. */
    signal_source_take(&tables);
    authority->dirty = false;
}

static void tick(void *context) {
    struct authority *authority = context;
    int64_t now_us = agent_now_us();
    bool valid = authority_identity_valid(&authority->identity, now_us) && !authority->revoked;
    authority_https_tick(authority->https);
    if (valid) {
        authority_reports_look(&authority->reports, &authority->state, signal_source_reports(), now_us);
        look_for_silence(authority, now_us);
    }
    if (!authority->certificate.asking && now_us >= authority->certificate.at_us &&
        (!valid || authority_identity_due(&authority->identity, now_us)))
        ask_certificate(authority, valid);
    if (valid) {
        ask_changes(authority, &authority->hops, "next-hops", authority->state.hops_revision, on_hops);
        ask_changes(authority, &authority->authorisations, "authorisations", authority->state.authorisations_revision,
                    on_authorisations);
        for (size_t i = 0; i < authority->state.n_pairs && authority->asking < ASKING_MAX; i++) {
            struct authority_pair *pair = &authority->state.pairs[i];
            if (pair->wanted && !pair->asking && now_us >= pair->ask_at_us)
                ask_keys(authority, pair);
        }
        if (!authority->records.asking && now_us >= authority->records.ask_at_us)
            ask_keys(authority, &authority->records);
    }
    if (authority->dirty)
        hand_over(authority);
}

static void on_reported(void *context, long status, const char *text) {
    struct authority *authority = context;
    if (status != 200 || !strstr(text, "\"changed\":true"))
        return;
    authority->reports.healed++;
    log_info("authority: a sender that took this node for another learns its next hop");
}

static bool send_report(void *context, const char *body) {
    struct authority *authority = context;
    return !authority_https_ask(authority->https, "/v1/next-hops/reports", body, ASK_LIMIT_S, on_reported, authority);
}

static void second(void *context) {
    struct authority *authority = context;
    int64_t now_us = agent_now_us();
    renew_exhausted(authority);
    authority_note_keys(authority, now_us);
    if (authority_identity_valid(&authority->identity, now_us) && !authority->revoked)
        authority_reports_send(&authority->reports, send_report, authority);
}

static void close_module(void *context) {
    struct authority *authority = context;
    authority_present(NULL);
    authority_https_close(authority->https);
    authority_reports_close(&authority->reports);
    authority_pair_wipe(&authority->records);
    authority_state_free(&authority->state);
    free(authority);
}

static int watch(void *context, int descriptor, uint32_t events, void (*ready)(void *, uint32_t), void *ready_context) {
    return agent_add_fd(context, descriptor, events, ready, ready_context);
}

static void forget(void *context, int descriptor) {
    agent_remove_fd(context, descriptor);
}

static int open_module(struct agent *agent, void **ret_state) {
    const struct agent_options *options = agent_options(agent);
    const struct authority_loop loop = {.watch = watch, .forget = forget, .context = agent};
    struct authority *authority = calloc(1, sizeof(*authority));
    int error;
    if (!authority)
        return -ENOMEM;
    authority->agent = agent;
    *ret_state = authority;
    if (!options->authority_url)
        return 0;
    authority_state_init(&authority->state, options->node);
    snprintf(authority->records.sender, sizeof(authority->records.sender), "%s", options->node);
    error = authority_identity_open(&authority->identity, options->state_dir);
    if (authority_identity_drop_foreign(&authority->identity, options->authority_ca))
        log_warning("authority: %s is of another authority than %s; this node enrols anew",
                    authority->identity.certificate_file, options->authority_ca);
    error =
        error ? error : authority_https_open(&loop, options->authority_url, options->authority_ca, &authority->https);
    if (error == -EINVAL)
        log_error("authority: --authority wants https://HOST:PORT[,https://HOST:PORT], at most %d of them",
                  AUTHORITY_REPLICAS_MAX);
    if (!error && authority->identity.not_after_us)
        authority_https_identity(authority->https, authority->identity.certificate_file, authority->identity.key_file);
    error = error ? error : agent_add_timer(agent, TICK_US, tick, authority);
    error = error ? error : agent_add_timer(agent, SECOND_US, second, authority);
    if (error) {
        close_module(authority);
        return error;
    }
    authority_present(authority);
    return 0;
}

const struct agent_module authority_module = {
    .name = "authority", .open = open_module, .close = close_module, .status = authority_status};
